"""A repository that an earlier version was killed in, in the middle of two work packages.

`killed-in-implementation-0.1.tar.xz` holds the repository and the state directory as `kill -9` left them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from phasegate.storage.chain_heads import get_heads_folder
from phasegate.storage.location import locate_repository

EXAMPLE = Path(__file__).parents[1] / "fixtures/journals/killed-in-implementation-0.1.tar.xz"


def phasegate(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_STATE_HOME": str(repository.parent / "state")}
    return subprocess.run(
        [sys.executable, "-m", "phasegate", *arguments],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Unpack the example. Chain heads are kept by path, so their folder is renamed for the new place."""
    with tarfile.open(EXAMPLE) as archive:
        archive.extractall(tmp_path, filter="tar")
    repository = tmp_path / "repository"
    [heads] = (tmp_path / "state/phasegate/heads").iterdir()
    store_id = heads.name.rpartition(".")[0]
    location = locate_repository(repository, {"XDG_STATE_HOME": str(tmp_path / "state")})
    heads.rename(get_heads_folder(location, store_id))
    # A checkout is known by its inode: in a copied repository they are made again.
    shutil.rmtree(repository / ".worktrees")
    shutil.rmtree(repository / ".git/phasegate/checkouts")
    return repository


@pytest.mark.demand("W5.a")
def test_a_run_that_an_earlier_version_left_half_way_continues_to_its_merge(
    repository: Path,
) -> None:
    verified = phasegate(repository, "audit", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr

    shown = phasegate(repository, "status")
    assert "WP02 Names (stopped)" in shown.stdout

    ran = phasegate(repository, "run", "--merge")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "001-say-goodbye-to-people-in: completed" in ran.stdout + ran.stderr

    files = subprocess.run(
        ["git", "ls-tree", "--name-only", "main"], cwd=repository, capture_output=True, text=True
    )
    assert {"goodbye.py", "names.py", "words.py"} <= set(files.stdout.split())
    assert phasegate(repository, "audit", "verify").returncode == 0


@pytest.mark.demand("D13.h")
def test_a_changed_entry_of_an_earlier_version_is_found(repository: Path) -> None:
    """The control: the verification above would have noticed."""
    trail = next((repository / ".phasegate/audit").rglob("*.jsonl"))
    trail.write_bytes(
        trail.read_bytes()
        .replace(b'"exit_code":0', b'"exit_code":1', 1)
        .replace(b'"code":0', b'"code":1')
    )
    assert phasegate(repository, "audit", "verify").returncode == 1
