"""What we ask of a forge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from phasegate.core.forge.pull_request import PullRequest, PullRequestSnapshot
from phasegate.forge.http import ForgeApi


class PullSpec(NamedTuple):
    """A pull request as it should be."""

    branch: str
    base: str
    title: str
    body: str
    draft: bool = False
    reviewers: Sequence[str] = ()
    labels: Sequence[str] = ()


class MergeOutcome(StrEnum):
    MERGED = "merged"
    QUEUED = "queued"
    # The head is another one
    MOVED = "moved"
    NOT_YET = "not yet"
    REFUSED = "refused"


class MergeResult(NamedTuple):
    outcome: MergeOutcome
    # The commit, or the forge's own words
    detail: str = ""


class Issue(NamedTuple):
    number: int
    title: str
    text: str


class Forge(Protocol):
    """One repository at a forge. Each call is safe to repeat."""

    def find_pulls(self, branch: str, base: str) -> Sequence[PullRequest]:
        """Return all pull requests from a branch of this repository, newest first.

        Open ones before others.
        """

    def create_pull(self, spec: PullSpec) -> PullRequest | None:
        """Open one; None if the forge says that there is one already."""

    def update_pull(self, pull: PullRequest, spec: PullSpec) -> PullRequest:
        """Give it the title, text and readiness that are wanted."""

    def fetch_pull(self, number: int) -> PullRequestSnapshot:
        """Return the current state of a pull request."""

    def set_status(self, commit: str, passed: bool, description: str) -> None:
        """Show the verdict of our gates at a commit."""

    def merge_pull(self, number: int, head: str, method: str, *, queue: bool) -> MergeResult:
        """Merge it at exactly this head, or put it into the forge's queue."""

    def reply(self, number: int, thread: str, text: str) -> None:
        """Answer in the thread of a remark."""

    def fetch_issue(self, number: int) -> Issue:
        """Return an issue of the repository."""

    def list_issues(self, label: str) -> Sequence[Issue]:
        """Return the open issues with a label."""


# The API's client, the repository as `owner/name`
ForgeFactory = Callable[[ForgeApi, str], Forge]
