"""Many packages of one repository at once (G01, G02, G05)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from phasegate.core.plan.work_package import PackageState
from phasegate.errors import StateConflict
from support.dispatch_project import (
    FEATURE,
    DispatchProject,
    approves,
    implements,
    make_project,
    package,
    turn,
)
from support.sandboxed import eventually


def many(folder: Path, count: int, run: str = "") -> tuple[DispatchProject, dict[str, str]]:
    files = {f"WP{number:02d}": f"src/part{number}.ts" for number in range(1, count + 1)}
    project = make_project(
        folder, {name: package(name, [path]) for name, path in files.items()}, run=run
    )
    project.play(*(implements(path, package=name) for name, path in files.items()), approves())
    return project, files


def check_all_at_once(project: DispatchProject, files: dict[str, str]) -> None:
    """Each by a dispatcher of its own, all of them at once; every one is done, and every effect is there once."""
    with ThreadPoolExecutor(len(files)) as pool:
        reports = list(pool.map(project.dispatch, files))
    assert {(report.package, report.state, report.reason) for report in reports} == {
        (name, PackageState.DONE, "") for name in files
    }
    assert set(files.values()) <= project.files_of(FEATURE)
    assert project.git("rev-list", "--merges", "--count", f"main..{FEATURE}") == str(len(files))
    assert len(project.jobs()) == 2 * len(files)
    assert project.worktrees() == set()
    assert project.git("status", "--porcelain") == ""
    assert project.audit_problems() == []
    project.git("fsck", "--strict")


@pytest.mark.demand("D4.a", "D11.c", "W4.i", "W8.e")
def test_six_packages_at_once_without_a_sandbox_are_all_done(tmp_path: Path) -> None:
    check_all_at_once(*many(tmp_path, 6, 'sandbox = "none"'))


@pytest.mark.demand("D4.a", "D11.c", "W4.i", "W8.e")
def test_thirty_two_packages_at_once_are_all_done(tmp_path: Path) -> None:
    check_all_at_once(*many(tmp_path, 32))


@pytest.mark.demand("W4.h")
def test_a_package_in_work_is_refused_to_a_second_dispatcher(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    go_on = project.root / ".worktrees" / "001-user-login-WP01" / "src/go-on.ts"
    wait = {"run": "until test -e src/go-on.ts; do sleep 0.05; done; rm src/go-on.ts"}
    project.play(
        turn("implement", {"write": "src/login.ts", "content": "x"}, wait, {"result": "success"}),
        approves(),
    )
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(project.dispatch)
        assert eventually((go_on.parent / "login.ts").exists)
        with pytest.raises(StateConflict, match="is already running: process"):
            project.dispatch()
        go_on.touch()
        assert first.result().state is PackageState.DONE
    assert len(project.jobs()) == 2
