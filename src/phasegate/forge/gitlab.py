"""Client for GitLab merge requests."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from urllib.parse import quote

import msgspec

from phasegate.core.forge.approvals import is_given_for_head
from phasegate.core.forge.checks import (
    OWN_CONTEXT,
    Check,
    CheckState,
    CommitChecks,
    select_foreign_checks,
)
from phasegate.core.forge.pull_decision import (
    PullRequest,
    PullRequestSnapshot,
    PullState,
    Remark,
    RemarkKind,
    ReviewDecision,
)
from phasegate.forge.collaborators import WriteAccessCache
from phasegate.forge.github_api import sort_open_first
from phasegate.forge.http import ApiPayload, ForgeApi
from phasegate.forge.port import Issue, MergeOutcome, MergeResult, PullSpec

_DRAFT_PREFIX = "Draft: "
# The lowest access level that may push
_MIN_PUSH_ACCESS_LEVEL = 30
_PULL_STATES = {"opened": PullState.OPEN, "locked": PullState.OPEN, "merged": PullState.MERGED}
# The states of jobs and pipelines, by their meaning. Others have failed.
_CHECK_STATES = {
    "success": CheckState.PASSED,
    "skipped": CheckState.PASSED,
    "created": CheckState.RUNNING,
    "waiting_for_resource": CheckState.RUNNING,
    "waiting_for_callback": CheckState.RUNNING,
    "preparing": CheckState.RUNNING,
    "pending": CheckState.RUNNING,
    "running": CheckState.RUNNING,
    "canceling": CheckState.RUNNING,
    "scheduled": CheckState.RUNNING,
    "manual": CheckState.MANUAL,
}
_MERGEABLE_STATUSES = ("mergeable", "can_be_merged")
# The forge is still computing it
_COMPUTED_LATER = ("", "checking", "unchecked", "preparing", "approvals_syncing")
_CONFLICT_MERGE_STATUSES = ("conflict", "broken_status", "cannot_be_merged")
# Of a merge request on a merge train that is not merged yet
_TRAIN_STATUSES = ("idle", "fresh", "stale", "merging")
_BEHIND_MERGE_STATUS = "need_rebase"
_BOT_NAME = re.compile(
    r"^(?:project|group)_\d+_bot(?:_|$)|^service_account_(?:\w+_)?[0-9a-f]{32}$|\[bot\]$"
)
_APPROVED_NOTE = "approved this merge request"
_UNAPPROVED_NOTE = "unapproved this merge request"
_COMMITS_NOTE = re.compile(r"added \d+ (?:new )?commits?\b")


class _GitLabUser(ApiPayload, frozen=True):
    id: int
    username: str
    bot: bool | None = None

    @property
    def is_bot(self) -> bool:
        return bool(self.bot) or _BOT_NAME.search(self.username) is not None


class _GitLabDiffRefs(ApiPayload, frozen=True):
    # Head of the target branch
    start_sha: str | None = None


class _GitLabPipeline(ApiPayload, frozen=True):
    status: str = ""
    sha: str = ""


class _GitLabMergeRequest(ApiPayload, frozen=True):
    iid: int
    web_url: str
    state: str
    target_branch: str
    title: str
    # Differ if the source is a fork
    source_project_id: int = 0
    target_project_id: int = 0
    sha: str | None = None
    description: str | None = None
    draft: bool = False
    # Before there was `draft`
    work_in_progress: bool = False
    author: _GitLabUser | None = None
    has_conflicts: bool = False
    merge_commit_sha: str | None = None
    squash_commit_sha: str | None = None
    # Newer versions; its values include those of `merge_status`
    detailed_merge_status: str = ""
    merge_status: str = ""
    merge_when_pipeline_succeeds: bool = False
    labels: tuple[str, ...] = ()
    reviewers: tuple[_GitLabUser, ...] | None = None
    diff_refs: _GitLabDiffRefs | None = None
    head_pipeline: _GitLabPipeline | None = None


class _GitLabApproval(ApiPayload, frozen=True):
    user: _GitLabUser
    # Newer versions
    approved_at: str | None = None


class _GitLabApprovals(ApiPayload, frozen=True):
    approvals_required: int = 0
    # Some versions give only one of these
    approved: bool | None = None
    approvals_left: int | None = None
    approved_by: tuple[_GitLabApproval, ...] = ()

    @property
    def is_approved(self) -> bool:
        if self.approved is None:
            return self.approvals_left == 0
        return self.approved and not self.approvals_left


class _GitLabApprovalRule(ApiPayload, frozen=True):
    approvals_required: int = 0
    approved_by: tuple[_GitLabUser, ...] = ()


class _GitLabApprovalState(ApiPayload, frozen=True):
    rules: tuple[_GitLabApprovalRule, ...] = ()


class _GitLabApprovalSettings(ApiPayload, frozen=True):
    reset_approvals_on_push: bool = False
    merge_requests_author_approval: bool = False


class _GitLabProject(ApiPayload, frozen=True):
    allow_merge_on_skipped_pipeline: bool | None = None


class _GitLabTrainCar(ApiPayload, frozen=True):
    status: str


class _GitLabVersion(ApiPayload, frozen=True):
    head_commit_sha: str = ""
    created_at: str = ""


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
    created_at: str = ""
    system: bool = False
    resolvable: bool = False
    resolved: bool = False
    position: _GitLabPosition | None = None


class _GitLabDiscussion(ApiPayload, frozen=True):
    id: str
    notes: tuple[_GitLabNote, ...]


class _GitLabMember(ApiPayload, frozen=True):
    access_level: int
    # Of the account
    state: str = "active"


class _GitLabStatus(ApiPayload, frozen=True):
    id: int
    status: str
    name: str = ""
    # Of the pipeline: a branch, or a ref of the merge request
    ref: str | None = None
    allow_failure: bool = False


class _GitLabCommit(ApiPayload, frozen=True):
    parent_ids: tuple[str, ...] = ()


class _GitLabIssue(ApiPayload, frozen=True):
    iid: int
    title: str
    state: str = "opened"
    description: str | None = None
    labels: tuple[str, ...] = ()


class GitLab:
    """Implements `port.Forge` for GitLab."""

    shows_queue = True

    def __init__(self, api: ForgeApi, repository: str) -> None:
        self._api = api
        self._project = f"/projects/{quote(repository, safe='')}"
        self._writers = WriteAccessCache(self._has_write_access)

    def find_pulls(self, branch: str, base: str) -> Sequence[PullRequest]:
        asked = {"source_branch": branch, "target_branch": base, "state": "opened"}
        found = self._api.get_all(f"{self._project}/merge_requests", _GitLabMergeRequest, **asked)
        return sort_open_first(
            _to_pull(one) for one in found if one.source_project_id == one.target_project_id
        )

    def create_pull(self, spec: PullSpec) -> PullRequest | None:
        """Open a merge request, or return None if one exists for the branch."""
        body: dict[str, object] = {
            "source_branch": spec.branch,
            "target_branch": spec.base,
            "title": _format_title(spec),
            "description": spec.body,
        }

        if spec.labels:
            body["labels"] = ",".join(spec.labels)

        answer = self._api.send("POST", f"{self._project}/merge_requests", body, (409,))
        if answer.status == 409:
            return None

        return _to_pull(self._api.decode(answer, _GitLabMergeRequest))

    def update_body(self, pull: PullRequest, body: str) -> PullRequest:
        path = f"{self._project}/merge_requests/{pull.number}"
        answer = self._api.send("PUT", path, {"description": body})
        return _to_pull(self._api.decode(answer, _GitLabMergeRequest))

    def add_labels_and_reviewers(self, pull: PullRequest, spec: PullSpec) -> Sequence[str]:
        """Add missing labels and reviewers. GitLab sets all reviewers at once, by their ids."""
        body: dict[str, object] = {}
        problems: list[str] = []
        missing_labels = [name for name in spec.labels if name not in pull.labels]
        if missing_labels:
            body["add_labels"] = ",".join(missing_labels)

        ids = self._find_user_ids((*pull.reviewers, *spec.reviewers))
        problems += [
            f"cannot request a review from {name}: no such account"
            for name in spec.reviewers
            if name not in ids
        ]
        if any(name in ids and name not in pull.reviewers for name in spec.reviewers):
            body["reviewer_ids"] = [*ids.values()]

        if body:
            self._api.send("PUT", f"{self._project}/merge_requests/{pull.number}", body)
        return problems

    def fetch_pull(self, number: int) -> PullRequestSnapshot:
        with self._api.one_at_a_time():
            return self._fetch_pull(number)

    def _fetch_pull(self, number: int) -> PullRequestSnapshot:
        """Fetch a merge request with its approvals, checks and remarks."""
        self._writers.clear()
        path = f"{self._project}/merge_requests/{number}"
        found = self._api.get(path, _GitLabMergeRequest)
        pull = _to_pull(found)
        discussions = self._api.get_all(f"{path}/discussions", _GitLabDiscussion)
        reviewers = self._api.get_all(f"{path}/reviewers", _GitLabReviewer)
        requesting = {one.user.id for one in reviewers if one.state == "requested_changes"}
        notes = [(note, discussion) for discussion in discussions for note in discussion.notes]
        decision, review_note = self._fetch_opinion(
            path, found, [note for note, _ in notes if note.system], bool(requesting)
        )

        # Only then can it be on the train
        is_on_train = decision is ReviewDecision.APPROVED and self._is_on_merge_train(number)

        return PullRequestSnapshot(
            pull=msgspec.structs.replace(pull, queued=pull.queued or is_on_train),
            review_decision=decision,
            review_note=review_note,
            checks=self._fetch_commit_checks(found),
            mergeable=False
            if found.has_conflicts
            else _is_mergeable(found.detailed_merge_status or found.merge_status),
            is_behind=found.detailed_merge_status == _BEHIND_MERGE_STATUS,
            merge_obstacle=_describe_obstacle(found.detailed_merge_status),
            remarks=tuple(
                self._make_remark(note, discussion, pull.head, requesting)
                for note, discussion in notes
                if not note.system
            ),
        )

    def _is_on_merge_train(self, number: int) -> bool:
        path = f"{self._project}/merge_trains/merge_requests/{number}"
        car = self._api.get_optional(path, _GitLabTrainCar)
        return car is not None and car.status in _TRAIN_STATUSES

    def set_status(self, commit: str, passed: bool, description: str) -> None:
        body = {
            "state": "success" if passed else "failed",
            "name": OWN_CONTEXT,
            "description": description[:140],
        }
        self._api.send("POST", f"{self._project}/statuses/{commit}", body)

    def merge_pull(self, number: int, head: str, method: str, *, queue: bool) -> MergeResult:
        """Merge a request, or add it to the merge train, if its head is still `head`."""
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
        answer = self._api.send("PUT", path, body, (401, 405, 406, 409, 422))
        if answer.status == 401:
            # The token is valid: it has just read the merge request
            return MergeResult(
                MergeOutcome.REFUSED,
                f"the token's account may not merge into this branch ({answer.get_error_text()})",
            )
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
            may_repeat=False,
        )

    def fetch_issue(self, number: int) -> Issue:
        found = self._api.get(f"{self._project}/issues/{number}", _GitLabIssue)
        return _to_issue(found)

    def list_issues(self, label: str) -> Sequence[Issue]:
        found = self._api.get_all(
            f"{self._project}/issues", _GitLabIssue, labels=label, state="opened"
        )
        return [_to_issue(one) for one in found if label in one.labels]

    def _find_user_ids(self, names: Sequence[str]) -> dict[str, int]:
        """Return the ids of the accounts that exist."""
        found: dict[str, int] = {}
        for name in dict.fromkeys(names):
            users = self._api.get("/users", list[_GitLabUser], username=name)
            ids = [user.id for user in users if user.username.lower() == name.lower()]
            if ids:
                found[name] = ids[0]
        return found

    def _fetch_opinion(
        self,
        path: str,
        found: _GitLabMergeRequest,
        system_notes: Sequence[_GitLabNote],
        is_change_requested: bool,
    ) -> tuple[ReviewDecision, str]:
        """Return the review decision for a merge request, and what to say about it.

        An approval of this head by another account with write access is required: where a project
        requires no approval, GitLab reports every merge request as approved, and it may keep
        approvals when commits are pushed. The author's approval counts where the project allows it.
        """
        head = found.sha or ""
        if is_change_requested:
            return ReviewDecision.CHANGES_REQUESTED, ""

        approvals = self._api.get(f"{path}/approvals", _GitLabApprovals)
        by_writers = [
            one
            for one in approvals.approved_by
            if one.user.id in self._writers
            and not one.user.is_bot
            and (not _is_author(one.user, found) or self._allows_author_approval())
        ]
        if not approvals.is_approved or not by_writers:
            return ReviewDecision.NOT_APPROVED, ""

        # The newest comes first, so that the first page is enough
        versions = self._api.get_optional(f"{path}/versions", list[_GitLabVersion]) or []
        pushed_at_s = _find_push_time_s(versions, head, system_notes)
        times = {
            one.user: _parse_time_s(
                one.approved_at or _find_approval_time(one.user.id, system_notes)
            )
            for one in by_writers
        }
        stale = [
            user
            for user, time in times.items()
            if not is_given_for_head(time, pushed_at_s, was_moved=len(versions) > 1)
        ]
        # Without times, approvals are those of the head only if a push removes them
        is_time_unknown = pushed_at_s is None or None in times.values()
        if is_time_unknown and self._removes_approvals_on_push():
            stale = []

        counted = {user.id for user in times if user not in stale}
        if self._is_approved_by(path, counted, approvals.approvals_required):
            return ReviewDecision.APPROVED, ""
        if not stale:
            return ReviewDecision.NOT_APPROVED, ""

        names = ", ".join(user.username for user in stale)
        return (
            ReviewDecision.NOT_APPROVED,
            f"the approval of {names} may be for an older commit than {head[:12]}",
        )

    def _is_approved_by(self, path: str, users: Collection[int], required: int) -> bool:
        """Return whether the approvals of these users alone meet each approval rule.

        GitLab's own verdict includes approvals that do not count here. One user may meet several
        rules. Free editions have no rules.
        """
        if not users:
            return False

        state = self._api.get_optional(f"{path}/approval_state", _GitLabApprovalState)
        if state is None or not state.rules:
            return len(users) >= required

        return all(
            sum(user.id in users for user in rule.approved_by) >= rule.approvals_required
            for rule in state.rules
        )

    def _removes_approvals_on_push(self) -> bool:
        path = f"{self._project}/approvals"
        settings = self._api.get_optional(path, _GitLabApprovalSettings)
        return settings is not None and settings.reset_approvals_on_push

    def _allows_author_approval(self) -> bool:
        path = f"{self._project}/approvals"
        settings = self._api.get_optional(path, _GitLabApprovalSettings)
        return settings is not None and settings.merge_requests_author_approval

    def _fetch_commit_checks(self, found: _GitLabMergeRequest) -> CommitChecks:
        """Fetch the checks of the head; its pipeline counts unless it passed."""
        head = found.sha or ""
        checks = self._fetch_checks(head)
        pipeline = found.head_pipeline
        if pipeline is not None and not self._is_pipeline_of(pipeline, head):
            # That of this head has not been created yet
            checks = [*checks, Check("pipeline (of another commit)", CheckState.RUNNING)]
            pipeline = None
        # The jobs of a merged results pipeline belong to the merge of the head with its target
        if pipeline is not None and pipeline.sha != head:
            checks = [*checks, *self._fetch_checks(pipeline.sha)]

        base_has_checks = True
        if not select_foreign_checks(checks) and found.diff_refs and found.diff_refs.start_sha:
            base_checks = self._fetch_checks(found.diff_refs.start_sha)
            base_has_checks = bool(select_foreign_checks(base_checks))

        # A pipeline of nothing but our own status is green, too: green pipelines do not count
        if pipeline is not None:
            state = _CHECK_STATES.get(pipeline.status, CheckState.FAILED)
            if pipeline.status == "skipped" and not self._allows_skipped_pipeline():
                state = CheckState.FAILED
            is_shown = any(check.state is state for check in select_foreign_checks(checks))
            if state is not CheckState.PASSED and not is_shown:
                checks = [*checks, Check(f"pipeline ({pipeline.status})", state)]

        return CommitChecks(found=tuple(checks), base_has_checks=base_has_checks)

    def _is_pipeline_of(self, pipeline: _GitLabPipeline, head: str) -> bool:
        """Return whether a pipeline ran on the head, or on a merge of it with its target."""
        if pipeline.sha == head:
            return True

        path = f"{self._project}/repository/commits/{quote(pipeline.sha, safe='')}"
        commit = self._api.get_optional(path, _GitLabCommit)
        return commit is not None and head in commit.parent_ids[1:]

    def _allows_skipped_pipeline(self) -> bool:
        project = self._api.get_optional(self._project, _GitLabProject)
        return project is not None and bool(project.allow_merge_on_skipped_pipeline)

    def _fetch_checks(self, commit: str) -> Sequence[Check]:
        found = self._api.get_all(
            f"{self._project}/repository/commits/{commit}/statuses", _GitLabStatus
        )
        # A later pipeline of the same ref replaces the result of an earlier one
        found.sort(key=lambda status: status.id)
        newest = {(status.name, status.ref): status for status in found}
        return [_to_check(status) for status in newest.values()]

    def _make_remark(
        self,
        note: _GitLabNote,
        discussion: _GitLabDiscussion,
        head: str,
        requesting: Collection[int],
    ) -> Remark:
        """Convert a note; `requesting` are the ids of the reviewers who request changes."""
        place = note.position
        outdated = (
            place is not None and place.head_sha not in (None, head) and place.new_line is None
        )
        kind = RemarkKind.TALK
        if note.resolvable or place is not None:
            kind = RemarkKind.THREAD
        elif note.author.id in requesting:
            kind = RemarkKind.REVIEW

        return Remark(
            id=f"note-{note.id:020}",
            author=note.author.username,
            text=note.body,
            may_write=note.author.id in self._writers,
            kind=kind,
            is_bot=note.author.is_bot,
            path=(place.new_path or "") if place else "",
            line=(place.new_line or 0) if place else 0,
            is_settled=note.resolved or outdated,
            thread=discussion.id,
        )

    def _has_write_access(self, user: int) -> bool:
        member = self._api.get(f"{self._project}/members/all/{user}", _GitLabMember)
        return member.access_level >= _MIN_PUSH_ACCESS_LEVEL and member.state == "active"


def _format_title(spec: PullSpec) -> str:
    if spec.draft:
        return f"{_DRAFT_PREFIX}{spec.title}"
    return spec.title


def _is_author(user: _GitLabUser, found: _GitLabMergeRequest) -> bool:
    return found.author is not None and user.id == found.author.id


def _is_mergeable(status: str) -> bool | None:
    """Return False only if the base has to be merged or rebased onto first.

    GitLab has a status for every rule that is not met; reviews and checks show these, too.
    """
    if status in _MERGEABLE_STATUSES:
        return True
    if status in _CONFLICT_MERGE_STATUSES:
        return False
    return None


def _describe_obstacle(status: str) -> str:
    if status in _COMPUTED_LATER:
        return ""
    return status.replace("_", " ")


def _to_check(found: _GitLabStatus) -> Check:
    if found.allow_failure and found.status not in ("running", "pending", "created"):
        return Check(found.name, CheckState.PASSED)
    return Check(found.name, _CHECK_STATES.get(found.status, CheckState.FAILED))


def _parse_time_s(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _find_push_time_s(
    versions: Sequence[_GitLabVersion], head: str, system_notes: Sequence[_GitLabNote]
) -> float | None:
    """Return when the head became the head of the merge request, if GitLab reports it."""
    times = [one.created_at for one in versions if one.head_commit_sha == head]
    if not versions:
        times = [note.created_at for note in system_notes if _COMMITS_NOTE.match(note.body)]

    known = [time for time in map(_parse_time_s, times) if time is not None]
    return max(known, default=None)


def _find_approval_time(user: int, system_notes: Sequence[_GitLabNote]) -> str:
    """Return the time of a user's last approval from the system notes, or "" if they show none."""
    own = [note for note in system_notes if note.author.id == user]
    decisive = [note for note in own if note.body in (_APPROVED_NOTE, _UNAPPROVED_NOTE)]
    last = max(decisive, key=lambda note: note.id, default=None)
    if last is None or last.body != _APPROVED_NOTE:
        return ""
    return last.created_at


def _to_issue(found: _GitLabIssue) -> Issue:
    return Issue(
        number=found.iid,
        title=found.title,
        text=found.description or "",
        is_open=found.state == "opened",
    )


def _to_pull(found: _GitLabMergeRequest) -> PullRequest:
    """Convert the fields of a merge request to a pull request."""
    state = _PULL_STATES.get(found.state, PullState.CLOSED)
    merged_as = found.merge_commit_sha or found.squash_commit_sha or found.sha or ""
    return PullRequest(
        number=found.iid,
        url=found.web_url,
        state=state,
        head=found.sha or "",
        base=found.target_branch,
        body=found.description or "",
        draft=found.draft or found.work_in_progress,
        labels=found.labels,
        reviewers=tuple(user.username for user in found.reviewers or ()),
        merge_commit=merged_as if state is PullState.MERGED else "",
        queued=found.merge_when_pipeline_succeeds,
        # Other forges close a pull request whose branch was deleted; GitLab reports this status
        is_branch_deleted=found.detailed_merge_status == "commits_status",
    )
