"""List an agent's actions in its checkout, from files and git, after the job has ended.

Times are those of the files and commits. An agent can set them to any value, so they are limited to
the interval in which the job was observed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phasegate.errors import StateConflict
from phasegate.files.safe_open import folder_beneath
from phasegate.workspace.changes.changes import Observation
from phasegate.workspace.checkout.checkout import Checkout, checkout_descriptor
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.disk_files import DiskEntry, read_unchanged_content


class AgentAction(NamedTuple):
    """One action of an agent: a file that was written or removed, or a commit.

    `hash` is the SHA-256 of a written file, `sha` the id of a commit.
    """

    at_s: float
    path: str = ""
    # None if the file is not text, or was removed
    lines: int | None = None
    hash: str = ""
    sha: str = ""
    message: str = ""


def list_agent_actions(checkout: Checkout, observation: Observation) -> list[AgentAction]:
    """Return an agent's actions since its work was last harvested, oldest first."""
    record = checkout.record
    hash_name = checkout.repository.hash_name
    if record.tip:
        before = list_blobs(checkout.repository, record.tip)
    else:
        before = None

    fresh = {
        path: found
        for path, found in observation.versions.items()
        if before is None or not _is_in_tree(before, path, found)
    }
    with checkout_descriptor(record) as root:
        files = [_file_action(root, hash_name, path, found) for path, found in fresh.items()]

    earliest_s = min((one.at_s for one in files), default=0.0)
    return sorted(
        [*files, *_commit_actions(observation, record.taken, earliest_s)], key=lambda one: one.at_s
    )


def _is_in_tree(tree: Mapping[str, str], path: str, found: DiskEntry | None) -> bool:
    return tree.get(path) == (found.object_id if found else None)


def _commit_actions(
    observation: Observation, harvested: str | None, at_s: float
) -> Iterator[AgentAction]:
    ids = [commit.id for commit in observation.history.commits]
    for commit in observation.history.commits[
        ids.index(harvested) + 1 if harvested in ids else 0 :
    ]:
        # Commit times have whole seconds, so subtract up to one second
        at_s = max(at_s, float(commit.author.when_s) + 1)
        yield AgentAction(at_s=at_s, sha=commit.id, message=commit.subject)


def _file_action(root: int, hash_name: str, path: str, found: DiskEntry | None) -> AgentAction:
    """Describe a changed file: time, size and lines, where it can be read."""
    if found is None or not found.object_id:
        return AgentAction(_modified_at_s(root, path), path)

    try:
        content = read_unchanged_content(root, path, found, hash_name)
    except StateConflict:
        # The harvest reports the problem with this file
        return AgentAction(_modified_at_s(root, path), path)

    is_text = found.link_target is None and b"\0" not in content[:8_000]
    if is_text:
        lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    else:
        lines = None

    return AgentAction(
        at_s=_modified_at_s(root, path),
        path=path,
        lines=lines,
        hash=hashlib.sha256(content).hexdigest(),
    )


def _modified_at_s(root: int, path: str) -> float:
    """Return when a file was last changed; for a missing file, when its folder was changed."""
    folder, _, name = path.rpartition("/")

    try:
        with folder_beneath(root, folder) as descriptor:
            try:
                return os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime
            except FileNotFoundError:
                return os.fstat(descriptor).st_mtime
    except OSError:
        return 0.0
