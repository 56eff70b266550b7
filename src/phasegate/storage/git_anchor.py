"""Anchor the chain head in git: in the ref `refs/phasegate/audit`, which agents cannot write.

The ref points to a small JSON text with the store's id, the number of entries and the hash. It also
shows that the repository had a store: a fresh clone has no such ref and starts a new store, but a
repository with the ref and without a store has lost it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from phasegate.core.audit.chain import ChainHead
from phasegate.errors import StateConflict
from phasegate.git import GitPaths, git, remove_stale_lock, sync_written_folders
from phasegate.typed import read_json

ANCHOR_REF = "refs/phasegate/audit"
_TIMEOUT_S = 60


class Anchor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the ref."""

    store: str
    count: int
    hash: str

    @property
    def head(self) -> ChainHead:
        return ChainHead(self.count, self.hash, ANCHOR_REF)


def read_anchor(git_dir: Path) -> Anchor | None:
    """Return the anchor that is stored in git, or None if the ref does not exist."""
    found = git(
        _git_place(git_dir),
        "cat-file",
        "--batch",
        stdin=f"{ANCHOR_REF}\n".encode(),
        timeout_s=_TIMEOUT_S,
    )

    about, _, text = found.stdout.partition(b"\n")
    if about.endswith(b" missing"):
        return None

    try:
        return read_json(text, Anchor)
    except msgspec.MsgspecError as error:
        raise StateConflict(
            f"{ANCHOR_REF} contains data that Phasegate did not write: {error}",
            f"to continue and have the change recorded, run: git update-ref -d {ANCHOR_REF};"
            " then: phasegate audit verify",
        ) from error


def write_anchor(git_dir: Path, anchor: Anchor) -> None:
    """Move the ref to a newer head.

    No other process moves this ref at the same time, so an existing lock file was left by a power
    failure.
    """
    place = _git_place(git_dir)
    text = msgspec.json.encode(anchor)
    blob = (
        git(place, "hash-object", "-w", "--stdin", stdin=text, timeout_s=_TIMEOUT_S)
        .stdout.decode()
        .strip()
    )
    remove_stale_lock(place.git_dir / f"{ANCHOR_REF}.lock")
    git(place, "update-ref", ANCHOR_REF, blob, timeout_s=_TIMEOUT_S)
    sync_written_folders()


def _git_place(git_dir: Path) -> GitPaths:
    absolute = git_dir.absolute()
    return GitPaths(absolute, absolute / "objects")
