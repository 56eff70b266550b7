"""Every kind of change is seen, from the disk and from the agent's git, whatever the agent says (D6)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from phasegate.core.paths.scope import (
    ChangeKind,
    FileChange,
    FileMode,
    Scope,
    ScopeRule,
    find_violations,
)
from phasegate.workspace.changes.changes import CheckoutTooLarge, Observation, observe_checkout
from phasegate.workspace.checkout.checkout import Checkout
from phasegate.workspace.repository.disk_files import CheckoutLimits
from phasegate.workspace.repository.repository import open_repository
from support.git_project import (
    FILES,
    git,
    make_checkout,
    make_repository,
    seen_in,
    take_over,
    write,
)

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return make_checkout(make_repository(tmp_path / "project"))


def _kinds(seen: Observation) -> dict[str, ChangeKind]:
    return {change.path: change.kind for change in seen.changes}


def test_an_untouched_checkout_has_no_changes(checkout: Checkout) -> None:
    seen = seen_in(checkout)
    assert (
        seen.changes,
        seen.transient_changes,
        seen.git_directory_changes,
        seen.ignored_paths,
    ) == ((), (), (), ())
    assert set(seen.tracked_files) == set(FILES)


@pytest.mark.demand("D6.b", "D6.c")
def test_committed_staged_unstaged_and_untracked_changes_are_seen(checkout: Checkout) -> None:
    write(checkout.folder, {"src/login.py": "committed\n"})
    git(checkout.folder, "commit", "-qam", "WP01: work")
    write(checkout.folder, {"src/auth.py": "staged\n", "src/staged_new.py": "staged\n"})
    git(checkout.folder, "add", "-A")
    write(checkout.folder, {"README.md": "unstaged\n", "src/untracked.py": "untracked\n"})
    seen = seen_in(checkout)
    assert _kinds(seen) == {
        "README.md": ChangeKind.MODIFIED,
        "src/auth.py": ChangeKind.MODIFIED,
        "src/login.py": ChangeKind.MODIFIED,
        "src/staged_new.py": ChangeKind.ADDED,
        "src/untracked.py": ChangeKind.ADDED,
    }


@pytest.mark.demand("D6.c")
def test_deleted_files_and_folders_are_seen(checkout: Checkout) -> None:
    (checkout.folder / "README.md").unlink()
    git(checkout.folder, "rm", "-qr", "src")
    assert _kinds(seen_in(checkout)) == dict.fromkeys(
        ("README.md", "src/auth.py", "src/login.py"), ChangeKind.DELETED
    )


@pytest.mark.demand("D6.c")
def test_a_rename_names_both_paths(checkout: Checkout) -> None:
    (checkout.folder / "src/auth.py").rename(checkout.folder / "src/other.py")
    (change,) = seen_in(checkout).changes
    assert (change.kind, change.old_path, change.path) == (
        ChangeKind.RENAMED,
        "src/auth.py",
        "src/other.py",
    )


def test_two_copies_of_a_deleted_file_are_one_rename_and_one_addition(checkout: Checkout) -> None:
    text = (checkout.folder / "src/auth.py").read_text()
    (checkout.folder / "src/auth.py").unlink()
    write(checkout.folder, {"src/a.py": text, "src/b.py": text})
    kinds = [(change.kind, change.path) for change in seen_in(checkout).changes]
    assert kinds == [(ChangeKind.RENAMED, "src/a.py"), (ChangeKind.ADDED, "src/b.py")]


@pytest.mark.demand("D6.d")
def test_a_mode_change_is_seen(checkout: Checkout) -> None:
    (checkout.folder / "src/login.py").chmod(0o755)
    (change,) = seen_in(checkout).changes
    assert (change.old_mode, change.mode) == (FileMode.FILE, FileMode.EXECUTABLE)


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_a_mode_that_git_does_not_keep_is_no_change(checkout: Checkout, mode: int) -> None:
    (checkout.folder / "src/login.py").chmod(mode)
    assert seen_in(checkout).changes == ()


@pytest.mark.demand("D6.d")
def test_links_are_seen_with_their_targets(checkout: Checkout) -> None:
    (checkout.folder / "out").symlink_to("/etc/passwd")
    (checkout.folder / "src/login.py").unlink()
    (checkout.folder / "src/login.py").symlink_to("auth.py")
    (checkout.folder / "docs/guide.md").unlink()
    (checkout.folder / "docs").rmdir()
    (checkout.folder / "docs").symlink_to("src")
    found = {
        change.path: (change.kind, change.mode, change.link_target)
        for change in seen_in(checkout).changes
    }
    assert found == {
        "docs": (ChangeKind.ADDED, "120000", "src"),
        "docs/guide.md": (ChangeKind.DELETED, "", None),
        "out": (ChangeKind.ADDED, "120000", "/etc/passwd"),
        "src/login.py": (ChangeKind.MODIFIED, "120000", "auth.py"),
    }


def test_what_lies_behind_a_link_is_not_read(checkout: Checkout, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"secret.txt": "x"})
    (checkout.folder / "vendor").symlink_to(tmp_path / "elsewhere")
    assert [change.path for change in seen_in(checkout).changes] == ["vendor"]


@pytest.mark.demand("D6.d")
def test_an_embedded_repository_is_seen_as_a_submodule(checkout: Checkout) -> None:
    git(checkout.folder, "init", "-q", "vendor/lib")
    write(checkout.folder, {"vendor/lib/code.py": "x\n"})
    git(checkout.folder, "init", "-q", "--bare", "vendor/bare")
    git(checkout.folder, "init", "-q", "src")
    found = {change.path: change.mode for change in seen_in(checkout).changes}
    assert found == {
        "src/.git": "040755",
        "vendor/bare": FileMode.SUBMODULE,
        "vendor/lib": FileMode.SUBMODULE,
    }


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)  # a socket's path is short


@pytest.mark.parametrize("make", [_pipe, _socket], ids=["a pipe", "a socket"])
def test_special_files_are_seen_and_never_opened(
    checkout: Checkout, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout.folder)
    make(checkout.folder / "odd")
    (change,) = seen_in(checkout).changes
    assert change.path == "odd"
    violations = find_violations([change], Scope(["odd"]))
    assert [violation.rule for violation in violations] == [ScopeRule.MODE]


@pytest.mark.demand("D6.j")
def test_ignore_rules_are_those_of_the_base_commit(checkout: Checkout) -> None:
    write(
        checkout.folder,
        {"a.log": "", "src/b.log": "", "build/c/d.o": "", "e.txt": "", ".gitignore": "*.txt\n"},
    )
    seen = seen_in(checkout)
    assert _kinds(seen) == {".gitignore": ChangeKind.MODIFIED, "e.txt": ChangeKind.ADDED}
    assert sorted(seen.ignored_paths) == ["a.log", "build", "src/b.log"]


@pytest.mark.demand("D6.j")
def test_nested_ignore_files_count_and_those_of_the_agent_do_not(tmp_path: Path) -> None:
    files = {**FILES, "src/.gitignore": "/made/\n!keep.log\n"}
    checkout = make_checkout(make_repository(tmp_path / "project", files))
    write(
        checkout.folder,
        {
            "src/made/x": "",
            "made/y": "",
            "src/keep.log": "",
            "docs/.gitignore": "*\n",
            "docs/z": "",
        },
    )
    assert sorted(_kinds(seen_in(checkout))) == [
        "docs/.gitignore",
        "docs/z",
        "made/y",
        "src/keep.log",
    ]


def test_a_tracked_file_is_seen_even_if_a_rule_ignores_it(tmp_path: Path) -> None:
    checkout = make_checkout(
        make_repository(tmp_path / "project", {**FILES, "build/tracked.txt": "x", "t.log": "x"})
    )
    write(checkout.folder, {"build/tracked.txt": "y", "t.log": "y", "build/new.txt": "n"})
    assert sorted(_kinds(seen_in(checkout))) == ["build/new.txt", "build/tracked.txt", "t.log"]


@pytest.mark.demand("D6.k")
def test_litter_of_tools_is_no_change(checkout: Checkout) -> None:
    litter = (
        "src/__pycache__/a.pyc",
        "node_modules/x/y.js",
        ".pytest_cache/v",
        "target/debug/x",
        "src/x.pyc",
    )
    write(checkout.folder, dict.fromkeys(litter, "x"))
    assert seen_in(checkout).changes == ()
    own = observe_checkout(checkout, litter=("*.tmp",))
    assert isinstance(own, Observation)
    assert sorted(_kinds(own)) == sorted(litter)


def test_a_folder_with_tracked_files_is_not_litter(tmp_path: Path) -> None:
    checkout = make_checkout(
        make_repository(tmp_path / "project", {**FILES, "target/real.py": "x"})
    )
    write(checkout.folder, {"target/new.py": "y"})
    assert sorted(_kinds(seen_in(checkout))) == ["target/new.py"]


@pytest.mark.demand("D1.c")
def test_the_prompt_file_is_outside_the_scope_check(checkout: Checkout) -> None:
    write(checkout.folder, {"WP01.md": "the task", "src/WP01.md": "not it"})
    assert sorted(_kinds(seen_in(checkout))) == ["src/WP01.md"]


@pytest.mark.demand("D6.b")
def test_an_edit_with_the_same_size_and_a_forged_time_is_seen(checkout: Checkout) -> None:
    path = checkout.folder / "src/login.py"
    before = path.stat()
    text = path.read_text()
    path.write_text(text.replace("False", "True "))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    )
    assert sorted(_kinds(seen_in(checkout))) == ["src/login.py"]


def test_an_edit_in_the_same_tick_as_the_checkout_is_seen(tmp_path: Path) -> None:
    """The control: without the rule about the tick, equal times would hide the edit."""
    for number in range(5):
        checkout = make_checkout(make_repository(tmp_path / f"project{number}"))
        path = checkout.folder / "src/login.py"
        path.write_text(path.read_text().replace("False", "True "))
        assert sorted(_kinds(seen_in(checkout))) == ["src/login.py"]


def test_a_file_written_again_with_the_same_content_is_no_change(checkout: Checkout) -> None:
    time.sleep(0.02)  # so that its times differ; the result must be the same without
    write(checkout.folder, FILES)
    assert seen_in(checkout).changes == ()


def test_odd_names_are_seen_as_they_are(checkout: Checkout) -> None:
    names = [
        "-rf",
        "a b",
        "a\nb",
        "tab\t",
        'quote"',
        "back\\slash",
        "ünï",
        "u\u0308",
        "*",
        "$(id)",
        "\udcff\udcfe",
    ]
    for name in names:
        Path(checkout.folder, name).write_text("x")
    assert sorted(_kinds(seen_in(checkout))) == sorted(names)
    done = take_over(checkout, lambda path: True)
    listed = git(checkout.repository.root, "ls-tree", "-z", "--name-only", done.tip)
    assert set(names) <= set(listed.split("\0"))


def test_a_file_that_takes_the_place_of_a_folder_is_seen(checkout: Checkout) -> None:
    for name in ("login.py", "auth.py"):
        (checkout.folder / "src" / name).unlink()
    (checkout.folder / "src").rmdir()
    write(checkout.folder, {"src": "a file now\n"})
    (checkout.folder / "README.md").unlink()
    write(checkout.folder, {"README.md/inside": "a folder now\n"})
    assert _kinds(seen_in(checkout)) == {
        "README.md": ChangeKind.DELETED,
        "README.md/inside": ChangeKind.ADDED,
        "src": ChangeKind.ADDED,
        "src/auth.py": ChangeKind.DELETED,
        "src/login.py": ChangeKind.DELETED,
    }
    done = take_over(checkout, lambda path: True)
    assert git(checkout.repository.root, "ls-tree", "-r", "--name-only", done.tip).split() == [
        ".gitignore",
        "README.md/inside",
        "docs/guide.md",
        "src",
    ]


def test_a_submodule_of_the_base_is_left_alone(tmp_path: Path) -> None:
    library = make_repository(tmp_path / "library")
    root = make_repository(tmp_path / "project").root
    git(
        root,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(library.root),
        "lib",
    )
    git(root, "commit", "-qm", "a library")
    checkout = make_checkout(open_repository(root))
    assert seen_in(checkout).changes == ()
    write(checkout.folder, {"src/login.py": "done\n"})
    tip = take_over(checkout, ["src/login.py"]).tip
    assert git(root, "ls-tree", tip, "lib").startswith("160000 commit")


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (CheckoutLimits(files=3), "new or changed files"),
        (CheckoutLimits(file_bytes=100), "a file of 2000 bytes"),
        (CheckoutLimits(total_bytes=100), "changed files together"),
        (CheckoutLimits(depth=3), "folders inside folders"),
    ],
)
def test_more_than_a_limit_is_a_value_that_names_it(
    checkout: Checkout, limits: CheckoutLimits, what: str
) -> None:
    write(checkout.folder, {f"new/{number}.txt": "x" for number in range(5)})
    write(checkout.folder, {"big.bin": "x" * 2000, "a/b/c/d/e": "deep"})
    found = observe_checkout(checkout, limits=limits)
    assert isinstance(found, CheckoutTooLarge)
    assert what in found.what


def test_a_file_that_is_large_from_the_start_is_no_limit(checkout: Checkout) -> None:
    seen = observe_checkout(checkout, limits=CheckoutLimits(file_bytes=5))
    assert isinstance(seen, Observation)
    assert seen.changes == ()
    write(checkout.folder, {"src/login.py": "def login(): pass\n"})
    seen = observe_checkout(checkout, limits=CheckoutLimits(file_bytes=5))
    assert isinstance(seen, Observation)
    assert [change.path for change in seen.changes] == ["src/login.py"]
    take_over(checkout, ["src/login.py"])


def test_a_change_is_judged_by_the_scope(checkout: Checkout) -> None:
    write(checkout.folder, {"src/login.py": "in scope\n", "src/auth.py": "out of scope\n"})
    violations = find_violations(
        seen_in(checkout).changes, Scope(["src/login.py"]), seen_in(checkout).tracked_files
    )
    assert [violation.path for violation in violations] == ["src/auth.py"]
    assert (
        FileChange(ChangeKind.MODIFIED, "src/login.py", "100644", "100644")
        in seen_in(checkout).changes
    )
