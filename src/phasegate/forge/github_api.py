"""The part of the REST API that GitHub, Gitea and Forgejo share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote

from phasegate.core.forge.checks import OWN_CONTEXT, Check, CheckState
from phasegate.core.forge.pull_decision import (
    PullRequest,
    PullState,
    Remark,
    RemarkKind,
    ReviewDecision,
)
from phasegate.forge.collaborators import WriteAccessCache
from phasegate.forge.http import ApiPayload, ForgeApi
from phasegate.forge.port import Issue, PullSpec

_WRITE_PERMISSIONS = ("owner", "admin", "maintain", "write")
# Gitea's review states -> GitHub's
_REVIEW_STATE_ALIASES = {"REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}
_DECISIVE_REVIEW_STATES = ("APPROVED", "CHANGES_REQUESTED", "DISMISSED")
# Gitea: the reviewer was asked again, which voids an approval
_ASKED_AGAIN = "REQUEST_REVIEW"
_PASSED_STATES = ("success", "neutral", "skipped")
_RUNNING_STATES = ("pending", "queued", "in_progress")
_FAILED_STATES = ("failure", "error")
# What was not read could be red
UNREAD_CHECKS = Check("(not all checks could be read)", CheckState.RUNNING)


class GitHubUser(ApiPayload, frozen=True):
    login: str = ""
    # GitHub: User, Bot, Organization or Mannequin
    type: str = ""

    @property
    def is_bot(self) -> bool:
        return self.type == "Bot" or self.login.endswith("[bot]")


class GitHubRepository(ApiPayload, frozen=True):
    id: int = 0


class GitHubRef(ApiPayload, frozen=True):
    ref: str
    sha: str
    # None if it was deleted
    repo: GitHubRepository | None = None


class GitHubLabel(ApiPayload, frozen=True):
    name: str = ""
    id: int = 0


class PullPayload(ApiPayload, frozen=True):
    number: int
    html_url: str
    state: str
    head: GitHubRef
    base: GitHubRef
    title: str
    # GitHub only; needed for GraphQL
    node_id: str = ""
    body: str | None = None
    # Not in old versions of Gitea
    draft: bool | None = None
    merged_at: str | None = None
    merge_commit_sha: str | None = None
    mergeable: bool | None = None
    # GitHub: whether the rules of the base allow the merge
    mergeable_state: str = ""
    user: GitHubUser | None = None
    labels: tuple[GitHubLabel, ...] | None = None
    requested_reviewers: tuple[GitHubUser, ...] | None = None

    def is_between(self, branch: str, base: str) -> bool:
        """Return whether it is from one branch to another of the same repository, not of a fork."""
        branches = (self.head.ref, self.base.ref)
        return branches == (branch, base) and self.head.repo == self.base.repo


class GitHubReview(ApiPayload, frozen=True):
    id: int
    state: str
    user: GitHubUser | None = None
    body: str | None = None
    commit_id: str | None = None
    # Gitea
    stale: bool = False
    dismissed: bool = False
    # Gitea: whether the rules of the base count it
    official: bool | None = None

    @property
    def normalized_state(self) -> str:
        if self.dismissed:
            return "DISMISSED"
        return _REVIEW_STATE_ALIASES.get(self.state, self.state)


class GitHubComment(ApiPayload, frozen=True):
    id: int
    user: GitHubUser | None = None
    body: str | None = None
    path: str = ""
    line: int | None = None
    in_reply_to_id: int | None = None
    # Gitea: the line in the new file; 0 if the lines no longer exist
    position: int | None = None
    # Gitea
    resolver: GitHubUser | None = None


class IssuePayload(ApiPayload, frozen=True):
    number: int
    title: str
    state: str = "open"
    body: str | None = None
    labels: tuple[GitHubLabel, ...] = ()
    # Set if the issue is a pull request
    pull_request: Mapping[str, object] | None = None


class _Permission(ApiPayload, frozen=True):
    permission: str = ""


class GitHubCompatible:
    """The API calls that GitHub, Gitea and Forgejo share."""

    def __init__(self, api: ForgeApi, repository: str) -> None:
        self._api = api
        self._repository = f"/repos/{repository}"
        self._owner = repository.partition("/")[0]
        self._writers: WriteAccessCache[str] = WriteAccessCache(self._has_write_access)

    def set_status(self, commit: str, passed: bool, description: str) -> None:
        state = "success" if passed else "failure"
        body = {"state": state, "context": OWN_CONTEXT, "description": description[:140]}
        self._api.send("POST", f"{self._repository}/statuses/{commit}", body)

    def reply(self, number: int, thread: str, text: str) -> None:
        path = f"{self._repository}/issues/{number}/comments"
        self._api.send("POST", path, {"body": text}, may_repeat=False)

    def fetch_issue(self, number: int) -> Issue:
        found = self._api.get(f"{self._repository}/issues/{number}", IssuePayload)
        return Issue(
            number=found.number,
            title=found.title,
            text=found.body or "",
            is_open=found.state == "open",
            is_pull=found.pull_request is not None,
        )

    def list_issues(self, label: str) -> Sequence[Issue]:
        """Return the open issues with a label.

        Gitea ignores an unknown label and returns all issues, so the result is filtered here.
        """
        found = self._api.get_all(
            f"{self._repository}/issues", IssuePayload, labels=label, state="open"
        )
        meant = (
            one
            for one in found
            if one.pull_request is None and label in [given.name for given in one.labels]
        )
        return [Issue(one.number, one.title, one.body or "") for one in meant]

    def update_body(self, pull: PullRequest, body: str) -> PullRequest:
        answer = self._api.send("PATCH", f"{self._repository}/pulls/{pull.number}", {"body": body})
        return to_pull(self._api.decode(answer, PullPayload))

    def add_labels_and_reviewers(self, pull: PullRequest, spec: PullSpec) -> Sequence[str]:
        """Add missing labels and reviewers; return the problems, such as a refused reviewer.

        Reviewers are requested one by one: a request with one unknown account is refused as a
        whole.
        """
        problems: list[str] = []
        missing_labels = [name for name in spec.labels if name not in pull.labels]
        if missing_labels:
            problems += self._add_labels(pull.number, missing_labels)

        path = f"{self._repository}/pulls/{pull.number}/requested_reviewers"
        for name in spec.reviewers:
            if name in pull.reviewers:
                continue

            answer = self._api.send("POST", path, {"reviewers": [name]}, (404, 422))
            if answer.status in (404, 422):
                problems.append(
                    f"cannot request a review from {name}: {answer.get_error_text()}".rstrip(": ")
                )

        return problems

    def _add_labels(self, number: int, names: Sequence[str]) -> Sequence[str]:
        """Add labels to a pull request, and return the problems."""
        path = f"{self._repository}/issues/{number}/labels"
        self._api.send("POST", path, {"labels": list(names)})
        return ()

    def _summarize_reviews(
        self,
        reviews: Iterable[GitHubReview],
        pull: PullPayload,
        *,
        required: int = 1,
        official_only: bool = False,
    ) -> ReviewDecision:
        """Combine the latest reviews of all reviewers with write access into one decision.

        An approval counts only if another account than the author gave it for the current head.
        `required` is the number of approvals that the rules of the base require. With
        `official_only`, those that these rules do not count are ignored.
        """
        last: dict[str, str] = {}

        for one in reviews:
            # An official review of Gitea stays official when its author's access ends: it may still
            # refuse, but not approve
            may_write = one.user is not None and one.user.login in self._writers
            if one.user is None or not (one.official or may_write):
                continue

            state = one.normalized_state
            login = one.user.login
            if state == _ASKED_AGAIN and last.get(login) == "APPROVED":
                last[login] = state
            if state not in _DECISIVE_REVIEW_STATES:
                continue

            counts = (
                may_write
                and not one.stale
                and one.commit_id == pull.head.sha
                and not one.user.is_bot
                and (pull.user is None or login != pull.user.login)
                and not (official_only and one.official is False)
            )
            last[login] = state if counts or state != "APPROVED" else "NOT COUNTED"

        states = [*last.values()]
        if "CHANGES_REQUESTED" in states:
            return ReviewDecision.CHANGES_REQUESTED
        if states.count("APPROVED") >= max(required, 1):
            return ReviewDecision.APPROVED

        return ReviewDecision.NOT_APPROVED

    def _make_remark(
        self,
        comment: GitHubComment,
        prefix: str,
        kind: RemarkKind,
        *,
        settled: bool,
        thread: str = "",
    ) -> Remark:
        """Convert a comment to a remark with a stable id."""
        user = comment.user or GitHubUser()
        return Remark(
            id=f"{prefix}-{comment.id:020}",
            author=user.login,
            text=comment.body or "",
            may_write=bool(user.login) and user.login in self._writers,
            kind=kind,
            is_bot=user.is_bot,
            path=comment.path,
            line=comment.line or comment.position or 0,
            is_settled=settled,
            thread=thread,
        )

    def _make_talk_remark(self, comment: GitHubComment) -> Remark:
        return self._make_remark(comment, "said", RemarkKind.TALK, settled=False)

    def _make_review_remarks(self, reviews: Sequence[GitHubReview]) -> Iterator[Remark]:
        """Yield the texts of reviews; they are settled unless they request changes or comment.

        A review that requests changes is settled, too, once its author has approved.
        """
        for position, review in enumerate(reviews):
            state = review.normalized_state
            later = [
                other.normalized_state
                for other in reviews[position + 1 :]
                if other.user == review.user and other.normalized_state in _DECISIVE_REVIEW_STATES
            ]
            is_open = state == "COMMENTED" or (state == "CHANGES_REQUESTED" and not later)
            yield self._make_remark(
                GitHubComment(id=review.id, user=review.user, body=review.body),
                "review",
                RemarkKind.REVIEW if state == "CHANGES_REQUESTED" else RemarkKind.TALK,
                settled=not is_open,
            )

    def _has_write_access(self, login: str) -> bool:
        path = f"{self._repository}/collaborators/{quote(login, safe='')}/permission"
        return self._api.get(path, _Permission).permission in _WRITE_PERMISSIONS


def make_check(name: str, state: str) -> Check:
    """Convert a state of a status or a check run. Unknown states have failed."""
    if state in _PASSED_STATES:
        return Check(name, CheckState.PASSED)
    if state in _RUNNING_STATES:
        return Check(name, CheckState.RUNNING)
    return Check(name, CheckState.FAILED)


def add_combined_state(checks: Sequence[Check], state: str) -> Sequence[Check]:
    """Add the forge's combined status as a failed check if it is red and no single check is."""
    is_red = any(check.state is CheckState.FAILED for check in checks)
    if state in _FAILED_STATES and not is_red:
        return (*checks, Check("combined status", CheckState.FAILED))
    return checks


def sort_open_first(pulls: Iterable[PullRequest]) -> Sequence[PullRequest]:
    """Sort pull requests: open ones first, then by age, newest first."""
    return sorted(pulls, key=lambda one: (one.state is not PullState.OPEN, -one.number))


def to_pull(payload: PullPayload) -> PullRequest:
    """Convert the forge's fields to a pull request."""
    if payload.merged_at:
        state = PullState.MERGED
    elif payload.state == "open":
        state = PullState.OPEN
    else:
        state = PullState.CLOSED

    return PullRequest(
        number=payload.number,
        url=payload.html_url,
        state=state,
        head=payload.head.sha,
        base=payload.base.ref,
        body=payload.body or "",
        draft=bool(payload.draft),
        labels=tuple(label.name for label in payload.labels or ()),
        reviewers=tuple(user.login for user in payload.requested_reviewers or ()),
        merge_commit=(payload.merge_commit_sha or "") if payload.merged_at else "",
    )
