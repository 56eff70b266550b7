"""`phasegate mcp` inside a job: the commands of the job's spool as tools, for an agent program whose shell is closed.

A tool is a command and nothing more: whoever answers the spool decides what it may do. Copied into the job's folder
beside `shim.py`, which hands in the requests, so standard library only.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable

Fields = dict[str, object]
Carry = Callable[[list[str]], "tuple[int, str]"]  # arguments of a command to its exit status and what it says
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
NO_SUCH_METHOD, INVALID_PARAMS = -32601, -32602
MOST_CALLS = 16
_TEXT, _TRUTH = {"type": "string"}, {"type": "boolean"}
_TEXTS: Fields = {"type": "array", "items": _TEXT}
# name: what it does, its arguments, those that are needed, whether it only reads, and the command
TOOLS: dict[str, tuple[str, dict[str, Fields], tuple[str, ...], bool, list[str]]] = {
    "status": ("Where your feature stands, or a package of it.", {"package": {**_TEXT}}, (), True, ["status"]),
    "worktree_list": ("The work packages that are ready, or all.", {"all": {**_TRUTH}}, (), True, ["worktree", "list"]),
    "artifact_write": (
        "Keep evidence: a file below the folder of your package or phase.",
        {"path": {**_TEXT}, "content": {**_TEXT}},
        ("path", "content"),
        False,
        ["artifact", "write"],
    ),
    "artifact_read": (
        "Read a document of your feature.",
        {"path": {**_TEXT}},
        ("path",),
        True,
        ["artifact", "read"],
    ),
    "artifact_list": ("List the documents of your feature.", {}, (), True, ["artifact", "list"]),
    "ask": (
        "Ask the person whose work this is, and wait for the answer. Without one you are told to decide yourself.",
        {"question": {**_TEXT}, "options": {**_TEXTS}},
        ("question",),
        False,
        ["ask"],
    ),
}


class RefusedCall(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def listed() -> list[Fields]:
    """The tools as a client is told of them."""
    return [
        {
            "name": name,
            "description": what,
            "inputSchema": {"type": "object", "properties": fields, "required": [*needed]},
            "annotations": {"readOnlyHint": reads, "destructiveHint": False, "openWorldHint": False},
        }
        for name, (what, fields, needed, reads, _) in TOOLS.items()
    ]


def command_of(name: object, given: object) -> list[str]:
    """The command that a call means. A value is always the value of an option: no text of a model becomes one."""
    if not isinstance(name, str) or name not in TOOLS:
        raise RefusedCall(INVALID_PARAMS, f"there is no tool {name}; known are: {', '.join(TOOLS)}")
    if not isinstance(given, dict):
        raise RefusedCall(INVALID_PARAMS, f"{name}: the arguments are no object")
    _, fields, needed, _, command = TOOLS[name]
    kinds = {"string": str, "boolean": bool, "array": list}
    for field, value in given.items():
        if field not in fields or not isinstance(value, kinds[str(fields[field]["type"])]):
            raise RefusedCall(INVALID_PARAMS, f"{name}: {field} is unknown, or of another type")
    if missing := [field for field in needed if field not in given]:
        raise RefusedCall(INVALID_PARAMS, f"{name}: missing: {', '.join(missing)}")
    words = [*command]
    if name == "ask":
        words += [_word(given["question"]), *(f"--option={one}" for one in given.get("options", []))]
    if "path" in given:
        words.append(f"--relative-path={given['path']}")
    if "content" in given:
        words.append(f"--content={given['content']}")
    if given.get("package"):
        words.append(_word(given["package"]))
    return [*words, *(["--all"] if given.get("all") else [])]


def _word(text: str) -> str:
    return f" {text}" if text.startswith("-") else text


class JobServer:
    """One client, on two streams. A call has a thread of its own: a question may wait for minutes."""

    def __init__(self, carry: Carry) -> None:
        self._carry = carry
        self._writing = threading.Lock()
        self._free = threading.BoundedSemaphore(MOST_CALLS)

    def serve(self) -> None:
        """Answer until the client has gone."""
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict) and isinstance(message.get("method"), str) and "id" in message:
                self._free.acquire()
                threading.Thread(target=self._answer, args=(message,), daemon=True).start()

    def _answer(self, message: Fields) -> None:
        try:
            params = message.get("params")
            answer: Fields = {
                "result": self._result(str(message["method"]), params if isinstance(params, dict) else {})
            }
        except RefusedCall as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        finally:
            self._free.release()
        with self._writing:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
            sys.stdout.flush()

    def _result(self, method: str, params: Fields) -> Fields:
        if method == "initialize":
            wanted = params.get("protocolVersion")
            version = wanted if wanted in VERSIONS else VERSIONS[-1]
            about = {"name": "phasegate-job", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": listed()}
        if method != "tools/call":
            raise RefusedCall(NO_SUCH_METHOD, f"there is no method {method}")
        given = params.get("arguments")  # some clients send null where there are none
        status, said = self._carry(command_of(params.get("name"), {} if given is None else given))
        return {"content": [{"type": "text", "text": said}], "isError": status != 0}
