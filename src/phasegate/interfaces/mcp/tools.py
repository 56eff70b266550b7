"""The tools: what an agent that works for a person may see and order.

Each is a view or an order of the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import msgspec

from phasegate.core.plan.trace import render_trace
from phasegate.core.text.light_json import to_plain_data
from phasegate.engine.drive import orders
from phasegate.engine.drive.detached import start_detached, stop_runs
from phasegate.engine.drive.feature import RunOptions
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.views.artifacts import ArtifactFiles
from phasegate.engine.views.feature import feature_status_view, feature_view
from phasegate.engine.views.follow import JournalFollower
from phasegate.engine.views.job import job_view
from phasegate.engine.views.overview import (
    StoreReader,
    build_overview,
    find_package_cards,
    find_worker,
    open_reader,
    require_reader,
    resolve_feature,
)
from phasegate.engine.views.show import PartKind, find_subject, read_part
from phasegate.engine.views.trace import choose_feature, trace_feature
from phasegate.errors import ConfigError, PhasegateError, StateConflict
from phasegate.interfaces.mcp.call_context import (
    ArtifactArguments,
    DecideArguments,
    ExplainArguments,
    McpSession,
    RunArguments,
    StartArguments,
    StatusArguments,
    StopArguments,
    ToolArguments,
    WaitArguments,
    identify_caller,
    read_standing,
)
from phasegate.interfaces.mcp.decide import handle_decide
from phasegate.interfaces.mcp.elicitation import Elicitor, InputRequired
from phasegate.interfaces.mcp.jsonrpc import INVALID_PARAMS, JsonObject, McpError
from phasegate.typed import read_value

# Characters of one answer's text; the rest is on the next page
MAX_TEXT_CHARS = 20_000
MAX_ROWS = 50
MAX_LINES = 100
POLL_INTERVAL_S = 0.1
# Lines come in bursts: one answer for them
BATCH_DELAY_S = 0.3


class McpTool(NamedTuple):
    """One tool, as clients are told of it, and what answers it.

    The hints are promises: programs go by them.
    """

    name: str
    description: str
    arguments_type: type[ToolArguments]
    handler: Callable[[Any, McpSession, Elicitor], object]
    # The properties of its result
    result_properties: JsonObject
    is_read_only: bool = False
    is_destructive: bool = False
    # It starts programs that work on their own
    is_open_world: bool = False

    def describe(self) -> JsonObject:
        """How it is listed; all of them together must stay small, since each client's model reads
        them.
        """
        schema = msgspec.json.schema(self.arguments_type)["$defs"][self.arguments_type.__name__]
        for name, field in {"title": None, **schema["properties"]}.items():
            schema.pop(name, None) if field is None else field.pop("default", None)

        hints = {
            "readOnlyHint": self.is_read_only,
            "destructiveHint": self.is_destructive,
            "openWorldHint": self.is_open_world,
        }
        output = {"type": "object", "properties": self.result_properties}

        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            "outputSchema": output,
            "annotations": hints,
        }


def call_tool(
    tool: McpTool, arguments: JsonObject, session: McpSession, elicitor: Elicitor
) -> JsonObject:
    """The result of a call.

    What the engine refuses is told to the model, with the hint that a person would get.
    """
    try:
        given = read_value(arguments, tool.arguments_type)
    except msgspec.ValidationError as error:
        raise McpError(INVALID_PARAMS, f"{tool.name}: {error}") from error

    try:
        if feature := getattr(given, "feature", ""):
            given = msgspec.structs.replace(
                given, feature=resolve_feature(str(session.folder), feature)
            )

        found = to_plain_data(tool.handler(given, session, elicitor))
    except InputRequired as required:
        return required.result
    except PhasegateError as error:
        if error.hint:
            text = f"{error.message}\nhint: {error.hint}"
        else:
            text = error.message

        return {"content": [{"type": "text", "text": text}], "isError": True}

    text = msgspec.json.encode(found).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": found}


# --- what is asked
# ---------------------------------------------------------------------------------------------------


def _handle_status(
    arguments: StatusArguments, session: McpSession, _elicitor: Elicitor
) -> JsonObject:
    with open_reader(str(session.folder)) or nullcontext() as reader:
        return _read_status(arguments, session, reader)


def _read_status(
    arguments: StatusArguments, session: McpSession, reader: StoreReader | None
) -> JsonObject:
    if arguments.job:
        view = job_view(
            (reader or require_reader(str(session.folder))).location,
            arguments.job,
            arguments.feature or None,
        )
        return {"job": view._replace(entries=(), evidence="")}

    if arguments.package:
        return {
            "packages": find_package_cards(reader, arguments.package, arguments.feature or None)
        }

    if arguments.feature and reader:
        found = feature_view(reader, arguments.feature)
        if found is not None:
            gates = [phase._replace(rounds=phase.rounds[-3:]) for phase in found.phases]
            packages = found.packages[:MAX_ROWS]
            left = len(found.packages) - len(packages)
            return {
                "now": found.now,
                "phases": gates,
                "packages": packages,
                "left_off": left,
                "spent": found.spent,
            }

    seen = build_overview(reader, str(session.folder), arguments.feature or None)
    cards = [*([seen.workflow] if seen.workflow else []), *seen.others]
    features = [card._replace(phases=()) for card in cards[:MAX_ROWS]]

    return {
        "features": features,
        "left_off": len(cards) - len(features),
        "blockers": seen.blockers[:MAX_ROWS],
        "questions": [one for one in seen.waiting if one.question][:MAX_ROWS],
        "resting": seen.resting,
        "spent": seen.spent["all"],
        "cursor": reader.chain_head().entries if reader else 0,
    }


def _handle_wait(arguments: WaitArguments, session: McpSession, elicitor: Elicitor) -> JsonObject:
    """Lines of the journal after the cursor.

    At once if there are some, or if nobody works on the feature.
    """
    reader = require_reader(str(session.folder))
    with reader:
        slug = arguments.feature or _find_current_feature(reader, session)
        follower = JournalFollower(
            reader, slug, after=None if arguments.after < 0 else arguments.after
        )
        until_s = time.monotonic() + arguments.seconds
        told = [*follower.read_reported_events()]
        while not told and time.monotonic() < until_s and find_worker(reader, slug) is not None:
            if elicitor.call.cancelled.wait(POLL_INTERVAL_S):
                break

            told = [*follower.read_reported_events()]

        if told and time.monotonic() < until_s and not elicitor.call.cancelled.wait(BATCH_DELAY_S):
            told += follower.read_reported_events()

        shown = told[:MAX_LINES]
        if len(shown) < len(told):
            cursor = shown[-1].position
        else:
            cursor = max(arguments.after, reader.chain_head().entries)

        lines = [f"{event.ts} {event.line}" for event in shown if event.line]
        for line in lines:
            elicitor.call.send_progress(line)

        if follower.feature:
            now = feature_status_view(
                follower.feature, is_held=find_worker(reader, slug) is not None
            )
        else:
            now = None

    return {"lines": lines, "cursor": cursor, "more": len(told) > len(shown), "now": now}


def _find_current_feature(reader: StoreReader, session: McpSession) -> str:
    """The one that is active, or has just ended: who follows a run hears of its end."""
    if shown := build_overview(reader, str(session.folder)).workflow:
        return shown.feature
    for last in reader.events_before(reader.chain_head().entries + 1, 1):
        return last.feature
    raise StateConflict("no workflow was started", "start one: the tool `start`, then `run`")


def _handle_explain(
    arguments: ExplainArguments, session: McpSession, _elicitor: Elicitor
) -> JsonObject:
    project = open_project(session.folder)
    with require_reader(str(session.folder)) as reader:
        if arguments.what == "findings":
            slug = arguments.feature or _find_current_feature(reader, session)
            feature = read_feature(reader, slug)
            if feature:
                now = feature_status_view(feature)
            else:
                now = None

            return paginate_text(
                f"{now.reason}\n\n{now.findings}".strip() if now else "", arguments.page
            )

        if arguments.what == "trace":
            report = trace_feature(project, choose_feature(project, arguments.feature or None))
            return paginate_text(
                "\n".join((*render_trace(report.requirements), *report.problems)), arguments.page
            )

        if not arguments.of:
            raise ConfigError(
                f"{arguments.what} of what is missing",
                "name a package (WP01), a phase or a job in `of`",
            )

        subject = find_subject(project, reader, arguments.of, arguments.feature or None)
        return paginate_text(
            read_part(project, reader, subject, PartKind(arguments.what)).text, arguments.page
        )


# --- what is ordered
# -------------------------------------------------------------------------------------------------


def _handle_start(arguments: StartArguments, session: McpSession, elicitor: Elicitor) -> JsonObject:
    project = open_project(session.folder)
    with open_project_store(project) as store:
        slug = orders.start_workflow(
            project,
            store,
            arguments.type,
            arguments.description,
            by=identify_caller(project, elicitor),
        )
        return {"now": read_standing(store, slug), "then": "the tool `run`"}


def _handle_run(arguments: RunArguments, session: McpSession, elicitor: Elicitor) -> JsonObject:
    """A run never merges: that is a decision."""
    with session.open_feature(arguments.feature) as (project, store, slug):
        cursor = store.chain_head().entries

    begun = start_detached(
        project,
        slug,
        RunOptions(stop_at_gates=arguments.step, by=identify_caller(project, elicitor)),
    )
    return {
        "feature": slug,
        "pid": begun.pid,
        "cursor": cursor,
        "log": begun.log,
        "then": "the tool `wait`",
    }


def _handle_stop(arguments: StopArguments, session: McpSession, elicitor: Elicitor) -> JsonObject:
    elicitor.call.send_progress("waiting for the run to end")
    report = stop_runs(open_project(session.folder).location, arguments.feature or None)
    return {"feature": report.feature, "ended": report.ended}


def _handle_artifact(
    arguments: ArtifactArguments, session: McpSession, _elicitor: Elicitor
) -> JsonObject:
    files = ArtifactFiles(session.folder)
    if arguments.action == "list":
        listed = files.list_artifacts(arguments.feature or None)
        first = (arguments.page - 1) * MAX_ROWS
        return {
            "artifacts": listed[first : first + MAX_ROWS],
            "more": len(listed) > first + MAX_ROWS,
        }

    if not arguments.feature or not arguments.path:
        raise ConfigError("feature and path are needed", "the action `list` shows both")

    if arguments.action == "write":
        data = arguments.content.encode("utf-8", "replace")
        files.write(arguments.feature, arguments.path, data)
        return {
            "path": f"{files.features_folder}/{arguments.feature}/{arguments.path}",
            "bytes": len(data),
        }

    return paginate_text(
        files.read(arguments.feature, arguments.path).decode("utf-8", "replace"), arguments.page
    )


def paginate_text(text: str, page: int) -> JsonObject:
    """One page of a text."""
    first = (page - 1) * MAX_TEXT_CHARS
    return {
        "text": text[first : first + MAX_TEXT_CHARS],
        "more": len(text) > first + MAX_TEXT_CHARS,
    }


_OBJECT: JsonObject = {"type": ["object", "null"]}
_LIST = {"type": "array"}
_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_BOOLEAN = {"type": "boolean"}
TOOLS = {
    tool.name: tool
    for tool in (
        McpTool(
            name="status",
            description="Where things stand: all features, or one (phases, gates, packages, allowed orders), a package or a job.",
            arguments_type=StatusArguments,
            handler=_handle_status,
            result_properties={
                "features": _LIST,
                "now": _OBJECT,
                "packages": _LIST,
                "job": _OBJECT,
                "cursor": _INTEGER,
            },
            is_read_only=True,
        ),
        McpTool(
            name="wait",
            description="Lines of what happened after a cursor; waits for the next one while a run works. Call it again and again.",
            arguments_type=WaitArguments,
            handler=_handle_wait,
            result_properties={
                "lines": _LIST,
                "cursor": _INTEGER,
                "more": _BOOLEAN,
                "now": _OBJECT,
            },
            is_read_only=True,
        ),
        McpTool(
            name="explain",
            description="Why it is so: findings to decide on; diff, prompt, log, answer, evidence; requirements traced to tests.",
            arguments_type=ExplainArguments,
            handler=_handle_explain,
            result_properties={"text": _STRING, "more": _BOOLEAN},
            is_read_only=True,
        ),
        McpTool(
            name="start",
            description="Begin a workflow for what the person wants, in their words. Nothing runs yet.",
            arguments_type=StartArguments,
            handler=_handle_start,
            result_properties={"now": _OBJECT, "then": _STRING},
        ),
        McpTool(
            name="run",
            description="Let agents carry a feature on until it needs a person. Returns at once; follow with `wait`. Never merges.",
            arguments_type=RunArguments,
            handler=_handle_run,
            result_properties={
                "feature": _STRING,
                "pid": _INTEGER,
                "cursor": _INTEGER,
                "log": _STRING,
            },
            is_open_world=True,
        ),
        McpTool(
            name="stop",
            description="End the run of a feature; what its agents left is saved, and `run` goes on from there.",
            arguments_type=StopArguments,
            handler=_handle_stop,
            result_properties={"feature": _STRING, "ended": _BOOLEAN},
            is_destructive=True,
        ),
        McpTool(
            name="decide",
            description="A person's decision on a feature. The person is asked to confirm it; without them it is refused.",
            arguments_type=DecideArguments,
            handler=handle_decide,
            result_properties={"now": _OBJECT, "then": _STRING},
            is_destructive=True,
        ),
        McpTool(
            name="artifact",
            description="Write, read or list the documents and evidence of a feature.",
            arguments_type=ArtifactArguments,
            handler=_handle_artifact,
            result_properties={
                "artifacts": _LIST,
                "text": _STRING,
                "path": _STRING,
                "bytes": _INTEGER,
                "more": _BOOLEAN,
            },
        ),
    )
}
