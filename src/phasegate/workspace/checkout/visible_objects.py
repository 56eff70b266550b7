"""Keep an object folder with the objects that jobs may read: those that their base commits reach.

The user's object folder has more: stashes, private branches, commits that were thrown away. A job
can read every file that it sees, so it sees a copy with nothing else. The copy grows by a pack for
each new start.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from phasegate.files.durable_write import make_folder, replace_file, sync_folders
from phasegate.git import GitFailed, git
from phasegate.workspace.repository.repository import Repository
from phasegate.workspace.repository.repository_locks import checkout_lock

_LOCK_NAME = ".visible-objects"
# The commits whose objects are all in the folder, one per line
_TIPS_FILE = "tips"
# Many packs make every git command of a job slow
_MAX_PACKS = 50


def get_visible_objects_folder(repository: Repository) -> Path:
    """Return the object folder that the git directories of checkouts read."""
    return repository.own_folder / "visible"


def add_visible_objects(repository: Repository, commits: Iterable[str]) -> None:
    """Pack every object reachable from these commits and tags into the folder, if missing."""
    folder = get_visible_objects_folder(repository)
    with checkout_lock(repository, _LOCK_NAME):
        for name in ("pack", "info"):
            make_folder(folder / name, 0o777)

        known = _read_tips(folder)
        new = {*commits} - known
        if not new:
            return

        try:
            _pack(repository, folder, new, known)
        except GitFailed:
            # An earlier start is gone from the repository: everything is packed again.
            _pack(repository, folder, new, ())

        _write_tips(folder, known | new)
        if len([*(folder / "pack").glob("*.pack")]) > _MAX_PACKS:
            # Not possible if an earlier start is gone
            with suppress(GitFailed):
                _merge_packs(repository, folder, known | new)


def _pack(
    repository: Repository, folder: Path, wanted: Iterable[str], present: Iterable[str]
) -> None:
    """Write a pack with what some commits reach and others do not.

    Blobs that a partial clone does not have are left out.
    """
    lines = [*sorted(wanted), "--not", *sorted(present), ""]
    git(
        repository.place(),
        "pack-objects",
        "--revs",
        "--quiet",
        "--non-empty",
        "--window=0",
        "--delta-base-offset",
        "--missing=allow-any",
        str(folder / "pack/pack"),
        stdin="\n".join(lines).encode(),
    )
    sync_folders(folder / "pack", folder)


def _merge_packs(repository: Repository, folder: Path, tips: Iterable[str]) -> None:
    """Replace all packs with one. A running git rereads the pack list if a pack vanishes."""
    old = {*(folder / "pack").iterdir()}
    _pack(repository, folder, tips, ())
    if {*(folder / "pack").iterdir()} - old:
        for path in old:
            path.unlink()


def _read_tips(folder: Path) -> set[str]:
    try:
        return {*(folder / _TIPS_FILE).read_text(encoding="ascii").split()}
    except FileNotFoundError:
        return set()


def _write_tips(folder: Path, tips: Iterable[str]) -> None:
    replace_file(folder / _TIPS_FILE, "\n".join([*sorted(tips), ""]).encode(), 0o644)
