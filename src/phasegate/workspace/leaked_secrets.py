"""Keys that were lent to an agent, looked for in all that would be taken over from its checkout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from phasegate.core.agents.secrets import LentValues
from phasegate.core.text.visible import visible
from phasegate.errors import StateConflict
from phasegate.git import GitFailed
from phasegate.workspace.agent_history import AgentCommit
from phasegate.workspace.changes import DEFAULT_LIMITS, Observation
from phasegate.workspace.checkout import Checkout
from phasegate.workspace.checkout_files import LimitReached
from phasegate.workspace.path_states import committed_blobs, contents_seen


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
    on_disk = contents_seen(checkout, seen, filter(allowed, seen.versions))
    for path, content in chain(on_disk, _in_commits(checkout, commits, allowed)):
        if lent.are_in(content):
            yield visible(lent.hidden_in(path))


def _in_commits(
    checkout: Checkout, commits: tuple[AgentCommit, ...], allowed: Callable[[str], bool]
) -> Iterable[tuple[str, bytes]]:
    """What cannot be read from the agent's history is not taken over either."""
    try:
        return committed_blobs(checkout, commits, allowed, DEFAULT_LIMITS).values()
    except (GitFailed, LimitReached, StateConflict):
        return ()
