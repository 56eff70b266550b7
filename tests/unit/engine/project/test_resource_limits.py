"""Limits and sandbox level of jobs, from the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.config.settings import Config, LimitSettings, RunSettings, SandboxMode
from phasegate.engine.project.resource_limits import get_sandbox_level, make_job_limits
from phasegate.sandbox.request import SandboxLevel
from support.plain_project import make_plain_project


@pytest.mark.parametrize("mode", [*SandboxMode])
def test_every_configured_level_is_demanded_and_auto_demands_none(
    tmp_path: Path, mode: SandboxMode
) -> None:
    project = make_plain_project(tmp_path, Config(run=RunSettings(sandbox=mode)))
    expected = None if mode is SandboxMode.AUTO else SandboxLevel(mode.value)
    assert get_sandbox_level(project) is expected


def test_limits_in_mebibytes_become_bytes(tmp_path: Path) -> None:
    limits = LimitSettings(job_memory_mib=3, job_disk_mib=5, job_tasks=7, job_open_files=9)
    made = make_job_limits(make_plain_project(tmp_path, Config(limits=limits)))
    assert (made.memory_bytes, made.disk_bytes) == (3 * 1024 * 1024, 5 * 1024 * 1024)
    assert (made.tasks, made.open_files) == (7, 9)
