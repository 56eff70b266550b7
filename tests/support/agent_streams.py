"""What real agent programs printed, trimmed: tests/fixtures/agent_streams/{program}/{scenario}.jsonl and .stderr.

The model was a stand-in. `cursor` is made from its documentation, and was never run.
"""

from __future__ import annotations

from pathlib import Path

from phasegate.agents.port import FinishedRun

FOLDER = Path(__file__).parents[1] / "fixtures/agent_streams"
PROGRAMS = {
    "claude_code": "claude",
    "codex": "codex",
    "cursor": "cursor",
    "gemini": "gemini",
    "opencode": "opencode",
    "qwen": "qwen",
}
REPOSITORY = Path("/home/agent/repo")  # the checkout of those runs
NOW_S = 1_794_800_000.0


def recorded(kind: str, scenario: str, exit_status: int | None = 0, **how: object) -> FinishedRun:
    """A run that is over, as it was printed."""
    stdout = FOLDER / PROGRAMS[kind] / f"{scenario}.jsonl"
    stderr = stdout.with_suffix(".stderr")
    text = stderr.read_text() if stderr.exists() else ""
    fields = {"ended_at_s": NOW_S, **how}
    return FinishedRun(exit_status, stdout.read_text(), text, **fields)  # type: ignore[arg-type]
