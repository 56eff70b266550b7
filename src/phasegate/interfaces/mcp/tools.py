"""The tools: what an agent that works for a person may see and order. Each is a view or an order of the engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import msgspec

from phasegate.core.plan.trace import lines_of
from phasegate.core.text.light_json import as_data
from phasegate.engine.drive import orders
from phasegate.engine.drive.detached import start_detached, stop_runs
from phasegate.engine.drive.feature import Wishes
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.project.project import open_project, opened_store
from phasegate.engine.views.artifacts import ArtifactFiles
from phasegate.engine.views.feature import feature_view, standing_view
from phasegate.engine.views.follow import Follower
from phasegate.engine.views.job import job_view
from phasegate.engine.views.overview import (
    Reader,
    feature_named,
    find_cards,
    need_reader,
    open_reader,
    overview,
    worker_on,
)
from phasegate.engine.views.show import PartKind, find_subject, part_of
from phasegate.engine.views.trace import choose_feature, trace_feature
from phasegate.errors import ConfigError, PhasegateError, StateConflict
from phasegate.interfaces.mcp.call_context import (
    Arguments,
    ArtifactOf,
    DecisionOf,
    McpDesk,
    PartOf,
    RunOf,
    StartOf,
    StatusOf,
    StopOf,
    WaitFor,
    by,
    standing,
)
from phasegate.interfaces.mcp.decide import decide
from phasegate.interfaces.mcp.elicitation import InputRequired, Question
from phasegate.interfaces.mcp.jsonrpc import INVALID_PARAMS, Fields, McpError
from phasegate.typed import read_value

LARGEST_TEXT = 20_000  # characters of one answer's text; the rest is on the next page
MOST_ROWS, MOST_LINES = 50, 100
LOOK_EVERY_S = 0.1
SETTLE_S = 0.3  # lines come in bursts: one answer for them


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
    with open_reader(str(desk.folder)) or nullcontext() as reader:
        return _stands(given, desk, reader)


def _stands(given: StatusOf, desk: McpDesk, reader: Reader | None) -> Fields:
    if given.job:
        view = job_view((reader or need_reader(str(desk.folder))).location, given.job, given.feature or None)
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


def _start(given: StartOf, desk: McpDesk, question: Question) -> Fields:
    project = open_project(desk.folder)
    with opened_store(project) as store:
        slug = orders.start(project, store, given.type, given.description, by=by(project, question))
        return {"now": standing(store, slug), "then": "the tool `run`"}


def _run(given: RunOf, desk: McpDesk, question: Question) -> Fields:
    """A run never merges: that is a decision."""
    with desk.opened(given.feature) as (project, store, slug):
        cursor = store.head().entries
    begun = start_detached(project, slug, Wishes(step=given.step, by=by(project, question)))
    return {"feature": slug, "pid": begun.pid, "cursor": cursor, "log": begun.log, "then": "the tool `wait`"}


def _stop(given: StopOf, desk: McpDesk, question: Question) -> Fields:
    question.call.progress("waiting for the run to end")
    report = stop_runs(open_project(desk.folder).location, given.feature or None)
    return {"feature": report.feature, "ended": report.ended}


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
            decide,
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
