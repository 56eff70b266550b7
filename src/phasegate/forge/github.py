"""GitHub, and GitHub Enterprise. Threads and queues are in its GraphQL API only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from phasegate.core.forge.pull_request import Look, Pull
from phasegate.forge.github_api import Comment, GitHubLike, PullAnswer, Review, all_passed, as_pull, open_first
from phasegate.forge.http import ApiFailed, Read
from phasegate.forge.port import MergeAnswer, MergeOutcome, Wanted
from phasegate.typed import read_json, read_value

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


class _GitHubStatus(Read, frozen=True):
    state: str


class _GitHubCombined(Read, frozen=True):
    statuses: tuple[_GitHubStatus, ...]


class _GitHubRun(Read, frozen=True):
    status: str
    conclusion: str | None = None


class _GitHubRuns(Read, frozen=True):
    check_runs: tuple[_GitHubRun, ...]
    total_count: int


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


class GitHub(GitHubLike):
    """Fulfils `port.Forge`."""

    def find(self, branch: str, base: str) -> Sequence[Pull]:
        head = f"{self._owner}:{branch}"
        found = self._api.get_all(f"{self._repository}/pulls", PullAnswer, head=head, base=base, state="all")
        return open_first(map(as_pull, found))

    def create(self, wanted: Wanted) -> Pull | None:
        body = {"title": wanted.title, "head": wanted.branch, "base": wanted.base, "body": wanted.body}
        answer = self._api.send("POST", f"{self._repository}/pulls", {**body, "draft": wanted.draft}, (422,))
        if answer.status == 422:
            if b"already exists" in answer.body:
                return None
            raise ApiFailed(f"no pull request can be opened: {answer.said()}", "see the branch at the forge", 422)
        made = self._api.decode(answer, PullAnswer)
        self._ask_for_review(made.number, wanted)
        if wanted.labels:
            path = f"{self._repository}/issues/{made.number}/labels"
            self._api.send("POST", path, {"labels": list(wanted.labels)})
        return as_pull(made)

    def update(self, pull: Pull, wanted: Wanted) -> Pull:
        body = {"title": wanted.title, "body": wanted.body}
        answer = self._api.send("PATCH", f"{self._repository}/pulls/{pull.number}", body)
        changed = self._api.decode(answer, PullAnswer)
        if changed.draft and not wanted.draft:
            self._graphql(READY, {"id": changed.node_id})
        return as_pull(changed)

    def look(self, number: int) -> Look:
        path = f"{self._repository}/pulls/{number}"
        pull = self._api.get(path, PullAnswer)
        reviews = self._api.get_all(f"{path}/reviews", Review)
        comments = self._api.get_all(f"{path}/comments", Comment)
        said = self._api.get_all(f"{self._repository}/issues/{number}/comments", Comment)
        node = self._graphql(THREADS, {"id": pull.node_id})
        settled = {
            one.databaseId
            for thread in node.reviewThreads.nodes
            if thread.isResolved or thread.isOutdated
            for one in thread.comments.nodes
        }
        threads = ((one, str(one.in_reply_to_id or one.id)) for one in comments)
        remarks = (
            *(self._remark(one, "comment", settled=one.id in settled, thread=thread) for one, thread in threads),
            *(self._remark(one, "said", settled=False) for one in said),
            *map(self._review_remark, reviews),
        )
        return Look(
            pull=msgspec.structs.replace(as_pull(pull), queued=node.isInMergeQueue),
            opinion=self._opinion(reviews, pull.head.sha),
            checks_passed=self._checks(pull.head.sha),
            mergeable=pull.mergeable,
            remarks=remarks,
        )

    def merge(self, number: int, head: str, method: str, *, queue: bool) -> MergeAnswer:
        path = f"{self._repository}/pulls/{number}"
        if queue:
            node_id = self._api.get(path, PullAnswer).node_id
            self._graphql(ENQUEUE, {"id": node_id, "head": head})
            return MergeAnswer(MergeOutcome.QUEUED)
        answer = self._api.send("PUT", f"{path}/merge", {"sha": head, "merge_method": method}, (405, 409, 422))
        outcomes = {405: MergeOutcome.NOT_YET, 409: MergeOutcome.MOVED, 422: MergeOutcome.REFUSED}
        if answer.status in outcomes:
            return MergeAnswer(outcomes[answer.status], answer.said())
        return MergeAnswer(MergeOutcome.MERGED, self._api.decode(answer, _GitHubMerged).sha)

    def answer(self, number: int, thread: str, text: str) -> None:
        if not thread:
            super().answer(number, thread, text)
            return
        self._api.send("POST", f"{self._repository}/pulls/{number}/comments/{thread}/replies", {"body": text})

    def _checks(self, commit: str) -> bool | None:
        statuses = self._api.get(f"{self._repository}/commits/{commit}/status", _GitHubCombined).statuses
        runs = self._api.get(f"{self._repository}/commits/{commit}/check-runs", _GitHubRuns, per_page="100")
        if runs.total_count > len(runs.check_runs):
            return None
        ended = [one.conclusion or "" if one.status == "completed" else "pending" for one in runs.check_runs]
        return all_passed([*(one.state for one in statuses), *ended])

    def _graphql(self, query: str, variables: Mapping[str, str]) -> _GitHubNode:
        answer = self._api.send("POST", "/graphql", {"query": query, "variables": variables}, without="/v3")
        found = read_json(answer.body)
        if not isinstance(found, dict) or found.get("errors") or not isinstance(found.get("data"), dict):
            raise ApiFailed(f"GraphQL: {str(found.get('errors', found))[:300]}", "see the token's rights", 422)
        return read_value(found["data"].get("node") or {}, _GitHubNode)
