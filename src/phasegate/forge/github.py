"""GitHub, and GitHub Enterprise. Threads and queues are in its GraphQL API only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from phasegate.forge.http import Api, ApiFailed, Read
from phasegate.forge.people import Writers
from phasegate.forge.port import Issue, MergeAnswer, MergeOutcome, Wanted
from phasegate.rules.pull_request import Look, Opinion, Pull, PullState, Remark
from phasegate.typed import read_json, read_value

CONTEXT = "phasegate"
_WRITERS = ("owner", "admin", "maintain", "write")
_OPINIONS = ("APPROVED", "CHANGES_REQUESTED", "DISMISSED")
_PASSED = ("success", "neutral", "skipped")
THREADS = """
query($id: ID!) { node(id: $id) { ... on PullRequest {
  isInMergeQueue
  reviewThreads(first: 100) { nodes { isResolved isOutdated comments(first: 100) { nodes { databaseId } } } }
} } }
"""
READY = """
mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { id } } }
"""
ENQUEUE = """
mutation($id: ID!, $head: GitObjectID!) {
  enqueuePullRequest(input: {pullRequestId: $id, expectedHeadOid: $head}) { mergeQueueEntry { id } }
}
"""


class _GitHubUser(Read, frozen=True):
    login: str = ""


class _GitHubRef(Read, frozen=True):
    ref: str
    sha: str


class _GitHubPull(Read, frozen=True):
    number: int
    html_url: str
    state: str
    head: _GitHubRef
    base: _GitHubRef
    node_id: str
    title: str
    body: str | None = None
    draft: bool = False
    merged_at: str | None = None
    merge_commit_sha: str | None = None
    mergeable: bool | None = None


class _GitHubReview(Read, frozen=True):
    id: int
    state: str
    user: _GitHubUser | None = None
    body: str | None = None
    commit_id: str | None = None


class _GitHubComment(Read, frozen=True):
    id: int
    user: _GitHubUser | None = None
    body: str | None = None
    path: str = ""
    line: int | None = None
    in_reply_to_id: int | None = None


class _GitHubStatus(Read, frozen=True):
    state: str
    context: str = ""


class _GitHubCombined(Read, frozen=True):
    statuses: tuple[_GitHubStatus, ...]


class _GitHubRun(Read, frozen=True):
    status: str
    conclusion: str | None = None


class _GitHubRuns(Read, frozen=True):
    check_runs: tuple[_GitHubRun, ...]
    total_count: int


class _GitHubPermission(Read, frozen=True):
    permission: str = ""


class _GitHubIssue(Read, frozen=True):
    number: int
    title: str
    html_url: str
    body: str | None = None


class _GitHubMerged(Read, frozen=True):
    sha: str
    merged: bool


class _GitHubId(Read, frozen=True):
    databaseId: int | None = None


class _GitHubIds(Read, frozen=True):
    nodes: tuple[_GitHubId, ...] = ()


class _GitHubThread(Read, frozen=True):
    isResolved: bool
    isOutdated: bool
    comments: _GitHubIds


class _GitHubThreads(Read, frozen=True):
    nodes: tuple[_GitHubThread, ...] = ()


class _GitHubNode(Read, frozen=True):
    isInMergeQueue: bool = False
    reviewThreads: _GitHubThreads = _GitHubThreads()


class GitHub:
    """Fulfils `port.Forge`."""

    def __init__(self, api: Api, repository: str) -> None:
        self._api, self._repository = api, f"/repos/{repository}"
        self._owner = repository.partition("/")[0]
        self._writers: Writers[str] = Writers(lambda login: may_write(api, self._repository, login))

    def find(self, branch: str, base: str) -> Sequence[Pull]:
        head = f"{self._owner}:{branch}"
        found = self._api.get_all(f"{self._repository}/pulls", _GitHubPull, head=head, base=base, state="all")
        return sorted(map(_as_pull, found), key=lambda one: (one.state is not PullState.OPEN, -one.number))

    def create(self, wanted: Wanted) -> Pull | None:
        body = {"title": wanted.title, "head": wanted.branch, "base": wanted.base, "body": wanted.body}
        answer = self._api.send("POST", f"{self._repository}/pulls", {**body, "draft": wanted.draft}, (422,))
        if answer.status == 422:
            if b"already exists" in answer.body:
                return None
            raise ApiFailed(f"no pull request can be opened: {answer.said()}", "see the branch at the forge", 422)
        made = self._api.decode(answer, _GitHubPull)
        if wanted.reviewers:
            path = f"{self._repository}/pulls/{made.number}/requested_reviewers"
            self._api.send("POST", path, {"reviewers": list(wanted.reviewers)}, (422,))
        if wanted.labels:
            path = f"{self._repository}/issues/{made.number}/labels"
            self._api.send("POST", path, {"labels": list(wanted.labels)})
        return _as_pull(made)

    def update(self, pull: Pull, wanted: Wanted) -> Pull:
        path = f"{self._repository}/pulls/{pull.number}"
        changed = self._api.decode(
            self._api.send("PATCH", path, {"title": wanted.title, "body": wanted.body}), _GitHubPull
        )
        if changed.draft and not wanted.draft:
            self._graphql(READY, {"id": changed.node_id})
        return _as_pull(changed)

    def look(self, number: int) -> Look:
        path = f"{self._repository}/pulls/{number}"
        pull = self._api.get(path, _GitHubPull)
        reviews = self._api.get_all(f"{path}/reviews", _GitHubReview)
        comments = self._api.get_all(f"{path}/comments", _GitHubComment)
        said = self._api.get_all(f"{self._repository}/issues/{number}/comments", _GitHubComment)
        node = self._graphql(THREADS, {"id": pull.node_id})
        settled = {
            one.databaseId
            for thread in node.reviewThreads.nodes
            if thread.isResolved or thread.isOutdated
            for one in thread.comments.nodes
        }
        remarks = (
            *(self._remark(one, "comment", settled) for one in comments),
            *(self._remark(one, "said", settled) for one in said),
            *(self._review_remark(one) for one in reviews),
        )
        return Look(
            pull=msgspec.structs.replace(_as_pull(pull), queued=node.isInMergeQueue),
            opinion=self._opinion(reviews, pull.head.sha),
            checks_passed=self._checks(pull.head.sha),
            mergeable=pull.mergeable,
            remarks=tuple(remarks),
        )

    def set_status(self, commit: str, passed: bool, description: str) -> None:
        state = "success" if passed else "failure"
        body = {"state": state, "context": CONTEXT, "description": description[:140]}
        self._api.send("POST", f"{self._repository}/statuses/{commit}", body)

    def merge(self, number: int, head: str, method: str, *, queue: bool) -> MergeAnswer:
        path = f"{self._repository}/pulls/{number}"
        if queue:
            node_id = self._api.get(path, _GitHubPull).node_id
            self._graphql(ENQUEUE, {"id": node_id, "head": head})
            return MergeAnswer(MergeOutcome.QUEUED)
        answer = self._api.send("PUT", f"{path}/merge", {"sha": head, "merge_method": method}, (405, 409, 422))
        outcomes = {405: MergeOutcome.NOT_YET, 409: MergeOutcome.MOVED, 422: MergeOutcome.REFUSED}
        if answer.status in outcomes:
            return MergeAnswer(outcomes[answer.status], answer.said())
        return MergeAnswer(MergeOutcome.MERGED, self._api.decode(answer, _GitHubMerged).sha)

    def answer(self, number: int, thread: str, text: str) -> None:
        if thread:
            self._api.send("POST", f"{self._repository}/pulls/{number}/comments/{thread}/replies", {"body": text})
        else:
            self._api.send("POST", f"{self._repository}/issues/{number}/comments", {"body": text})

    def issue(self, number: int) -> Issue:
        found = self._api.get(f"{self._repository}/issues/{number}", _GitHubIssue)
        return Issue(found.number, found.title, found.body or "")

    def _checks(self, commit: str) -> bool | None:
        statuses = self._api.get(f"{self._repository}/commits/{commit}/status", _GitHubCombined).statuses
        runs = self._api.get(f"{self._repository}/commits/{commit}/check-runs", _GitHubRuns, per_page="100")
        if runs.total_count > len(runs.check_runs):
            return None
        ended = [one.conclusion or "" if one.status == "completed" else "pending" for one in runs.check_runs]
        return all_passed([*(one.state for one in statuses), *ended])

    def _opinion(self, reviews: Iterable[_GitHubReview], head: str) -> Opinion:
        """The last word of each reviewer who may write; an approval counts for the commit that it was given for."""
        last: dict[str, str] = {}
        for one in reviews:
            if one.user and one.state in _OPINIONS and one.user.login in self._writers:
                last[one.user.login] = one.state if one.state != "APPROVED" or one.commit_id == head else "STALE"
        if "CHANGES_REQUESTED" in last.values():
            return Opinion.CHANGES
        return Opinion.APPROVED if "APPROVED" in last.values() else Opinion.NONE

    def _remark(self, one: _GitHubComment, kind: str, settled: set[int | None]) -> Remark:
        author = one.user.login if one.user else ""
        return Remark(
            id=f"{kind}-{one.id:020}",
            author=author,
            text=one.body or "",
            may_write=bool(author) and author in self._writers,
            path=one.path,
            line=one.line or 0,
            settled=one.id in settled,
            thread=str(one.in_reply_to_id or one.id) if kind == "comment" else "",
        )

    def _review_remark(self, one: _GitHubReview) -> Remark:
        """The text of a review asks for something only where it does not approve."""
        author = one.user.login if one.user else ""
        return Remark(
            id=f"review-{one.id:020}",
            author=author,
            text=one.body or "",
            may_write=bool(author) and author in self._writers,
            settled=one.state in ("APPROVED", "DISMISSED", "PENDING"),
        )

    def _graphql(self, query: str, variables: Mapping[str, str]) -> _GitHubNode:
        answer = self._api.send("POST", "/graphql", {"query": query, "variables": variables}, without="/v3")
        found = read_json(answer.body)
        if not isinstance(found, dict) or found.get("errors") or not isinstance(found.get("data"), dict):
            raise ApiFailed(f"GraphQL: {str(found.get('errors', found))[:300]}", "see the token's rights", 422)
        return read_value(found["data"].get("node") or {}, _GitHubNode)


def all_passed(states: Iterable[str]) -> bool | None:
    """Whether every check has passed; None while one runs, or where there is none."""
    every = list(states)
    if any(state not in (*_PASSED, "pending", "queued", "in_progress") for state in every):
        return False
    return True if every and all(state in _PASSED for state in every) else None


def may_write(api: Api, repository: str, login: str) -> bool:
    """Whether a person may push to the repository."""
    return api.get(f"{repository}/collaborators/{login}/permission", _GitHubPermission).permission in _WRITERS


def _as_pull(found: _GitHubPull) -> Pull:
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
