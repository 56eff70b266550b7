"""Readers on a file system that nobody can write to: a mounted backup, another person's repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from phasegate.engine.drive.orders import start_workflow
from phasegate.engine.project.project import open_project_store
from support.feature_project import SLUG, FeatureProject, make_feature_project

MOUNTS = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec "$@"'
READERS = (
    ("status",),
    ("status", "--json"),
    ("status", "WP01"),
    ("next",),
    ("show", "WP01", "--diff"),
    ("show", "01", "--evidence"),
    ("plan", "show"),
    ("package", "list"),
    ("worktree", "list"),
    ("trace",),
    ("artifact", "list"),
    ("audit", "show"),
    ("audit", "show", "--chain"),
    ("audit", "verify"),
    ("config", "show"),
    ("agents",),
)


def read_only(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a folder that cannot be written to: for root by a mount of its own, for others by permissions."""
    if os.geteuid() == 0:
        command: Sequence[str] = ("unshare", "-m", "sh", "-c", MOUNTS, str(folder), *arguments)
    else:
        subprocess.run(["chmod", "-R", "a-w", str(folder)], check=True)
        command = arguments
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    finally:
        if os.geteuid() != 0:
            subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)


@pytest.fixture
def project(tmp_path: Path) -> FeatureProject:
    project = make_feature_project(tmp_path)
    if os.geteuid() == 0 and read_only(project.root, "true").returncode:
        pytest.skip("no mounts can be made here: run it as an ordinary user")
    assert read_only(project.root, "touch", "x").returncode, "the control: nothing can be written"
    project.start()
    return project


@pytest.mark.demand("W4.a")
def test_everything_can_be_read_where_nothing_can_be_written(project: FeatureProject) -> None:
    project.drive()
    for reader in READERS:
        done = read_only(project.root, sys.executable, "-m", "phasegate", *reader)
        assert done.returncode == 0, (reader, done)
        assert done.stdout
    refused = read_only(project.root, sys.executable, "-m", "phasegate", "escalate", "why")
    assert refused.returncode in (3, 4), refused
    assert "hint: " in refused.stderr


@pytest.mark.demand("W5.c")
def test_what_a_dead_process_left_in_its_log_is_read_there_too(
    project: FeatureProject, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    with open_project_store(project.project) as store:
        start_workflow(project.project, store, "quick", "Only in the log")
        shutil.copytree(project.root, copy, symlinks=True, ignore=shutil.ignore_patterns("*-shm"))
    assert (copy / ".phasegate/store.db-wal").stat().st_size > 0
    done = read_only(copy, sys.executable, "-m", "phasegate", "status")
    assert (done.returncode, "002-only-in-the-log" in done.stdout, SLUG in done.stdout) == (
        0,
        True,
        True,
    ), done
