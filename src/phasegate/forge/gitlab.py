"""GitLab: merge requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from phasegate.core.forge.pull_request import Look, Opinion, Pull, PullState, Remark
from phasegate.forge.collaborators import Writers
from phasegate.forge.github_api import CONTEXT, all_passed, open_first
from phasegate.forge.http import Api, Read
from phasegate.forge.port import Issue, MergeAnswer, MergeOutcome, Wanted

_DRAFT = "Draft: "
_DEVELOPER = 30  # the least access level that may push
_STATES = {"opened": PullState.OPEN, "locked": PullState.OPEN, "merged": PullState.MERGED}
# What GitLab calls a check, in the words of `all_passed`.
_WORDS = {"success": "success", "skipped": "skipped", "running": "pending", "pending": "pending", "created": "pending"}


class _GitLabUser(Read, frozen=True):
    id: int
    username: str


class _GitLabMerge(Read, frozen=True):
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
    merge_when_pipeline_succeeds: bool = False  # true of one on a merge train, too


class _GitLabBy(Read, frozen=True):
    user: _GitLabUser


class _GitLabApprovals(Read, frozen=True):
    approved: bool = False
    approved_by: tuple[_GitLabBy, ...] = ()


class _GitLabReviewer(Read, frozen=True):
    user: _GitLabUser
    state: str = ""


class _GitLabPosition(Read, frozen=True):
    new_path: str | None = None
    new_line: int | None = None
    head_sha: str | None = None


class _GitLabNote(Read, frozen=True):
    id: int
    body: str
    author: _GitLabUser
    system: bool = False
    resolvable: bool = False
    resolved: bool = False
    position: _GitLabPosition | None = None


class _GitLabDiscussion(Read, frozen=True):
    id: str
    notes: tuple[_GitLabNote, ...]


class _GitLabMember(Read, frozen=True):
    access_level: int


class _GitLabStatus(Read, frozen=True):
    status: str
    allow_failure: bool = False


class _GitLabIssue(Read, frozen=True):
    iid: int
    title: str
    description: str | None = None
    labels: tuple[str, ...] = ()


class GitLab:
    """Fulfils `port.Forge`."""

    def __init__(self, api: Api, repository: str) -> None:
        self._api, self._project = api, f"/projects/{quote(repository, safe='')}"
        self._writers = Writers(self._may_write)

    def find(self, branch: str, base: str) -> Sequence[Pull]:
        asked = {"source_branch": branch, "target_branch": base}
        found = self._api.get_all(f"{self._project}/merge_requests", _GitLabMerge, **asked)
        return open_first(map(_as_pull, found))

    def create(self, wanted: Wanted) -> Pull | None:
        body: dict[str, object] = {
            "source_branch": wanted.branch,
            "target_branch": wanted.base,
            "title": _title(wanted),
            "description": wanted.body,
        }
        if wanted.labels:
            body["labels"] = ",".join(wanted.labels)
        if wanted.reviewers:
            body["reviewer_ids"] = [*self._ids(wanted.reviewers)]
        answer = self._api.send("POST", f"{self._project}/merge_requests", body, (409,))
        return None if answer.status == 409 else _as_pull(self._api.decode(answer, _GitLabMerge))

    def update(self, pull: Pull, wanted: Wanted) -> Pull:
        body = {"title": _title(wanted), "description": wanted.body}
        answer = self._api.send("PUT", f"{self._project}/merge_requests/{pull.number}", body)
        return _as_pull(self._api.decode(answer, _GitLabMerge))

    def look(self, number: int) -> Look:
        path = f"{self._project}/merge_requests/{number}"
        found = self._api.get(path, _GitLabMerge)
        pull = _as_pull(found)
        remarks = [
            self._remark(note, discussion, pull.head)
            for discussion in self._api.get_all(f"{path}/discussions", _GitLabDiscussion)
            for note in discussion.notes
            if not note.system
        ]
        return Look(
            pull=pull,
            opinion=self._opinion(path),
            checks_passed=self._checks(pull.head),
            mergeable=found.detailed_merge_status == "mergeable",
            remarks=tuple(remarks),
        )

    def set_status(self, commit: str, passed: bool, description: str) -> None:
        body = {"state": "success" if passed else "failed", "name": CONTEXT, "description": description[:140]}
        self._api.send("POST", f"{self._project}/statuses/{commit}", body)

    def merge(self, number: int, head: str, method: str, *, queue: bool) -> MergeAnswer:
        if queue:
            path = f"{self._project}/merge_trains/merge_requests/{number}"
            answer = self._api.send("POST", path, {"sha": head, "squash": method == "squash"}, (400, 409))
            outcome = {400: MergeOutcome.REFUSED, 409: MergeOutcome.MOVED}.get(answer.status, MergeOutcome.QUEUED)
            return MergeAnswer(outcome, answer.said())
        body = {"sha": head, "squash": method == "squash", "should_remove_source_branch": False}
        path = f"{self._project}/merge_requests/{number}/merge"
        answer = self._api.send("PUT", path, body, (405, 406, 409, 422))
        if answer.status == 409:
            return MergeAnswer(MergeOutcome.MOVED, answer.said())
        if answer.status != 200:
            return MergeAnswer(MergeOutcome.NOT_YET, answer.said())
        merged = _as_pull(self._api.decode(answer, _GitLabMerge))
        done = merged.state is PullState.MERGED
        return MergeAnswer(MergeOutcome.MERGED if done else MergeOutcome.NOT_YET, merged.merged_as)

    def answer(self, number: int, thread: str, text: str) -> None:
        path = f"{self._project}/merge_requests/{number}"
        self._api.send("POST", f"{path}/discussions/{thread}/notes" if thread else f"{path}/notes", {"body": text})

    def issue(self, number: int) -> Issue:
        found = self._api.get(f"{self._project}/issues/{number}", _GitLabIssue)
        return _as_issue(found)

    def issues(self, label: str) -> Sequence[Issue]:
        found = self._api.get_all(f"{self._project}/issues", _GitLabIssue, labels=label, state="opened")
        return [_as_issue(one) for one in found if label in one.labels]

    def _ids(self, names: Sequence[str]) -> Iterator[int]:
        for name in names:
            yield from (one.id for one in self._api.get("/users", list[_GitLabUser], username=name))

    def _opinion(self, path: str) -> Opinion:
        """Where no approval is demanded, GitLab calls all approved: somebody must have approved."""
        reviewers = self._api.get(f"{path}/reviewers", list[_GitLabReviewer])
        if any(one.state == "requested_changes" for one in reviewers):
            return Opinion.CHANGES
        approvals = self._api.get(f"{path}/approvals", _GitLabApprovals)
        by_writers = any(one.user.id in self._writers for one in approvals.approved_by)
        return Opinion.APPROVED if approvals.approved and by_writers else Opinion.NONE

    def _checks(self, commit: str) -> bool | None:
        found = self._api.get_all(f"{self._project}/repository/commits/{commit}/statuses", _GitLabStatus)
        return all_passed(_WORDS.get(one.status, one.status) for one in found if not one.allow_failure)

    def _remark(self, note: _GitLabNote, discussion: _GitLabDiscussion, head: str) -> Remark:
        place = note.position
        outdated = place is not None and place.head_sha not in (None, head) and place.new_line is None
        return Remark(
            id=f"note-{note.id:020}",
            author=note.author.username,
            text=note.body,
            may_write=note.author.id in self._writers,
            path=(place.new_path or "") if place else "",
            line=(place.new_line or 0) if place else 0,
            settled=note.resolved or outdated,
            thread=discussion.id,
        )

    def _may_write(self, user: int) -> bool:
        return self._api.get(f"{self._project}/members/all/{user}", _GitLabMember).access_level >= _DEVELOPER


def _title(wanted: Wanted) -> str:
    return f"{_DRAFT}{wanted.title}" if wanted.draft else wanted.title


def _as_issue(found: _GitLabIssue) -> Issue:
    return Issue(found.iid, found.title, found.description or "")


def _as_pull(found: _GitLabMerge) -> Pull:
    state = _STATES.get(found.state, PullState.CLOSED)
    merged_as = found.merge_commit_sha or found.squash_commit_sha or found.sha or ""
    return Pull(
        number=found.iid,
        url=found.web_url,
        state=state,
        head=found.sha or "",
        base=found.target_branch,
        body=found.description or "",
        draft=found.draft,
        merged_as=merged_as if state is PullState.MERGED else "",
        queued=found.merge_when_pipeline_succeeds,
        without_branch=found.detailed_merge_status == "commits_status",  # the others close it then
    )
