"""The checks of a package: its own before those of its root, before those of its profile."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from phasegate.config.settings import CheckSettings, Config
from phasegate.core.plan.work_package import PackageChecks, WorkPackage
from phasegate.engine.checks.plan import make_check_plans, resolve_checks
from support.git_project import git, make_repository, write
from support.plain_project import make_plain_project

PACKAGE = WorkPackage(work_package_id="WP01", title="", feature_slug="001-a", file_scope=("app/",))
CHECKS = {
    "python": CheckSettings(test="of the profile", lint="lint of the profile"),
    "app": CheckSettings(root="app", test="of the root", coverage_min=70),
}


@pytest.mark.parametrize(
    ("own", "root", "expected"),
    [
        (PackageChecks(), "app", ("of the root", None, 70)),
        (PackageChecks(), "other", ("of the profile", "lint of the profile", None)),
        (PackageChecks(test="own"), "app", ("own", None, 70)),
        (PackageChecks(test="", coverage_min=0), "app", ("", None, 0)),
    ],
)
def test_the_nearest_setting_counts_also_one_that_disables_a_check(
    tmp_path: Path, own: PackageChecks, root: str, expected: tuple[object, ...]
) -> None:
    project = make_plain_project(tmp_path, Config(checks=CHECKS))
    package = msgspec.structs.replace(PACKAGE, checks=own)
    found = resolve_checks(project, package, "python", root)
    assert (found.test, found.lint, found.coverage_min) == expected


def test_work_that_removes_its_checks_does_not_avoid_them(tmp_path: Path) -> None:
    files = {"pyproject.toml": "[tool.pytest.ini_options]\n", "test_a.py": "def test_a(): pass\n"}
    project = make_plain_project(tmp_path)
    repository = make_repository(project.root, files)
    project = project._replace(repository=repository)
    start = git(project.root, "rev-parse", "HEAD").strip()
    git(project.root, "rm", "-q", "pyproject.toml", "test_a.py")
    write(project.root, {"a.txt": "a"})
    git(project.root, "add", "-A")
    git(project.root, "commit", "-qm", "Remove")
    end = git(project.root, "rev-parse", "HEAD").strip()
    package = msgspec.structs.replace(PACKAGE, file_scope=("**",))

    def commands(first: str, last: str) -> list[str]:
        plans = make_check_plans(project, package, first, last)
        return [plan.plan.commands.get("test", "") for plan in plans]

    [before] = commands(start, start)
    assert before
    assert commands(start, end) == [before]
    assert commands(end, end) != [before]
