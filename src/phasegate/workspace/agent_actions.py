"""What an agent did in its checkout, as files and git tell after its end: what it wrote, removed and committed.

The times are those of the files and commits themselves. An agent can set them: whoever shows one puts it between what
was seen before and after.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phasegate.errors import StateConflict
from phasegate.files.safe_open import folder_beneath
from phasegate.workspace.changes import Observation
from phasegate.workspace.checkout import Checkout, opened_root
from phasegate.workspace.checkout_files import Found, content_as_seen
from phasegate.workspace.commit_log import blobs_of


class Deed(NamedTuple):
    """A file that was written (`hash` is SHA-256 of its bytes) or removed, or a commit (`sha`)."""

    at_s: float
    path: str = ""
    lines: int | None = None  # None: no text, or gone
    hash: str = ""
    sha: str = ""
    message: str = ""


def deeds_in(checkout: Checkout, seen: Observation) -> list[Deed]:
    """What is left of what an agent did since its work was last taken over, oldest first."""
    record, hash_name = checkout.record, checkout.repository.hash_name
    before = blobs_of(checkout.repository, record.tip) if record.tip else None
    fresh = {path: found for path, found in seen.versions.items() if before is None or not _is_in(before, path, found)}
    with opened_root(record) as root:
        files = [_file(root, hash_name, path, found) for path, found in fresh.items()]
    earliest_s = min((one.at_s for one in files), default=0.0)
    return sorted([*files, *_commits(seen, record.taken, earliest_s)], key=lambda one: one.at_s)


def _is_in(tree: Mapping[str, str], path: str, found: Found | None) -> bool:
    return tree.get(path) == (found.object_id if found else None)


def _commits(seen: Observation, taken: str | None, at_s: float) -> Iterator[Deed]:
    ids = [commit.id for commit in seen.history.commits]
    for commit in seen.history.commits[ids.index(taken) + 1 if taken in ids else 0 :]:
        at_s = max(at_s, float(commit.author.when_s) + 1)  # git cuts the second off in which the files were written
        yield Deed(at_s, sha=commit.id, message=commit.subject)


def _file(root: int, hash_name: str, path: str, found: Found | None) -> Deed:
    if found is None or not found.object_id:
        return Deed(_changed_s(root, path), path)
    try:
        content = content_as_seen(root, path, found, hash_name)
    except StateConflict:  # whoever takes it over will say so
        return Deed(_changed_s(root, path), path)
    is_text = found.link_target is None and b"\0" not in content[:8_000]
    lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content)) if is_text else None
    return Deed(_changed_s(root, path), path, lines, hashlib.sha256(content).hexdigest())


def _changed_s(root: int, path: str) -> float:
    """When the file was changed last; of one that is gone, when its folder was."""
    folder, _, name = path.rpartition("/")
    try:
        with folder_beneath(root, folder) as descriptor:
            try:
                return os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime
            except FileNotFoundError:
                return os.fstat(descriptor).st_mtime
    except OSError:
        return 0.0
