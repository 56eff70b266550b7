"""Client for GitLab merge requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from phasegate.core.forge.pull_request import (
    PullRequest,
    PullRequestSnapshot,
    PullState,
    Remark,
    ReviewDecision,
)
from phasegate.forge.collaborators import WriteAccessCache
from phasegate.forge.github_api import STATUS_CONTEXT, have_all_passed, sort_open_first
from phasegate.forge.http import ApiPayload, ForgeApi
from phasegate.forge.port import Issue, MergeOutcome, MergeResult, PullSpec

_DRAFT_PREFIX = "Draft: "
# The lowest access level that may push
_MIN_PUSH_ACCESS_LEVEL = 30
_PULL_STATES = {"opened": PullState.OPEN, "locked": PullState.OPEN, "merged": PullState.MERGED}
# GitLab's check states, mapped to those of `have_all_passed`.
_CHECK_STATES = {
    "success": "success",
    "skipped": "skipped",
    "running": "pending",
    "pending": "pending",
    "created": "pending",
}


class _GitLabUser(ApiPayload, frozen=True):
    id: int
    username: str


class _GitLabMergeRequest(ApiPayload, frozen=True):
    iid: int
    web_url: str
    state: str
    target_branch: str
    title: str
    sha: str | None = None
    description: str | None = None
    draft: bool = False
    merge_commit_sha: str | None = None
    squash_commit_sha: str | None = None
    detailed_merge_status: str = ""
    # Also true for a merge request on a merge train
    merge_when_pipeline_succeeds: bool = False


class _GitLabApproval(ApiPayload, frozen=True):
    user: _GitLabUser


class _GitLabApprovals(ApiPayload, frozen=True):
    approved: bool = False
    approved_by: tuple[_GitLabApproval, ...] = ()


class _GitLabReviewer(ApiPayload, frozen=True):
    user: _GitLabUser
    state: str = ""


class _GitLabPosition(ApiPayload, frozen=True):
    new_path: str | None = None
    new_line: int | None = None
    head_sha: str | None = None


class _GitLabNote(ApiPayload, frozen=True):
    id: int
    body: str
    author: _GitLabUser
    system: bool = False
    resolvable: bool = False
    resolved: bool = False
    position: _GitLabPosition | None = None


class _GitLabDiscussion(ApiPayload, frozen=True):
    id: str
    notes: tuple[_GitLabNote, ...]


class _GitLabMember(ApiPayload, frozen=True):
    access_level: int


class _GitLabStatus(ApiPayload, frozen=True):
    status: str
    allow_failure: bool = False


class _GitLabIssue(ApiPayload, frozen=True):
    iid: int
    title: str
    description: str | None = None
    labels: tuple[str, ...] = ()


class GitLab:
    """Implements `port.Forge` for GitLab."""

    def __init__(self, api: ForgeApi, repository: str) -> None:
        self._api = api
        self._project = f"/projects/{quote(repository, safe='')}"
        self._writers = WriteAccessCache(self._has_write_access)

    def find_pulls(self, branch: str, base: str) -> Sequence[PullRequest]:
        asked = {"source_branch": branch, "target_branch": base}
        found = self._api.get_all(f"{self._project}/merge_requests", _GitLabMergeRequest, **asked)
        return sort_open_first(map(_to_pull, found))

    def create_pull(self, spec: PullSpec) -> PullRequest | None:
        body: dict[str, object] = {
            "source_branch": spec.branch,
            "target_branch": spec.base,
            "title": _format_title(spec),
            "description": spec.body,
        }

        if spec.labels:
            body["labels"] = ",".join(spec.labels)
        if spec.reviewers:
            body["reviewer_ids"] = [*self._find_user_ids(spec.reviewers)]

        answer = self._api.send("POST", f"{self._project}/merge_requests", body, (409,))
        if answer.status == 409:
            return None

        return _to_pull(self._api.decode(answer, _GitLabMergeRequest))

    def update_pull(self, pull: PullRequest, spec: PullSpec) -> PullRequest:
        body = {"title": _format_title(spec), "description": spec.body}
        answer = self._api.send("PUT", f"{self._project}/merge_requests/{pull.number}", body)
        return _to_pull(self._api.decode(answer, _GitLabMergeRequest))

    def fetch_pull(self, number: int) -> PullRequestSnapshot:
        path = f"{self._project}/merge_requests/{number}"
        found = self._api.get(path, _GitLabMergeRequest)
        pull = _to_pull(found)
        remarks = [
            self._make_remark(note, discussion, pull.head)
            for discussion in self._api.get_all(f"{path}/discussions", _GitLabDiscussion)
            for note in discussion.notes
            if not note.system
        ]

        return PullRequestSnapshot(
            pull=pull,
            review_decision=self._fetch_opinion(path),
            checks_passed=self._fetch_checks_passed(pull.head),
            mergeable=found.detailed_merge_status == "mergeable",
            remarks=tuple(remarks),
        )

    def set_status(self, commit: str, passed: bool, description: str) -> None:
        body = {
            "state": "success" if passed else "failed",
            "name": STATUS_CONTEXT,
            "description": description[:140],
        }
        self._api.send("POST", f"{self._project}/statuses/{commit}", body)

    def merge_pull(self, number: int, head: str, method: str, *, queue: bool) -> MergeResult:
        if queue:
            path = f"{self._project}/merge_trains/merge_requests/{number}"
            answer = self._api.send(
                "POST", path, {"sha": head, "squash": method == "squash"}, (400, 409)
            )
            outcome = {400: MergeOutcome.REFUSED, 409: MergeOutcome.MOVED}.get(
                answer.status, MergeOutcome.QUEUED
            )
            return MergeResult(outcome, answer.get_error_text())

        body = {"sha": head, "squash": method == "squash", "should_remove_source_branch": False}
        path = f"{self._project}/merge_requests/{number}/merge"
        answer = self._api.send("PUT", path, body, (405, 406, 409, 422))
        if answer.status == 409:
            return MergeResult(MergeOutcome.MOVED, answer.get_error_text())
        if answer.status != 200:
            return MergeResult(MergeOutcome.NOT_YET, answer.get_error_text())

        merged = _to_pull(self._api.decode(answer, _GitLabMergeRequest))
        done = merged.state is PullState.MERGED

        return MergeResult(
            MergeOutcome.MERGED if done else MergeOutcome.NOT_YET, merged.merge_commit
        )

    def reply(self, number: int, thread: str, text: str) -> None:
        path = f"{self._project}/merge_requests/{number}"
        self._api.send(
            "POST",
            f"{path}/discussions/{thread}/notes" if thread else f"{path}/notes",
            {"body": text},
        )

    def fetch_issue(self, number: int) -> Issue:
        found = self._api.get(f"{self._project}/issues/{number}", _GitLabIssue)
        return _to_issue(found)

    def list_issues(self, label: str) -> Sequence[Issue]:
        found = self._api.get_all(
            f"{self._project}/issues", _GitLabIssue, labels=label, state="opened"
        )
        return [_to_issue(one) for one in found if label in one.labels]

    def _find_user_ids(self, names: Sequence[str]) -> Iterator[int]:
        for name in names:
            yield from (one.id for one in self._api.get("/users", list[_GitLabUser], username=name))

    def _fetch_opinion(self, path: str) -> ReviewDecision:
        """Return the review decision for a merge request.

        An approval by a user with write access is required: where a project requires no approval,
        GitLab reports every merge request as approved.
        """
        reviewers = self._api.get(f"{path}/reviewers", list[_GitLabReviewer])
        if any(one.state == "requested_changes" for one in reviewers):
            return ReviewDecision.CHANGES_REQUESTED

        approvals = self._api.get(f"{path}/approvals", _GitLabApprovals)
        by_writers = any(one.user.id in self._writers for one in approvals.approved_by)
        if approvals.approved and by_writers:
            return ReviewDecision.APPROVED

        return ReviewDecision.NOT_APPROVED

    def _fetch_checks_passed(self, commit: str) -> bool | None:
        found = self._api.get_all(
            f"{self._project}/repository/commits/{commit}/statuses", _GitLabStatus
        )
        return have_all_passed(
            _CHECK_STATES.get(one.status, one.status) for one in found if not one.allow_failure
        )

    def _make_remark(self, note: _GitLabNote, discussion: _GitLabDiscussion, head: str) -> Remark:
        place = note.position
        outdated = (
            place is not None and place.head_sha not in (None, head) and place.new_line is None
        )
        return Remark(
            id=f"note-{note.id:020}",
            author=note.author.username,
            text=note.body,
            may_write=note.author.id in self._writers,
            path=(place.new_path or "") if place else "",
            line=(place.new_line or 0) if place else 0,
            is_settled=note.resolved or outdated,
            thread=discussion.id,
        )

    def _has_write_access(self, user: int) -> bool:
        return (
            self._api.get(f"{self._project}/members/all/{user}", _GitLabMember).access_level
            >= _MIN_PUSH_ACCESS_LEVEL
        )


def _format_title(spec: PullSpec) -> str:
    if spec.draft:
        return f"{_DRAFT_PREFIX}{spec.title}"
    return spec.title


def _to_issue(found: _GitLabIssue) -> Issue:
    return Issue(found.iid, found.title, found.description or "")


def _to_pull(found: _GitLabMergeRequest) -> PullRequest:
    state = _PULL_STATES.get(found.state, PullState.CLOSED)
    merged_as = found.merge_commit_sha or found.squash_commit_sha or found.sha or ""
    return PullRequest(
        number=found.iid,
        url=found.web_url,
        state=state,
        head=found.sha or "",
        base=found.target_branch,
        body=found.description or "",
        draft=found.draft,
        merge_commit=merged_as if state is PullState.MERGED else "",
        queued=found.merge_when_pipeline_succeeds,
        # Other forges close a pull request whose branch was deleted; GitLab reports this status
        is_branch_deleted=found.detailed_merge_status == "commits_status",
    )
