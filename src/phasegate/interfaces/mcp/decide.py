"""The tool `decide`: an order that moves a feature, confirmed by the user."""

from __future__ import annotations

from contextlib import suppress

from phasegate.core.workflow.orders import ORDERS
from phasegate.engine.drive import orders
from phasegate.engine.drive.detached import start_detached
from phasegate.engine.drive.run_feature import RunOptions
from phasegate.engine.journal.asking import answer_question, find_question
from phasegate.engine.journal.questions import list_answer_commands, quote_for_shell
from phasegate.engine.project.project import Project, open_project, open_project_store
from phasegate.engine.views.feature import FeatureStatusView
from phasegate.errors import ConfigError, StateConflict
from phasegate.interfaces.mcp.elicitation import Elicitor, NotConfirmed
from phasegate.interfaces.mcp.hints import FOR_THE_USER
from phasegate.interfaces.mcp.jsonrpc import JsonObject
from phasegate.interfaces.mcp.tool_arguments import (
    ANSWER_ORDER,
    DecideArguments,
    McpSession,
    identify_caller,
    read_standing,
)

_MAX_FINDINGS_CHARS = 1500
_SWITCHED_OFF = "decisions through MCP are disabled ([mcp] decisions)"


def handle_decide(
    arguments: DecideArguments, session: McpSession, elicitor: Elicitor
) -> JsonObject:
    """Ask the user to confirm an order, then give exactly that order."""
    if arguments.order == ANSWER_ORDER:
        return _answer_question(arguments, session, elicitor)

    text = arguments.text.strip()
    wanted = orders.OrderRequest(arguments.order, text, arguments.phase)
    if ORDERS[wanted.name].needs_text and not text:
        raise ConfigError(
            f"{wanted.name} needs a text",
            "describe how it was resolved, or why; the text is recorded",
        )
    if wanted.name == "back" and not wanted.phase:
        raise ConfigError("back needs a phase", "the tool `status` shows the phases of a feature")

    with session.open_feature(arguments.feature) as (project, store, slug):
        seq = store.last_seq(slug)
        status = read_standing(store, slug)
        if wanted.name not in status.orders:
            raise StateConflict(
                f"{slug} does not allow {wanted.name} now",
                f"available: {', '.join(status.orders)}",
            )

        refused = _ask_for_confirmation(project, wanted, status, elicitor, (slug, wanted, seq))
        if refused is not None:
            command = _format_command(wanted, slug)
            # The feature may be locked by a run: then there was nothing to decide
            with suppress(StateConflict):
                orders.add_notice(
                    project,
                    store,
                    slug,
                    f"{elicitor.client} asked by MCP for: {command}. {refused.reason}",
                )

            raise StateConflict(f"not done: {refused.reason}", f"{FOR_THE_USER}{command}")

        by = identify_caller(project, elicitor)
        orders.execute_order(project, store, slug, wanted, by, seq)
        if wanted.name == "complete":
            start_detached(project, slug, RunOptions(by=by))
        return {
            "now": read_standing(store, slug),
            "then": "the tool `run`, `wait`" if ORDERS[wanted.name].resumes else "",
        }


def _answer_question(
    arguments: DecideArguments, session: McpSession, elicitor: Elicitor
) -> JsonObject:
    """Answer a question of an agent inside a job, after the user confirmed the answer."""
    project = open_project(session.folder)
    with open_project_store(project) as store:
        question = find_question(store, arguments.question, arguments.feature or None)
        refused = _check_policy(project)
        if refused is None and project.config.mcp.decisions != "agent":
            refused = elicitor.confirm(
                f"{elicitor.client} asks to answer a question of an agent.\n"
                f"question: {question.text}\nanswer: {arguments.text}",
                (question.feature, ANSWER_ORDER, question.id, arguments.text),
            )

        if refused is not None:
            (command,) = list_answer_commands(question.id, [arguments.text], question.feature)
            raise StateConflict(f"not done: {refused.reason}", f"{FOR_THE_USER}{command}")

        answer_question(
            project=project,
            store=store,
            id_prefix=question.id,
            text=arguments.text,
            by=identify_caller(project, elicitor),
            feature=question.feature,
        )
        return {"now": read_standing(store, question.feature), "then": "the tool `wait`"}


def _check_policy(project: Project) -> NotConfirmed | None:
    if project.config.mcp.decisions == "never":
        return NotConfirmed(_SWITCHED_OFF)
    return None


def _ask_for_confirmation(
    project: Project,
    wanted: orders.OrderRequest,
    status: FeatureStatusView,
    elicitor: Elicitor,
    subject: object,
) -> NotConfirmed | None:
    """Ask the user to confirm an order, unless the configuration lets agents give it."""
    order = ORDERS[wanted.name]
    refused = _check_policy(project)
    if refused is not None:
        return refused
    if project.config.mcp.decisions == "agent" and not order.user_only:
        return None

    phase = f", {wanted.phase}" if wanted.name == "back" else ""
    lines = [
        f"{elicitor.client} asks to {order.effect}{phase}.",
        f"{status.feature} ({status.type}) in {status.phase}, {status.stage}; "
        f"the work is on {status.branch}, for {status.base}",
    ]
    if status.reason:
        lines.append(f"why it waits: {status.reason}")
    if status.findings:
        lines.append(f"findings:\n{status.findings[:_MAX_FINDINGS_CHARS]}")
    if wanted.text:
        lines.append(f"text to record: {wanted.text}")

    return elicitor.confirm("\n".join(lines), subject)


def _format_command(wanted: orders.OrderRequest, slug: str) -> str:
    """Return the command that gives the same order."""
    words = ["phasegate", wanted.name]
    if wanted.name == "back":
        words.append(wanted.phase)
    if wanted.name == "cancel":
        words.append("--reason")
    if ORDERS[wanted.name].needs_text:
        words.append(quote_for_shell(wanted.text))

    return " ".join((*words, "--feature", slug))
