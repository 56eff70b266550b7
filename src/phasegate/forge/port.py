"""What we ask of a forge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from phasegate.core.forge.pull_request import Look, Pull
from phasegate.forge.http import Api


class Wanted(NamedTuple):
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
    MOVED = "moved"  # the head is another one
    NOT_YET = "not yet"
    REFUSED = "refused"


class MergeAnswer(NamedTuple):
    outcome: MergeOutcome
    detail: str = ""  # the commit, or the forge's own words


class Issue(NamedTuple):
    number: int
    title: str
    text: str


class Forge(Protocol):
    """One repository at a forge. Each call is safe to repeat."""

    def find(self, branch: str, base: str) -> Sequence[Pull]:
        """All pull requests from a branch of this repository, the newest first; open ones before others."""

    def create(self, wanted: Wanted) -> Pull | None:
        """Open one; None if the forge says that there is one already."""

    def update(self, pull: Pull, wanted: Wanted) -> Pull:
        """Give it the title, text and readiness that are wanted."""

    def look(self, number: int) -> Look:
        """All that is known of a pull request now."""

    def set_status(self, commit: str, passed: bool, description: str) -> None:
        """Show the verdict of our gates at a commit."""

    def merge(self, number: int, head: str, method: str, *, queue: bool) -> MergeAnswer:
        """Merge it at exactly this head, or put it into the forge's queue."""

    def answer(self, number: int, thread: str, text: str) -> None:
        """Answer in the thread of a remark."""

    def issue(self, number: int) -> Issue:
        """An issue of the repository."""

    def issues(self, label: str) -> Sequence[Issue]:
        """The open issues that have a label."""


MakesForge = Callable[[Api, str], Forge]  # the API's client, the repository as `owner/name`
