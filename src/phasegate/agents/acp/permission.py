"""Decide the permission requests of an ACP agent by its paths and the scope of its package.

Unknown requests are refused. A command is allowed only in a sandbox: its paths are not known in
advance, so the sandbox restricts it and its changes are checked afterwards.
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
# Replaces a path that is too long, and a list of too many paths; it is never in a scope.
_INVALID_PATH = "/"
# Input fields with the path of the file, for agents that do not repeat it as a location.
_PATH_KEYS = frozenset(
    (
        "path",
        "file_path",
        "filePath",
        "filepath",
        "abs_path",
        "absolute_path",
        "notebook_path",
        "target_file",
        "old_path",
        "new_path",
        "source",
        "destination",
    )
)


class PermissionOption(msgspec.Struct, frozen=True, rename="camel"):
    option_id: str
    kind: str = ""


class ToolCallLocation(msgspec.Struct, frozen=True):
    path: str


class ToolCallContent(msgspec.Struct, frozen=True):
    """A part of a tool call's content; only a diff has a path."""

    type: str = ""
    path: str = ""


class ToolCallUpdate(msgspec.Struct, frozen=True, rename="camel"):
    """A new tool call, or an update to one; an absent field is unchanged."""

    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    content: list[ToolCallContent] | None = None
    locations: list[ToolCallLocation] | None = None
    raw_input: Raw = Raw(b"null")


class AcpToolCall(NamedTuple):
    """A tool call with all its updates.

    Paths accumulate: every path that was ever named is checked.
    """

    title: str = ""
    kind: str = ""
    status: str = ""
    changed_paths: frozenset[str] = frozenset()
    named_paths: frozenset[str] = frozenset()

    def merge_update(self, update: ToolCallUpdate, checkout: str) -> AcpToolCall:
        """Return the call with the fields that an update sets, and the paths it adds."""
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
        """The files of the call, changed ones first."""
        return [*sorted(self.changed_paths), *sorted(self.named_paths - self.changed_paths)]

    @property
    def is_change(self) -> bool:
        return self.kind in CHANGE_KINDS or bool(self.changed_paths)


class ToolCallTracker:
    """The tool calls of a session by id; the oldest are dropped and then count as unknown."""

    def __init__(self, checkout: str) -> None:
        self._checkout = checkout
        self._calls: dict[str, AcpToolCall] = {}

    def is_finished(self, call_id: str) -> bool:
        return self._calls.get(call_id, AcpToolCall()).is_finished

    def apply_update(self, update: ToolCallUpdate) -> AcpToolCall:
        previous = self._calls.pop(update.tool_call_id, AcpToolCall())
        call = previous.merge_update(update, self._checkout)
        self._calls[update.tool_call_id] = call
        if len(self._calls) > MAX_TOOL_CALLS:
            del self._calls[next(iter(self._calls))]
        return call


def _find_paths(raw_input: Raw) -> Iterator[str]:
    """Yield the file paths among the input fields of a tool."""
    try:
        fields = read_json(raw_input)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return

    if not isinstance(fields, dict):
        return

    for key, value in fields.items():
        if key in _PATH_KEYS and isinstance(value, str) and value:
            yield value

    changes = fields.get("changes")
    if isinstance(changes, dict):
        yield from changes


def _make_absolute(checkout: str, path: str) -> str:
    """Make a path absolute: some agents send paths relative to the session's folder.

    Paths that lead outside are refused later.
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
    """Return why a tool call is refused; empty if it is allowed."""
    try:
        if call.is_change:
            _check_change(call, files)
        elif call.kind in READ_KINDS:
            for path in call.named_paths:
                files.require_readable(path)
        elif call.kind == EXECUTE_KIND:
            if files.can_run_commands:
                return ""
            return "commands need a sandbox"
        else:
            return f"a tool of kind {call.kind or 'unknown'} is not allowed here"
    except FileAccessRefused as refusal:
        return str(refusal)

    return ""


def _check_change(call: AcpToolCall, files: AcpFileAccess) -> None:
    if not call.paths:
        raise FileAccessRefused("it does not name the file to change")
    for path in call.paths:
        files.require_writable(path)


def choose_option(
    options: Iterable[PermissionOption], call: AcpToolCall, *, allowed: bool
) -> dict[str, object]:
    """Build the response: one of the offered options, chosen by its kind; else no permission.

    A permanent permission is chosen only if every later call would be allowed too, so never for
    changes.
    """
    offered = {option.kind: option.option_id for option in reversed(list(options))}

    if not allowed:
        wanted = ["reject_once", "reject_always"]
    elif call.is_change:
        wanted = ["allow_once"]
    else:
        wanted = ["allow_once", "allow_always"]

    for kind in wanted:
        if kind in offered:
            return {"outcome": {"outcome": "selected", "optionId": offered[kind]}}

    return {"outcome": {"outcome": "cancelled"}}
