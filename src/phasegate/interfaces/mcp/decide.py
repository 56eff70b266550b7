"""The tool `decide`: an order that moves a feature.

A person gives it, and what they confirm is what is done.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.drive import orders
from phasegate.engine.drive.detached import start_detached
from phasegate.engine.drive.feature import RunOptions
from phasegate.engine.journal.asking import answer_question, find_question
from phasegate.engine.project.project import Project, Store, open_project, open_project_store
from phasegate.engine.views.feature import FeatureStatusView
from phasegate.errors import ConfigError, StateConflict
from phasegate.interfaces.mcp.call_context import (
    DecideArguments,
    McpSession,
    identify_caller,
    read_standing,
)
from phasegate.interfaces.mcp.elicitation import Elicitor, NotConfirmed
from phasegate.interfaces.mcp.jsonrpc import JsonObject

# What only a person may order, whatever is configured.
_USER_ONLY_ORDERS = ("complete", "cancel")
_ORDER_EFFECTS = {
    "advance": "go on to the next phase",
    "retry": "start another round of the phase",
    "resolve": "count the blocker as resolved and try the blocked step again",
    "back": "take the feature back to an earlier phase",
    "escalate": "stop the workflow for a person",
    "complete": "archive the feature and MERGE it",
    "cancel": "END the workflow without a merge; its branches are kept",
}


def handle_decide(
    arguments: DecideArguments, session: McpSession, elicitor: Elicitor
) -> JsonObject:
    """An order that moves a feature.

    A person gives it: they are asked, and what they confirm is what is done.
    """
    text = arguments.text.strip()

    if arguments.order in orders.ORDERS_NEEDING_TEXT and not text:
        raise ConfigError(
            f"{arguments.order} needs a text",
            "say how it was resolved, or why; it is kept on record",
        )

    if arguments.order == "answer":
        return _answer_question(arguments, session, elicitor)
    if arguments.order == "back" and not arguments.phase:
        raise ConfigError("back needs a phase", "the tool `status` shows the phases of a feature")

    with session.open_feature(arguments.feature) as (project, store, slug):
        seq = store.last_seq(slug)
        now = read_standing(store, slug)
        command = _format_command(arguments, slug, text)
        if arguments.order not in now.orders:
            raise StateConflict(
                f"{slug} does not take {arguments.order} now", f"it takes: {', '.join(now.orders)}"
            )

        refused = _ask_for_confirmation(
            project, arguments, now, elicitor, (slug, arguments.order, arguments.phase, text, seq)
        )
        if refused is not None:
            # A run holds it: then there was nothing to decide
            with suppress(StateConflict):
                orders.add_notice(
                    project,
                    store,
                    slug,
                    f"{elicitor.client} asked by MCP for: {command}. {refused.reason}",
                )

            raise StateConflict(f"not done: {refused.reason}", f"a person can order it: {command}")

        return _carry_out_order(
            arguments=arguments,
            project=project,
            store=store,
            slug=slug,
            by=identify_caller(project, elicitor),
            expected_seq=seq,
        )


def _answer_question(
    arguments: DecideArguments, session: McpSession, elicitor: Elicitor
) -> JsonObject:
    """A person's answer to an agent inside a job: the person confirms it."""
    project = open_project(session.folder)
    with open_project_store(project) as store:
        found = find_question(store, arguments.question, arguments.feature or None)
        command = f"phasegate answer {found.id} {msgspec.json.encode(arguments.text).decode()} --feature {found.feature}"
        asked = f"{elicitor.client} asks to answer a question of an agent.\nquestion: {found.text}\nanswer: {arguments.text}"
        about = (found.feature, "answer", found.id, arguments.text)
        if project.config.mcp.decisions == "never":
            raise StateConflict(
                "decisions by MCP are switched off ([mcp] decisions)", f"a person can: {command}"
            )

        if project.config.mcp.decisions == "agent":
            refused = None
        else:
            refused = elicitor.confirm(asked, about)

        if refused is not None:
            raise StateConflict(f"not done: {refused.reason}", f"a person can: {command}")

        answer_question(
            project=project,
            store=store,
            id_prefix=found.id,
            text=arguments.text,
            by=identify_caller(project, elicitor),
            feature=found.feature,
        )
        return {"now": read_standing(store, found.feature), "then": "the tool `wait`"}


def _ask_for_confirmation(
    project: Project,
    arguments: DecideArguments,
    standing: FeatureStatusView,
    elicitor: Elicitor,
    subject: object,
) -> NotConfirmed | None:
    policy = project.config.mcp.decisions
    if policy == "never":
        return NotConfirmed("decisions by MCP are switched off ([mcp] decisions)")
    if policy == "agent" and arguments.order not in _USER_ONLY_ORDERS:
        return None

    if standing.reason:
        why = [f"why it waits: {standing.reason}"]
    else:
        why = []

    if standing.findings:
        findings = [f"findings:\n{standing.findings[:1500]}"]
    else:
        findings = []

    if arguments.text.strip():
        said = [f"on record: {arguments.text.strip()}"]
    else:
        said = []

    if arguments.order == "back":
        phase = f", {arguments.phase}"
    else:
        phase = ""

    lead = f"{elicitor.client} asks to {_ORDER_EFFECTS[arguments.order]}{phase}."
    where = f"{standing.feature} ({standing.type}) in {standing.phase}, {standing.stage}; the work is on {standing.branch}, for {standing.base}"

    return elicitor.confirm("\n".join((lead, where, *why, *findings, *said)), subject)


def _carry_out_order(
    arguments: DecideArguments,
    project: Project,
    store: Store,
    slug: str,
    by: OrderOrigin,
    expected_seq: int,
) -> JsonObject:
    orders.execute_order(
        project,
        store,
        slug,
        orders.OrderRequest(arguments.order, arguments.text.strip(), arguments.phase),
        by,
        expected_seq,
    )

    if arguments.order == "complete":
        start_detached(project, slug, RunOptions(by=by))
    return {
        "now": read_standing(store, slug),
        "then": "" if arguments.order in ("cancel", "escalate") else "the tool `run`, `wait`",
    }


def _format_command(arguments: DecideArguments, slug: str, text: str) -> str:
    """What a person would type."""
    if text:
        said = msgspec.json.encode(text).decode()
    else:
        said = ""

    needs_text = arguments.order in orders.ORDERS_NEEDING_TEXT
    if arguments.order == "cancel":
        argument = f" --reason {said}"
    else:
        argument = f" {said}" if needs_text else ""

    if arguments.order == "back":
        phase = f" {arguments.phase}"
    else:
        phase = ""

    return f"phasegate {arguments.order}{phase}{argument} --feature {slug}"
