"""What an agent's program printed is shown as a transcript: messages, tool calls, and folded results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.agents.stream.transcript import MAX_LINE_CHARS, Transcript
from support.agent_streams import recorded

SHELL = "echo hi > shell.txt && git add -A && git commit -qm WP01"


def transcript(kind: str, text: str, checkout: Path = Path("/checkout")) -> list[str]:
    told = Transcript(kind, checkout, "implement")
    return [
        *(line for one in text.splitlines() for line in told.format_line(one)),
        *told.format_end(),
    ]


@pytest.mark.parametrize("kind", ["claude_code", "codex", "gemini", "opencode", "qwen"])
def test_a_recorded_run_of_each_program_is_told_with_its_command_message_and_tokens(
    kind: str,
) -> None:
    lines = transcript(kind, recorded(kind, "yolo_shell").stdout)
    (command,) = [line for line in lines if line.startswith("> $ ")]
    assert SHELL in command
    assert "Work done by the stub model." in lines
    assert lines.index("Work done by the stub model.") > lines.index(command)
    assert lines[-1].startswith("= ")
    assert not any('"type":' in line or line.startswith("? ") for line in lines), (
        "nothing of the protocol is left"
    )


@pytest.mark.parametrize("kind", ["claude_code", "codex", "gemini", "opencode", "qwen"])
def test_an_error_of_the_model_stands_in_the_transcript(kind: str) -> None:
    lines = transcript(kind, recorded(kind, "err_e401").stdout)
    assert any(line.startswith("! ") for line in lines), lines


def test_what_a_tool_gave_back_is_folded() -> None:
    output = "\n".join(f"line {number} {'x' * 500}" for number in range(40))
    part = {"type": "tool_result", "content": [{"type": "text", "text": output[:1_900]}]}
    lines = transcript("claude_code", json.dumps({"type": "user", "message": {"content": [part]}}))
    assert [line[:10] for line in lines] == ["  | line 0", "  | line 1", "  | line 2", "  | ... 1 "]
    assert all(len(line) < MAX_LINE_CHARS + 10 for line in lines)


def test_a_message_in_pieces_is_told_as_whole_lines_and_two_whole_messages_apart() -> None:
    pieces = ["I wri", "te it.\nThen", " I test."]
    gemini = "\n".join(
        json.dumps({"type": "message", "role": "assistant", "content": one}) for one in pieces
    )
    assert transcript("gemini", gemini) == ["I write it.", "Then I test."]
    items = (
        {"type": "item.completed", "item": {"type": "agent_message", "text": text}}
        for text in ("One", "Two")
    )
    assert transcript("codex", "\n".join(map(json.dumps, items))) == ["One", "Two"]


def test_what_is_outside_of_the_protocol_is_shown_as_such_and_nothing_raises() -> None:
    assert transcript("codex", "Error: no such account\n{not json\n\x00") == [
        "? Error: no such account",
        "? \x00",
    ]


def test_a_plain_program_is_shown_line_by_line() -> None:
    assert transcript("command", "one\n\ntwo") == ["one", "", "two"]
