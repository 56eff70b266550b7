"""The arguments of the tools, and the state that all calls of one client share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from phasegate.core.workflow.orders import ORDERS
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.drive import orders
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.project.project import Project, Store, open_project, open_project_store
from phasegate.engine.views.feature import FeatureStatusView, feature_status_view
from phasegate.engine.views.overview import find_worker
from phasegate.interfaces.mcp.elicitation import Elicitor, PendingConfirmations

MAX_WAIT_S = 45.0
ANSWER_ORDER = "answer"

if TYPE_CHECKING:
    OrderName = str
else:
    OrderName = Literal[(*ORDERS, ANSWER_ORDER)]


class ToolArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of a tool; unknown ones are refused."""


FeatureSlug = Annotated[
    str, Meta(max_length=200, description="e.g. 001-login; default: the active one")
]
TextArgument = Annotated[str, Meta(max_length=20_000)]
PageNumber = Annotated[int, Meta(ge=1, le=1_000_000)]


class StatusArguments(ToolArguments, frozen=True):
    feature: FeatureSlug = ""
    package: Annotated[str, Meta(max_length=20, description="e.g. WP01")] = ""
    job: Annotated[str, Meta(max_length=100)] = ""


class WaitArguments(ToolArguments, frozen=True):
    feature: FeatureSlug = ""
    after: Annotated[
        int, Meta(ge=-1, description="the cursor of the last answer; -1: from now on")
    ] = -1
    seconds: Annotated[float, Meta(ge=0, le=MAX_WAIT_S)] = 30


class StartArguments(ToolArguments, frozen=True):
    type: Annotated[str, Meta(max_length=100, description="feature, fix, quick, test-run, ...")]
    description: TextArgument = ""


class RunArguments(ToolArguments, frozen=True):
    feature: FeatureSlug = ""
    step: Annotated[bool, Meta(description="stop at each gate")] = False


class StopArguments(ToolArguments, frozen=True):
    feature: FeatureSlug = ""


class DecideArguments(ToolArguments, frozen=True):
    order: OrderName
    feature: FeatureSlug = ""
    phase: Annotated[str, Meta(max_length=200, description="target of back")] = ""
    text: Annotated[
        str, Meta(max_length=20_000, description="how it was resolved, why, or the answer")
    ] = ""
    question: Annotated[str, Meta(max_length=40, description="id of the question to answer")] = ""


class ArtifactArguments(ToolArguments, frozen=True):
    action: Literal["write", "read", "list"]
    feature: FeatureSlug = ""
    path: Annotated[str, Meta(max_length=5_000, description="below the feature's folder")] = ""
    content: Annotated[str, Meta(max_length=1_000_000)] = ""
    page: PageNumber = 1


class ExplainArguments(ToolArguments, frozen=True):
    what: Literal[
        "grounds",
        "findings",
        "diff",
        "prompt",
        "log",
        "answer",
        "evidence",
        "trace",
        "requirement",
        "drift",
        "proposal",
    ]
    of: Annotated[
        str,
        Meta(
            max_length=200,
            description="WP01, a phase, a job or FR-X; not for grounds, findings, trace, drift",
        ),
    ] = ""
    text: TextArgument = ""
    feature: FeatureSlug = ""
    page: PageNumber = 1


class McpSession:
    """State shared by all calls of one client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pending_confirmations = PendingConfirmations()

    @contextmanager
    def open_feature(self, feature: str) -> Iterator[tuple[Project, Store, str]]:
        """Open the project and its store, and select the feature: the active one without a name."""
        project = open_project(self.folder)
        with open_project_store(project) as store:
            yield project, store, orders.select_feature(project, store, feature or None)


def identify_caller(project: Project, elicitor: Elicitor) -> OrderOrigin:
    """Return the origin of an order: the user, and the client program that asked."""
    return msgspec.structs.replace(project.make_origin("mcp"), agent=str(elicitor.client))


def read_standing(store: Store, slug: str) -> FeatureStatusView:
    """Return the status of a feature that has a workflow."""
    feature = read_feature(store, slug)
    assert feature is not None
    return feature_status_view(feature, is_held=find_worker(store, slug) is not None)
