"""Convert the tool calls of agent programs to events: file changes, commands, other tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from phasegate.agents.port import AgentEvent, EventKind

MAX_TEXT_CHARS = 2_000
_WRITE_TOOLS = frozenset(
    (
        "write",
        "edit",
        "multiedit",
        "notebookedit",
        "notebook_edit",
        "write_file",
        "replace",
        "patch",
    )
)
_SHELL_TOOLS = frozenset(("bash", "shell", "run_shell_command", "exec_command"))


class ToolInput(msgspec.Struct, frozen=True):
    """The displayed arguments of a tool call. Programs use different types, so any is accepted."""

    command: object = None
    file_path: object = None
    file_path_of_opencode: object = msgspec.field(default=None, name="filePath")
    notebook_path: object = None
    path: object = None

    @property
    def file(self) -> str:
        paths = (self.file_path, self.file_path_of_opencode, self.notebook_path, self.path)
        return next((path for path in paths if isinstance(path, str)), "")


def make_tool_event(
    name: str, tool_input: ToolInput, checkout: Path, *, failed: bool = False
) -> AgentEvent:
    """Create the event of a tool call: a command, a file change or another tool."""
    if name.lower() in _SHELL_TOOLS and isinstance(tool_input.command, str):
        return AgentEvent(
            kind=EventKind.COMMAND, text=tool_input.command[:MAX_TEXT_CHARS], failed=failed
        )

    if name.lower() in _WRITE_TOOLS and tool_input.file:
        return make_file_event(tool_input.file, checkout, failed=failed)
    return AgentEvent(
        kind=EventKind.TOOL,
        text=name[:MAX_TEXT_CHARS],
        path=make_relative_path(tool_input.file, checkout),
        failed=failed,
    )


def make_file_event(
    path: str, checkout: Path, *, removed: bool = False, failed: bool = False
) -> AgentEvent:
    return AgentEvent(
        kind=EventKind.FILE, path=make_relative_path(path, checkout), removed=removed, failed=failed
    )


def make_notice_event(
    text: str, *, failed: bool = False, exit_code: int | None = None
) -> AgentEvent:
    return AgentEvent(
        kind=EventKind.NOTICE,
        text=" ".join(text.split())[:MAX_TEXT_CHARS],
        failed=failed,
        exit_code=exit_code,
    )


def make_result_events(
    output: object, *, failed: bool = False, exit_code: int | None = None
) -> Iterator[AgentEvent]:
    """Create the event of a tool's output, if it is text or a list of texts.

    The format depends on the program.
    """
    parts = output if isinstance(output, list) else [output]
    texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
    text = "\n".join(text for text in texts if isinstance(text, str) and text.strip())
    if text or exit_code is not None:
        yield AgentEvent(
            kind=EventKind.RESULT, text=text[:MAX_TEXT_CHARS], failed=failed, exit_code=exit_code
        )


def make_relative_path(path: str, checkout: Path) -> str:
    """Return a path as in the audit trail: relative to the checkout, if it is inside."""
    return path.removeprefix(f"{checkout}/")[:MAX_TEXT_CHARS]
