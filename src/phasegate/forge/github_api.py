"""The part of the REST API that GitHub, Gitea and Forgejo share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from phasegate.core.forge.pull_request import PullRequest, PullState, Remark, ReviewDecision
from phasegate.forge.collaborators import WriteAccessCache
from phasegate.forge.http import ApiPayload, ForgeApi
from phasegate.forge.port import Issue, PullSpec

STATUS_CONTEXT = "phasegate"
_WRITE_PERMISSIONS = ("owner", "admin", "maintain", "write")
# Gitea's review states -> GitHub's
_REVIEW_STATE_ALIASES = {"REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}
_DECISIVE_REVIEW_STATES = ("APPROVED", "CHANGES_REQUESTED", "DISMISSED")
_PASSED_STATES = ("success", "neutral", "skipped")
_RUNNING_STATES = ("pending", "queued", "in_progress")


class GitHubUser(ApiPayload, frozen=True):
    login: str = ""


class GitHubRef(ApiPayload, frozen=True):
    ref: str
    sha: str


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
    draft: bool = False
    merged_at: str | None = None
    merge_commit_sha: str | None = None
    mergeable: bool | None = None


class GitHubReview(ApiPayload, frozen=True):
    id: int
    state: str
    user: GitHubUser | None = None
    body: str | None = None
    commit_id: str | None = None
    stale: bool = False
    dismissed: bool = False

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


class GitHubLabel(ApiPayload, frozen=True):
    name: str = ""
    id: int = 0


class IssuePayload(ApiPayload, frozen=True):
    number: int
    title: str
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
        body = {"state": state, "context": STATUS_CONTEXT, "description": description[:140]}
        self._api.send("POST", f"{self._repository}/statuses/{commit}", body)

    def reply(self, number: int, thread: str, text: str) -> None:
        self._api.send("POST", f"{self._repository}/issues/{number}/comments", {"body": text})

    def fetch_issue(self, number: int) -> Issue:
        found = self._api.get(f"{self._repository}/issues/{number}", IssuePayload)
        return Issue(found.number, found.title, found.body or "")

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

    def _request_review(self, number: int, spec: PullSpec) -> None:
        if spec.reviewers:
            path = f"{self._repository}/pulls/{number}/requested_reviewers"
            self._api.send("POST", path, {"reviewers": list(spec.reviewers)}, (422,))

    def _summarize_reviews(self, reviews: Iterable[GitHubReview], head: str) -> ReviewDecision:
        """Combine the latest reviews of all reviewers with write access into one decision.

        An approval counts only if it was given for the commit `head`.
        """
        last: dict[str, str] = {}

        for one in reviews:
            if (
                one.user
                and one.normalized_state in _DECISIVE_REVIEW_STATES
                and one.user.login in self._writers
            ):
                is_stale = one.normalized_state == "APPROVED" and (
                    one.stale or one.commit_id != head
                )
                if is_stale:
                    last[one.user.login] = "STALE"
                else:
                    last[one.user.login] = one.normalized_state

        if "CHANGES_REQUESTED" in last.values():
            return ReviewDecision.CHANGES_REQUESTED
        if "APPROVED" in last.values():
            return ReviewDecision.APPROVED

        return ReviewDecision.NOT_APPROVED

    def _make_remark(
        self, comment: GitHubComment, kind: str, *, settled: bool, thread: str = ""
    ) -> Remark:
        if comment.user:
            author = comment.user.login
        else:
            author = ""

        return Remark(
            id=f"{kind}-{comment.id:020}",
            author=author,
            text=comment.body or "",
            may_write=bool(author) and author in self._writers,
            path=comment.path,
            line=comment.line or comment.position or 0,
            is_settled=settled,
            thread=thread,
        )

    def _make_review_remark(self, review: GitHubReview) -> Remark:
        """Convert the text of a review to a remark; it is settled unless it requests changes or
        comments.
        """
        said = GitHubComment(id=review.id, user=review.user, body=review.body)
        return self._make_remark(
            said,
            "review",
            settled=review.normalized_state not in ("CHANGES_REQUESTED", "COMMENTED"),
        )

    def _has_write_access(self, login: str) -> bool:
        path = f"{self._repository}/collaborators/{login}/permission"
        return self._api.get(path, _Permission).permission in _WRITE_PERMISSIONS


def have_all_passed(states: Iterable[str]) -> bool | None:
    """Return True if all checks passed, False if one failed.

    Return None while a check is running, or if there are no checks.
    """
    every = list(states)
    if any(state not in (*_PASSED_STATES, *_RUNNING_STATES) for state in every):
        return False
    if every and all(state in _PASSED_STATES for state in every):
        return True

    return None


def sort_open_first(pulls: Iterable[PullRequest]) -> Sequence[PullRequest]:
    """Sort pull requests: open ones first, then by age, newest first."""
    return sorted(pulls, key=lambda one: (one.state is not PullState.OPEN, -one.number))


def to_pull(payload: PullPayload) -> PullRequest:
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
        draft=payload.draft,
        merge_commit=(payload.merge_commit_sha or "") if payload.merged_at else "",
    )
