"""`phasegate config` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.interfaces.cli.main import run_command


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "deep").mkdir()
    (tmp_path / "phasegate.toml").write_text('[agents.a]\nharness = "codex"\n[run]\nparallel = 3\n')
    monkeypatch.chdir(tmp_path / "deep")
    return tmp_path


@pytest.mark.demand("D10.d")
def test_show_says_of_each_value_where_it_comes_from(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHASEGATE_RUN__MAX_REVISIONS", "4")
    assert run_command(["config", "show", "--set", "agents.a.timeout_s=60"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "run.parallel = 3  # file: phasegate.toml:4" in lines
    assert "run.max_revisions = 4  # environment: PHASEGATE_RUN__MAX_REVISIONS" in lines
    assert "agents.a.timeout_s = 60  # flag: agents.a.timeout_s" in lines
    assert 'run.sandbox = "auto"' in lines
    assert "agents.a.template = (not set)" in lines


def test_show_answers_in_json_too(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["config", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["file"] == str(repository / "phasegate.toml")
    assert shown["values"]["run.parallel"] == {
        "value": 3,
        "source": "file",
        "place": "phasegate.toml:4",
    }
    assert shown["values"]["run.sandbox"] == {"value": "auto", "source": "default", "place": ""}


def test_a_mistake_ends_in_2_with_place_and_hint(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "phasegate.toml").write_text("[run]\nparalel = 3\n")
    assert run_command(["config", "show"]) == 2
    expected = "phasegate: phasegate.toml:2: unknown key `paralel` in [run]\n  hint: did you mean `parallel`?\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("setting", ["parallel", "run.paralel=3", "run.parallel=x", "=", ""])
def test_a_setting_that_sets_nothing_is_an_error(
    setting: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["config", "show", "--set", setting]) == 2
    assert "hint: " in capsys.readouterr().err


def test_path_names_the_file_or_says_that_there_is_none(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["config", "path"]) == 0
    assert capsys.readouterr().out == f"{repository}/phasegate.toml\n"
    (repository / "phasegate.toml").unlink()
    assert run_command(["config", "path"]) == 1
    assert capsys.readouterr() == (
        "",
        f"there is no {repository}/phasegate.toml\n",
    )


def test_in_a_folder_that_is_gone_the_remedy_is_said(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "deep").rmdir()
    assert run_command(["config", "show"]) == 2
    assert "hint: change to an existing folder" in capsys.readouterr().err


def test_path_answers_in_json_too(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["config", "path", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": str(repository / "phasegate.toml"),
        "exists": True,
    }
    (repository / "phasegate.toml").unlink()
    assert run_command(["config", "path", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["exists"] is False
