"""The tools: what an agent that works for a person may see and order. Each is a view or an order of the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from phasegate.doors.mcp.asking import InputRequired, OpenQuestions, Question, Unasked
from phasegate.doors.mcp.wire import INVALID_PARAMS, Fields, McpError
from phasegate.engine import orders
from phasegate.engine.artifact_files import ArtifactFiles
from phasegate.engine.detached_run import start_detached, stop_runs
from phasegate.engine.driver import Wishes
from phasegate.engine.feature_journal import read_feature
from phasegate.engine.feature_view import StandingView, feature_view, standing_view
from phasegate.engine.job_view import job_view
from phasegate.engine.project import Project, Store, open_project, opened_store
from phasegate.engine.questions import answer, find_question
from phasegate.engine.subject_view import PartKind, find_subject, part_of
from phasegate.engine.tracing import choose_feature, trace_feature
from phasegate.engine.views import Reader, feature_named, find_cards, need_reader, open_reader, overview, worker_on
from phasegate.engine.watching import Follower
from phasegate.errors import ConfigError, PhasegateError, StateConflict
from phasegate.rules.ordering import By
from phasegate.rules.plain_json import as_data
from phasegate.rules.trace import lines_of
from phasegate.typed import read_value

LONGEST_WAIT_S = 45.0
LARGEST_TEXT = 20_000  # characters of one answer's text; the rest is on the next page
MOST_ROWS, MOST_LINES = 50, 100
LOOK_EVERY_S = 0.1
SETTLE_S = 0.3  # lines come in bursts: one answer for them


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


class McpTool(NamedTuple):
    """One tool, as clients are told of it, and what answers it. The hints are promises: programs go by them."""

    name: str
    description: str
    arguments: type[Arguments]
    answer: Callable[[Any, McpDesk, Question], object]
    results: Fields  # the properties of its result
    is_reading: bool = False
    destroys: bool = False
    reaches_out: bool = False  # it starts programs that work on their own

    def listed(self) -> Fields:
        """How it is listed; all of them together must stay small, since each client's model reads them."""
        schema = msgspec.json.schema(self.arguments)["$defs"][self.arguments.__name__]
        for name, field in {"title": None, **schema["properties"]}.items():
            schema.pop(name, None) if field is None else field.pop("default", None)
        hints = {
            "readOnlyHint": self.is_reading,
            "destructiveHint": self.destroys,
            "openWorldHint": self.reaches_out,
        }
        output = {"type": "object", "properties": self.results}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            "outputSchema": output,
            "annotations": hints,
        }


def call_tool(tool: McpTool, arguments: Fields, desk: McpDesk, question: Question) -> Fields:
    """The result of a call. What the engine refuses is told to the model, with the hint that a person would get."""
    try:
        given = read_value(arguments, tool.arguments)
    except msgspec.ValidationError as error:
        raise McpError(INVALID_PARAMS, f"{tool.name}: {error}") from error
    try:
        if feature := getattr(given, "feature", ""):
            given = msgspec.structs.replace(given, feature=feature_named(str(desk.folder), feature))
        found = as_data(tool.answer(given, desk, question))
    except InputRequired as required:
        return required.result
    except PhasegateError as error:
        text = f"{error.message}\nhint: {error.hint}" if error.hint else error.message
        return {"content": [{"type": "text", "text": text}], "isError": True}
    text = msgspec.json.encode(found).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": found}


# --- what is asked ---------------------------------------------------------------------------------------------------


def _status(given: StatusOf, desk: McpDesk, _question: Question) -> Fields:
    reader = open_reader(str(desk.folder))
    if given.job:
        view = job_view(need_reader(str(desk.folder)).location, given.job, given.feature or None)
        return {"job": view._replace(entries=(), evidence="")}
    if given.package:
        return {"packages": find_cards(reader, given.package, given.feature or None)}
    if given.feature and reader:
        found = feature_view(reader, given.feature)
        if found is not None:
            gates = [phase._replace(rounds=phase.rounds[-3:]) for phase in found.phases]
            packages = found.packages[:MOST_ROWS]
            left = len(found.packages) - len(packages)
            return {"now": found.now, "phases": gates, "packages": packages, "left_off": left, "spent": found.spent}
    seen = overview(reader, str(desk.folder), given.feature or None)
    cards = [*([seen.workflow] if seen.workflow else []), *seen.others]
    features = [card._replace(phases=()) for card in cards[:MOST_ROWS]]
    return {
        "features": features,
        "left_off": len(cards) - len(features),
        "blockers": seen.blockers[:MOST_ROWS],
        "questions": [one for one in seen.waiting if one.question][:MOST_ROWS],
        "resting": seen.resting,
        "spent": seen.spent["all"],
        "cursor": reader.head().entries if reader else 0,
    }


def _wait(given: WaitFor, desk: McpDesk, question: Question) -> Fields:
    """Lines of the journal after the cursor; at once if there are some, or if nobody works on the feature."""
    reader = need_reader(str(desk.folder))
    with reader:
        slug = given.feature or _in_work(reader, desk)
        follower = Follower(reader, slug, after=None if given.after < 0 else given.after)
        until_s = time.monotonic() + given.seconds
        told = [*follower.told()]
        while not told and time.monotonic() < until_s and worker_on(reader, slug) is not None:
            if question.call.cancelled.wait(LOOK_EVERY_S):
                break
            told = [*follower.told()]
        if told and time.monotonic() < until_s and not question.call.cancelled.wait(SETTLE_S):
            told += follower.told()
        shown = told[:MOST_LINES]
        cursor = shown[-1].position if len(shown) < len(told) else max(given.after, reader.head().entries)
        lines = [f"{event.ts} {event.line}" for event in shown if event.line]
        for line in lines:
            question.call.progress(line)
        now = standing_view(follower.feature, is_held=worker_on(reader, slug) is not None) if follower.feature else None
    return {"lines": lines, "cursor": cursor, "more": len(told) > len(shown), "now": now}


def _in_work(reader: Reader, desk: McpDesk) -> str:
    """The one that is active, or has just ended: who follows a run hears of its end."""
    if shown := overview(reader, str(desk.folder)).workflow:
        return shown.feature
    for last in reader.events_before(reader.head().entries + 1, 1):
        return last.feature
    raise StateConflict("no workflow was started", "start one: the tool `start`, then `run`")


def _explain(given: PartOf, desk: McpDesk, _question: Question) -> Fields:
    project = open_project(desk.folder)
    with need_reader(str(desk.folder)) as reader:
        if given.what == "findings":
            slug = given.feature or _in_work(reader, desk)
            feature = read_feature(reader, slug)
            now = standing_view(feature) if feature else None
            return paged(f"{now.reason}\n\n{now.findings}".strip() if now else "", given.page)
        if given.what == "trace":
            report = trace_feature(project, choose_feature(project, given.feature or None))
            return paged("\n".join((*lines_of(report.requirements), *report.problems)), given.page)
        if not given.of:
            raise ConfigError(f"{given.what} of what is missing", "name a package (WP01), a phase or a job in `of`")
        subject = find_subject(project, reader, given.of, given.feature or None)
        return paged(part_of(project, reader, subject, PartKind(given.what)).text, given.page)


# --- what is ordered -------------------------------------------------------------------------------------------------


def _by(project: Project, question: Question) -> By:
    """The person whose agent it is, and the program that asked."""
    return msgspec.structs.replace(project.ordered_at("mcp"), agent=str(question.client))


def _start(given: StartOf, desk: McpDesk, question: Question) -> Fields:
    project = open_project(desk.folder)
    with opened_store(project) as store:
        slug = orders.start(project, store, given.type, given.description, by=_by(project, question))
        return {"now": _standing(store, slug), "then": "the tool `run`"}


def _standing(store: Store, slug: str) -> StandingView:
    feature = read_feature(store, slug)
    assert feature is not None
    return standing_view(feature, is_held=worker_on(store, slug) is not None)


def _run(given: RunOf, desk: McpDesk, question: Question) -> Fields:
    """A run never merges: that is a decision."""
    with desk.opened(given.feature) as (project, store, slug):
        cursor = store.head().entries
    begun = start_detached(project, slug, Wishes(step=given.step, by=_by(project, question)))
    return {"feature": slug, "pid": begun.pid, "cursor": cursor, "log": begun.log, "then": "the tool `wait`"}


def _stop(given: StopOf, desk: McpDesk, question: Question) -> Fields:
    question.call.progress("waiting for the run to end")
    report = stop_runs(open_project(desk.folder).location, given.feature or None)
    return {"feature": report.feature, "ended": report.ended}


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


def _decide(given: DecisionOf, desk: McpDesk, question: Question) -> Fields:
    """An order that moves a feature. A person gives it: they are asked, and what they confirm is what is done."""
    text = given.text.strip()
    if given.order in orders.NEED_TEXT and not text:
        raise ConfigError(f"{given.order} needs a text", "say how it was resolved, or why; it is kept on record")
    if given.order == "answer":
        return _answer_question(given, desk, question)
    if given.order == "back" and not given.phase:
        raise ConfigError("back needs a phase", "the tool `status` shows the phases of a feature")
    with desk.opened(given.feature) as (project, store, slug):
        seq, now = store.seq(slug), _standing(store, slug)
        command = _command(given, slug, text)
        if given.order not in now.orders:
            raise StateConflict(f"{slug} does not take {given.order} now", f"it takes: {', '.join(now.orders)}")
        refused = _asked(project, given, now, question, (slug, given.order, given.phase, text, seq))
        if refused is not None:
            with suppress(StateConflict):  # a run holds it: then there was nothing to decide
                orders.note(project, store, slug, f"{question.client} asked by MCP for: {command}. {refused.reason}")
            raise StateConflict(f"not done: {refused.reason}", f"a person can order it: {command}")
        return _ordered(given, project, store, slug, _by(project, question), seq)


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
        answer(project, store, found.id, given.text, _by(project, question), found.feature)
        return {"now": _standing(store, found.feature), "then": "the tool `wait`"}


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
        "now": _standing(store, slug),
        "then": "" if given.order in ("cancel", "escalate") else "the tool `run`, `wait`",
    }


def _command(given: DecisionOf, slug: str, text: str) -> str:
    """What a person would type."""
    said = msgspec.json.encode(text).decode() if text else ""
    needs_text = given.order in orders.NEED_TEXT
    argument = f" --reason {said}" if given.order == "cancel" else f" {said}" if needs_text else ""
    phase = f" {given.phase}" if given.order == "back" else ""
    return f"phasegate {given.order}{phase}{argument} --feature {slug}"


def _artifact(given: ArtifactOf, desk: McpDesk, _question: Question) -> Fields:
    files = ArtifactFiles(desk.folder)
    if given.action == "list":
        listed = files.listed(given.feature or None)
        first = (given.page - 1) * MOST_ROWS
        return {"artifacts": listed[first : first + MOST_ROWS], "more": len(listed) > first + MOST_ROWS}
    if not given.feature or not given.path:
        raise ConfigError("feature and path are needed", "the action `list` shows both")
    if given.action == "write":
        data = given.content.encode("utf-8", "replace")
        files.write(given.feature, given.path, data)
        return {"path": f"{files.below}/{given.feature}/{given.path}", "bytes": len(data)}
    return paged(files.read(given.feature, given.path).decode("utf-8", "replace"), given.page)


def paged(text: str, page: int) -> Fields:
    """One page of a text."""
    first = (page - 1) * LARGEST_TEXT
    return {"text": text[first : first + LARGEST_TEXT], "more": len(text) > first + LARGEST_TEXT}


_OBJECT: Fields = {"type": ["object", "null"]}
_LIST, _STRING, _INTEGER, _TRUTH = {"type": "array"}, {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
TOOLS = {
    tool.name: tool
    for tool in (
        McpTool(
            "status",
            "Where things stand: all features, or one (phases, gates, packages, allowed orders), a package or a job.",
            StatusOf,
            _status,
            {"features": _LIST, "now": _OBJECT, "packages": _LIST, "job": _OBJECT, "cursor": _INTEGER},
            is_reading=True,
        ),
        McpTool(
            "wait",
            "Lines of what happened after a cursor; waits for the next one while a run works. Call it again and again.",
            WaitFor,
            _wait,
            {"lines": _LIST, "cursor": _INTEGER, "more": _TRUTH, "now": _OBJECT},
            is_reading=True,
        ),
        McpTool(
            "explain",
            "Why it is so: findings to decide on; diff, prompt, log, answer, evidence; requirements traced to tests.",
            PartOf,
            _explain,
            {"text": _STRING, "more": _TRUTH},
            is_reading=True,
        ),
        McpTool(
            "start",
            "Begin a workflow for what the person wants, in their words. Nothing runs yet.",
            StartOf,
            _start,
            {"now": _OBJECT, "then": _STRING},
        ),
        McpTool(
            "run",
            "Let agents carry a feature on until it needs a person. Returns at once; follow with `wait`. Never merges.",
            RunOf,
            _run,
            {"feature": _STRING, "pid": _INTEGER, "cursor": _INTEGER, "log": _STRING},
            reaches_out=True,
        ),
        McpTool(
            "stop",
            "End the run of a feature; what its agents left is saved, and `run` goes on from there.",
            StopOf,
            _stop,
            {"feature": _STRING, "ended": _TRUTH},
            destroys=True,
        ),
        McpTool(
            "decide",
            "A person's decision on a feature. The person is asked to confirm it; without them it is refused.",
            DecisionOf,
            _decide,
            {"now": _OBJECT, "then": _STRING},
            destroys=True,
        ),
        McpTool(
            "artifact",
            "Write, read or list the documents and evidence of a feature.",
            ArtifactOf,
            _artifact,
            {"artifacts": _LIST, "text": _STRING, "path": _STRING, "bytes": _INTEGER, "more": _TRUTH},
        ),
    )
}
