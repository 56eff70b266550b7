"""Checkouts of agents: where they are, from what they are made, and that nothing in them gets lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from phasegate.errors import ConfigError, StateConflict
from phasegate.workspace.checkout.checkout import (
    Assignment,
    Checkout,
    find_checkout,
    list_checkouts,
    records_folder,
)
from phasegate.workspace.checkout_lifecycle import (
    RemovedCheckout,
    RenewedCheckout,
    UnsavedWork,
    ensure_checkout,
    ensure_feature_branch,
    remove_checkout,
    reset_checkout,
    update_checkout,
)
from phasegate.workspace.repository.merge import (
    AlreadyMerged,
    MergeConflict,
    PreparedMerge,
    prepare_merge,
)
from phasegate.workspace.repository.repository import Repository, open_repository
from support.git_project import (
    AGENT,
    FILES,
    SLUG,
    TERMS,
    US,
    branch_of,
    finish_merge,
    git,
    make_checkout,
    make_repository,
    saved_work,
    seen_in,
    show,
    take_over,
    write,
)

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow


def _merge(repository: Repository, source: str, target: str = f"feat/{SLUG}") -> None:
    prepared = prepare_merge(repository, source, target, "Merge", US)
    assert isinstance(prepared, PreparedMerge)
    assert isinstance(finish_merge(repository, prepared), AlreadyMerged)


@pytest.mark.demand("D4.a")
def test_folder_and_branch_have_the_names_of_the_specification(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    assert checkout.folder == repository.root / ".worktrees/001-user-login-WP01"
    assert git(checkout.folder, "branch", "--show-current").strip() == "feat/001-user-login-WP01"
    assert (
        branch_of(checkout) == checkout.start == git(repository.root, "rev-parse", "main").strip()
    )


@pytest.mark.parametrize(
    "slug", ["..", "", ".git", "a/b", "a\nb", "-x", "a..b", "x.lock", "a b", "a" * 200]
)
def test_a_name_that_is_no_folder_and_branch_is_refused(tmp_path: Path, slug: str) -> None:
    repository = make_repository(tmp_path / "project")
    with pytest.raises(ConfigError):
        ensure_feature_branch(repository, slug, "main")
    with pytest.raises(ConfigError):
        ensure_checkout(repository, Assignment(SLUG, slug), TERMS)


@pytest.mark.demand("D4.b")
def test_a_checkout_has_the_work_of_the_packages_before_it(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    first = make_checkout(repository, "WP01")
    write(first.folder, {"src/models.py": "class User: ...\n"})
    take_over(first, ["src/models.py"])
    _merge(repository, first.assignment.branch)
    second = make_checkout(repository, "WP02")
    assert (second.folder / "src/models.py").read_text() == "class User: ...\n"
    assert second.start == git(repository.root, "rev-parse", f"feat/{SLUG}").strip()


@pytest.mark.demand("D4.c")
def test_a_checkout_that_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/login.py": "half done\n"})
    again = make_checkout(repository)
    assert again == checkout
    assert (again.folder / "src/login.py").read_text() == "half done\n"


@pytest.mark.demand("D4.d")
def test_a_removed_checkout_leaves_nothing_but_its_branch(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/login.py": "done\n", "src/debug.log": "x"})
    take_over(checkout, ["src/login.py"])
    assert remove_checkout(checkout, US) == RemovedCheckout(None)
    assert [*(repository.root / ".worktrees").iterdir()] == []
    assert show(repository, checkout.assignment.branch, "src/login.py") == b"done\n"
    assert find_checkout(repository, checkout.assignment) is None


@pytest.mark.demand("D4.f")
def test_an_agent_can_commit_and_sees_history_and_tags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repository(tmp_path / "project").root
    git(root, "tag", "v1.0")
    git(root, "tag", "-a", "-m", "two", "v2.0")
    checkout = make_checkout(open_repository(root))
    write(checkout.folder, {"src/login.py": "done\n", "WP01.md": "the task"})
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"):
        monkeypatch.delenv(f"GIT_{name}")
    git(checkout.folder, "add", "-A")
    git(checkout.folder, "commit", "-qm", "WP01: done")
    assert git(checkout.folder, "describe", "--tags", "--abbrev=0").strip() in ("v1.0", "v2.0")
    assert git(checkout.folder, "log", "--format=%s").splitlines() == ["WP01: done", "Begin"]
    assert (
        git(checkout.folder, "show", "--stat", "--format=", "HEAD").split("|")[0].strip()
        == "src/login.py"
    )
    assert git(checkout.folder, "config", "user.email").strip() == AGENT.email
    git(checkout.folder, "fsck", "--strict")


@pytest.mark.demand("D4.e", "D6.n")
def test_nothing_of_the_person_changes_when_an_agent_commits_tags_and_collects_garbage(
    tmp_path: Path,
) -> None:
    repository = make_repository(tmp_path / "project")
    git(repository.root, "tag", "v1.0")
    checkout = make_checkout(repository)
    before = git(repository.root, "for-each-ref"), git(repository.root, "status", "--porcelain")
    write(checkout.folder, {"src/login.py": "done\n"})
    for command in (
        ("commit", "-qam", "WP01: done"),
        ("tag", "-d", "v1.0"),
        ("branch", "-f", "main", "HEAD"),
        ("reflog", "expire", "--expire=now", "--all"),
        ("gc", "-q", "--prune=now"),
    ):
        git(checkout.folder, *command)
    assert (
        git(repository.root, "for-each-ref"),
        git(repository.root, "status", "--porcelain"),
    ) == before
    git(repository.root, "fsck", "--strict")


def test_the_persons_git_does_not_see_checkouts(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    make_checkout(repository)
    assert git(repository.root, "status", "--porcelain", "--ignored") == "!! .worktrees/\n"
    assert git(repository.root, "worktree", "list").count("\n") == 1


def test_a_folder_that_is_not_ours_is_not_taken(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    write(repository.root, {f".worktrees/{SLUG}-WP01/precious.txt": "mine"})
    with pytest.raises(StateConflict, match="was not created by Phasegate"):
        make_checkout(repository)
    assert (repository.root / f".worktrees/{SLUG}-WP01/precious.txt").read_text() == "mine"


def restore_from_backup(folder: Path, backup: Path) -> None:
    """Every folder gets another number, as a device may have after a restart."""
    folder.rename(backup)
    shutil.copytree(backup, folder, symlinks=True)


def test_a_restored_checkout_is_found_with_its_work(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/login.py": "work\n"})
    restore_from_backup(checkout.folder, tmp_path / "backup")
    again = make_checkout(repository)
    assert again.record.inode != checkout.record.inode
    assert [change.path for change in seen_in(again).changes] == ["src/login.py"]
    assert list_checkouts(repository)[0][0] == checkout.assignment.name


@pytest.mark.parametrize("lost", ["record", "git config"])
def test_a_checkout_that_cannot_be_trusted_is_moved_aside_without_a_question(
    tmp_path: Path, lost: str
) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/login.py": "work\n"})
    restore_from_backup(checkout.folder, tmp_path / "backup")
    if lost == "record":
        shutil.rmtree(records_folder(repository, checkout.assignment.name))
    else:
        write(checkout.folder, {".git/config": "[core]\n\tfsmonitor = evil\n"})
    again = make_checkout(repository)
    assert seen_in(again).changes == ()
    (aside,) = checkout.folder.parent.glob(".damaged-*")
    assert (aside / "src/login.py").read_text() == "work\n"


def test_a_checkout_that_was_replaced_is_not_looked_at(tmp_path: Path) -> None:
    checkout = make_checkout(make_repository(tmp_path / "project"))
    checkout.folder.rename(checkout.folder.with_name("away"))
    checkout.folder.symlink_to(tmp_path)
    with pytest.raises(StateConflict, match="was replaced by another folder"):
        seen_in(checkout)


@pytest.mark.demand("D7.h")
def test_starting_over_saves_the_state_first(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/login.py": "first\n"})
    take_over(checkout, ["src/login.py"])
    write(checkout.folder, {"src/auth.py": "not mine\n", "notes.txt": "an idea\n"})
    (checkout.folder / "docs/guide.md").unlink()
    (checkout.folder / "empty").mkdir()
    git(checkout.folder, "commit", "-qam", "WP01: partly")

    renewed = reset_checkout(checkout, TERMS)

    assert isinstance(renewed, RenewedCheckout)
    assert renewed.saved is not None
    ref = f"refs/phasegate/saved/{SLUG}-WP01/1"
    assert saved_work(repository, f"{SLUG}-WP01") == {ref: renewed.saved.commit}
    assert show(repository, ref, "notes.txt") == b"an idea\n"
    assert show(repository, ref, "src/login.py") == b"first\n"
    assert git(repository.root, "ls-tree", "--name-only", ref, "docs/guide.md") == ""
    assert branch_of(checkout) == git(repository.root, "rev-parse", f"feat/{SLUG}").strip()
    assert "WP01: rest" in git(
        repository.root, "log", "--format=%s", ref
    )  # the branch's history is kept too
    assert git(checkout.folder, "status", "--porcelain") == ""
    assert not (checkout.folder / "empty").exists()
    assert seen_in(renewed.checkout).changes == ()


@pytest.mark.demand("D7.h")
def test_starting_over_saves_what_was_taken_over_before_though_nothing_is_new(
    tmp_path: Path,
) -> None:
    """The disk holds no more than the branch does, but the branch goes back too."""
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/login.py": "first\n"})
    take_over(checkout, ["src/login.py"])
    renewed = reset_checkout(checkout, TERMS)
    assert isinstance(renewed, RenewedCheckout)
    assert branch_of(checkout) == git(repository.root, "rev-parse", f"feat/{SLUG}").strip()
    ref = f"refs/phasegate/saved/{SLUG}-WP01/1"
    assert [*saved_work(repository, f"{SLUG}-WP01")] == [ref]
    assert show(repository, ref, "src/login.py") == b"first\n"
    again = reset_checkout(renewed.checkout, TERMS)
    assert isinstance(again, RenewedCheckout)
    assert again.saved is None  # there was nothing


@pytest.mark.demand("D7.h")
def test_each_saved_state_has_a_number_of_its_own(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    for number in (1, 2, 3):
        write(checkout.folder, {"notes.txt": f"{number}\n"})
        renewed = reset_checkout(checkout, TERMS)
        assert isinstance(renewed, RenewedCheckout)
        checkout = renewed.checkout
    assert [
        show(repository, ref, "notes.txt") for ref in saved_work(repository, f"{SLUG}-WP01")
    ] == [
        b"1\n",
        b"2\n",
        b"3\n",
    ]


def test_uncommitted_work_is_saved_before_a_checkout_is_removed(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/login.py": "unfinished\n"})
    removed = remove_checkout(checkout, US)
    assert isinstance(removed, RemovedCheckout)
    assert removed.saved is not None
    assert show(repository, removed.saved.ref, "src/login.py") == b"unfinished\n"
    assert not checkout.folder.exists()


def test_what_cannot_be_saved_is_not_removed_unless_asked_for(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/one.py": "shared\n"})
    (checkout.folder / "src/two.py").hardlink_to(checkout.folder / "src/one.py")
    kept = remove_checkout(checkout, US)
    assert isinstance(kept, UnsavedWork)
    assert kept.paths == ("src/one.py", "src/two.py")
    assert (checkout.folder / "src/one.py").exists()
    assert remove_checkout(checkout, US, discard=True) == RemovedCheckout(None)
    assert not checkout.folder.exists()


def test_a_package_that_has_commits_goes_on_with_them(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/login.py": "first round\n"})
    take_over(checkout, ["src/login.py"])
    remove_checkout(checkout, US)
    again = make_checkout(repository)
    assert (again.folder / "src/login.py").read_text() == "first round\n"
    assert again.start == branch_of(checkout)


def _two_packages(tmp_path: Path, other: str) -> tuple[Repository, Checkout]:
    """WP01 has work on its branch; WP02 was merged meanwhile."""
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository, "WP01")
    write(checkout.folder, {"src/login.py": "def login():\n    return 'one'\n"})
    take_over(checkout, ["src/login.py"])
    second = make_checkout(repository, "WP02")
    write(second.folder, {other: "def login():\n    return 'two'\n"})
    take_over(second, [other], "WP02: other")
    _merge(repository, second.assignment.branch)
    return repository, checkout


def test_bringing_up_to_date_puts_the_work_on_top_of_the_features(tmp_path: Path) -> None:
    _, checkout = _two_packages(tmp_path, "src/auth.py")
    renewed = update_checkout(checkout, TERMS)
    assert isinstance(renewed, RenewedCheckout)
    assert renewed.checkout.conflicts == ()
    assert "'one'" in (checkout.folder / "src/login.py").read_text()
    assert "'two'" in (checkout.folder / "src/auth.py").read_text()
    assert seen_in(renewed.checkout).changes == ()


@pytest.mark.demand("D5.b")
def test_a_conflict_can_be_solved_in_a_round_of_its_own(tmp_path: Path) -> None:
    repository, checkout = _two_packages(tmp_path, "src/login.py")
    branch = checkout.assignment.branch
    conflict = prepare_merge(repository, branch, f"feat/{SLUG}", "Merge", US)
    assert isinstance(conflict, MergeConflict)
    assert conflict.paths == ("src/login.py",)

    renewed = update_checkout(checkout, TERMS)
    assert isinstance(renewed, RenewedCheckout)
    assert renewed.checkout.conflicts == ("src/login.py",)
    assert "<<<<<<<" in (checkout.folder / "src/login.py").read_text()
    assert [change.path for change in seen_in(renewed.checkout).changes] == ["src/login.py"]

    write(checkout.folder, {"src/login.py": "def login():\n    return 'both'\n"})
    git(checkout.folder, "commit", "-qam", "solved")
    take_over(renewed.checkout, ["src/login.py"], "solve the conflict")
    _merge(repository, branch)
    assert show(repository, f"feat/{SLUG}", "src/login.py") == b"def login():\n    return 'both'\n"
    parents = git(repository.root, "log", "-1", "--format=%P", branch).split()
    assert len(parents) == 2
    assert (
        git(repository.root, "log", "-1", "--format=%s", branch).strip()
        == "WP01: solve the conflict"
    )


@pytest.mark.demand("D4.d")
def test_a_checkout_out_of_the_pool_is_as_new(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    first = make_checkout(repository, "WP01")
    write(
        first.folder,
        {
            "src/login.py": "one\n",
            "AGENTS.md": "obey",
            "build/x.o": "1",
            "node_modules/evil.js": "1",
        },
    )
    (first.folder / "docs/guide.md").unlink()
    (first.folder / "src/auth.py").chmod(0o755)
    (first.folder / ".git/hooks").mkdir()
    inode = (first.folder / "README.md").stat().st_ino
    take_over(first, ["src/login.py"])
    remove_checkout(first, US, keep_for_reuse=True)
    assert not first.folder.exists()

    second = make_checkout(repository, "WP02")

    assert (second.folder / "README.md").stat().st_ino == inode  # it is the same checkout
    found = {
        str(path.relative_to(second.folder)) for path in second.folder.rglob("*") if path.is_file()
    }
    assert {path for path in found if not path.startswith(".git/")} == set(FILES)
    assert all((second.folder / name).read_text() == text for name, text in FILES.items())
    assert not (second.folder / ".git/hooks").exists()
    assert seen_in(second).changes == ()
    assert git(second.folder, "status", "--porcelain") == ""
    assert git(second.folder, "branch", "--show-current").strip() == f"feat/{SLUG}-WP02"


@pytest.mark.parametrize("left", [None, b"", b"DIRC", 200])
def test_an_index_that_a_failed_disk_lost_is_made_again_and_changes_are_seen_all_the_same(
    tmp_path: Path, left: bytes | int | None
) -> None:
    checkout = make_checkout(make_repository(tmp_path / "project"))
    kept = records_folder(checkout.repository, checkout.assignment.name) / "index"
    whole = kept.read_bytes()
    kept.unlink()
    if left is not None:
        kept.write_bytes(whole[:left] if isinstance(left, int) else left)
    assert seen_in(checkout).changes == ()
    write(checkout.folder, {"src/login.py": "work\n"})
    assert [change.path for change in seen_in(checkout).changes] == ["src/login.py"]
    renewed = reset_checkout(checkout, TERMS)
    assert isinstance(renewed, RenewedCheckout)
    assert renewed.saved is not None
    assert (checkout.folder / "src/login.py").read_text() == FILES["src/login.py"]
    assert kept.read_bytes()[:4] == b"DIRC"


@pytest.mark.parametrize("left", [b"", b"{}", b"\xff"])
def test_a_checkout_whose_record_cannot_be_read_is_put_aside_for_a_new_one(
    tmp_path: Path, left: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    checkout = make_checkout(make_repository(tmp_path / "project"))
    for number in (1, 2):
        write(checkout.folder, {"src/login.py": f"work {number}\n"})
        (records_folder(checkout.repository, checkout.assignment.name) / "record.json").write_bytes(
            left
        )
        again = make_checkout(checkout.repository)
        assert seen_in(again).changes == ()
        aside = checkout.folder.with_name(f".damaged-{checkout.folder.name}-{number}")
        assert (aside / "src/login.py").read_text() == f"work {number}\n"
        assert str(aside) in caplog.text


@pytest.mark.parametrize("name", ["record.json", "index"])
def test_a_damaged_checkout_in_the_pool_is_in_nobodys_way(tmp_path: Path, name: str) -> None:
    repository = make_repository(tmp_path / "project")
    assert isinstance(
        remove_checkout(make_checkout(repository), US, keep_for_reuse=True), RemovedCheckout
    )
    (repository.own_folder / "pool/0" / name).write_bytes(b"")
    again = make_checkout(repository)
    assert seen_in(again).changes == ()
    assert (again.folder / "src/login.py").read_text() == FILES["src/login.py"]


@pytest.mark.parametrize("name", ["index.new", "index.new.lock", "index.merge.lock"])
def test_what_a_git_left_that_was_cut_off_is_in_nobodys_way(tmp_path: Path, name: str) -> None:
    repository = make_repository(tmp_path / "project")
    records = records_folder(repository, f"{SLUG}-WP01")
    records.mkdir(parents=True)
    (records / name).write_bytes(b"")
    assert seen_in(make_checkout(repository)).changes == ()


def test_the_list_of_checkouts_names_those_that_are_there(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "project")
    for work in ("WP01", "WP02"):
        make_checkout(repository, work)
    shutil.rmtree(repository.root / f".worktrees/{SLUG}-WP02")
    assert [name for name, _ in list_checkouts(repository)] == [f"{SLUG}-WP01"]


def test_a_checkout_can_be_made_in_a_linked_worktree_of_the_persons(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "project")
    git(main.root, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "linked"))
    repository = open_repository(tmp_path / "linked/src")
    checkout = make_checkout(repository)
    assert checkout.folder.parent == tmp_path / "linked/.worktrees"
    write(checkout.folder, {"src/login.py": "done\n"})
    assert show(main, take_over(checkout, ["src/login.py"]).tip, "src/login.py") == b"done\n"


@pytest.mark.parametrize("depth", [1, 2])
def test_a_shallow_clone_can_be_worked_in(tmp_path: Path, depth: int) -> None:
    origin = make_repository(tmp_path / "origin")
    for number in range(3):
        write(origin.root, {"README.md": f"{number}\n"})
        git(origin.root, "commit", "-qam", f"change {number}")
    git(tmp_path, "clone", "-q", "--depth", str(depth), origin.root.as_uri(), "project")
    repository = open_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/login.py": "done\n"})
    git(checkout.folder, "commit", "-qam", "WP01: done")
    take_over(checkout, ["src/login.py"])
    _merge(repository, checkout.assignment.branch)
    _merge(repository, f"feat/{SLUG}", "main")


def test_a_repository_with_sha256_can_be_worked_in(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "-b", "main", "--object-format=sha256")
    repository = make_repository(root)
    checkout = make_checkout(repository)
    write(checkout.folder, {"src/login.py": "done\n"})
    git(checkout.folder, "commit", "-qam", "WP01: done")
    write(checkout.folder, {"src/more.py": "more\n"})
    assert len(take_over(checkout, ["src/login.py", "src/more.py"]).commits) == 2
    _merge(repository, checkout.assignment.branch)
    _merge(repository, f"feat/{SLUG}", "main")
    assert (root / "src/more.py").read_text() == "more\n"


def test_a_checkout_of_a_clone_that_borrows_its_objects_has_them(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin")
    git(tmp_path, "clone", "-q", "--shared", str(origin.root), "project")
    checkout = make_checkout(open_repository(tmp_path / "project"))
    shutil.rmtree(origin.objects)
    assert git(checkout.folder, "fsck", "--full", "--strict") == ""
    assert git(checkout.folder, "log", "--format=%s", "HEAD")
