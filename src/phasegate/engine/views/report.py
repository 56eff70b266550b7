"""What a team keeps of a feature beside its merge: everything about it as one value."""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.plan.trace import RequirementTrace
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.journal.questions import AgentQuestion, read_questions
from phasegate.engine.project.project import Project
from phasegate.engine.views.audit import AuditReport, verify_audit_trail
from phasegate.engine.views.feature import FeatureView, feature_view
from phasegate.engine.views.follow import JournalFollower
from phasegate.engine.views.overview import JobRow, PackageCard, StoreReader
from phasegate.engine.views.package import planned_cards
from phasegate.engine.views.trace import trace_feature
from phasegate.errors import ConfigError

_TEXT_FIELDS = ("description", "how", "why", "reason")  # the field in which an order keeps what a person said


class RecordedOrder(NamedTuple):
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
    orders: tuple[RecordedOrder, ...]
    questions: tuple[AgentQuestion, ...]
    jobs: tuple[JobRow, ...]
    requirements: tuple[RequirementTrace, ...]
    untraced: str  # why no requirement could be followed
    audit: AuditReport


def report_view(project: Project, reader: StoreReader, slug: str) -> ReportView:
    """Everything about a feature that has a workflow."""
    view = feature_view(reader, slug, with_lines=True)
    if view is None:
        raise ConfigError(f"nothing is recorded of a workflow {slug}", "phasegate status")
    orders = [
        RecordedOrder(event.ts, type(event.event).__name__, _order_text(event.event), by.person, by.door, by.agent)
        for event in JournalFollower(reader, slug, after=0).read_events()
        if isinstance(by := getattr(event.event, "by", None), OrderOrigin) and by.person
    ]
    try:
        requirements, untraced = trace_feature(project, slug).requirements, ""
    except ConfigError as error:
        requirements, untraced = (), error.message
    return ReportView(
        view,
        planned_cards(reader, slug),
        tuple(orders),
        read_questions(reader, slug),
        tuple(reader.jobs(slug)),
        requirements,
        untraced,
        verify_audit_trail(project.root),
    )


def _order_text(event: object) -> str:
    return next((text for name in _TEXT_FIELDS if isinstance(text := getattr(event, name, None), str)), "")
