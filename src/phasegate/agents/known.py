"""The agent programs that we know: where each comes from, how it signs in, and with which version we ran it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import NamedTuple

from phasegate.agents import acp, claude_code, codex, cursor, gemini, opencode, qwen
from phasegate.agents.program_launch import Account


class Known(NamedTuple):
    """A program that a harness was written for."""

    account: Account
    install: str  # a command, by the name of its package alone
    tested: str  # the version that tests/agents runs; empty: it was never run here


KNOWN: Mapping[str, Known] = {
    "claude_code": Known(claude_code.ACCOUNT, "npm install -g @anthropic-ai/claude-code@latest", "2.1.325"),
    "codex": Known(codex.ACCOUNT, "npm install -g @openai/codex@latest", "0.166.0"),
    "gemini": Known(gemini.ACCOUNT, "npm install -g @google/gemini-cli@latest", "0.61.0"),
    "cursor": Known(cursor.ACCOUNT, "see the documentation of the Cursor CLI: it has no package", ""),
    "opencode": Known(opencode.ACCOUNT, "npm install -g opencode-ai@latest", "1.18.33"),
    "qwen": Known(qwen.ACCOUNT, "npm install -g @qwen-code/qwen-code@latest", "0.24.4"),
}


def known_program(kind: str, command: tuple[str, ...]) -> Known | None:
    """What is known of an agent's program. An ACP agent signs in as the harness of its program does."""
    if kind != "acp":
        return KNOWN.get(kind)
    harness = acp.PROGRAMS.get(PurePath(command[0]).name) if command else None
    return KNOWN[harness.kind]._replace(tested="") if harness else None
