"""`phasegate next`: which arguments it answers itself, and how a hook receives the block."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.core.display.next_steps import EVENTS
from phasegate.interfaces.fast_path.next import HOOK_FORMATS, format_for_hook, run_fast_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--json"],
        ["--event"],
        ["--event", "no-such-event"],
        ["--event="],
        ["--as", "shout"],
        ["--phase", "--as"],
        ["--phase", "01", "--as"],
        ["01-requirements"],
        ["--phases=01"],
    ],
)
def test_anything_but_one_well_formed_option_is_left_to_the_command_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_fast_path(arguments) is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--event", next(iter(EVENTS))],
        [f"--event={next(iter(EVENTS))}"],
        ["--as", "message"],
        ["--phase=x"],
    ],
)
def test_one_option_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_fast_path(arguments) == 0


@pytest.mark.parametrize("hook_format", [*HOOK_FORMATS])
def test_a_hook_receives_the_block_as_json(hook_format: str) -> None:
    block = 'say "a\\b"\n  next\n'
    told = json.loads(format_for_hook(block, hook_format))
    assert told == {HOOK_FORMATS[hook_format]: 'say "a\\b"\n  next'}
    assert format_for_hook(block, None) == block
