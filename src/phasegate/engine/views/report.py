"""Collect everything about a feature in one value, for the report that a team archives."""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.machine.feature_events import CompletionRequested
from phasegate.core.plan.trace import RequirementTrace
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.journal.entries import SCOPE_ALLOWED, ScopeException
from phasegate.engine.journal.questions import AgentQuestion, read_questions
from phasegate.engine.project.project import Project
from phasegate.engine.views.audit import AuditReport, verify_audit_trail
from phasegate.engine.views.feature import FeatureView, feature_view
from phasegate.engine.views.follow import JournalFollower
from phasegate.engine.views.overview import JobRow, PackageCard, StoreReader
from phasegate.engine.views.package import planned_cards
from phasegate.engine.views.trace import trace_feature
from phasegate.errors import ConfigError
from phasegate.typed import read_json

# Fields of orders that contain the user's text
_TEXT_FIELDS = ("description", "how", "why", "reason", "text")


class RecordedOrder(NamedTuple):
    """A user's order: its text, and the interface it was given through."""

    ts: str
    order: str
    said: str
    person: str
    door: str
    agent: str


class ReportView(NamedTuple):
    """Everything about a feature: request, decisions, changes, tests, authors and cost."""

    view: FeatureView
    packages: tuple[PackageCard, ...]
    orders: tuple[RecordedOrder, ...]
    questions: tuple[AgentQuestion, ...]
    jobs: tuple[JobRow, ...]
    requirements: tuple[RequirementTrace, ...]
    # Reason if the requirements could not be traced
    untraced: str
    audit: AuditReport


def report_view(project: Project, reader: StoreReader, slug: str) -> ReportView:
    """Return everything about a feature that has a workflow."""
    view = feature_view(reader, slug, with_lines=True)
    if view is None:
        raise ConfigError(f"there is no recorded workflow {slug}", "phasegate status")

    orders = [
        RecordedOrder(
            ts=event.ts,
            order=_order_name(event.event),
            said=_order_text(event.event),
            person=by.person,
            door=by.door,
            agent=by.agent,
        )
        for event in JournalFollower(reader, slug, after=0).read_events()
        if isinstance(by := getattr(event.event, "by", None), OrderOrigin) and by.person
    ]

    # Not an event of the feature: the exception counts in the next step of its package
    for recorded in reader.events(slug):
        if recorded.kind == SCOPE_ALLOWED:
            allowed = read_json(recorded.payload, ScopeException)
            orders.append(
                RecordedOrder(
                    ts=recorded.ts,
                    order="ScopeAllowed",
                    said=f"{allowed.package}: {allowed.path}: {allowed.reason}",
                    person=allowed.by.person,
                    door=allowed.by.door,
                    agent=allowed.by.agent,
                )
            )

    try:
        requirements = trace_feature(project, slug).requirements
        untraced = ""
    except ConfigError as error:
        requirements = ()
        untraced = error.message

    return ReportView(
        view=view,
        packages=planned_cards(reader, slug),
        orders=tuple(sorted(orders, key=lambda order: order.ts)),
        questions=read_questions(reader, slug),
        jobs=tuple(reader.jobs(slug)),
        requirements=requirements,
        untraced=untraced,
        audit=verify_audit_trail(project.root),
    )


def _order_name(event: object) -> str:
    # Readers of earlier reports know this order by the name of its tag
    if isinstance(event, CompletionRequested):
        return "CompletionAsked"
    return type(event).__name__


def _order_text(event: object) -> str:
    return next(
        (text for name in _TEXT_FIELDS if isinstance(text := getattr(event, name, None), str)), ""
    )
