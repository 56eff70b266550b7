"""Render the changes that are in the checkouts of a package and were not collected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import unified_diff
from pathlib import Path

from phasegate.errors import ConfigError
from phasegate.files.text_file import read_text_file
from phasegate.workspace.changes import CheckoutTooLarge, observe_checkout
from phasegate.workspace.checkout import Assignment, Checkout, list_checkouts
from phasegate.workspace.commit_log import list_blobs
from phasegate.workspace.repository import Repository, read_blobs

MAX_FILE_BYTES = 1_000_000


def list_package_checkouts(
    repository: Repository, feature: str, package: str
) -> Iterator[Checkout]:
    """Yield the checkouts of all agents of a package."""
    name = f"{feature}-{package}"
    for checkout_name, record in list_checkouts(repository):
        suffix = checkout_name.removeprefix(name)
        if checkout_name == name or (checkout_name != suffix and suffix.startswith("-agent")):
            index = suffix.removeprefix("-agent")
            assignment = Assignment(feature, package, int(index) if index else None)
            yield Checkout(repository, assignment, record)


def diff_checkout(checkout: Checkout, litter: Iterable[str]) -> str:
    """Return the difference between a checkout and the commit that it started from."""
    observation = observe_checkout(checkout, litter=litter)
    if isinstance(observation, CheckoutTooLarge):
        return ""

    paths = sorted(observation.versions)
    return "".join(
        diff_file(path, before, read_current_text(checkout.folder / path))
        for path, before in _read_start_texts(checkout, paths)
    )


def diff_file(path: str, before: str, after: str) -> str:
    """Return the unified diff of one file."""
    lines = unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}")
    return "".join(lines)


def read_start_text(checkout: Checkout, path: str) -> str:
    """Return a file of the commit that a checkout started from; empty if it did not exist."""
    return dict(_read_start_texts(checkout, [path]))[path]


def _read_start_texts(checkout: Checkout, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    blobs = list_blobs(checkout.repository, checkout.start)
    for path in paths:
        text = ""
        if blob := blobs.get(path):
            place = checkout.repository.place()
            text = read_blobs(place, [blob])[blob].decode(errors="replace")
        yield path, text


def read_current_text(path: Path) -> str:
    """Return the text of a file; empty if there is none, a note if it cannot be shown."""
    if not path.exists() and not path.is_symlink():
        return ""
    try:
        return read_text_file(path, MAX_FILE_BYTES).text
    except ConfigError as error:
        return f"[{error}]\n"
