"""What a team keeps of a feature beside its merge: everything about it as one value."""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.plan.trace import Traced
from phasegate.core.workflow.origin import By
from phasegate.engine.journal.questions import AgentQuestion, questions_of
from phasegate.engine.project.project import Project
from phasegate.engine.views.audit import AuditReport, verified
from phasegate.engine.views.feature import FeatureView, feature_view
from phasegate.engine.views.follow import Follower
from phasegate.engine.views.overview import Job, PackageCard, Reader
from phasegate.engine.views.package import planned_cards
from phasegate.engine.views.trace import trace_feature
from phasegate.errors import ConfigError

_WORDS = ("description", "how", "why", "reason")  # the field in which an order keeps what a person said


class OrderOnRecord(NamedTuple):
    """What a person ordered, in which words, and through which door."""

    ts: str
    order: str
    said: str
    person: str
    door: str
    agent: str


class ReportView(NamedTuple):
    """A feature as it is kept: asked, decided, built, tested, by whom, at what cost."""

    view: FeatureView
    packages: tuple[PackageCard, ...]
    orders: tuple[OrderOnRecord, ...]
    questions: tuple[AgentQuestion, ...]
    jobs: tuple[Job, ...]
    requirements: tuple[Traced, ...]
    untraced: str  # why no requirement could be followed
    audit: AuditReport


def report_view(project: Project, reader: Reader, slug: str) -> ReportView:
    """Everything about a feature that has a workflow."""
    view = feature_view(reader, slug, told=True)
    if view is None:
        raise ConfigError(f"nothing is recorded of a workflow {slug}", "phasegate status")
    orders = [
        OrderOnRecord(event.ts, type(event.event).__name__, _said(event.event), by.person, by.door, by.agent)
        for event in Follower(reader, slug, after=0).events()
        if isinstance(by := getattr(event.event, "by", None), By) and by.person
    ]
    try:
        requirements, untraced = trace_feature(project, slug).requirements, ""
    except ConfigError as error:
        requirements, untraced = (), error.message
    return ReportView(
        view,
        planned_cards(reader, slug),
        tuple(orders),
        questions_of(reader, slug),
        tuple(reader.jobs(slug)),
        requirements,
        untraced,
        verified(project.root),
    )


def _said(event: object) -> str:
    return next((text for name in _WORDS if isinstance(text := getattr(event, name, None), str)), "")
