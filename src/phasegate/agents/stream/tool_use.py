"""The tools of agent programs in our words: a change of a file, a command, or another tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from phasegate.agents.port import AgentEvent, EventKind

SHOWN_AT_MOST = 2_000
_WRITERS = frozenset(("write", "edit", "multiedit", "notebookedit", "notebook_edit", "write_file", "replace", "patch"))
_SHELLS = frozenset(("bash", "shell", "run_shell_command", "exec_command"))


class ToolInput(msgspec.Struct, frozen=True):
    """The arguments that we show. Their types are the agent's own business, so any is taken."""

    command: object = None
    file_path: object = None
    file_path_of_opencode: object = msgspec.field(default=None, name="filePath")
    notebook_path: object = None
    path: object = None

    @property
    def file(self) -> str:
        found = (self.file_path, self.file_path_of_opencode, self.notebook_path, self.path)
        return next((path for path in found if isinstance(path, str)), "")


def tool_use(name: str, given: ToolInput, checkout: Path, *, failed: bool = False) -> AgentEvent:
    """What an agent does with a tool of this name."""
    if name.lower() in _SHELLS and isinstance(given.command, str):
        return AgentEvent(EventKind.COMMAND, given.command[:SHOWN_AT_MOST], failed=failed)
    if name.lower() in _WRITERS and given.file:
        return file_change(given.file, checkout, failed=failed)
    return AgentEvent(EventKind.TOOL, name[:SHOWN_AT_MOST], inside(given.file, checkout), failed=failed)


def file_change(path: str, checkout: Path, *, removed: bool = False, failed: bool = False) -> AgentEvent:
    return AgentEvent(EventKind.FILE, path=inside(path, checkout), removed=removed, failed=failed)


def notice(text: str, *, failed: bool = False, exit_code: int | None = None) -> AgentEvent:
    return AgentEvent(EventKind.NOTICE, " ".join(text.split())[:SHOWN_AT_MOST], failed=failed, exit_code=exit_code)


def tool_result(output: object, *, failed: bool = False, exit_code: int | None = None) -> Iterator[AgentEvent]:
    """What a tool gave back, as far as that is text or a list of texts; its form is the program's own business."""
    parts = output if isinstance(output, list) else [output]
    texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
    text = "\n".join(text for text in texts if isinstance(text, str) and text.strip())
    if text or exit_code is not None:
        yield AgentEvent(EventKind.RESULT, text[:SHOWN_AT_MOST], failed=failed, exit_code=exit_code)


def inside(path: str, checkout: Path) -> str:
    """A path as the trail has it: from the checkout where it lies there."""
    return path.removeprefix(f"{checkout}/")[:SHOWN_AT_MOST]
