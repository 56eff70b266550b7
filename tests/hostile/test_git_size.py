"""An agent that fills its checkout is stopped by a limit, and the checkout can be removed (M04)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from phasegate.workspace.changes.changes import CheckoutTooLarge, observe_checkout
from phasegate.workspace.checkout.checkout import Checkout
from phasegate.workspace.checkout_lifecycle import RemovedCheckout, UnsavedWork, remove_checkout
from phasegate.workspace.repository.disk_files import CheckoutLimits
from support.git_project import US, make_checkout, make_repository
from support.growth import assert_grows_no_faster_than_its_input

TEN_GB = 10 * 1024**3


def _many_files(checkout: Checkout, count: int) -> None:
    for folder in range(count // 1000):
        (checkout.folder / f"d{folder}").mkdir()
        for number in range(1000):
            os.close(os.open(checkout.folder / f"d{folder}/{number}", os.O_CREAT | os.O_WRONLY))


def _sparse_file(checkout: Checkout, count: int) -> None:
    with (checkout.folder / "src/huge.bin").open("wb") as file:
        file.truncate(TEN_GB)


def _deep_folders(checkout: Checkout, count: int) -> None:
    folder = os.open(checkout.folder, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("deeper", dir_fd=folder)
        below = os.open("deeper", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)


@pytest.mark.parametrize(
    ("make", "what"),
    [(_many_files, "files"), (_sparse_file, "a file of"), (_deep_folders, "folders inside")],
    ids=["many files", "a sparse file", "deep folders"],
)
def test_a_flood_is_a_limit_that_is_named_and_can_be_removed(
    tmp_path: Path, make: Callable[[Checkout, int], None], what: str
) -> None:
    checkout = make_checkout(make_repository(tmp_path / "project"))
    make(checkout, 3000)
    limits = CheckoutLimits(files=1000)
    found = observe_checkout(checkout, limits=limits)
    assert isinstance(found, CheckoutTooLarge)
    assert what in found.what
    if make is not _many_files:  # below the limits of a real run
        assert isinstance(remove_checkout(checkout, US), UnsavedWork)
        assert checkout.folder.exists()
    assert remove_checkout(checkout, US, discard=True) == RemovedCheckout(None)
    assert [*(checkout.folder.parent).iterdir()] == []


def test_the_cost_of_a_look_grows_with_the_files(tmp_path: Path) -> None:
    def full_checkout(count: int) -> Checkout:
        checkout = make_checkout(make_repository(tmp_path / f"project{count}"))
        _many_files(checkout, count)
        return checkout

    assert_grows_no_faster_than_its_input(observe_checkout, full_checkout, 1_000, 8_000)


@pytest.mark.long
def test_a_million_files_are_a_limit(tmp_path: Path) -> None:
    checkout = make_checkout(make_repository(tmp_path / "project"))
    _many_files(checkout, 1_000_000)
    assert isinstance(observe_checkout(checkout), CheckoutTooLarge)
    assert remove_checkout(checkout, US, discard=True) == RemovedCheckout(None)
    assert [*(checkout.folder.parent).iterdir()] == []
