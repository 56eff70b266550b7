"""Client for GitHub and GitHub Enterprise.

Review threads and merge queues are only available in the GraphQL API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from phasegate.core.forge.pull_request import PullRequest, PullRequestSnapshot
from phasegate.forge.github_api import (
    GitHubComment,
    GitHubCompatible,
    GitHubReview,
    PullPayload,
    have_all_passed,
    sort_open_first,
    to_pull,
)
from phasegate.forge.http import ApiError, ApiPayload
from phasegate.forge.port import MergeOutcome, MergeResult, PullSpec
from phasegate.typed import read_json, read_value

THREADS_QUERY = """
query($id: ID!) { node(id: $id) { ... on PullRequest {
  isInMergeQueue
  reviewThreads(first: 100) { nodes { isResolved isOutdated comments(first: 100) { nodes { databaseId } } } }
} } }
"""
READY_MUTATION = """
mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { id } } }
"""
ENQUEUE_MUTATION = """
mutation($id: ID!, $head: GitObjectID!) {
  enqueuePullRequest(input: {pullRequestId: $id, expectedHeadOid: $head}) { mergeQueueEntry { id } }
}
"""


class _GitHubStatus(ApiPayload, frozen=True):
    state: str


class _GitHubCombined(ApiPayload, frozen=True):
    statuses: tuple[_GitHubStatus, ...]


class _GitHubRun(ApiPayload, frozen=True):
    status: str
    conclusion: str | None = None


class _GitHubRuns(ApiPayload, frozen=True):
    check_runs: tuple[_GitHubRun, ...]
    total_count: int


class _GitHubMerged(ApiPayload, frozen=True):
    sha: str
    merged: bool


class _GitHubId(ApiPayload, frozen=True):
    databaseId: int | None = None


class _GitHubIds(ApiPayload, frozen=True):
    nodes: tuple[_GitHubId, ...] = ()


class _GitHubThread(ApiPayload, frozen=True):
    isResolved: bool
    isOutdated: bool
    comments: _GitHubIds


class _GitHubThreads(ApiPayload, frozen=True):
    nodes: tuple[_GitHubThread, ...] = ()


class _GitHubNode(ApiPayload, frozen=True):
    isInMergeQueue: bool = False
    reviewThreads: _GitHubThreads = _GitHubThreads()


class GitHub(GitHubCompatible):
    """Implements `port.Forge` for GitHub."""

    def find_pulls(self, branch: str, base: str) -> Sequence[PullRequest]:
        head = f"{self._owner}:{branch}"
        found = self._api.get_all(
            f"{self._repository}/pulls", PullPayload, head=head, base=base, state="all"
        )
        return sort_open_first(map(to_pull, found))

    def create_pull(self, spec: PullSpec) -> PullRequest | None:
        body = {"title": spec.title, "head": spec.branch, "base": spec.base, "body": spec.body}
        answer = self._api.send(
            "POST", f"{self._repository}/pulls", {**body, "draft": spec.draft}, (422,)
        )

        if answer.status == 422:
            if b"already exists" in answer.body:
                return None
            raise ApiError(
                f"no pull request can be opened: {answer.get_error_text()}",
                "check the branch on the forge",
                422,
            )

        made = self._api.decode(answer, PullPayload)
        self._request_review(made.number, spec)
        if spec.labels:
            path = f"{self._repository}/issues/{made.number}/labels"
            self._api.send("POST", path, {"labels": list(spec.labels)})

        return to_pull(made)

    def update_pull(self, pull: PullRequest, spec: PullSpec) -> PullRequest:
        body = {"title": spec.title, "body": spec.body}
        answer = self._api.send("PATCH", f"{self._repository}/pulls/{pull.number}", body)
        changed = self._api.decode(answer, PullPayload)
        if changed.draft and not spec.draft:
            self._send_graphql(READY_MUTATION, {"id": changed.node_id})
        return to_pull(changed)

    def fetch_pull(self, number: int) -> PullRequestSnapshot:
        path = f"{self._repository}/pulls/{number}"
        pull = self._api.get(path, PullPayload)
        reviews = self._api.get_all(f"{path}/reviews", GitHubReview)
        comments = self._api.get_all(f"{path}/comments", GitHubComment)
        said = self._api.get_all(f"{self._repository}/issues/{number}/comments", GitHubComment)
        node = self._send_graphql(THREADS_QUERY, {"id": pull.node_id})
        settled = {
            one.databaseId
            for thread in node.reviewThreads.nodes
            if thread.isResolved or thread.isOutdated
            for one in thread.comments.nodes
        }

        threads = ((one, str(one.in_reply_to_id or one.id)) for one in comments)
        remarks = (
            *(
                self._make_remark(one, "comment", settled=one.id in settled, thread=thread)
                for one, thread in threads
            ),
            *(self._make_remark(one, "said", settled=False) for one in said),
            *map(self._make_review_remark, reviews),
        )

        return PullRequestSnapshot(
            pull=msgspec.structs.replace(to_pull(pull), queued=node.isInMergeQueue),
            review_decision=self._summarize_reviews(reviews, pull.head.sha),
            checks_passed=self._fetch_checks_passed(pull.head.sha),
            mergeable=pull.mergeable,
            remarks=remarks,
        )

    def merge_pull(self, number: int, head: str, method: str, *, queue: bool) -> MergeResult:
        path = f"{self._repository}/pulls/{number}"
        if queue:
            node_id = self._api.get(path, PullPayload).node_id
            self._send_graphql(ENQUEUE_MUTATION, {"id": node_id, "head": head})
            return MergeResult(MergeOutcome.QUEUED)

        answer = self._api.send(
            "PUT", f"{path}/merge", {"sha": head, "merge_method": method}, (405, 409, 422)
        )
        outcomes = {405: MergeOutcome.NOT_YET, 409: MergeOutcome.MOVED, 422: MergeOutcome.REFUSED}
        if answer.status in outcomes:
            return MergeResult(outcomes[answer.status], answer.get_error_text())

        return MergeResult(MergeOutcome.MERGED, self._api.decode(answer, _GitHubMerged).sha)

    def reply(self, number: int, thread: str, text: str) -> None:
        if not thread:
            super().reply(number, thread, text)
            return
        self._api.send(
            "POST", f"{self._repository}/pulls/{number}/comments/{thread}/replies", {"body": text}
        )

    def _fetch_checks_passed(self, commit: str) -> bool | None:
        statuses = self._api.get(
            f"{self._repository}/commits/{commit}/status", _GitHubCombined
        ).statuses
        runs = self._api.get(
            f"{self._repository}/commits/{commit}/check-runs", _GitHubRuns, per_page="100"
        )
        if runs.total_count > len(runs.check_runs):
            return None

        ended = [
            one.conclusion or "" if one.status == "completed" else "pending"
            for one in runs.check_runs
        ]
        return have_all_passed([*(one.state for one in statuses), *ended])

    def _send_graphql(self, query: str, variables: Mapping[str, str]) -> _GitHubNode:
        answer = self._api.send(
            "POST", "/graphql", {"query": query, "variables": variables}, strip_suffix="/v3"
        )
        found = read_json(answer.body)

        if (
            not isinstance(found, dict)
            or found.get("errors")
            or not isinstance(found.get("data"), dict)
        ):
            raise ApiError(
                f"GraphQL: {str(found.get('errors', found))[:300]}",
                "check the permissions of the token",
                422,
            )

        return read_value(found["data"].get("node") or {}, _GitHubNode)
