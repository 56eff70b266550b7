"""Results on stdout, and input from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from phasegate.errors import ConfigError
from phasegate.interfaces.cli.render import (
    FreeText,
    current_folder,
    make_printable,
    print_result,
    read_input,
)


class Value(NamedTuple):
    name: str
    parts: tuple[int, ...]


def test_a_result_is_text_or_json_and_never_both(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(Value("a", (1, 2)), "as text", as_json=False)
    assert capsys.readouterr().out == "as text\n"
    print_result(Value("a", (1, 2)), "as text", as_json=True)
    assert json.loads(capsys.readouterr().out) == {"name": "a", "parts": [1, 2]}
    print_result(Value("a", ()), "", as_json=False)
    assert capsys.readouterr().out == ""


def test_bytes_that_are_no_text_are_replaced_before_they_are_recorded() -> None:
    raw = b"caf\xe9 \xc3\xa9".decode("utf-8", "surrogateescape")
    assert FreeText().convert(raw, None, None) == "caf� é"


def test_no_control_character_is_printed() -> None:
    shown = make_printable("a\x1b[2J\r\nb\u202e")
    assert shown.isprintable()
    assert shown.startswith("a\\x1b[2J")


def test_a_file_is_read_and_what_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff")
    assert read_input(str(tmp_path / "a")) == b"\xff"
    with pytest.raises(ConfigError, match="is a folder"):
        read_input(str(tmp_path))
    with pytest.raises(ConfigError, match="No such file"):
        read_input(str(tmp_path / "b"))


def test_a_current_folder_that_was_removed_is_an_error_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    assert current_folder() == gone
    gone.rmdir()
    with pytest.raises(ConfigError, match="no longer exists"):
        current_folder()
