"""Search everything that would be harvested from a checkout for secrets given to the agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from phasegate.core.agents.secrets import SecretMatcher
from phasegate.core.text.visible import escape_unprintable
from phasegate.errors import StateConflict
from phasegate.git import GitFailed
from phasegate.workspace.changes.agent_history import AgentCommit
from phasegate.workspace.changes.changes import DEFAULT_LIMITS, Observation
from phasegate.workspace.changes.path_states import read_committed_blobs, read_observed_contents
from phasegate.workspace.checkout.checkout import Checkout
from phasegate.workspace.repository.disk_files import LimitReached


def find_leaks(
    checkout: Checkout,
    observation: Observation,
    allowed: Callable[[str], bool],
    lent: SecretMatcher,
) -> Iterator[str]:
    """Yield the locations of secrets that the agent was given.

    File names, commit messages, authors and file contents of every commit are searched.
    """
    if not lent:
        return

    commits = observation.history.commits
    for path in {
        *observation.versions,
        *(change.path for commit in commits for change in commit.changes),
    }:
        if lent.has_secret(path.encode("utf-8", "surrogateescape")):
            yield "the name of a file"

    for commit in commits:
        said = f"{commit.message}\n{commit.author.who.name}\n{commit.author.who.email}"
        if lent.has_secret(said.encode("utf-8", "surrogateescape")):
            yield f"the message or the author of commit {commit.id[:10]}"

    on_disk = read_observed_contents(checkout, observation, filter(allowed, observation.versions))
    for path, content in chain(on_disk, _read_committed_contents(checkout, commits, allowed)):
        if lent.has_secret(content):
            yield escape_unprintable(lent.redact(path))


def _read_committed_contents(
    checkout: Checkout, commits: tuple[AgentCommit, ...], allowed: Callable[[str], bool]
) -> Iterable[tuple[str, bytes]]:
    """Return the file contents in the agent's history.

    Unreadable contents are left out, since they are not harvested either.
    """
    try:
        return read_committed_blobs(checkout, commits, allowed, DEFAULT_LIMITS).values()
    except (GitFailed, LimitReached, StateConflict):
        return ()
