"""`init`: missing files are written, existing ones kept, and nothing outside is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.engine.tools.init import CONFIG_PATH, PROJECT_PATH, prepare_repository
from phasegate.errors import ConfigError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    for name in ("objects", "refs", "info"):
        (folder / ".git" / name).mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return folder


def outcomes(root: Path, path: str = "") -> dict[str, str]:
    return {one.path: one.outcome for one in prepare_repository(str(root), {"PATH": path}).files}


def test_what_is_missing_is_written_once(root: Path) -> None:
    assert [*outcomes(root).values()] == ["written", "written", "lines added"]
    assert [*outcomes(root).values()] == ["kept", "kept", "kept"]


def test_a_file_of_the_user_is_kept(root: Path) -> None:
    (root / PROJECT_PATH).parent.mkdir()
    (root / PROJECT_PATH).write_text("mine\n")
    assert outcomes(root)[PROJECT_PATH] == "kept"
    assert (root / PROJECT_PATH).read_text() == "mine\n"


def test_what_hinders_the_first_run_is_said(root: Path) -> None:
    notes = [note.what for note in prepare_repository(str(root), {"PATH": ""}).notes]
    assert notes[0] == "there are no commits yet"
    assert notes[1].startswith("no agent program was found on PATH")
    assert len(notes) == 2


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_program_counts_only_in_an_absolute_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch, is_relative: bool
) -> None:
    (root / "bin").mkdir()
    (root / "bin" / "codex").write_text("#!/bin/sh\n")
    (root / "bin" / "codex").chmod(0o755)
    monkeypatch.chdir(root)
    path = "bin" if is_relative else str(root / "bin")
    agents = prepare_repository(str(root), {"PATH": path}).agents
    assert (agents == ()) is is_relative


def test_a_folder_that_leads_outside_is_refused(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / ".agentd").symlink_to(outside)
    with pytest.raises(ConfigError, match="points outside"):
        prepare_repository(str(root), {"PATH": ""})
    assert [*outside.iterdir()] == []


@pytest.mark.parametrize(("name", "message"), [(CONFIG_PATH, "not a file"), (".agentd", "folder")])
def test_something_else_in_the_place_of_a_file_is_refused(
    root: Path, name: str, message: str
) -> None:
    if name == CONFIG_PATH:
        (root / PROJECT_PATH).mkdir(parents=True)
    else:
        (root / name).write_text("a file\n")
    with pytest.raises(ConfigError, match=message):
        prepare_repository(str(root), {"PATH": ""})


def test_the_project_has_the_name_of_its_manifest_without_control_characters(root: Path) -> None:
    (root / "package.json").write_text('{"name": "web\\u001b[2Jshop"}')
    prepare_repository(str(root), {"PATH": ""})
    text = (root / PROJECT_PATH).read_text()
    assert "web[2Jshop" in text
    assert "\x1b" not in text


def test_a_link_to_a_sibling_folder_with_the_same_prefix_is_refused(root: Path) -> None:
    sibling = root.parent / "shop-other"
    sibling.mkdir()
    (root / ".agentd").symlink_to(sibling)
    with pytest.raises(ConfigError, match="points outside the repository"):
        outcomes(root)
    assert not list(sibling.iterdir())


def test_the_description_is_whole_sentences_of_a_readme_in_any_spelling(root: Path) -> None:
    (root / "Readme.md").write_text("# Shop\n\nSells things. It is translated to:\n\n- Greek\n")
    prepare_repository(str(root), {"PATH": ""})
    text = (root / PROJECT_PATH).read_text()
    assert "\nSells things.\n" in text


def test_a_command_of_the_guidelines_is_no_rule(root: Path) -> None:
    (root / "CONTRIBUTING.md").write_text(
        "- `npm run test`\n- Run `npm test` and add tests.\n\n"
        "Follow\n[Google style](https://example.org)\nfor docstrings.\n\nThanks for your help!\n"
    )
    prepare_repository(str(root), {"PATH": ""})
    text = (root / PROJECT_PATH).read_text()
    assert "- Run `npm test` and add tests." in text
    assert "- `npm run test`" not in text
    assert "- Follow [Google style](https://example.org) for docstrings." in text
    assert "Thanks" not in text
