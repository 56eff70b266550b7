"""What GitHub and those that took over its API have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from phasegate.core.forge.pull_request import Opinion, Pull, PullState, Remark
from phasegate.forge.collaborators import Writers
from phasegate.forge.http import Api, Read
from phasegate.forge.port import Issue, Wanted

CONTEXT = "phasegate"
_WRITERS = ("owner", "admin", "maintain", "write")
_WORDS = {"REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}  # Gitea's, in GitHub's
_OPINIONS = ("APPROVED", "CHANGES_REQUESTED", "DISMISSED")
_PASSED = ("success", "neutral", "skipped")
_RUNNING = ("pending", "queued", "in_progress")


class Person(Read, frozen=True):
    login: str = ""


class Ref(Read, frozen=True):
    ref: str
    sha: str


class PullAnswer(Read, frozen=True):
    number: int
    html_url: str
    state: str
    head: Ref
    base: Ref
    title: str
    node_id: str = ""  # GitHub's, for GraphQL
    body: str | None = None
    draft: bool = False
    merged_at: str | None = None
    merge_commit_sha: str | None = None
    mergeable: bool | None = None


class Review(Read, frozen=True):
    id: int
    state: str
    user: Person | None = None
    body: str | None = None
    commit_id: str | None = None
    stale: bool = False
    dismissed: bool = False

    @property
    def word(self) -> str:
        return "DISMISSED" if self.dismissed else _WORDS.get(self.state, self.state)


class Comment(Read, frozen=True):
    id: int
    user: Person | None = None
    body: str | None = None
    path: str = ""
    line: int | None = None
    in_reply_to_id: int | None = None
    position: int | None = None  # Gitea: the line in the new file; 0: the lines are not there any more
    resolver: Person | None = None  # Gitea


class Label(Read, frozen=True):
    name: str = ""
    id: int = 0


class IssueAnswer(Read, frozen=True):
    number: int
    title: str
    body: str | None = None
    labels: tuple[Label, ...] = ()
    pull_request: Mapping[str, object] | None = None  # a pull request is an issue, too


class _Permission(Read, frozen=True):
    permission: str = ""


class GitHubLike:
    """The calls that are the same at GitHub, Gitea and Forgejo."""

    def __init__(self, api: Api, repository: str) -> None:
        self._api, self._repository = api, f"/repos/{repository}"
        self._owner = repository.partition("/")[0]
        self._writers: Writers[str] = Writers(self._may_write)

    def set_status(self, commit: str, passed: bool, description: str) -> None:
        state = "success" if passed else "failure"
        body = {"state": state, "context": CONTEXT, "description": description[:140]}
        self._api.send("POST", f"{self._repository}/statuses/{commit}", body)

    def answer(self, number: int, thread: str, text: str) -> None:
        self._api.send("POST", f"{self._repository}/issues/{number}/comments", {"body": text})

    def issue(self, number: int) -> Issue:
        found = self._api.get(f"{self._repository}/issues/{number}", IssueAnswer)
        return Issue(found.number, found.title, found.body or "")

    def issues(self, label: str) -> Sequence[Issue]:
        """Gitea answers a label that it does not know with all issues: each must have it."""
        found = self._api.get_all(f"{self._repository}/issues", IssueAnswer, labels=label, state="open")
        meant = (one for one in found if one.pull_request is None and label in [given.name for given in one.labels])
        return [Issue(one.number, one.title, one.body or "") for one in meant]

    def _ask_for_review(self, number: int, wanted: Wanted) -> None:
        if wanted.reviewers:
            path = f"{self._repository}/pulls/{number}/requested_reviewers"
            self._api.send("POST", path, {"reviewers": list(wanted.reviewers)}, (422,))

    def _opinion(self, reviews: Iterable[Review], head: str) -> Opinion:
        """The last word of each reviewer who may write; an approval counts for the commit that it was given for."""
        last: dict[str, str] = {}
        for one in reviews:
            if one.user and one.word in _OPINIONS and one.user.login in self._writers:
                is_stale = one.word == "APPROVED" and (one.stale or one.commit_id != head)
                last[one.user.login] = "STALE" if is_stale else one.word
        if "CHANGES_REQUESTED" in last.values():
            return Opinion.CHANGES
        return Opinion.APPROVED if "APPROVED" in last.values() else Opinion.NONE

    def _remark(self, one: Comment, kind: str, *, settled: bool, thread: str = "") -> Remark:
        author = one.user.login if one.user else ""
        return Remark(
            id=f"{kind}-{one.id:020}",
            author=author,
            text=one.body or "",
            may_write=bool(author) and author in self._writers,
            path=one.path,
            line=one.line or one.position or 0,
            settled=settled,
            thread=thread,
        )

    def _review_remark(self, one: Review) -> Remark:
        """The text of a review asks for something only where it does not approve."""
        said = Comment(one.id, one.user, one.body)
        return self._remark(said, "review", settled=one.word not in ("CHANGES_REQUESTED", "COMMENTED"))

    def _may_write(self, login: str) -> bool:
        path = f"{self._repository}/collaborators/{login}/permission"
        return self._api.get(path, _Permission).permission in _WRITERS


def all_passed(states: Iterable[str]) -> bool | None:
    """Whether every check has passed; None while one runs, or where there is none."""
    every = list(states)
    if any(state not in (*_PASSED, *_RUNNING) for state in every):
        return False
    return True if every and all(state in _PASSED for state in every) else None


def open_first(pulls: Iterable[Pull]) -> Sequence[Pull]:
    """Open ones before others, the newest first."""
    return sorted(pulls, key=lambda one: (one.state is not PullState.OPEN, -one.number))


def as_pull(found: PullAnswer) -> Pull:
    state = PullState.MERGED if found.merged_at else PullState.OPEN if found.state == "open" else PullState.CLOSED
    return Pull(
        number=found.number,
        url=found.html_url,
        state=state,
        head=found.head.sha,
        base=found.base.ref,
        body=found.body or "",
        draft=found.draft,
        merged_as=(found.merge_commit_sha or "") if found.merged_at else "",
    )
