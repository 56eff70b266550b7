"""All harness kinds: to add one, write its module and add its line."""

from __future__ import annotations

from collections.abc import Mapping

from phasegate.agents.acp import Acp
from phasegate.agents.claude_code import ClaudeCode
from phasegate.agents.codex import Codex
from phasegate.agents.command import Command
from phasegate.agents.cursor import Cursor
from phasegate.agents.gemini import Gemini
from phasegate.agents.opencode import OpenCode
from phasegate.agents.port import Harness
from phasegate.agents.qwen import Qwen
from phasegate.agents.scripted import Scripted
from phasegate.errors import ConfigError

HARNESSES: Mapping[str, Harness] = {
    "acp": Acp(),
    "claude_code": ClaudeCode(),
    "codex": Codex(),
    "gemini": Gemini(),
    "cursor": Cursor(),
    "opencode": OpenCode(),
    "qwen": Qwen(),
    "command": Command(),
    "scripted": Scripted(),
}


def harness_of(kind: str) -> Harness:
    """The harness of that kind, or a ConfigError that lists the kinds."""
    try:
        return HARNESSES[kind]
    except KeyError:
        raise ConfigError(f"there is no harness {kind!r}", f"use one of: {', '.join(HARNESSES)}") from None
