"""Exceptions to a scope: valid only for the content that the user has seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.engine.journal.entries import ScopeException
from phasegate.engine.steps.scope_exceptions import (
    ABSENT,
    MAX_FILE_BYTES,
    allow_path,
    allowed_paths,
    fingerprint_content,
    preview_path_change,
)
from phasegate.errors import ConfigError, StateConflict
from support.memory_ports import MemoryRecord
from support.packages import LOGIN_FORM
from support.plain_project import make_plain_project


def exception(path: str, content: str = "") -> ScopeException:
    return ScopeException(package="WP01", path=path, reason="why", content=content)


def test_an_exception_ends_when_the_content_or_the_mode_changes(tmp_path: Path) -> None:
    file = tmp_path / "phasegate.toml"
    file.write_text("a = 1\n")
    file.chmod(0o644)
    seen = exception(file.name, fingerprint_content(tmp_path, file.name))
    assert allowed_paths([seen], tmp_path) == (file.name,)
    file.chmod(0o755)
    assert allowed_paths([seen], tmp_path) == ()
    file.chmod(0o600)
    assert allowed_paths([seen], tmp_path) == (file.name,)
    file.write_text("a = 2\n")
    assert allowed_paths([seen], tmp_path) == ()
    file.unlink()
    assert allowed_paths([seen], tmp_path) == ()


def test_a_removal_that_was_seen_is_allowed_until_the_file_is_back(tmp_path: Path) -> None:
    removed = exception("a", ABSENT)
    assert allowed_paths([removed], tmp_path) == ("a",)
    (tmp_path / "a").symlink_to("nowhere")
    assert allowed_paths([removed], tmp_path) == ()


def test_an_exception_without_content_allows_any(tmp_path: Path) -> None:
    assert allowed_paths([exception("a")], tmp_path) == ("a",)


@pytest.mark.parametrize("content", [b"\xff", b"x" * (MAX_FILE_BYTES + 1), None])
def test_what_is_no_plain_text_matches_no_text(tmp_path: Path, content: bytes | None) -> None:
    if content is None:
        (tmp_path / "b").write_text("text")
        (tmp_path / "a").symlink_to("b")
    else:
        (tmp_path / "a").write_bytes(content)
    assert fingerprint_content(tmp_path, "a") == "unreadable"


@pytest.mark.parametrize("path", ["../a", "/etc/passwd", ".git/config", ".phasegate/x", "a\x1bb"])
def test_a_path_that_no_scope_can_allow_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="no scope can allow it"):
        preview_path_change(make_plain_project(tmp_path), LOGIN_FORM, path)


def test_an_ordinary_path_is_recorded_and_other_content_than_the_seen_one_is_not(
    tmp_path: Path,
) -> None:
    project, record = make_plain_project(tmp_path), MemoryRecord()
    with pytest.raises(StateConflict, match="has changed since it was shown"):
        allow_path(project, record, LOGIN_FORM, "src/a.py", "why", expected_content="other")
    assert record.last_seq(LOGIN_FORM.feature_slug) == 0
    assert allow_path(project, record, LOGIN_FORM, "src/a.py", "why", expected_content="") == ""
    assert record.last_seq(LOGIN_FORM.feature_slug) == 1
