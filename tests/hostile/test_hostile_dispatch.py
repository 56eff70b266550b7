"""Hostile agents through the whole of dispatch (ATTACKS.md D and I04), with a sandbox and without.

At level `none` nothing is held back: what lands outside is found afterwards and blocks the package. What is not
enforceable there: an agent runs as the person does, so it can read their files, and write to the checkouts of others.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from phasegate.core.audit.chain import chain_origin_hash, find_first_break
from phasegate.core.plan.work_package import PackageState
from phasegate.sandbox.request import SandboxLevel
from phasegate.storage.reader import open_store_reader
from support.dispatch_project import (
    FEATURE,
    DispatchProject,
    Step,
    approves,
    implements,
    make_project,
    package,
    turn,
    writes,
)
from support.git_project import git, make_repository
from support.record import read_links
from support.sandboxed import need

FORM = "src/login.ts"
SUCCESS: Step = {"result": "success"}


def hostile(tmp_path: Path, sandbox: str, *steps: Step) -> DispatchProject:
    """A project whose implementer does what is due, and these steps besides."""
    if sandbox != "none":
        need(SandboxLevel.WORKTREE)
    project = make_project(tmp_path, run=f'sandbox = "{sandbox}"')
    project.play(turn("implement", *writes(FORM), *steps, SUCCESS), approves())
    return project


def shell(text: str, **options: object) -> Step:
    return {"run": text, **options}


def plant(marker: Path, git_dir: str = ".git") -> str:
    """Everything in a git directory and a tree that makes a careless git run a program."""
    order = f"touch {shlex.quote(str(marker))}"
    hooks = (
        "pre-commit",
        "post-checkout",
        "post-commit",
        "reference-transaction",
        "post-index-change",
        "post-merge",
    )
    program = f'printf \'#!/bin/sh\\n{order}\\n\' > "$1"; chmod +x "$1"'
    lines = [f"d={git_dir}; mkdir -p $d/hooks"]
    lines += [f"set -- $d/hooks/{name}; {program}" for name in hooks]
    settings = {
        "core.fsmonitor": order,
        "core.hooksPath": "$PWD/$d/hooks",
        "diff.external": order,
        "filter.evil.clean": order,
        "filter.evil.smudge": order,
        "core.sshCommand": order,
        "gpg.program": order,
        "core.alternateRefsCommand": order,
    }
    lines += [f'git config --file $d/config {key} "{value}"' for key, value in settings.items()]
    return "\n".join([*lines, "mkdir -p $d/info", "echo '* filter=evil' >> $d/info/attributes"])


@pytest.mark.demand("D4.g", "D6.m", "D6.n")
@pytest.mark.parametrize("sandbox", ["auto", "none"])
def test_what_an_agent_plants_in_its_git_directory_is_never_run(
    tmp_path: Path, sandbox: str
) -> None:
    """It is of no effect: nothing of it is run or believed, and the work is delivered (D02)."""
    project = hostile(tmp_path, sandbox)
    marker = project.root / ".worktrees" / "pwned"
    careless = tmp_path / "careless"
    make_repository(careless)
    subprocess.run(["sh", "-c", plant(tmp_path / "control")], cwd=careless, check=True)
    git(careless, "status", check=False)
    assert (tmp_path / "control").exists()
    steps = [{"commit": "WP01: Write"}, shell(plant(marker))]
    project.play(turn("implement", *writes(FORM), *steps, {**SUCCESS, "commits": []}), approves())
    report = project.dispatch()
    assert not marker.exists()
    assert report.state is PackageState.DONE
    assert FORM in project.files_of(FEATURE)
    assert project.git("status", "--porcelain") == ""
    assert project.audit_problems() == []


MADE = "git -C {root} -c user.name=x -c user.email=x commit-tree HEAD^{{tree}} -m x"
OUTSIDE = {
    "a file of the person": "echo evil > {root}/README.md",
    "a new file beside theirs": "echo evil > {root}/conftest.py",
    "a hook of theirs": "printf '#!/bin/sh\\n' > {root}/.git/hooks/pre-commit",
    "their git configuration": "git -C {root} config core.fsmonitor 'touch {root}/.worktrees/pwned'",
    "our git directory": "git config --file {root}/.git/phasegate/git/config core.fsmonitor x",
    "main": f"git -C {{root}} update-ref refs/heads/main $({MADE})",
    "the feature's branch": f"git -C {{root}} update-ref refs/heads/{FEATURE} $({MADE})",
    "a tag": "git -C {root} tag evil",
}


@pytest.mark.demand("D4.e", "D6.e", "D6.f", "D6.g", "D6.h")
@pytest.mark.parametrize("what", OUTSIDE)
def test_without_a_sandbox_a_change_outside_blocks_and_is_named(tmp_path: Path, what: str) -> None:
    """This is the positive control of the next test, too: the same attack gets through where nothing holds it back."""
    project = hostile(tmp_path, "none")
    attack = shell(OUTSIDE[what].format(root=project.root))
    project.play(turn("implement", *writes(FORM), attack, SUCCESS), approves())
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert report.reason.startswith("File scope violation: changed outside the worktree: ")
    assert not (project.root / ".worktrees/pwned").exists()
    assert FORM not in project.files_of(FEATURE)
    assert [job.outcome for job in project.jobs()] == ["blocked"]


@pytest.mark.demand("D4.e", "D6.f", "D7.g")
def test_in_the_sandbox_nothing_outside_changes_and_the_work_is_delivered(tmp_path: Path) -> None:
    project = hostile(tmp_path, "auto")
    attacks = [shell(text.format(root=project.root), may_fail=True) for text in OUTSIDE.values()]
    project.play(turn("implement", *writes(FORM), *attacks, SUCCESS), approves())
    before = seen_outside(project)
    assert project.dispatch().state is PackageState.DONE
    assert seen_outside(project) == before
    assert FORM in project.files_of(FEATURE)


def seen_outside(project: DispatchProject) -> tuple[str, ...]:
    config = (project.root / ".git/config").read_text()
    hooks = sorted(path.name for path in (project.root / ".git/hooks").iterdir())
    refs = project.git(
        "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/main", "refs/tags"
    )
    return (project.git("status", "--porcelain"), config, *hooks, refs)


@pytest.mark.demand("D6.e", "W8.c")
def test_without_a_sandbox_a_reviewer_that_writes_outside_never_passes_the_work(
    tmp_path: Path,
) -> None:
    project = hostile(tmp_path, "none")
    outside = shell(f"echo evil > {project.root}/README.md")
    project.play(
        turn("implement", *writes(FORM), SUCCESS), turn("review", outside, {"verdict": "PASS"})
    )
    report = project.dispatch()
    assert (report.state, report.reason) == (
        PackageState.BLOCKED,
        "File scope violation: changed outside the worktree: README.md",
    )
    assert FORM not in project.files_of(FEATURE)


@pytest.mark.demand("W8.c")
@pytest.mark.parametrize("sandbox", ["auto", "none"])
def test_what_a_reviewer_writes_into_its_room_is_not_delivered(
    tmp_path: Path, sandbox: str
) -> None:
    project = hostile(tmp_path, sandbox)
    review = turn("review", *writes("src/more.ts", FORM, text="evil\n"), {"verdict": "PASS"})
    project.play(turn("implement", *writes(FORM), SUCCESS), review)
    assert project.dispatch().state is PackageState.DONE
    assert "src/more.ts" not in project.files_of(FEATURE)
    assert project.git("show", f"{FEATURE}:{FORM}") == "export const done = true;"


@pytest.mark.demand("D6.e")
def test_without_a_sandbox_an_agent_that_changes_nothing_outside_is_done(tmp_path: Path) -> None:
    """An artifact through the job's own command is not outside: we wrote it."""
    project = hostile(tmp_path, "none")
    report = "phasegate artifact write --feature-slug {feature_slug} --relative-path {wp_id}/report.txt --content fine"
    project.play(turn("implement", *writes(FORM), shell(report), SUCCESS), approves())
    done = project.dispatch()
    assert done.state is PackageState.DONE, done.reason
    assert not (project.root / "kitty-specs/001-user-login/WP01").exists()
    where = ("--feature-slug", "001-user-login", "--relative-path", "WP01/report.txt")
    assert project.command("artifact", "read", *where).stdout == "fine"


@pytest.mark.demand("D13.h", "D13.i")
@pytest.mark.parametrize("sandbox", ["auto", "none"])
def test_an_agent_cannot_forge_the_audit_trail_unseen(tmp_path: Path, sandbox: str) -> None:
    """In the sandbox the files are out of reach; without one they are not, and `audit verify` says so.

    A trail is a file once its job has ended: it is the reviewer who forges that of the implementer.
    """
    project = hostile(tmp_path, sandbox)
    folder = project.root / ".phasegate/audit/001-user-login"
    forged = (
        '{{"ts":"2026-03-01T10:15:34Z","actor":"phasegate","job":"x","action":"exit","code":0}}'
    )
    attack = f"for file in {folder}/*.jsonl; do echo '{forged}' >> $file; done"
    review = turn("review", shell(attack, may_fail=True), {"verdict": "PASS"})
    project.play(turn("implement", *writes(FORM), SUCCESS), review)
    project.dispatch()
    first = project.jobs()[0].id
    found = '"job":"x"' in (folder / f"{first}.jsonl").read_text()
    assert found == (sandbox == "none")
    assert (project.audit_problems() != []) == (sandbox == "none")
    assert project.command("audit", "verify").code == (1 if sandbox == "none" else 0)


@pytest.mark.demand("D13.g", "D13.i")
def test_an_older_copy_of_everything_that_is_recorded_is_found_out(tmp_path: Path) -> None:
    """The copy is whole and consistent in itself: only the heads that are kept outside tell."""
    project = make_project(
        tmp_path, {"WP01": package(), "WP02": package("WP02", ["src/second.ts"])}
    )
    project.play(
        implements("src/login.ts", package="WP01"), implements("src/second.ts"), approves()
    )
    assert project.dispatch("WP01").state is PackageState.DONE
    folder, older = project.root / ".phasegate", tmp_path / "older"
    shutil.copytree(folder, older, symlinks=True)
    assert project.command("audit", "verify").code == 0
    assert project.dispatch("WP02").state is PackageState.DONE
    assert project.command("audit", "verify").code == 0
    shutil.rmtree(folder)
    shutil.copytree(older, folder, symlinks=True)
    assert chain_is_whole(project)
    found = project.command("audit", "verify")
    assert found.code == 1
    assert "NOT VERIFIED" in found.stdout
    refused = project.command("dispatch", "WP02")
    assert refused.code == 4
    assert "replaced by another copy" in refused.stderr


def chain_is_whole(project: DispatchProject) -> bool:
    """The control: a chain check that knows the log alone."""
    reader = open_store_reader(project.project.location)
    assert reader is not None
    with reader:
        store_id = reader.store_id
    return (
        find_first_break(chain_origin_hash(store_id), read_links(project.project.location), [], [])
        is None
    )
