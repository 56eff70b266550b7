"""What a stand-in model is told to do: a list of turns, one for each time the agent comes with one more tool result."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Say(NamedTuple):
    """Ends the agent's turn with a text; a function gets all that the agent sent, as text."""

    text: str | Callable[[str], str]


class Write(NamedTuple):
    """Has a file written, with the tool that the agent offers for it."""

    path: str
    content: str


class Shell(NamedTuple):
    """Has a shell command run."""

    command: str


class Tool(NamedTuple):
    """Has a tool of our MCP server called, by whatever name the agent offers it."""

    name: str
    arguments: dict[str, object]


class Fail(NamedTuple):
    """Answers with an HTTP error: always, or so many times and then goes on with the next turn."""

    status: int
    retry_after_s: int | None = None
    times: int | None = None


class Cut(NamedTuple):
    """Breaks the connection off in the middle of a text, or ends the response there as if that were all."""

    as_if_whole: bool = False


class Garble(NamedTuple):
    """Sends a piece of the stream that is no JSON."""


class Hang(NamedTuple):
    """Says nothing until the server is told to let go."""


Turn = Say | Write | Shell | Tool | Fail | Cut | Garble | Hang


class Script(NamedTuple):
    """The turns of every conversation in which the pattern is found, or what finds the next one in its text."""

    turns: tuple[Turn, ...] | Callable[[str], Turn]
    about: str = ""

    def fits(self, text: str) -> bool:
        return re.search(self.about, text) is not None


class Call(NamedTuple):
    """A tool call in an agent's own words. Free-form tools take a text in place of arguments."""

    name: str
    arguments: dict[str, object] | str


Move = Say | Call


def call_for(turn: Write | Shell | Tool, offered: Sequence[str]) -> Call | None:
    """The call that carries the turn out with the tools that are offered, or None."""
    if isinstance(turn, Tool):
        named = (
            name
            for name in offered
            if re.sub("[^a-z]+", "_", name).endswith(f"_{turn.name}") and "phasegate" in name
        )
        return next((Call(name, turn.arguments) for name in named), None)
    known = _WRITERS if isinstance(turn, Write) else _SHELLS
    name = next((name for name in known if name in offered), None)
    if name is None:
        return None
    if isinstance(turn, Shell):
        return Call(name, {"command": turn.command} if _VIBES in offered else _run(name, turn))
    for tool, argument in _OTHER_ARGUMENTS.items():
        if tool in offered:
            return Call(name, {argument: turn.path, "content": turn.content})
    return Call(name, _written(name, turn))


_WRITERS = ("Write", "apply_patch", "write_file", "write", "create", "edit")
_VIBES = "unified_harness_scratchpad"
_OTHER_ARGUMENTS = {
    "CheckBackgroundJob": "filepath",
    "AgentSwarm": "path",
    _VIBES: "path",
}  # Continue, Kimi and Mistral Vibe, by tools of theirs alone
_SHELLS = ("Bash", "exec_command", "shell_command", "run_shell_command", "bash")


def _written(name: str, turn: Write) -> dict[str, object] | str:
    if name == "apply_patch":
        lines = "".join(f"+{line}\n" for line in turn.content.splitlines())
        return f"*** Begin Patch\n*** Add File: {turn.path}\n{lines}*** End Patch\n"
    if name == "create":
        return {"path": turn.path, "file_text": turn.content}
    if (
        name == "edit"
    ):  # where there is no tool but this, nothing replaced by something is a new file
        return {"file_path": turn.path, "old_string": "", "new_string": turn.content}
    return {"filePath" if name == "write" else "file_path": turn.path, "content": turn.content}


def _run(name: str, turn: Shell) -> dict[str, object]:
    if name == "exec_command":
        return {"cmd": turn.command, "yield_time_ms": 20_000}
    described = {} if name == "shell_command" else {"description": "Run it"}
    more: dict[str, object] = {"is_background": False} if name == "run_shell_command" else {}
    return {"command": turn.command, **described, **more}
