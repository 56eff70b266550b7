"""`phasegate mcp` inside a job: the spool commands as MCP tools, for agents without a shell.

A tool call is just a command: the spool server decides what it may do. The file is copied into the
job's folder next to `shim.py`, which sends the requests, so it uses the standard library only.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable

Fields = dict[str, object]
# Takes the arguments of a command; returns its exit status and its output.
RunSpoolCommand = Callable[[list[str]], "tuple[int, str]"]
PROTOCOL_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
MAX_CONCURRENT_CALLS = 16
_STRING = {"type": "string"}
_BOOLEAN = {"type": "boolean"}
_STRING_ARRAY: Fields = {"type": "array", "items": _STRING}
# name: (description, arguments, required arguments, is read-only, command)
TOOLS: dict[str, tuple[str, dict[str, Fields], tuple[str, ...], bool, list[str]]] = {
    "status": (
        "Show the status of your feature, or of one of its packages.",
        {"package": {**_STRING}},
        (),
        True,
        ["status"],
    ),
    "worktree_list": (
        "List the work packages that are ready, or all of them.",
        {"all": {**_BOOLEAN}},
        (),
        True,
        ["worktree", "list"],
    ),
    "artifact_write": (
        "Store evidence: a file in the folder of your package or phase.",
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
        "Ask the user and wait for the answer. If there is none in time, decide yourself.",
        {"question": {**_STRING}, "options": {**_STRING_ARRAY}},
        ("question",),
        False,
        ["ask"],
    ),
}


class McpCallRefused(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def list_tools() -> list[Fields]:
    """Return the tools in the format of the `tools/list` response."""
    tools: list[Fields] = []
    for name, (description, fields, required, is_read_only, _) in TOOLS.items():
        schema = {"type": "object", "properties": fields, "required": [*required]}
        annotations = {
            "readOnlyHint": is_read_only,
            "destructiveHint": False,
            "openWorldHint": False,
        }
        tools.append(
            {
                "name": name,
                "description": description,
                "inputSchema": schema,
                "annotations": annotations,
            }
        )

    return tools


def build_command(name: object, arguments: object) -> list[str]:
    """Build the command of a tool call.

    Values are passed as `--option=value`, so that no text of a model can become an option.
    """
    if not isinstance(name, str) or name not in TOOLS:
        raise McpCallRefused(INVALID_PARAMS, f"unknown tool {name}; available: {', '.join(TOOLS)}")

    if not isinstance(arguments, dict):
        raise McpCallRefused(INVALID_PARAMS, f"{name}: the arguments are not an object")

    _check_arguments(name, arguments)
    words = [*TOOLS[name][-1]]
    if name == "ask":
        words.append(_escape_dash(arguments["question"]))
        words += [f"--option={option}" for option in arguments.get("options", [])]

    if "path" in arguments:
        words.append(f"--relative-path={arguments['path']}")
    if "content" in arguments:
        words.append(f"--content={arguments['content']}")
    if arguments.get("package"):
        words.append(_escape_dash(arguments["package"]))
    if arguments.get("all"):
        words.append("--all")

    return words


def _check_arguments(name: str, arguments: Fields) -> None:
    _, fields, required, _, _ = TOOLS[name]
    kinds = {"string": str, "boolean": bool, "array": list}
    for field, value in arguments.items():
        if field not in fields or not isinstance(value, kinds[str(fields[field]["type"])]):
            raise McpCallRefused(INVALID_PARAMS, f"{name}: {field} is unknown or has a wrong type")

    missing = [field for field in required if field not in arguments]
    if missing:
        raise McpCallRefused(INVALID_PARAMS, f"{name}: missing: {', '.join(missing)}")


def _escape_dash(text: str) -> str:
    if text.startswith("-"):
        return f" {text}"
    return text


class JobServer:
    """An MCP server for one client on stdin and stdout.

    Each call runs in its own thread, because a question may wait for minutes.
    """

    def __init__(self, run_command: RunSpoolCommand) -> None:
        self._run_command = run_command
        self._write_lock = threading.Lock()
        self._free_slots = threading.BoundedSemaphore(MAX_CONCURRENT_CALLS)

    def serve(self) -> None:
        """Answer requests until the client closes the stream."""
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
        """Call the requested method and write its response to stdout."""
        params = message.get("params")
        if not isinstance(params, dict):
            params = {}

        try:
            answer: Fields = {"result": self._call_method(str(message["method"]), params)}
        except McpCallRefused as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        finally:
            self._free_slots.release()

        with self._write_lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
            sys.stdout.flush()

    def _call_method(self, method: str, params: Fields) -> Fields:
        """Return the result of an MCP method; raise McpCallRefused for an unknown one."""
        if method == "initialize":
            version = params.get("protocolVersion")
            if version not in PROTOCOL_VERSIONS:
                version = PROTOCOL_VERSIONS[-1]

            server = {"name": "phasegate-job", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}

        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": list_tools()}
        if method != "tools/call":
            raise McpCallRefused(METHOD_NOT_FOUND, f"unknown method {method}")

        # Some clients send null if there are no arguments.
        arguments = params.get("arguments")
        if arguments is None:
            arguments = {}

        status, output = self._run_command(build_command(params.get("name"), arguments))
        return {"content": [{"type": "text", "text": output}], "isError": status != 0}
