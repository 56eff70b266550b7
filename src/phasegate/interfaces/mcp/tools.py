"""The MCP tools: views and orders of the engine, for an agent that works for the user."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import msgspec

from phasegate.core.plan.trace import render_trace
from phasegate.core.text.light_json import to_plain_data
from phasegate.core.text.visible import escape_json, escape_unprintable
from phasegate.engine.drive import orders
from phasegate.engine.drive.detached import start_detached, stop_runs
from phasegate.engine.drive.run_feature import RunOptions
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.views.artifacts import ArtifactFiles
from phasegate.engine.views.decision_grounds import decision_grounds, render_grounds
from phasegate.engine.views.drift import find_drift, render_drift
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
from phasegate.engine.views.specs import check_proposal, describe_requirement
from phasegate.engine.views.trace import choose_feature, trace_feature
from phasegate.errors import ConfigError, PhasegateError, StateConflict
from phasegate.interfaces.mcp.decide import handle_decide
from phasegate.interfaces.mcp.elicitation import Elicitor, InputRequired
from phasegate.interfaces.mcp.hints import reword_hint
from phasegate.interfaces.mcp.jsonrpc import JsonObject
from phasegate.interfaces.mcp.tool_arguments import (
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
from phasegate.typed import read_value

# Text in one answer; the rest is on the next page
MAX_TEXT_CHARS = 20_000
MAX_ROWS = 50
MAX_LINES = 100
POLL_INTERVAL_S = 0.1
# Lines arrive in bursts: wait this long to send them in one response
BATCH_DELAY_S = 0.3


class McpTool(NamedTuple):
    """A tool and its handler.

    Client programs rely on the hints (read-only, destructive, open world): they must be true.
    """

    name: str
    description: str
    arguments_type: type[ToolArguments]
    handler: Callable[[Any, McpSession, Elicitor], object]
    # JSON schema of the properties of its result
    result_properties: JsonObject
    is_read_only: bool = False
    is_destructive: bool = False
    # starts programs that act on their own
    is_open_world: bool = False

    def describe(self) -> JsonObject:
        """Return the entry in the list of tools.

        The model of every client reads the whole list: it must stay small.
        """
        schema = msgspec.json.schema(self.arguments_type)["$defs"][self.arguments_type.__name__]
        schema.pop("title", None)
        for field in schema["properties"].values():
            field.pop("default", None)

        hints = {
            "readOnlyHint": self.is_read_only,
            "destructiveHint": self.is_destructive,
            "openWorldHint": self.is_open_world,
        }
        output = {"type": "object", "properties": self.result_properties}

        return {
            "name": self.name,
            "title": TITLES[self.name],
            "description": self.description,
            "inputSchema": schema,
            "outputSchema": output,
            "annotations": hints,
        }


# Shown to users by clients
TITLES = {
    "status": "Show the state of features",
    "wait": "Wait for events",
    "explain": "Explain a decision or a job",
    "start": "Start a feature",
    "run": "Run a feature",
    "stop": "Stop a run",
    "decide": "Give a decision of the user",
    "artifact": "Read or write a document",
}


def call_tool(
    tool: McpTool, arguments: JsonObject, session: McpSession, elicitor: Elicitor
) -> JsonObject:
    """Return the result of a call.

    An error of the engine becomes a result for the model, with the hint that a user would get.
    """
    try:
        given = read_value(arguments, tool.arguments_type)
    except msgspec.ValidationError as error:
        # The specification wants a tool error, so that the model can correct it
        type_ = tool.arguments_type
        schemas = msgspec.json.schema(type_)["$defs"][type_.__name__]["properties"]
        names = ", ".join(
            f"{name} ({', '.join(schema['enum'])})" if "enum" in schema else name
            for name, schema in schemas.items()
        )
        return _make_tool_error(f"{tool.name}: {error}", f"the arguments are: {names or 'none'}")

    try:
        if feature := getattr(given, "feature", ""):
            given = msgspec.structs.replace(
                given, feature=resolve_feature(str(session.folder), feature)
            )

        found = to_plain_data(tool.handler(given, session, elicitor))
    except InputRequired as required:
        return required.result
    except PhasegateError as error:
        return _make_tool_error(error.message, reword_hint(error.hint or ""))

    # A model would read characters that the user does not see
    text = escape_json(msgspec.json.encode(found).decode())
    return {"content": [{"type": "text", "text": text}], "structuredContent": found}


def _make_tool_error(message: str, hint: str) -> JsonObject:
    text = escape_unprintable(f"{message}\nhint: {hint}" if hint else message, keep="\n")
    return {"content": [{"type": "text", "text": text}], "isError": True}


# --- views


def _handle_status(
    arguments: StatusArguments, session: McpSession, _elicitor: Elicitor
) -> JsonObject:
    with open_reader(str(session.folder)) or nullcontext() as reader:
        return _read_status(arguments, session, reader)


def _read_status(
    arguments: StatusArguments, session: McpSession, reader: StoreReader | None
) -> JsonObject:
    """Return the status of a job, a package, a feature or everything."""
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

    overview = build_overview(reader, str(session.folder), arguments.feature or None)
    cards = [*([overview.workflow] if overview.workflow else []), *overview.others]
    features = [card._replace(phases=()) for card in cards[:MAX_ROWS]]

    # Packages of a plan that was loaded without a workflow
    named = {card.feature for card in cards}
    loaded = [
        package
        for group in overview.features
        if group.feature not in named
        for package in group.packages
    ]

    return {
        "features": features,
        "left_off": len(cards) - len(features) + max(0, len(loaded) - MAX_ROWS),
        "packages": loaded[:MAX_ROWS],
        "blockers": overview.blockers[:MAX_ROWS],
        "questions": [waiting for waiting in overview.waiting if waiting.question][:MAX_ROWS],
        "resting": overview.resting,
        "spent": overview.spent["all"],
        "cursor": reader.chain_head().entries if reader else 0,
    }


def _handle_wait(arguments: WaitArguments, session: McpSession, elicitor: Elicitor) -> JsonObject:
    """Return the lines of the journal after the cursor.

    Returns immediately if there are lines, or if no process works on the feature.
    """
    reader = require_reader(str(session.folder))
    with reader:
        slug = arguments.feature or _find_current_feature(reader, session)
        follower = JournalFollower(
            reader, slug, after=None if arguments.after < 0 else arguments.after
        )
        until_s = time.monotonic() + arguments.seconds
        events = [*follower.read_reported_events()]
        while not events and time.monotonic() < until_s and find_worker(reader, slug) is not None:
            if elicitor.call.cancelled.wait(POLL_INTERVAL_S):
                break

            events = [*follower.read_reported_events()]

        if (
            events
            and time.monotonic() < until_s
            and not elicitor.call.cancelled.wait(BATCH_DELAY_S)
        ):
            events += follower.read_reported_events()

        page = events[:MAX_LINES]
        if len(page) < len(events):
            cursor = page[-1].position
        else:
            cursor = max(arguments.after, reader.chain_head().entries)

        lines = [f"{event.ts} {event.line}" for event in page if event.line]
        for line in lines:
            elicitor.call.send_progress(line)

        now = None
        if follower.feature:
            is_held = find_worker(reader, slug) is not None
            now = feature_status_view(follower.feature, is_held=is_held)

    return {"lines": lines, "cursor": cursor, "more": len(events) > len(page), "now": now}


def _find_current_feature(reader: StoreReader, session: McpSession) -> str:
    """Return the active feature, or the last one, so that a follower also sees the end of a run."""
    workflow = build_overview(reader, str(session.folder)).workflow
    if workflow:
        return workflow.feature
    for last in reader.events_before(reader.chain_head().entries + 1, 1):
        return last.feature
    raise StateConflict("no workflow was started", "start one: the tool `start`, then `run`")


def _handle_explain(
    arguments: ExplainArguments, session: McpSession, _elicitor: Elicitor
) -> JsonObject:
    """Return the requested details as a page of text."""
    project = open_project(session.folder)
    if arguments.what == "drift":
        return paginate_text("\n".join(render_drift(find_drift(project))), arguments.page)
    if arguments.what == "proposal":
        return paginate_text("\n".join(check_proposal(project, arguments.text)), arguments.page)
    if arguments.what == "requirement":
        lines = describe_requirement(project, arguments.of).lines
        return paginate_text("\n".join(lines), arguments.page)

    with require_reader(str(session.folder)) as reader:
        if arguments.what == "grounds":
            slug = arguments.feature or _find_current_feature(reader, session)
            text = "\n".join(render_grounds(decision_grounds(project, reader, slug)))
            return paginate_text(text, arguments.page)

        if arguments.what == "findings":
            slug = arguments.feature or _find_current_feature(reader, session)
            feature = read_feature(reader, slug)
            text = ""
            if feature:
                now = feature_status_view(feature)
                text = f"{now.reason}\n\n{now.findings}".strip()

            return paginate_text(text, arguments.page)

        if arguments.what == "trace":
            report = trace_feature(project, choose_feature(project, arguments.feature or None))
            return paginate_text(
                "\n".join((*render_trace(report.requirements), *report.problems)), arguments.page
            )

        if not arguments.of:
            raise ConfigError(
                f"{arguments.what} needs a subject",
                "name a package (WP01), a phase or a job in `of`",
            )

        subject = find_subject(project, reader, arguments.of, arguments.feature or None)
        return paginate_text(
            read_part(project, reader, subject, PartKind(arguments.what)).text, arguments.page
        )


# --- orders


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
    """Start a run in the background. A run never merges: that is a decision."""
    with session.open_feature(arguments.feature) as (project, store, slug):
        cursor = store.chain_head().entries

    started = start_detached(
        project,
        slug,
        RunOptions(stop_at_gates=arguments.step, by=identify_caller(project, elicitor)),
    )
    return {
        "feature": slug,
        "pid": started.pid,
        "cursor": cursor,
        "log": started.log,
        "then": "the tool `wait`",
    }


def _handle_stop(arguments: StopArguments, session: McpSession, elicitor: Elicitor) -> JsonObject:
    elicitor.call.send_progress("waiting for the run to end")
    report = stop_runs(open_project(session.folder).location, arguments.feature or None)
    return {"feature": report.feature, "ended": report.ended}


def _handle_artifact(
    arguments: ArtifactArguments, session: McpSession, _elicitor: Elicitor
) -> JsonObject:
    """List, read or write artifacts of a feature."""
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
    """Return one page of a text."""
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
            description="Status of all features, or of one (phases, gates, packages, allowed "
            "orders), a package or a job.",
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
            description="Event lines after a cursor; waits for the next one while a run is active. "
            "Call it repeatedly.",
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
            description="Details: grounds of a decision; findings; diff, prompt, log, answer, "
            "evidence; requirements traced to tests; a proposal of changed requirements in `text`.",
            arguments_type=ExplainArguments,
            handler=_handle_explain,
            result_properties={"text": _STRING, "more": _BOOLEAN},
            is_read_only=True,
        ),
        McpTool(
            name="start",
            description="Start a workflow for what the user wants, in their words. "
            "Nothing runs yet.",
            arguments_type=StartArguments,
            handler=_handle_start,
            result_properties={"now": _OBJECT, "then": _STRING},
        ),
        McpTool(
            name="run",
            description="Run a feature until it needs the user. Returns immediately; follow "
            "with `wait`. Never merges.",
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
            description="Stop the run of a feature; changes made so far are saved, and `run` "
            "continues from there.",
            arguments_type=StopArguments,
            handler=_handle_stop,
            result_properties={"feature": _STRING, "ended": _BOOLEAN},
            is_destructive=True,
        ),
        McpTool(
            name="decide",
            description="Give the user's decision on a feature. The user must confirm it; "
            "otherwise it is refused.",
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
