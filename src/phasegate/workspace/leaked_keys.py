"""Keys that were lent to an agent, looked for in all that would be taken over from its checkout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from phasegate.errors import StateConflict
from phasegate.git import GitFailed
from phasegate.rules.lent_values import LentValues
from phasegate.rules.visible_text import visible
from phasegate.workspace.agent_git_reader import copy_objects
from phasegate.workspace.changes import DEFAULT_LIMITS, Observation
from phasegate.workspace.checkout import Checkout, opened_root
from phasegate.workspace.disk import LimitReached, content_as_seen
from phasegate.workspace.history import AgentCommit
from phasegate.workspace.path_states import TAKEN_MODES, can_be_taken
from phasegate.workspace.repository import read_blobs, temporary_folder


def leaks(checkout: Checkout, seen: Observation, allowed: Callable[[str], bool], lent: LentValues) -> Iterator[str]:
    """Where one of them stands: names, messages and authors, contents of files now and in every commit."""
    if not lent:
        return
    commits = seen.history.commits
    for path in {*seen.versions, *(change.path for commit in commits for change in commit.changes)}:
        if lent.are_in(path.encode("utf-8", "surrogateescape")):
            yield "the name of a file"
    for commit in commits:
        said = f"{commit.message}\n{commit.author.who.name}\n{commit.author.who.email}"
        if lent.are_in(said.encode("utf-8", "surrogateescape")):
            yield f"the message or the author of commit {commit.id[:10]}"
    for path, content in (*_on_disk(checkout, seen, allowed), *_in_commits(checkout, commits, allowed)):
        if lent.are_in(content):
            yield visible(lent.hidden_in(path))


def _on_disk(checkout: Checkout, seen: Observation, allowed: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    hash_name = checkout.repository.hash_name
    with opened_root(checkout.record) as root:
        for path, found in seen.versions.items():
            if found is not None and can_be_taken(found) and allowed(path):
                yield path, content_as_seen(root, path, found, hash_name)


def _in_commits(
    checkout: Checkout, commits: tuple[AgentCommit, ...], allowed: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    """What cannot be read from the agent's history is not taken over either."""
    changes = [change for commit in commits for change in commit.changes if allowed(change.path)]
    paths = {one.new.object_id: one.path for one in changes if one.new is not None and one.new.mode in TAKEN_MODES}
    if not paths:
        return
    with opened_root(checkout.record) as root, temporary_folder(checkout.repository) as room:
        try:
            place = copy_objects(root, checkout.repository, Path(room / "objects"), DEFAULT_LIMITS)
            blobs = read_blobs(place, paths)
        except (GitFailed, LimitReached, StateConflict):
            return
        yield from ((paths[one], content) for one, content in blobs.items())
