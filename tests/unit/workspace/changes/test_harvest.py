"""Allowed changes arrive as commits that keep the agent's words; nothing else arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.errors import StateConflict
from phasegate.workspace.changes.harvest import (
    Harvest,
    HarvestConflict,
    ensure_package_prefix,
    harvest_checkout,
)
from phasegate.workspace.checkout.checkout import (
    Checkout,
    CheckoutRecord,
    find_checkout,
    records_folder,
    write_record,
)
from phasegate.workspace.checkout_lifecycle import RemovedCheckout, remove_checkout
from phasegate.workspace.repository.repository import Repository
from support.git_project import (
    SLUG,
    US,
    branch_of,
    git,
    make_checkout,
    make_repository,
    seen_in,
    show,
    subjects,
    take_over,
    tree,
    write,
)

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_repository(tmp_path / "project")


@pytest.fixture
def checkout(repository: Repository) -> Checkout:
    return make_checkout(repository)


def _commit(checkout: Checkout, message: str, files: dict[str, str]) -> None:
    write(checkout.folder, files)
    git(checkout.folder, "add", "-A")
    git(
        checkout.folder,
        "commit",
        "-qm",
        message,
        "--author=Ada Agent <ada@agents.invalid>",
        "--date=1700000000 +0130",
    )


@pytest.mark.demand("D6.n", "D7.e")
def test_an_agents_commits_keep_their_messages_and_dates_under_the_name_of_the_run(
    repository: Repository, checkout: Checkout
) -> None:
    _commit(checkout, "WP01: first\n\nWith a body.", {"src/login.py": "one\n"})
    _commit(
        checkout, "feat(WP01): second [FR-AUTH-001]", {"src/login.py": "two\n", "src/new.py": "n\n"}
    )
    done = take_over(checkout, ["src/login.py", "src/new.py"])
    log = git(
        repository.root, "log", "--reverse", "--format=%an|%ae|%at|%ai|%cn|%B|", f"main..{done.tip}"
    )
    assert log.splitlines()[:4] == [
        "Phasegate|phasegate@localhost|1700000000|2023-11-14 23:43:20 +0130|Phasegate|WP01: first",
        "",
        "With a body.",
        "|",
    ]
    assert subjects(repository, f"main..{done.tip}") == [
        "WP01: first",
        "feat(WP01): second [FR-AUTH-001]",
    ]
    assert [taken.agent_commit is None for taken in done.commits] == [False, False]


@pytest.mark.demand("D8.f")
def test_what_was_left_uncommitted_follows_in_a_commit_of_ours(
    repository: Repository, checkout: Checkout
) -> None:
    _commit(checkout, "WP01: first", {"src/login.py": "one\n"})
    write(checkout.folder, {"src/login.py": "two\n"})
    done = take_over(checkout, ["src/login.py"], "Implement Login Form Component")
    assert subjects(repository, f"main..{done.tip}") == [
        "WP01: first",
        "WP01: Implement Login Form Component",
    ]
    assert done.commits[-1].agent_commit is None
    assert show(repository, done.tip, "src/login.py") == b"two\n"


@pytest.mark.demand("D6.a", "D6.n")
def test_only_allowed_paths_arrive_in_every_commit(
    repository: Repository, checkout: Checkout
) -> None:
    _commit(checkout, "WP01: both", {"src/login.py": "in\n", "src/auth.py": "out\n"})
    _commit(checkout, "WP01: out only", {"docs/guide.md": "out\n"})
    write(checkout.folder, {"README.md": "out\n"})
    done = take_over(checkout, ["src/login.py"])
    assert subjects(repository, f"main..{done.tip}") == ["WP01: both"]
    assert done.left_out == ("README.md", "docs/guide.md", "src/auth.py")
    changed = git(repository.root, "diff", "--name-only", "main", done.tip).split()
    assert changed == ["src/login.py"]


def test_the_disk_decides_where_it_differs_from_the_agents_commits(
    repository: Repository, checkout: Checkout
) -> None:
    _commit(
        checkout,
        "WP01: more",
        {"src/login.py": "committed\n", "src/gone.py": "x\n", "src/auth.py": "changed\n"},
    )
    (checkout.folder / "src/gone.py").unlink()
    git(checkout.folder, "checkout", "-q", "HEAD~1", "--", "src/auth.py")
    done = take_over(checkout, lambda path: True)
    assert git(repository.root, "diff", "--name-only", "main", done.tip).split() == ["src/login.py"]


def test_every_kind_of_change_arrives(repository: Repository, checkout: Checkout) -> None:
    (checkout.folder / "src/login.py").rename(checkout.folder / "src/moved.py")
    (checkout.folder / "docs/guide.md").unlink()
    (checkout.folder / "README.md").chmod(0o755)
    (checkout.folder / "link").symlink_to("src/moved.py")
    write(checkout.folder, {"src/binary": bytes(range(256)), "src/empty": ""})
    tip = take_over(checkout, lambda path: True).tip
    found = tree(repository, tip)
    assert set(found) == {
        ".gitignore",
        "README.md",
        "link",
        "src/auth.py",
        "src/binary",
        "src/empty",
        "src/moved.py",
    }
    assert found["README.md"].startswith("100755")
    assert found["link"].startswith("120000")
    assert show(repository, tip, "link") == b"src/moved.py"
    assert show(repository, tip, "src/binary") == bytes(range(256))


@pytest.mark.demand("D8.e")
def test_a_commit_that_does_not_name_its_package_gets_the_name(
    repository: Repository, checkout: Checkout
) -> None:
    _commit(checkout, "fixed stuff", {"src/login.py": "one\n"})
    done = take_over(checkout, ["src/login.py"])
    assert subjects(repository, f"main..{done.tip}") == ["WP01: fixed stuff"]
    assert [taken.message_changed for taken in done.commits] == [True]


@pytest.mark.demand("D8.e")
@pytest.mark.parametrize(
    ("message", "is_named"),
    [
        ("WP01: done", True),
        ("feat(WP01): done [FR-1]", True),
        ("fix(WP01)!: done", True),
        ("WP02: done", False),
        ("WP011: done", False),
        ("WP01 done", False),
        ("WP01:", False),
        ("feat: WP01: done", False),
        ("wp01: done", False),
        ("", False),
    ],
)
def test_a_message_names_its_package_in_one_of_two_forms(message: str, is_named: bool) -> None:
    assert ensure_package_prefix(message, "WP01") == (
        message if is_named else f"WP01: {message}",
        not is_named,
    )


def test_nothing_changed_makes_no_commit(repository: Repository, checkout: Checkout) -> None:
    done = take_over(checkout, lambda path: True)
    assert done == Harvest(checkout.start, (), (), "")


@pytest.mark.demand("D4.c", "D12.b")
def test_a_second_round_brings_only_what_is_new(repository: Repository, checkout: Checkout) -> None:
    _commit(checkout, "WP01: first", {"src/login.py": "one\n", "src/extra.py": "x\n"})
    take_over(checkout, lambda path: True)
    _commit(checkout, "WP01: second", {"src/login.py": "two\n"})
    (checkout.folder / "src/extra.py").unlink()
    done = take_over(checkout, lambda path: True, "WP01: drop the extra")
    assert subjects(repository, f"main..{done.tip}") == [
        "WP01: first",
        "WP01: second",
        "WP01: drop the extra",
    ]
    assert git(repository.root, "diff", "--name-only", "main", done.tip).split() == ["src/login.py"]
    assert take_over(checkout, lambda path: True).commits == ()


def test_a_rewritten_history_is_taken_over_as_one_commit(
    repository: Repository, checkout: Checkout
) -> None:
    _commit(checkout, "WP01: first", {"src/login.py": "one\n"})
    take_over(checkout, lambda path: True)
    write(checkout.folder, {"src/login.py": "two\n"})
    git(checkout.folder, "commit", "-q", "--amend", "-am", "WP01: first, better")
    done = take_over(checkout, lambda path: True)
    assert "rewrote" in done.note
    assert subjects(repository, f"main..{done.tip}") == ["WP01: first", "WP01: rest"]
    assert show(repository, done.tip, "src/login.py") == b"two\n"


def test_a_merge_in_the_agents_history_is_taken_over_as_one_commit(
    repository: Repository, checkout: Checkout
) -> None:
    git(checkout.folder, "checkout", "-q", "-b", "side")
    _commit(checkout, "WP01: side", {"src/side.py": "s\n"})
    git(checkout.folder, "checkout", "-q", "-")
    _commit(checkout, "WP01: own", {"src/login.py": "o\n"})
    git(checkout.folder, "merge", "-q", "--no-edit", "side")
    done = take_over(checkout, lambda path: True)
    assert "not a linear continuation" in done.note
    assert subjects(repository, f"main..{done.tip}") == ["WP01: rest"]
    assert {commit.subject for commit in seen_in(checkout).history.commits} >= {
        "WP01: side",
        "WP01: own",
    }


def test_a_packed_history_keeps_its_messages(repository: Repository, checkout: Checkout) -> None:
    _commit(checkout, "WP01: first", {"src/login.py": "one\n"})
    git(checkout.folder, "gc", "-q", "--prune=now")
    git(checkout.folder, "pack-refs", "--all")
    done = take_over(checkout, ["src/login.py"])
    assert subjects(repository, f"main..{done.tip}") == ["WP01: first"]


def test_a_mode_that_did_not_last_does_not_arrive(
    repository: Repository, checkout: Checkout
) -> None:
    (checkout.folder / "src/login.py").chmod(0o755)
    _commit(checkout, "WP01: executable", {"src/login.py": "one\n"})
    (checkout.folder / "src/login.py").chmod(0o644)
    _commit(checkout, "WP01: plain", {"src/login.py": "two\n"})
    done = take_over(checkout, ["src/login.py"])
    modes = [tree(repository, taken.id)["src/login.py"][:6] for taken in done.commits]
    assert modes == ["100644", "100644"]


def test_a_message_in_another_encoding_arrives_as_text(
    repository: Repository, checkout: Checkout
) -> None:
    write(
        checkout.folder,
        {"src/login.py": "one\n", "../message": "WP01: gr\u00fc\u00df".encode("latin-1")},
    )
    git(checkout.folder, "-c", "i18n.commitEncoding=latin-1", "commit", "-qaF", "../message")
    take_over(checkout, ["src/login.py"])
    assert subjects(repository, f"main..{branch_of(checkout)}") == ["WP01: gr\u00fc\u00df"]


@pytest.mark.parametrize(
    "later", ["another\n", "JUDGED\n", "x"], ids=["longer", "as long", "shorter"]
)
def test_a_file_that_changes_after_it_was_judged_is_not_taken(
    checkout: Checkout, later: str
) -> None:
    write(checkout.folder, {"src/login.py": "judged\n"})
    seen = seen_in(checkout)
    write(checkout.folder, {"src/login.py": later})
    with pytest.raises(StateConflict, match="changed after it was inspected"):
        harvest_checkout(checkout, seen, lambda path: True, committer=US, title="x")


@pytest.mark.demand("D11.b", "D11.c", "D11.d")
def test_the_work_of_several_agents_joins_on_one_branch(repository: Repository) -> None:
    first, second = (make_checkout(repository, "WP01", index) for index in (0, 1))
    assert first.folder != second.folder
    assert first.assignment.branch == second.assignment.branch == f"feat/{SLUG}-WP01"
    _commit(first, "WP01: models", {"src/models.py": "m\n"})
    _commit(second, "WP01: views", {"src/views.py": "v\n"})
    take_over(first, ["src/models.py"])
    done = take_over(second, ["src/views.py"])
    assert subjects(repository, f"main..{done.tip}") == ["WP01: models", "WP01: views"]
    assert {"src/models.py", "src/views.py"} <= set(tree(repository, done.tip))
    _commit(first, "WP01: models again", {"src/models.py": "m2\n"})
    done = take_over(first, lambda path: True)
    assert show(repository, done.tip, "src/views.py") == b"v\n"  # what the other one did stays


def test_nothing_is_saved_of_several_agents_when_all_was_harvested(repository: Repository) -> None:
    agents = [make_checkout(repository, "WP01", index) for index in (0, 1)]
    for index, agent in enumerate(agents):
        write(agent.folder, {f"src/part{index}.py": "x\n"})
        take_over(agent, [f"src/part{index}.py"])
    for agent in agents:
        current = find_checkout(repository, agent.assignment)
        assert current is not None
        assert remove_checkout(current, US) == RemovedCheckout(None)


@pytest.mark.demand("D11.b")
def test_two_agents_that_change_the_same_file_are_contested(repository: Repository) -> None:
    first, second = (make_checkout(repository, "WP01", index) for index in (0, 1))
    write(first.folder, {"src/login.py": "mine\n"})
    write(second.folder, {"src/login.py": "no, mine\n"})
    tip = take_over(first, ["src/login.py"]).tip
    found = harvest_checkout(second, seen_in(second), lambda path: True, committer=US, title="x")
    assert found == HarvestConflict(("src/login.py",))
    assert branch_of(first) == tip


def test_a_persons_commit_on_the_branch_is_kept(repository: Repository, checkout: Checkout) -> None:
    write(checkout.folder, {"src/login.py": "one\n"})
    take_over(checkout, lambda path: True)
    git(repository.root, "checkout", "-q", checkout.assignment.branch)
    write(repository.root, {"src/auth.py": "by hand\n"})
    git(repository.root, "commit", "-qam", "WP01: by hand")
    write(checkout.folder, {"src/login.py": "two\n"})
    done = take_over(checkout, lambda path: True)
    assert show(repository, done.tip, "src/auth.py") == b"by hand\n"
    assert show(repository, done.tip, "src/login.py") == b"two\n"
    assert (
        repository.root / "src/login.py"
    ).read_text() == "two\n"  # their checkout of the branch went along


@pytest.mark.demand("W5.c")
def test_a_harvest_that_was_cut_off_is_not_done_twice(
    repository: Repository, checkout: Checkout
) -> None:
    """Died after the ref had moved and before that was noted."""
    _commit(checkout, "WP01: first", {"src/login.py": "one\n"})
    _commit(checkout, "WP01: second", {"src/login.py": "two\n"})
    before = checkout.record
    done = take_over(checkout, lambda path: True)
    head = git(checkout.folder, "rev-parse", "HEAD").strip()
    cut_off = CheckoutRecord(
        **{**_fields(before), "pending": (done.tip, head), "paths": ("src/login.py",)}
    )
    write_record(records_folder(repository, checkout.assignment.name), cut_off)
    again = take_over(checkout, lambda path: True)
    assert again.commits == ()
    assert again.tip == done.tip
    noted = find_checkout(repository, checkout.assignment)
    assert noted is not None
    assert (noted.record.taken, noted.record.pending) == (head, None)


@pytest.mark.demand("W5.a")
def test_a_harvest_that_was_cut_off_before_the_ref_moved_is_done(
    repository: Repository, checkout: Checkout
) -> None:
    _commit(checkout, "WP01: first", {"src/login.py": "one\n"})
    head = git(checkout.folder, "rev-parse", "HEAD").strip()
    never = CheckoutRecord(
        **{**_fields(checkout.record), "pending": (head, head), "paths": ("src/login.py",)}
    )
    write_record(records_folder(repository, checkout.assignment.name), never)
    git(
        repository.root, "fetch", "-q", str(checkout.folder), head
    )  # the object is there, the ref is not
    done = take_over(checkout, lambda path: True)
    assert subjects(repository, f"main..{done.tip}") == ["WP01: first"]


@pytest.mark.demand("W5.a")
def test_a_harvest_whose_objects_were_lost_with_the_power_is_done_again(
    repository: Repository, checkout: Checkout
) -> None:
    _commit(checkout, "WP01: first", {"src/login.py": "one\n"})
    gone = "1" * 40
    lost = CheckoutRecord(
        **{**_fields(checkout.record), "pending": (gone, gone), "paths": ("src/login.py",)}
    )
    write_record(records_folder(repository, checkout.assignment.name), lost)
    done = take_over(checkout, lambda path: True)
    assert subjects(repository, f"main..{done.tip}") == ["WP01: first"]


def _fields(record: CheckoutRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__struct_fields__}
