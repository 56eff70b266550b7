"""Starting a workflow for machines other than this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.engine.drive.orders import start_workflow
from phasegate.engine.project.project import open_project_store
from phasegate.errors import ConfigError
from support.feature_run import DESCRIPTION, SLUG, TYPE, make_feature_run


def test_a_machine_without_the_agents_can_start_a_feature_for_others_but_not_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = make_feature_run(tmp_path)
    config = run.root / "phasegate.toml"
    missing = 'harness = "command"\ncommand = ["no-such-agent"]\n'
    config.write_text(
        config.read_text().replace('harness = "scripted"\nscenario = "../scenario.json"\n', missing)
    )
    with open_project_store(run.project) as store:
        with pytest.raises(ConfigError):
            start_workflow(run.project, store, TYPE, DESCRIPTION)
        started = start_workflow(run.project, store, TYPE, DESCRIPTION, runs_elsewhere=True)
    assert started == SLUG
