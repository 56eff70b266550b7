"""Changes that hide from a careless look at git are seen, and only what is allowed arrives (D03-D08, D10, D12, D13)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from phasegate.core.paths.scope import ChangeKind, Scope, ScopeRule, Violation, find_violations
from phasegate.workspace.changes.changes import Observation
from phasegate.workspace.checkout.checkout import Checkout
from phasegate.workspace.checkout.export import export_tree
from phasegate.workspace.checkout_lifecycle import remove_checkout
from phasegate.workspace.repository.repository import Repository
from support.git_project import (
    FILES,
    SLUG,
    US,
    branch_of,
    git,
    make_checkout,
    make_repository,
    seen_in,
    show,
    take_over,
    tree,
    write,
)

LOGIN = "src/login.py"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_repository(tmp_path / "project")


@pytest.fixture
def checkout(repository: Repository) -> Checkout:
    return make_checkout(repository)


def _violations(seen: Observation, *scope: str) -> list[Violation]:
    return find_violations(
        seen.changes, Scope(scope or (LOGIN,), set_aside=("WP01.md",)), seen.tracked_files
    )


def _naive_diff(checkout: Checkout, *options: str) -> list[str]:
    """What a careless program sees: the difference between the start and the agent's last commit."""
    return git(checkout.folder, "diff", "--name-only", *options, checkout.start, "HEAD").split()


@pytest.mark.demand("D6.b", "D6.c")
def test_an_edit_that_was_committed_and_reverted_is_shown(
    repository: Repository, checkout: Checkout
) -> None:
    write(checkout.folder, {LOGIN: "done\n", "src/auth.py": "backdoor\n"})
    git(checkout.folder, "commit", "-qam", "WP01: work")
    write(checkout.folder, {"src/auth.py": FILES["src/auth.py"]})
    git(checkout.folder, "commit", "-qam", "WP01: tidy up")
    assert _naive_diff(checkout) == [LOGIN]  # the control: nobody would know

    seen = seen_in(checkout)

    assert [change.path for change in seen.changes] == [LOGIN]
    assert [change.path for change in seen.transient_changes] == ["src/auth.py"]
    in_history = [
        (commit.subject, [change.path for change in commit.changes])
        for commit in seen.history.commits
    ]
    assert in_history == [
        ("WP01: work", ["src/auth.py", LOGIN]),
        ("WP01: tidy up", ["src/auth.py"]),
    ]
    done = take_over(checkout, [LOGIN])
    assert all("backdoor" not in git(repository.root, "show", taken.id) for taken in done.commits)


@pytest.mark.demand("D6.c")
@pytest.mark.parametrize(("old", "new"), [(LOGIN, "src/stolen.py"), ("src/auth.py", LOGIN)])
def test_a_rename_across_the_scope_names_both_paths(checkout: Checkout, old: str, new: str) -> None:
    (checkout.folder / LOGIN).unlink(missing_ok=old != LOGIN)
    if old == LOGIN:
        write(checkout.folder, {new: FILES[old]})
    else:
        (checkout.folder / old).rename(checkout.folder / new)
    git(checkout.folder, "add", "-A")
    git(checkout.folder, "commit", "-qm", "WP01: move")
    shown = _naive_diff(checkout, "--diff-filter=R", "-M")
    seen = seen_in(checkout)
    if old == LOGIN:
        assert shown == [new]  # the control: only one of the two
        (found,) = _violations(seen)
        assert (found.old_path, found.path) == (old, new)
    else:
        assert "src/auth.py" in {change.path for change in seen.changes}
        assert [found.path for found in _violations(seen)] == ["src/auth.py"]


@pytest.mark.demand("D6.a")
@pytest.mark.parametrize(
    ("allowed", "twin"),
    [(LOGIN, "SRC/Login.py"), ("src/caf\u00e9.py", "src/cafe\u0301.py")],
    ids=["case", "unicode"],
)
def test_a_twin_of_an_allowed_path_is_rejected(checkout: Checkout, allowed: str, twin: str) -> None:
    write(checkout.folder, {twin: "evil\n"})
    if not (checkout.folder / twin).exists() or len(seen_in(checkout).changes) != 1:
        pytest.skip("this file system does not tell the twins apart")
    found = _violations(seen_in(checkout), allowed)
    assert {(violation.path, violation.rule) for violation in found} == {
        (twin, ScopeRule.NAME_COLLISION)
    }
    assert (
        twin.casefold() == allowed.casefold() or not twin.isascii()
    )  # the control: a careless comparison agrees
    assert take_over(checkout, [allowed]).commits == ()


@pytest.mark.demand("D6.d")
def test_a_submodule_is_rejected_and_nothing_is_fetched(checkout: Checkout, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    write(checkout.folder, {LOGIN: "done\n"})
    write(
        checkout.folder,
        {
            ".gitmodules": f'[submodule "x"]\n\tpath = x\n\turl = -u./payload\n\tupdate = !touch {marker}\n'
        },
    )
    git(checkout.folder, "init", "-q", "x")
    git(checkout.folder / "x", "commit", "-q", "--allow-empty", "-m", "x")
    git(checkout.folder, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},hidden")
    git(checkout.folder, "add", "-A", ":!hidden")
    git(checkout.folder, "commit", "-qm", "WP01: library")
    assert "160000" in git(checkout.folder, "ls-tree", "HEAD")  # the control: plain git takes it

    seen = seen_in(checkout)
    found = {
        violation.path: violation.rule
        for violation in _violations(seen, LOGIN, "x", "hidden", ".gitmodules")
    }
    assert found == dict.fromkeys((".gitmodules", "hidden", "x"), ScopeRule.SUBMODULE)
    tip = take_over(checkout, [LOGIN, "x", "hidden"]).tip
    assert not any(about.startswith("160000") for about in tree(checkout.repository, tip).values())
    assert not marker.exists()


@pytest.mark.demand("D4.e", "D4.g", "D6.n")
def test_refs_that_an_agent_moves_or_deletes_are_its_own(
    repository: Repository, tmp_path: Path
) -> None:
    git(repository.root, "tag", "v1.0")
    checkout = make_checkout(repository)
    naive = tmp_path / "naive"
    git(repository.root, "worktree", "add", "-q", "--detach", str(naive))
    before = git(repository.root, "for-each-ref")

    def vandalise(folder: Path) -> None:
        write(folder, {LOGIN: "done\n"})
        git(folder, "commit", "-qam", "WP01: done")
        git(folder, "update-ref", "refs/heads/main", "HEAD")
        git(folder, "tag", "-d", "v1.0")
        git(folder, "pack-refs", "--all")
        git(folder, "reflog", "expire", "--expire=now", "--all")
        git(folder, "gc", "-q", "--prune=now")

    vandalise(checkout.folder)
    assert git(repository.root, "for-each-ref") == before
    assert show(repository, take_over(checkout, [LOGIN]).tip, LOGIN) == b"done\n"
    git(repository.root, "fsck", "--strict")
    vandalise(naive)
    after = git(repository.root, "for-each-ref", "refs/heads/main", "refs/tags")
    assert after not in before  # the control: in a worktree of the person's repository it works


@pytest.mark.demand("D6.d")
@pytest.mark.parametrize("mode", [0o755, 0o4755, 0o2644, 0o6755])
def test_a_mode_that_was_not_declared_is_rejected(checkout: Checkout, mode: int) -> None:
    write(checkout.folder, {LOGIN: "#!/bin/sh\n"})
    (checkout.folder / LOGIN).chmod(mode)
    seen = seen_in(checkout)
    assert [found.rule for found in _violations(seen)] == [ScopeRule.MODE]
    git(checkout.folder, "commit", "-qam", "WP01: run me")
    naive = git(checkout.folder, "ls-tree", "HEAD", LOGIN)
    assert naive.startswith(
        "100755" if mode & 0o100 else "100644"
    )  # the control: plain git takes it
    if mode != 0o755:
        take_over(checkout, [LOGIN])
        assert tree(checkout.repository, branch_of(checkout))[LOGIN].startswith("100644")


STEERING = (
    "CLAUDE.md",
    "AGENTS.md",
    ".mcp.json",
    ".claude/settings.json",
    ".codex/config",
    ".vscode/tasks.json",
)
STEERING += (
    ".envrc",
    "conftest.py",
    "package.json",
    "node_modules/.bin/tsc",
    "build/sitecustomize.py",
)


@pytest.mark.demand("D8.g", "D6.a")
@pytest.mark.parametrize("pooled", [False, True], ids=["new", "out of the pool"])
def test_steering_files_of_one_agent_reach_neither_checks_nor_the_next(
    repository: Repository, checkout: Checkout, tmp_path: Path, pooled: bool
) -> None:
    write(checkout.folder, {**dict.fromkeys(STEERING, "evil"), LOGIN: "done\n"})
    assert (
        checkout.folder / "conftest.py"
    ).exists()  # the control: whoever reuses the folder as it is gets them
    done = take_over(checkout, [LOGIN])
    exported = export_tree(repository, done.tip, tmp_path / "checks").folder
    remove_checkout(checkout, US, keep_for_reuse=pooled)
    second = make_checkout(repository, "WP02")
    for folder in (exported, second.folder):
        assert not [name for name in STEERING if (folder / name).exists()]
        assert (folder / "README.md").exists()
    assert (exported / LOGIN).read_text() == "done\n"


ATTRIBUTES = {
    "-diff": "-diff",
    "export-ignore": "export-ignore",
    "ident": "ident",
    "eol": "text eol=crlf",
    "encoding": "working-tree-encoding=UTF-16LE",
    "a filter": "filter=planted",
}


@pytest.mark.demand("D6.b", "D6.m")
@pytest.mark.parametrize("attribute", ATTRIBUTES.values(), ids=ATTRIBUTES)
def test_attributes_hide_nothing_and_change_no_byte(checkout: Checkout, attribute: str) -> None:
    (checkout.folder / ".git/info/attributes").write_text(f"* {attribute}\n")
    write(checkout.folder, {".gitattributes": f"* {attribute}\n"})
    content = "line\r\nother\n$Id: evil$\n".encode("utf-16-le")
    write(checkout.folder, {LOGIN: content, "src/auth.py": content})
    seen = seen_in(checkout)
    assert [change.path for change in seen.changes] == [".gitattributes", "src/auth.py", LOGIN]
    assert show(checkout.repository, take_over(checkout, [LOGIN]).tip, LOGIN) == content


def test_attributes_do_change_what_plain_git_stores(checkout: Checkout) -> None:
    """The control of the test above: the same bytes are stored as others."""
    (checkout.folder / ".git/info/attributes").write_text("* text eol=crlf ident\n")
    write(checkout.folder, {LOGIN: b"line\r\n$Id: evil$\r\n"})
    git(checkout.folder, "commit", "-qam", "WP01: work")
    assert git(checkout.folder, "cat-file", "blob", f"HEAD:{LOGIN}") == "line\n$Id$\n"


@pytest.mark.demand("D4.e", "D6.n")
def test_the_content_of_a_file_outside_is_not_harvested_through_a_hard_link(
    repository: Repository, checkout: Checkout, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("canary-4711\n")
    (checkout.folder / LOGIN).unlink()
    (checkout.folder / LOGIN).hardlink_to(tmp_path / "secret")
    write(checkout.folder, {"src/new.py": "done\n"})
    assert "canary" in git(checkout.folder, "diff")  # the control: plain git reads it
    seen = seen_in(checkout)
    assert [found.rule for found in _violations(seen, LOGIN, "src/new.py")] == [ScopeRule.MODE]
    done = take_over(checkout, [LOGIN, "src/new.py"])
    assert show(repository, done.tip, "src/new.py") == b"done\n"
    assert done.left_out == (LOGIN,)
    everything = ["git", "cat-file", "--batch", "--batch-all-objects"]
    assert (
        b"canary"
        not in subprocess.run(
            everything, cwd=repository.root, capture_output=True, check=True
        ).stdout
    )


@pytest.mark.demand("D4.e")
def test_making_a_checkout_anew_writes_through_no_link(checkout: Checkout, tmp_path: Path) -> None:
    write(tmp_path / "victim", {"login.py": "precious\n", "auth.py": "precious\n"})
    (tmp_path / "linked").write_text("precious\n")
    (checkout.folder / "README.md").unlink()
    (checkout.folder / "README.md").hardlink_to(tmp_path / "linked")
    for name in ("login.py", "auth.py"):
        (checkout.folder / "src" / name).unlink()
    (checkout.folder / "src").rmdir()
    (checkout.folder / "src").symlink_to(tmp_path / "victim")
    remove_checkout(checkout, US, keep_for_reuse=True, discard=True)
    again = make_checkout(checkout.repository, "WP02")
    assert (again.folder / LOGIN).read_text() == FILES[LOGIN]
    assert (tmp_path / "linked").read_text() == "precious\n"
    assert {path.read_text() for path in (tmp_path / "victim").iterdir()} == {"precious\n"}


def test_a_file_of_another_device_is_not_read(checkout: Checkout) -> None:
    """A mount inside the checkout: seen, and not entered. Only root can make one for the test."""
    target = checkout.folder / "mounted"
    target.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "none", str(target)], capture_output=True)
    if done.returncode != 0:
        pytest.skip("this machine lets no test mount anything")
    try:
        write(target, {"inside.py": "x"})
        assert [(change.path, change.mode) for change in seen_in(checkout).changes] == [
            ("mounted", "other-device")
        ]
    finally:
        subprocess.run(["umount", str(target)], check=True)


def test_a_name_that_is_a_git_directory_elsewhere_is_rejected(checkout: Checkout) -> None:
    for name in (".GIT", "src/.Git", "git~1", "src/.git."):
        write(checkout.folder, {f"{name}/config": "[core]\n"})
    found = _violations(seen_in(checkout), "**")
    assert {violation.rule for violation in found} == {ScopeRule.GIT_DIRECTORY}
    assert [violation.path for violation in found] == sorted(
        [".GIT", "git~1", "src/.Git", "src/.git."]
    )
    assert all(change.kind is ChangeKind.ADDED for change in seen_in(checkout).changes)
    assert os.path.lexists(checkout.folder / ".git")
    assert f"feat/{SLUG}" in git(checkout.repository.root, "branch", "--list")
