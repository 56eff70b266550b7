"""Reword hints of the command line for a client of the MCP server."""

from __future__ import annotations

import re

from phasegate.core.workflow.orders import ORDERS

_COMMAND = re.compile(r"phasegate ([a-z-]+)([^,;()`]*)")
_FEATURE_OPTION = re.compile(r"\s*--feature(?:[ =](?:SLUG\b|\d{3}-[\w-]+))?")
# A hint with this beginning names a command for the user, not for the client
FOR_THE_USER = "the user can run: "
_TOOLS = ("status", "run", "start", "stop")


def reword_hint(hint: str) -> str:
    """Name the tool instead of the command; a command without a tool is one for the user."""
    if hint.startswith(FOR_THE_USER):
        return hint

    worded = _COMMAND.sub(_reword_command, hint)
    return re.sub(r"--feature\b", "the argument `feature`", worded)


def _reword_command(match: re.Match[str]) -> str:
    name, rest = match.groups()
    if name in _TOOLS:
        return f"the tool `{name}`"
    if name in ORDERS:
        return f"the tool `decide` with the order `{name}`"
    if name == "show":
        return "the tool `explain`"

    rest = _FEATURE_OPTION.sub("", rest)
    return f"ask the user to run `phasegate {name}{rest.rstrip()}`"
