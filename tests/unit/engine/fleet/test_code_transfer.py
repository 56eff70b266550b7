"""The code of a feature at the remote: published, handed over, and removed at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.engine.fleet.code_transfer import (
    CODE_REF_PREFIX,
    FeatureCodeTransfer,
    list_carried_features,
    remove_retired_code,
)
from phasegate.engine.project.fleet_repository import fleet_remote, register_repository
from phasegate.engine.project.project import Project, open_project
from phasegate.workspace.snapshots.feature_snapshot import FeatureClaim
from support.feature_run import FEATURE, SLUG, make_feature_run
from support.git_project import git
from support.memory_ports import MemoryRecord

REF = f"{CODE_REF_PREFIX}{SLUG}"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A clone that is registered at its remote, with a branch of the feature."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = make_feature_run(tmp_path)
    git(tmp_path, "clone", "-q", "--bare", str(run.root), "remote.git")
    git(run.root, "remote", "add", "origin", str(tmp_path / "remote.git"))
    made = open_project(run.root)
    register_repository(made)
    git(run.root, "branch", FEATURE)
    return made


def published(project: Project) -> FeatureCodeTransfer:
    code = FeatureCodeTransfer(project, fleet_remote(project), SLUG, FeatureClaim(1, "worker"))
    code.fetch_published(MemoryRecord(), "main")
    code.publish()
    return code


def remote_refs(project: Project) -> str:
    return git(project.root.parent / "remote.git", "for-each-ref", "--format=%(refname)")


def test_a_branch_that_the_forge_has_removed_after_its_merge_stops_nothing(
    project: Project,
) -> None:
    code = published(project)
    assert f"refs/heads/{FEATURE}" in remote_refs(project), "control"
    git(project.root.parent / "remote.git", "branch", "-D", FEATURE)
    git(project.root, "branch", "-D", FEATURE)
    git(project.root, "update-ref", "-d", f"refs/phasegate/heads/{FEATURE}")
    code.publish()
    code.retire()
    assert REF not in remote_refs(project)


def test_a_clone_removes_what_it_has_of_a_feature_that_another_one_has_merged(
    project: Project,
) -> None:
    published(project)
    assert (list_carried_features(project), REF in remote_refs(project)) == ([SLUG], True)
    remove_retired_code(project, SLUG, ())
    assert list_carried_features(project) == []
    assert git(project.root, "branch", "--list", FEATURE) == ""
    assert REF not in remote_refs(project)


def test_a_branch_with_work_that_was_not_handed_over_stays(project: Project) -> None:
    published(project)
    own = git(project.root, "commit-tree", "-p", FEATURE, "-m", "mine", f"{FEATURE}^{{tree}}")
    git(project.root, "branch", "-f", FEATURE, own.strip())
    remove_retired_code(project, SLUG, ())
    assert FEATURE in git(project.root, "branch", "--list", FEATURE)
