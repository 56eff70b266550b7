"""`phasegate hook` on real settings files, and the command it puts there as a program would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from support.entry import Done, phasegate
from support.git_project import make_repository

HOOKS = {row.kind: row.hooks for row in INSTALLABLE_HARNESSES.values() if row.hooks}

ACTIVE = {
    "active_workflow": {
        "type": "feature",
        "phases": list(WORKFLOWS["feature"]),
        "current_phase_index": 3,
    }
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    make_repository(tmp_path / "repo")
    return tmp_path / "repo"


def hook(repository: Path, *arguments: str) -> Done:
    return phasegate("hook", *arguments, cwd=repository)


@pytest.mark.demand("N13.a")
@pytest.mark.parametrize("agent", ["claude", "codex", "cursor-agent", "gemini", "qwen"])
def test_what_is_installed_runs_and_speaks_json(
    agent: str, repository: Path, tmp_path: Path
) -> None:
    told = json.loads(hook(repository, "install", agent, "--json").stdout)
    assert (repository / told["path"]).is_file()
    (repository / ".isdlc").mkdir()
    (repository / ".isdlc/state.json").write_text(json.dumps(ACTIVE))
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        told["command"], shell=True, cwd=repository, env=environ, capture_output=True, text=True
    )
    said = json.loads(ran.stdout)
    (text,) = said.values()
    assert [*said] == ["additional_context" if agent == "cursor-agent" else "systemMessage"]
    assert text.startswith("---\nSUGGESTED NEXT STEPS:\n  [1] Continue to Phase 04 - Design\n")
    (repository / ".isdlc/state.json").write_text("{")
    ran = subprocess.run(
        told["command"], shell=True, cwd=repository, env=environ, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.mark.parametrize("harness", HOOKS)
def test_install_twice_and_remove_leave_nothing_behind(harness: str, repository: Path) -> None:
    before = {*repository.rglob("*")}
    assert "written" in hook(repository, "install", harness).stdout
    assert "unchanged" in hook(repository, "install", harness).stdout
    assert "removed" in hook(repository, "remove", harness).stdout
    assert "not there" in hook(repository, "remove", harness).stdout
    assert {*repository.rglob("*")} == before


def test_settings_of_theirs_come_back_byte_for_byte(repository: Path) -> None:
    path = repository / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text(
        '{\n    "model": "x",\n    "hooks": {\n        "Stop": [\n            {}\n        ]\n    }\n}\n'
    )
    path.chmod(0o600)
    before = path.read_bytes()
    assert "hook added" in hook(repository, "install", "claude").stdout
    assert path.stat().st_mode & 0o777 == 0o600
    (repository / "below").mkdir()
    assert "hook removed" in hook(repository / "below", "remove", "claude").stdout
    assert path.read_bytes() == before


def test_broken_settings_are_refused_with_their_place_and_left_alone(repository: Path) -> None:
    path = repository / ".gemini/settings.json"
    path.parent.mkdir()
    path.write_text('{\n  // theirs\n  "a": 1\n}\n')
    for verb in ("install", "remove"):
        done = hook(repository, verb, "gemini")
        assert done.code == 2
        assert ".gemini/settings.json:2:3" in done.stderr
        assert "phasegate next --as message" in done.stderr
    assert path.read_text() == '{\n  // theirs\n  "a": 1\n}\n'


def test_a_link_in_place_of_the_settings_is_not_followed(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text("{}")
    (repository / ".claude").mkdir()
    (repository / ".claude/settings.json").symlink_to(tmp_path / "outside.json")
    assert hook(repository, "install", "claude").code == 2
    assert (tmp_path / "outside.json").read_text() == "{}"
    (tmp_path / "elsewhere").mkdir()
    (repository / ".qwen").symlink_to(tmp_path / "elsewhere")
    assert hook(repository, "install", "qwen").code == 3
    assert [*(tmp_path / "elsewhere").iterdir()] == []


@pytest.mark.parametrize("agent", ["opencode", "scripted"])
def test_a_program_without_hooks_is_named_as_such(agent: str, repository: Path) -> None:
    done = hook(repository, "install", agent)
    assert (done.code, "has no hooks" in done.stderr, "phasegate next" in done.stderr) == (
        2,
        True,
        True,
    )


def test_an_agent_is_known_by_its_name_in_the_configuration(repository: Path) -> None:
    (repository / "phasegate.toml").write_text('[agents.sonnet]\nharness = "claude_code"\n')
    assert ".claude/settings.json" in hook(repository, "install", "sonnet").stdout
    done = hook(repository, "install", "sonet")
    assert (done.code, "there is no agent sonet" in done.stderr) == (2, True)


def test_outside_of_a_repository_there_is_nothing_to_install_into(tmp_path: Path) -> None:
    assert hook(tmp_path, "install", "claude").code == 2
    assert [*tmp_path.iterdir()] == []
