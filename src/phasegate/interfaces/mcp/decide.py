"""The tool `decide`: an order that moves a feature. A person gives it, and what they confirm is what is done."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from phasegate.core.workflow.origin import By
from phasegate.engine.drive import orders
from phasegate.engine.drive.detached import start_detached
from phasegate.engine.drive.feature import Wishes
from phasegate.engine.journal.asking import answer, find_question
from phasegate.engine.project.project import Project, Store, open_project, opened_store
from phasegate.engine.views.feature import StandingView
from phasegate.errors import ConfigError, StateConflict
from phasegate.interfaces.mcp.call_context import DecisionOf, McpDesk, by, standing
from phasegate.interfaces.mcp.elicitation import Question, Unasked
from phasegate.interfaces.mcp.jsonrpc import Fields

# What only a person may order, whatever is configured.
_PERSONS_ALONE = ("complete", "cancel")
_EFFECTS = {
    "advance": "go on to the next phase",
    "retry": "start another round of the phase",
    "resolve": "count the blocker as resolved and try the blocked step again",
    "back": "take the feature back to an earlier phase",
    "escalate": "stop the workflow for a person",
    "complete": "archive the feature and MERGE it",
    "cancel": "END the workflow without a merge; its branches are kept",
}


def decide(given: DecisionOf, desk: McpDesk, question: Question) -> Fields:
    """An order that moves a feature. A person gives it: they are asked, and what they confirm is what is done."""
    text = given.text.strip()
    if given.order in orders.NEED_TEXT and not text:
        raise ConfigError(f"{given.order} needs a text", "say how it was resolved, or why; it is kept on record")
    if given.order == "answer":
        return _answer_question(given, desk, question)
    if given.order == "back" and not given.phase:
        raise ConfigError("back needs a phase", "the tool `status` shows the phases of a feature")
    with desk.opened(given.feature) as (project, store, slug):
        seq, now = store.seq(slug), standing(store, slug)
        command = _command(given, slug, text)
        if given.order not in now.orders:
            raise StateConflict(f"{slug} does not take {given.order} now", f"it takes: {', '.join(now.orders)}")
        refused = _asked(project, given, now, question, (slug, given.order, given.phase, text, seq))
        if refused is not None:
            with suppress(StateConflict):  # a run holds it: then there was nothing to decide
                orders.note(project, store, slug, f"{question.client} asked by MCP for: {command}. {refused.reason}")
            raise StateConflict(f"not done: {refused.reason}", f"a person can order it: {command}")
        return _ordered(given, project, store, slug, by(project, question), seq)


def _answer_question(given: DecisionOf, desk: McpDesk, question: Question) -> Fields:
    """A person's answer to an agent inside a job: the person confirms it."""
    project = open_project(desk.folder)
    with opened_store(project) as store:
        found = find_question(store, given.question, given.feature or None)
        command = f"phasegate answer {found.id} {msgspec.json.encode(given.text).decode()} --feature {found.feature}"
        asked = (
            f"{question.client} asks to answer a question of an agent.\nquestion: {found.text}\nanswer: {given.text}"
        )
        about = (found.feature, "answer", found.id, given.text)
        if project.config.mcp.decisions == "never":
            raise StateConflict("decisions by MCP are switched off ([mcp] decisions)", f"a person can: {command}")
        refused = None if project.config.mcp.decisions == "agent" else question.confirm(asked, about)
        if refused is not None:
            raise StateConflict(f"not done: {refused.reason}", f"a person can: {command}")
        answer(project, store, found.id, given.text, by(project, question), found.feature)
        return {"now": standing(store, found.feature), "then": "the tool `wait`"}


def _asked(project: Project, given: DecisionOf, now: StandingView, question: Question, about: object) -> Unasked | None:
    policy = project.config.mcp.decisions
    if policy == "never":
        return Unasked("decisions by MCP are switched off ([mcp] decisions)")
    if policy == "agent" and given.order not in _PERSONS_ALONE:
        return None
    why = [f"why it waits: {now.reason}"] if now.reason else []
    findings = [f"findings:\n{now.findings[:1500]}"] if now.findings else []
    said = [f"on record: {given.text.strip()}"] if given.text.strip() else []
    phase = f", {given.phase}" if given.order == "back" else ""
    lead = f"{question.client} asks to {_EFFECTS[given.order]}{phase}."
    where = f"{now.feature} ({now.type}) in {now.phase}, {now.stage}; the work is on {now.branch}, for {now.base}"
    return question.confirm("\n".join((lead, where, *why, *findings, *said)), about)


def _ordered(given: DecisionOf, project: Project, store: Store, slug: str, by: By, seen: int) -> Fields:
    orders.give(project, store, slug, orders.GivenOrder(given.order, given.text.strip(), given.phase), by, seen)
    if given.order == "complete":
        start_detached(project, slug, Wishes(by=by))
    return {
        "now": standing(store, slug),
        "then": "" if given.order in ("cancel", "escalate") else "the tool `run`, `wait`",
    }


def _command(given: DecisionOf, slug: str, text: str) -> str:
    """What a person would type."""
    said = msgspec.json.encode(text).decode() if text else ""
    needs_text = given.order in orders.NEED_TEXT
    argument = f" --reason {said}" if given.order == "cancel" else f" {said}" if needs_text else ""
    phase = f" {given.phase}" if given.order == "back" else ""
    return f"phasegate {given.order}{phase}{argument} --feature {slug}"
