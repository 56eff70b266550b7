"""The person's own way with git: signed commits, hooks, linked worktrees, shallow and sparse clones, line ends (R7)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.feature_project import DESCRIPTION, FeatureProject, make_feature_project


def hooked(project: FeatureProject) -> Path:
    hook = project.root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {project.root.parent}/ran\n")
    hook.chmod(0o755)
    return project.root.parent / "ran"


def signs_with(project: FeatureProject, key: Path) -> None:
    for name, value in {
        "commit.gpgsign": "true",
        "gpg.format": "ssh",
        "user.signingkey": str(key),
    }.items():
        project.git("config", name, value)


@pytest.mark.demand("R7.c", "R7.d")
def test_the_merge_is_signed_as_the_person_s_settings_ask_and_names_the_hooks_that_were_not_run(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path)
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    signs_with(project, key)
    ran = hooked(project)
    done = project.command("run", "quick", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    assert "your hooks were not run on this merge: pre-commit" in done.stderr + done.stdout
    assert not ran.exists()
    (tmp_path / "allowed").write_text(f"* {key.with_suffix('.pub').read_text()}")
    project.git("config", "gpg.ssh.allowedSignersFile", str(tmp_path / "allowed"))
    merge = project.git("log", "--merges", "-1", "--format=%H", "main")
    assert project.git("log", "-1", "--format=%G?", merge) == "G"
    assert project.audit_problems() == []


@pytest.mark.demand("R7.c", "R7.d")
def test_a_merge_that_cannot_be_signed_or_has_hooks_to_stop_for_is_refused_and_says_why(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path, config='[run]\ncommit_hooks = "stop"\n')
    signs_with(project, tmp_path / "no-such-key")
    before = project.git("rev-parse", "main")
    hooked(project)
    first = project.command("run", "quick", DESCRIPTION, "--merge")
    assert first.code == 1
    assert (
        "this repository has commit hooks (pre-commit), which Phasegate does not run"
        in first.stderr + first.stdout
    )
    (project.root / ".git/hooks/pre-commit").unlink()
    assert project.command("resolve", "try again").code == 0
    second = project.command("run", "--merge")
    assert second.code == 1
    assert "commit.gpgsign is set, and signing failed" in second.stderr + second.stdout
    assert project.git("rev-parse", "main") == before


@pytest.mark.demand("R7.e")
def test_in_a_linked_worktree_its_own_branch_is_the_base(tmp_path: Path) -> None:
    project = make_feature_project(tmp_path)
    project.git("worktree", "add", "-q", "-b", "work", str(tmp_path / "linked"))
    before = project.git("rev-parse", "main")
    there = project._replace(root=tmp_path / "linked")
    done = there.command("run", "quick", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    assert project.git("rev-parse", "main") == before
    assert (tmp_path / "linked/bye.py").exists()
    assert "bye.py" in project.git("ls-tree", "-r", "--name-only", "work")
