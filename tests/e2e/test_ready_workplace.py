"""An agent's checkout is ready before it starts: set up, with its programs, files and ports (R5)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from phasegate.core.plan.work_package import PackageState
from support.dispatch_project import (
    FEATURE,
    FILES,
    DispatchProject,
    approves,
    make_project,
    turn,
    writes,
)

# A virtual environment with a program that runs the project's tests, and something that git does not ignore.
SETUP = """\
set -e
python3 -m venv --without-pip .venv
cat > .venv/bin/suite <<END
#!$PWD/.venv/bin/python3
import sys, unittest
print(sys.prefix, flush=True)
sys.path.insert(0, "")
unittest.main("check_sources")
END
chmod +x .venv/bin/suite
mkdir -p made/by
echo setup > made/by/setup.txt
"""
CHECKS = '\n[checks.python]\nsetup = "sh tools/setup.sh"\n'
PROJECT = {
    **FILES,
    "pyproject.toml": "",
    "tools/setup.sh": SETUP,
    ".gitignore": ".env\n*.key\n",
    ".worktreeinclude": "# files of mine\n.env\nconfig/*.key\nnotes.txt\n",
    "config/app.toml": "",
}


def shell(line: str) -> dict[str, object]:
    return {"run": ["sh", "-c", line]}


def project_with(tmp_path: Path, run: str = "") -> DispatchProject:
    project = make_project(tmp_path, files=PROJECT, run=run + CHECKS)
    (project.root / ".env").write_text("TOKEN=mine\n")
    (project.root / "config/a.key").write_text("key\n")
    (project.root / "notes.txt").write_text("neither tracked nor ignored\n")
    return project


def said(project: DispatchProject, number: int = 0) -> list[str]:
    return (
        (project.project.jobs_folder / project.jobs()[number].id / "stdout.log")
        .read_text()
        .splitlines()
    )


LOOK = (
    "set -e; suite; cat .env config/a.key; test ! -e notes.txt; test -f made/by/setup.txt; "
    'echo "$PORT $PHASEGATE_PORTS"; echo data > "$PHASEGATE_DATA/db"; command -v suite; '
    "echo more > made/by/agent.txt; git status --porcelain --untracked-files=all"
)
DELIVER = (*writes("src/login.ts"), {"commit": "{wp_id}: Write what is due"}, {"result": "success"})


@pytest.mark.demand("R5.a", "R5.b", "R5.c", "R5.d")
@pytest.mark.parametrize("level", ["auto", "none"])
def test_the_agent_runs_the_tests_itself_and_nothing_that_was_brought_is_harvested(
    tmp_path: Path, level: str
) -> None:
    project = project_with(tmp_path, f'sandbox = "{level}"\n')
    project.play(
        turn("implement", shell(LOOK), *DELIVER),
        turn("review", shell("suite"), {"verdict": "PASS"}),
    )
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    out = said(project)
    assert (
        out[0] == f"{project.root}/.worktrees/001-user-login-WP01/.venv"
    )  # its own, not the one of the clean checkout
    assert out[1:3] == ["TOKEN=mine", "key"]
    port, *ports = out[3].split()
    assert port == ports[0]
    assert len(set(ports)) == 10
    assert out[4].endswith("/tools/suite")
    assert out[5].startswith("{"), "git of the agent sees none of it"
    assert said(project, 1)[0].endswith("/.venv")  # the reviewer could run them, too
    errors = (project.project.jobs_folder / project.jobs()[0].id / "stderr.log").read_text()
    assert "Ran 1 test" in errors
    assert "run its tests before you answer" in project.prompt(project.jobs()[0].id)
    # The checks ran already: a reviewer does not run them again
    told = project.prompt(project.jobs()[1].id)
    assert "Its checks ran on this commit" in told
    assert "run its tests" not in told
    changed = project.git("diff", "--name-only", "main", FEATURE).splitlines()
    assert changed == ["src/login.ts"]
    assert not (project.project.jobs_folder / project.jobs()[0].id / "data").exists()


@pytest.mark.demand("R5.e")
def test_a_git_that_an_agent_puts_beside_the_setup_s_programs_is_not_run_by_the_next_one(
    tmp_path: Path,
) -> None:
    project = project_with(tmp_path)
    plant = "printf '#!/bin/sh\\necho planted' > .venv/bin/git && chmod +x .venv/bin/git"
    project.play(
        turn("implement", shell(plant), *DELIVER, round=1),
        turn(
            "implement",
            shell("git version; PATH=.venv/bin:$PATH git version"),
            {"exit": 3},
            round=2,
        ),
        turn("review", {"verdict": "NEEDS_CHANGES"}, round=1),
        approves(),
    )
    project.dispatch()
    first, control = said(project, 2)
    assert first.startswith("git version")
    assert control == "planted"


@pytest.mark.demand("R5.c")
def test_a_tracked_worktreeinclude_is_read_from_the_base_and_links_are_not_followed(
    tmp_path: Path,
) -> None:
    """What an agent's branch says in it, or a link of the tree would lead to, changes nothing."""
    project = project_with(tmp_path)
    (tmp_path / "secret").write_text("secret\n")
    (project.root / "config/b.key").symlink_to(tmp_path / "secret")
    project.git("checkout", "-q", "-b", "feat/other")
    (project.root / ".worktreeinclude").write_text("*\n")
    (project.root / "other.key").write_text("not named by main\n")
    project.play(turn("implement", shell("ls -A . config"), *DELIVER), approves())
    project.git("stash", "-q")
    project.git("checkout", "-q", "main")
    project.git("stash", "pop", "-q")
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    names = said(project)
    assert {".env", "a.key"} <= {*names}
    assert not {"b.key", "other.key"} & {*names}


@pytest.mark.demand("R4.a", "R5.a")
def test_a_setup_that_was_dropped_from_the_cache_is_made_again_although_the_base_is_known(
    tmp_path: Path,
) -> None:
    project = project_with(tmp_path)
    project.play(turn("implement", {"exit": 3}))
    assert project.dispatch().state is PackageState.BLOCKED
    kept = project.project.location.data_folder / "setups"
    (entry,) = kept.iterdir()
    shutil.rmtree(entry)
    project.play(turn("implement", shell("suite"), *DELIVER), approves())
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    assert [one.name for one in kept.iterdir()] == [entry.name]
    evidence = next((project.root / ".phasegate/evidence").rglob("WP01-*.md")).read_text()
    assert "setup: passed - restored from the cache" in evidence


@pytest.mark.demand("R4.a")
def test_a_setup_made_with_another_sandbox_is_not_taken(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    project.play(turn("implement", {"exit": 3}))
    assert project.dispatch().state is PackageState.BLOCKED
    kept = project.project.location.data_folder / "setups"
    (first,) = kept.iterdir()
    settings = project.root / "phasegate.toml"
    settings.write_text(settings.read_text().replace("[run]", '[run]\nsandbox = "none"', 1))
    project.play(turn("implement", {"exit": 3}))
    assert project.dispatch().state is PackageState.BLOCKED
    assert {first.name} < {one.name for one in kept.iterdir()}
