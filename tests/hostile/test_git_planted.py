"""Nothing that an agent plants in its tree or its git directory is run or believed by our own git (D02)."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.workspace.changes.saved_work import save_work
from phasegate.workspace.checkout.checkout import Checkout
from phasegate.workspace.checkout.export import export_tree
from phasegate.workspace.checkout_lifecycle import (
    RenewedCheckout,
    remove_checkout,
    reset_checkout,
    update_checkout,
)
from phasegate.workspace.repository.merge import AlreadyMerged, PreparedMerge, prepare_merge
from support.git_project import (
    SLUG,
    TERMS,
    US,
    branch_of,
    finish_merge,
    git,
    make_checkout,
    make_repository,
    seen_in,
    show,
    take_over,
    write,
)
from support.planted import PLANTED, Planted, Room

WORK = "def login():\n    return True\n"
ALLOWED = ("src/login.py", ".gitattributes")


def _whole_way(checkout: Checkout, folder: Path) -> None:
    """Everything that our own git does with a checkout and with what came out of it."""
    repository = checkout.repository
    seen_in(checkout)
    take_over(checkout, ALLOWED)
    save_work(checkout, US)
    for source, target in ((checkout.assignment.branch, f"feat/{SLUG}"), (f"feat/{SLUG}", "main")):
        prepared = prepare_merge(repository, source, target, "Merge", US)
        assert isinstance(prepared, PreparedMerge)
        export_tree(repository, prepared.commit, folder / target, with_git=True)
        assert isinstance(finish_merge(repository, prepared), AlreadyMerged)


@pytest.mark.demand("D4.g", "D6.m", "D6.n")
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_state_runs_nothing_and_the_work_arrives(
    tmp_path: Path, planted: Planted
) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    room = Room(checkout.folder, tmp_path / "outside")
    planted.plant(room)
    write(checkout.folder, {"src/login.py": WORK})
    room.marker.unlink(missing_ok=True)  # planting itself may have run git

    _whole_way(checkout, tmp_path / "exports")

    assert not room.marker.exists()
    assert show(repository, branch_of(checkout), "src/login.py") == WORK.encode()
    assert (
        repository.root / "src/login.py"
    ).read_text() == WORK  # the person's own checkout was moved along
    assert room.careless(planted.more), (
        "the control is broken: plain git did not run the program either"
    )


@pytest.mark.demand("D6.m", "D4.g")
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_state_is_gone_from_a_checkout_that_is_made_anew(
    tmp_path: Path, planted: Planted
) -> None:
    repository = make_repository(tmp_path / "project")
    checkout = make_checkout(repository)
    room = Room(checkout.folder, tmp_path / "outside")
    planted.plant(room)
    room.marker.unlink(missing_ok=True)

    renewed = reset_checkout(checkout, TERMS)
    if not isinstance(
        renewed, RenewedCheckout
    ):  # an embedded repository cannot be saved: a person must say so
        remove_checkout(checkout, US, discard=True)
        renewed = RenewedCheckout(make_checkout(repository), None)
    assert isinstance(update_checkout(renewed.checkout, TERMS), RenewedCheckout)

    assert not room.marker.exists()
    assert not room.careless(), "the planted state is still there"
    assert git(checkout.folder, "status", "--porcelain") == ""


@pytest.mark.demand("D6.e")
@pytest.mark.parametrize(
    "planted", [PLANTED[0], PLANTED[2], PLANTED[12], PLANTED[14]], ids=lambda planted: planted.name
)
def test_a_changed_git_directory_is_seen(tmp_path: Path, planted: Planted) -> None:
    checkout = make_checkout(make_repository(tmp_path / "project"))
    assert seen_in(checkout).git_directory_changes == ()
    planted.plant(Room(checkout.folder, tmp_path / "outside"))
    assert seen_in(checkout).git_directory_changes
