"""What the tools are called with, and what all calls of one client share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from phasegate.core.workflow.origin import By
from phasegate.engine.drive import orders
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.project.project import Project, Store, open_project, opened_store
from phasegate.engine.views.feature import StandingView, standing_view
from phasegate.engine.views.overview import worker_on
from phasegate.interfaces.mcp.elicitation import OpenQuestions, Question

LONGEST_WAIT_S = 45.0


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a tool is called with."""


Slug = Annotated[str, Meta(max_length=200, description="e.g. 001-login; the one in work if left out")]
Sentence = Annotated[str, Meta(max_length=20_000)]
Page = Annotated[int, Meta(ge=1, le=1_000_000)]


class StatusOf(Arguments, frozen=True):
    feature: Slug = ""
    package: Annotated[str, Meta(max_length=20, description="e.g. WP01")] = ""
    job: Annotated[str, Meta(max_length=100)] = ""


class WaitFor(Arguments, frozen=True):
    feature: Slug = ""
    after: Annotated[int, Meta(ge=-1, description="the cursor of the last answer; -1: from now on")] = -1
    seconds: Annotated[float, Meta(ge=0, le=LONGEST_WAIT_S)] = 30


class StartOf(Arguments, frozen=True):
    type: Annotated[str, Meta(max_length=100, description="feature, fix, quick, test-run, ...")]
    description: Sentence = ""


class RunOf(Arguments, frozen=True):
    feature: Slug = ""
    step: Annotated[bool, Meta(description="stop at each gate")] = False


class StopOf(Arguments, frozen=True):
    feature: Slug = ""


class DecisionOf(Arguments, frozen=True):
    order: Literal["advance", "retry", "resolve", "back", "escalate", "complete", "cancel", "answer"]
    feature: Slug = ""
    phase: Annotated[str, Meta(max_length=200, description="to go back to")] = ""
    text: Annotated[str, Meta(max_length=20_000, description="how it was resolved, why, or the answer")] = ""
    question: Annotated[str, Meta(max_length=40, description="to answer: its id")] = ""


class ArtifactOf(Arguments, frozen=True):
    action: Literal["write", "read", "list"]
    feature: Slug = ""
    path: Annotated[str, Meta(max_length=5_000, description="below the feature's folder")] = ""
    content: Annotated[str, Meta(max_length=1_000_000)] = ""
    page: Page = 1


class PartOf(Arguments, frozen=True):
    what: Literal["findings", "diff", "prompt", "log", "answer", "evidence", "trace"]
    of: Annotated[str, Meta(max_length=200, description="WP01, a phase or a job; not for findings and trace")] = ""
    feature: Slug = ""
    page: Page = 1


class McpDesk:
    """What all calls of one client share."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.states = folder, OpenQuestions()

    @contextmanager
    def opened(self, feature: str) -> Iterator[tuple[Project, Store, str]]:
        """The repository with its record, and the feature that is meant."""
        project = open_project(self.folder)
        with opened_store(project) as store:
            yield project, store, orders.chosen(project, store, feature or None)


def by(project: Project, question: Question) -> By:
    """The person whose agent it is, and the program that asked."""
    return msgspec.structs.replace(project.ordered_at("mcp"), agent=str(question.client))


def standing(store: Store, slug: str) -> StandingView:
    feature = read_feature(store, slug)
    assert feature is not None
    return standing_view(feature, is_held=worker_on(store, slug) is not None)
