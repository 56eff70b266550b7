"""What an agent is allowed when it asks first: decided by the paths that it names and the scope of its package.

What is unknown is refused. A command is allowed where there is a sandbox: no path says what it will do, so the cage
holds it, and what it left behind is judged with everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from msgspec import Raw

from phasegate.agents.acp.files import AcpPlaces, WriteRefused
from phasegate.typed import read_json

CHANGING = frozenset(("edit", "delete", "move"))
LOOKING = frozenset(("read", "search", "think"))
RUNNING = "execute"
MOST_CALLS, MOST_PATHS, LONGEST_PATH, LONGEST_TITLE = 1000, 200, 4096, 200
_NO_PATH = "/"  # stands for a path that is too long and for too many: never in any scope
# What tools call the file that they are about, where an agent does not repeat it as a location.
_PATH_KEYS = frozenset(
    (
        *("path", "file_path", "filePath", "filepath", "abs_path", "absolute_path", "notebook_path", "target_file"),
        *("old_path", "new_path", "source", "destination"),
    )
)


class Option(msgspec.Struct, frozen=True, rename="camel"):
    option_id: str
    kind: str = ""


class AcpLocation(msgspec.Struct, frozen=True):
    path: str


class Content(msgspec.Struct, frozen=True):
    """Of a diff there is a path; other content does not matter here."""

    type: str = ""
    path: str = ""


class ToolCallFields(msgspec.Struct, frozen=True, rename="camel"):
    """A tool call, or what is new about one: a field that is not there has not changed."""

    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    content: list[Content] | None = None
    locations: list[AcpLocation] | None = None
    raw_input: Raw = Raw(b"null")


class ToolCall(NamedTuple):
    """All that an agent has said about one call. Paths add up: what it named once is judged with the rest."""

    title: str = ""
    kind: str = ""
    status: str = ""
    changed: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()

    def with_news(self, news: ToolCallFields, checkout: str) -> ToolCall:
        diffs = {_from(checkout, part.path) for part in news.content or () if part.type == "diff"}
        named = [*(location.path for location in news.locations or ()), *_paths_in(news.raw_input)]
        return ToolCall(
            (news.title or self.title)[:LONGEST_TITLE],
            (news.kind or self.kind)[:LONGEST_TITLE],
            (news.status or self.status)[:LONGEST_TITLE],
            _few(self.changed | diffs),
            _few(self.named | {_from(checkout, path) for path in named}),
        )

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed")

    @property
    def paths(self) -> list[str]:
        """The files it is about, those that it changes first."""
        return [*sorted(self.changed), *sorted(self.named - self.changed)]

    @property
    def is_change(self) -> bool:
        return self.kind in CHANGING or bool(self.changed)


class ToolCalls:
    """The calls of a session by their id; the oldest are forgotten, and a forgotten one is an unknown one."""

    def __init__(self, checkout: str) -> None:
        self._checkout = checkout
        self._calls: dict[str, ToolCall] = {}

    def is_over(self, call_id: str) -> bool:
        return self._calls.get(call_id, ToolCall()).is_over

    def note(self, news: ToolCallFields) -> ToolCall:
        known = self._calls.pop(news.tool_call_id, ToolCall())
        self._calls[news.tool_call_id] = call = known.with_news(news, self._checkout)
        if len(self._calls) > MOST_CALLS:
            del self._calls[next(iter(self._calls))]
        return call


def _paths_in(raw_input: Raw) -> Iterator[str]:
    try:
        given = read_json(raw_input)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if not isinstance(given, dict):
        return
    yield from (value for key, value in given.items() if key in _PATH_KEYS and isinstance(value, str) and value)
    if isinstance(changes := given.get("changes"), dict):
        yield from changes


def _from(checkout: str, path: str) -> str:
    """Some agents name paths from the session's folder on. What leads out of it is refused later."""
    if len(path) > LONGEST_PATH:
        return _NO_PATH
    return path if path.startswith("/") else f"{checkout}/{path}"


def _few(paths: frozenset[str]) -> frozenset[str]:
    return paths if len(paths) <= MOST_PATHS else frozenset((_NO_PATH,))


def why_refused(call: ToolCall, places: AcpPlaces) -> str:
    """Why a tool call may not go on; empty if it may."""
    try:
        if call.is_change:
            _judge_change(call, places)
        elif call.kind in LOOKING:
            for path in call.named:
                places.require_readable(path)
        elif call.kind == RUNNING:
            return "" if places.may_run else "no sandbox would hold the command"
        else:
            return f"a tool of kind {call.kind or 'unknown'} is not allowed here"
    except WriteRefused as refusal:
        return str(refusal)
    return ""


def _judge_change(call: ToolCall, places: AcpPlaces) -> None:
    if not call.paths:
        raise WriteRefused("it does not say which file it would change")
    for path in call.paths:
        places.require_writable(path)


def outcome(options: Iterable[Option], call: ToolCall, *, allowed: bool) -> dict[str, object]:
    """The answer: one of the options that were offered, by its kind; without a fitting one, no permission.

    A lasting permission is taken only where each later call would be allowed too: never for changes.
    """
    offered = {option.kind: option.option_id for option in reversed(list(options))}
    if not allowed:
        wanted = ["reject_once", "reject_always"]
    else:
        wanted = ["allow_once"] if call.is_change else ["allow_once", "allow_always"]
    kind = next((kind for kind in wanted if kind in offered), None)
    if kind is None:
        return {"outcome": {"outcome": "cancelled"}}
    return {"outcome": {"outcome": "selected", "optionId": offered[kind]}}
