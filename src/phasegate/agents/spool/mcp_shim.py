"""`phasegate mcp` inside a job.

The commands of the job's spool as tools, for an agent program whose shell is closed.

A tool is a command and nothing more: whoever answers the spool decides what it may do. Copied into
the job's folder beside `shim.py`, which hands in the requests, so standard library only.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable

Fields = dict[str, object]
# Arguments of a command to its exit status and what it says
RunSpoolCommand = Callable[[list[str]], "tuple[int, str]"]
PROTOCOL_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
MAX_CONCURRENT_CALLS = 16
_STRING = {"type": "string"}
_BOOLEAN = {"type": "boolean"}
_STRING_ARRAY: Fields = {"type": "array", "items": _STRING}
# name: what it does, its arguments, those that are needed, whether it only reads, and the command
TOOLS: dict[str, tuple[str, dict[str, Fields], tuple[str, ...], bool, list[str]]] = {
    "status": (
        "Where your feature stands, or a package of it.",
        {"package": {**_STRING}},
        (),
        True,
        ["status"],
    ),
    "worktree_list": (
        "The work packages that are ready, or all.",
        {"all": {**_BOOLEAN}},
        (),
        True,
        ["worktree", "list"],
    ),
    "artifact_write": (
        "Keep evidence: a file below the folder of your package or phase.",
        {"path": {**_STRING}, "content": {**_STRING}},
        ("path", "content"),
        False,
        ["artifact", "write"],
    ),
    "artifact_read": (
        "Read a document of your feature.",
        {"path": {**_STRING}},
        ("path",),
        True,
        ["artifact", "read"],
    ),
    "artifact_list": ("List the documents of your feature.", {}, (), True, ["artifact", "list"]),
    "ask": (
        "Ask the person whose work this is, and wait for the answer. Without one you are told to decide yourself.",
        {"question": {**_STRING}, "options": {**_STRING_ARRAY}},
        ("question",),
        False,
        ["ask"],
    ),
}


class McpCallRefused(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def list_tools() -> list[Fields]:
    """The tools as a client is told of them."""
    return [
        {
            "name": name,
            "description": what,
            "inputSchema": {"type": "object", "properties": fields, "required": [*needed]},
            "annotations": {
                "readOnlyHint": reads,
                "destructiveHint": False,
                "openWorldHint": False,
            },
        }
        for name, (what, fields, needed, reads, _) in TOOLS.items()
    ]


def build_command(name: object, arguments: object) -> list[str]:
    """The command that a call means.

    A value is always the value of an option: no text of a model becomes one.
    """
    if not isinstance(name, str) or name not in TOOLS:
        raise McpCallRefused(
            INVALID_PARAMS, f"there is no tool {name}; known are: {', '.join(TOOLS)}"
        )

    if not isinstance(arguments, dict):
        raise McpCallRefused(INVALID_PARAMS, f"{name}: the arguments are no object")

    _, fields, needed, _, command = TOOLS[name]
    kinds = {"string": str, "boolean": bool, "array": list}
    for field, value in arguments.items():
        if field not in fields or not isinstance(value, kinds[str(fields[field]["type"])]):
            raise McpCallRefused(INVALID_PARAMS, f"{name}: {field} is unknown, or of another type")

    if missing := [field for field in needed if field not in arguments]:
        raise McpCallRefused(INVALID_PARAMS, f"{name}: missing: {', '.join(missing)}")

    words = [*command]
    if name == "ask":
        words += [
            _escape_dash(arguments["question"]),
            *(f"--option={one}" for one in arguments.get("options", [])),
        ]

    if "path" in arguments:
        words.append(f"--relative-path={arguments['path']}")
    if "content" in arguments:
        words.append(f"--content={arguments['content']}")
    if arguments.get("package"):
        words.append(_escape_dash(arguments["package"]))

    return [*words, *(["--all"] if arguments.get("all") else [])]


def _escape_dash(text: str) -> str:
    if text.startswith("-"):
        return f" {text}"
    return text


class JobServer:
    """One client, on two streams.

    A call has a thread of its own: a question may wait for minutes.
    """

    def __init__(self, run_command: RunSpoolCommand) -> None:
        self._run_command = run_command
        self._write_lock = threading.Lock()
        self._free_slots = threading.BoundedSemaphore(MAX_CONCURRENT_CALLS)

    def serve(self) -> None:
        """Answer until the client has gone."""
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue

            if (
                isinstance(message, dict)
                and isinstance(message.get("method"), str)
                and "id" in message
            ):
                self._free_slots.acquire()
                threading.Thread(target=self._handle_message, args=(message,), daemon=True).start()

    def _handle_message(self, message: Fields) -> None:
        try:
            params = message.get("params")
            answer: Fields = {
                "result": self._call_method(
                    str(message["method"]), params if isinstance(params, dict) else {}
                )
            }
        except McpCallRefused as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        finally:
            self._free_slots.release()

        with self._write_lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
            sys.stdout.flush()

    def _call_method(self, method: str, params: Fields) -> Fields:
        if method == "initialize":
            wanted = params.get("protocolVersion")
            if wanted in PROTOCOL_VERSIONS:
                version = wanted
            else:
                version = PROTOCOL_VERSIONS[-1]

            about = {"name": "phasegate-job", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}

        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": list_tools()}
        if method != "tools/call":
            raise McpCallRefused(METHOD_NOT_FOUND, f"there is no method {method}")

        # Some clients send null where there are none
        given = params.get("arguments")
        status, said = self._run_command(
            build_command(params.get("name"), {} if given is None else given)
        )

        return {"content": [{"type": "text", "text": said}], "isError": status != 0}
