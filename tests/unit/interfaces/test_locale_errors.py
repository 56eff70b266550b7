"""Text that a locale cannot encode is the user's error, with a hint, and no internal error."""

from __future__ import annotations

import pytest

from phasegate.interfaces.cli import main as cli


def test_text_that_cannot_be_encoded_is_an_error_of_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: list[str]) -> object:
        return "x\udcff".encode()

    monkeypatch.setattr(cli, "_invoke", fail)
    assert cli.run_command(["status"]) == 2
    assert "LC_ALL" in capsys.readouterr().err


def test_any_other_failure_is_still_an_internal_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: list[str]) -> object:
        raise RuntimeError

    monkeypatch.setattr(cli, "_invoke", fail)
    assert cli.run_command(["status"]) == 70
    assert "internal error" in capsys.readouterr().err
