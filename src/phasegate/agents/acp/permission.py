"""What an agent is allowed when it asks first.

Decided by the paths that it names and the scope of its package.

What is unknown is refused. A command is allowed where there is a sandbox: no path says what it will
do, so the cage holds it, and what it left behind is judged with everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from msgspec import Raw

from phasegate.agents.acp.files import AcpFileAccess, FileAccessRefused
from phasegate.typed import read_json

CHANGE_KINDS = frozenset(("edit", "delete", "move"))
READ_KINDS = frozenset(("read", "search", "think"))
EXECUTE_KIND = "execute"
MAX_TOOL_CALLS = 1000
MAX_PATHS = 200
MAX_PATH_CHARS = 4096
MAX_TITLE_CHARS = 200
# Stands for a path that is too long and for too many: never in any scope
_INVALID_PATH = "/"
# What tools call the file that they are about, where an agent does not repeat it as a location.
_PATH_KEYS = frozenset(
    (
        *(
            "path",
            "file_path",
            "filePath",
            "filepath",
            "abs_path",
            "absolute_path",
            "notebook_path",
            "target_file",
        ),
        *("old_path", "new_path", "source", "destination"),
    )
)


class PermissionOption(msgspec.Struct, frozen=True, rename="camel"):
    option_id: str
    kind: str = ""


class ToolCallLocation(msgspec.Struct, frozen=True):
    path: str


class ToolCallContent(msgspec.Struct, frozen=True):
    """Of a diff there is a path; other content does not matter here."""

    type: str = ""
    path: str = ""


class ToolCallUpdate(msgspec.Struct, frozen=True, rename="camel"):
    """A tool call, or what is new about one: a field that is not there has not changed."""

    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    content: list[ToolCallContent] | None = None
    locations: list[ToolCallLocation] | None = None
    raw_input: Raw = Raw(b"null")


class AcpToolCall(NamedTuple):
    """All that an agent has said about one call.

    Paths add up: what it named once is judged with the rest.
    """

    title: str = ""
    kind: str = ""
    status: str = ""
    changed_paths: frozenset[str] = frozenset()
    named_paths: frozenset[str] = frozenset()

    def merge_update(self, update: ToolCallUpdate, checkout: str) -> AcpToolCall:
        diffs = {
            _make_absolute(checkout, part.path)
            for part in update.content or ()
            if part.type == "diff"
        }
        named = [
            *(location.path for location in update.locations or ()),
            *_find_paths(update.raw_input),
        ]
        return AcpToolCall(
            title=(update.title or self.title)[:MAX_TITLE_CHARS],
            kind=(update.kind or self.kind)[:MAX_TITLE_CHARS],
            status=(update.status or self.status)[:MAX_TITLE_CHARS],
            changed_paths=_limit_paths(self.changed_paths | diffs),
            named_paths=_limit_paths(
                self.named_paths | {_make_absolute(checkout, path) for path in named}
            ),
        )

    @property
    def is_finished(self) -> bool:
        return self.status in ("completed", "failed")

    @property
    def paths(self) -> list[str]:
        """The files it is about, those that it changes first."""
        return [*sorted(self.changed_paths), *sorted(self.named_paths - self.changed_paths)]

    @property
    def is_change(self) -> bool:
        return self.kind in CHANGE_KINDS or bool(self.changed_paths)


class ToolCallTracker:
    """The calls of a session by their id.

    The oldest are forgotten, and a forgotten one is an unknown one.
    """

    def __init__(self, checkout: str) -> None:
        self._checkout = checkout
        self._calls: dict[str, AcpToolCall] = {}

    def is_finished(self, call_id: str) -> bool:
        return self._calls.get(call_id, AcpToolCall()).is_finished

    def apply_update(self, update: ToolCallUpdate) -> AcpToolCall:
        known = self._calls.pop(update.tool_call_id, AcpToolCall())
        self._calls[update.tool_call_id] = call = known.merge_update(update, self._checkout)
        if len(self._calls) > MAX_TOOL_CALLS:
            del self._calls[next(iter(self._calls))]
        return call


def _find_paths(raw_input: Raw) -> Iterator[str]:
    try:
        given = read_json(raw_input)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return

    if not isinstance(given, dict):
        return

    yield from (
        value
        for key, value in given.items()
        if key in _PATH_KEYS and isinstance(value, str) and value
    )
    if isinstance(changes := given.get("changes"), dict):
        yield from changes


def _make_absolute(checkout: str, path: str) -> str:
    """Some agents name paths from the session's folder on.

    What leads out of it is refused later.
    """
    if len(path) > MAX_PATH_CHARS:
        return _INVALID_PATH
    if path.startswith("/"):
        return path
    return f"{checkout}/{path}"


def _limit_paths(paths: frozenset[str]) -> frozenset[str]:
    if len(paths) <= MAX_PATHS:
        return paths
    return frozenset((_INVALID_PATH,))


def get_refusal_reason(call: AcpToolCall, files: AcpFileAccess) -> str:
    """Why a tool call may not go on; empty if it may."""
    try:
        if call.is_change:
            _check_change(call, files)
        elif call.kind in READ_KINDS:
            for path in call.named_paths:
                files.require_readable(path)
        elif call.kind == EXECUTE_KIND:
            if files.can_run_commands:
                return ""
            return "no sandbox would hold the command"
        else:
            return f"a tool of kind {call.kind or 'unknown'} is not allowed here"
    except FileAccessRefused as refusal:
        return str(refusal)

    return ""


def _check_change(call: AcpToolCall, files: AcpFileAccess) -> None:
    if not call.paths:
        raise FileAccessRefused("it does not say which file it would change")
    for path in call.paths:
        files.require_writable(path)


def choose_option(
    options: Iterable[PermissionOption], call: AcpToolCall, *, allowed: bool
) -> dict[str, object]:
    """The answer: one of the options that were offered, by its kind.

    Without a fitting one, no permission.

    A lasting permission is taken only where each later call would be allowed too: never for
    changes.
    """
    offered = {option.kind: option.option_id for option in reversed(list(options))}

    if not allowed:
        wanted = ["reject_once", "reject_always"]
    else:
        if call.is_change:
            wanted = ["allow_once"]
        else:
            wanted = ["allow_once", "allow_always"]

    kind = next((kind for kind in wanted if kind in offered), None)
    if kind is None:
        return {"outcome": {"outcome": "cancelled"}}

    return {"outcome": {"outcome": "selected", "optionId": offered[kind]}}
