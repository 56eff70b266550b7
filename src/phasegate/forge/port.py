"""The interface that every forge client implements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from phasegate.core.forge.pull_decision import PullRequest, PullRequestSnapshot
from phasegate.forge.http import ForgeApi


class PullSpec(NamedTuple):
    """The desired state of a pull request."""

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
    # The branch's head is no longer the given commit
    MOVED = "moved"
    NOT_YET = "not yet"
    REFUSED = "refused"


class MergeResult(NamedTuple):
    outcome: MergeOutcome
    # The merge commit, or the forge's message
    detail: str = ""


class Issue(NamedTuple):
    number: int
    title: str
    text: str
    is_open: bool = True
    # GitHub and Gitea number pull requests like issues
    is_pull: bool = False


class Forge(Protocol):
    """One repository on a forge. Each call is safe to repeat."""

    # Whether `PullRequest.queued` tells if it is still in the merge queue
    shows_queue: bool

    def find_pulls(self, branch: str, base: str) -> Sequence[PullRequest]:
        """Return the open pull requests from a branch of this repository, newer ones first."""

    def create_pull(self, spec: PullSpec) -> PullRequest | None:
        """Open a pull request, or return None if the forge reports that one already exists."""

    def update_body(self, pull: PullRequest, body: str) -> PullRequest:
        """Replace the text of a pull request; its title and draft status belong to people."""

    def add_labels_and_reviewers(self, pull: PullRequest, spec: PullSpec) -> Sequence[str]:
        """Add the labels and reviewers that are missing; return the problems, one line each."""

    def fetch_pull(self, number: int) -> PullRequestSnapshot:
        """Return the current state of a pull request."""

    def set_status(self, commit: str, passed: bool, description: str) -> None:
        """Set Phasegate's commit status."""

    def merge_pull(self, number: int, head: str, method: str, *, queue: bool) -> MergeResult:
        """Merge a pull request at exactly this head, or add it to the merge queue."""

    def reply(self, number: int, thread: str, text: str) -> None:
        """Reply in the thread of a remark."""

    def fetch_issue(self, number: int) -> Issue:
        """Return an issue of the repository."""

    def list_issues(self, label: str) -> Sequence[Issue]:
        """Return the open issues with a label."""


# Arguments: the API client, and the repository as `owner/name`
ForgeFactory = Callable[[ForgeApi, str], Forge]
