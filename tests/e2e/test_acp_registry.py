"""An agent of the person's own registry works without a release of ours."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from support import acp_agent
from support.dispatch_project import DispatchProject, make_project


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the person's settings, and a program on PATH that is only in the registry there."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "newcomer"
    program.write_text(
        f'#!/bin/sh\necho "$NEWCOMER_MODE" >&2\nexec {sys.executable} {acp_agent.__file__} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    folder = tmp_path / "config/phasegate"
    folder.mkdir(parents=True)
    return folder / "acp-registry.json"


def project_of(folder: Path) -> DispatchProject:
    return make_project(folder, agent='[agents.newcomer]\nharness = "acp"\n')


def test_an_agent_of_the_persons_registry_has_its_command_from_there(
    own: Path, tmp_path: Path
) -> None:
    way = {"package": "newcomer@2.0.0", "args": ["--acp"], "env": {"NEWCOMER_MODE": "quiet"}}
    ours = {"keys": ["NEWCOMER_KEY"], "sign_in": "set NEWCOMER_KEY"}
    entry = {"id": "newcomer", "name": "Newcomer", "distribution": {"npx": way}, "phasegate": ours}
    own.write_text(json.dumps({"version": "1.0.0", "agents": [entry]}))
    project = project_of(tmp_path)
    shown = project.command("config", "show", "--json")
    assert shown.code == 0, shown.stderr
    assert "newcomer" in shown.stdout
    (found,) = [
        one
        for one in project.command("agents", "--json").json["agents"]
        if one["name"] == "newcomer"
    ]
    assert found["command"] == ["newcomer", "--acp"]
    assert found["can_start"]
    assert [one["remedy"] for one in found["missing"]] == ["set NEWCOMER_KEY"]


def test_without_an_entry_a_command_is_asked_for(own: Path, tmp_path: Path) -> None:
    root = tmp_path / "other"
    root.mkdir()
    (root / "phasegate.toml").write_text('[agents.newcomer]\nharness = "acp"\n')
    done = make_project(tmp_path).command("config", "show", "--set", "agents.newcomer.harness=acp")
    assert done.code == 2
    assert "needs a command" in done.stderr
    assert "registry" in done.stderr


def test_a_broken_registry_is_named(own: Path, tmp_path: Path) -> None:
    project = make_project(tmp_path)
    own.write_text("no registry")
    done = project.command("config", "show", "--set", "agents.newcomer.harness=acp")
    assert done.code == 2
    assert "acp-registry.json is not an ACP agent registry" in done.stderr
