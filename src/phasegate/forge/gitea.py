"""Client for Gitea and Forgejo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from phasegate.core.forge.pull_request import PullRequest, PullRequestSnapshot, PullState, Remark
from phasegate.forge.github_api import (
    GitHubComment,
    GitHubCompatible,
    GitHubLabel,
    GitHubReview,
    PullPayload,
    have_all_passed,
    sort_open_first,
    to_pull,
)
from phasegate.forge.http import ApiPayload
from phasegate.forge.port import MergeOutcome, MergeResult, PullSpec

_DRAFT_PREFIX = "WIP: "


class _GiteaStatus(ApiPayload, frozen=True):
    status: str = ""


class _GiteaCombined(ApiPayload, frozen=True):
    statuses: tuple[_GiteaStatus, ...] | None = None


class Gitea(GitHubCompatible):
    """Implements `port.Forge` for Gitea and Forgejo.

    Their API cannot reply in a thread, so replies become comments on the pull request.
    """

    def find_pulls(self, branch: str, base: str) -> Sequence[PullRequest]:
        found = self._api.get_all(
            f"{self._repository}/pulls", PullPayload, state="all", sort="recentupdate"
        )
        return sort_open_first(
            to_pull(one) for one in found if one.head.ref == branch and one.base.ref == base
        )

    def create_pull(self, spec: PullSpec) -> PullRequest | None:
        body = {
            "title": _format_title(spec),
            "head": spec.branch,
            "base": spec.base,
            "body": spec.body,
        }

        answer = self._api.send("POST", f"{self._repository}/pulls", body, (409,))
        if answer.status == 409:
            return None

        made = self._api.decode(answer, PullPayload)
        self._request_review(made.number, spec)

        if spec.labels:
            known = self._api.get_all(f"{self._repository}/labels", GitHubLabel)
            ids = [one.id for one in known if one.name in spec.labels]
            self._api.send(
                "POST", f"{self._repository}/issues/{made.number}/labels", {"labels": ids}
            )

        return to_pull(made)

    def update_pull(self, pull: PullRequest, spec: PullSpec) -> PullRequest:
        body = {"title": _format_title(spec), "body": spec.body}
        answer = self._api.send("PATCH", f"{self._repository}/pulls/{pull.number}", body)
        return to_pull(self._api.decode(answer, PullPayload))

    def fetch_pull(self, number: int) -> PullRequestSnapshot:
        path = f"{self._repository}/pulls/{number}"
        found = self._api.get(path, PullPayload)
        reviews = self._api.get_all(f"{path}/reviews", GitHubReview)
        # Not paginated: returns all comments
        said = self._api.get(f"{self._repository}/issues/{number}/comments", list[GitHubComment])

        return PullRequestSnapshot(
            pull=to_pull(found),
            review_decision=self._summarize_reviews(reviews, found.head.sha),
            checks_passed=self._fetch_checks_passed(found.head.sha),
            mergeable=found.mergeable,
            remarks=(
                *self._read_review_remarks(path, reviews),
                *(self._make_remark(one, "said", settled=False) for one in said),
            ),
        )

    def merge_pull(self, number: int, head: str, method: str, *, queue: bool) -> MergeResult:
        body = {"Do": method, "head_commit_id": head, "merge_when_checks_succeed": queue}
        path = f"{self._repository}/pulls/{number}"
        answer = self._api.send("POST", f"{path}/merge", body, (405, 409))
        if answer.status == 405:
            return MergeResult(MergeOutcome.NOT_YET, answer.get_error_text())
        if answer.status == 409:
            return MergeResult(MergeOutcome.MOVED, answer.get_error_text())

        # The response to a merge has no body
        after = to_pull(self._api.get(path, PullPayload))
        if after.state is PullState.MERGED:
            return MergeResult(MergeOutcome.MERGED, after.merge_commit)

        return MergeResult(MergeOutcome.QUEUED if queue else MergeOutcome.NOT_YET)

    def _read_review_remarks(self, path: str, reviews: Iterable[GitHubReview]) -> Iterator[Remark]:
        for one in reviews:
            for comment in self._api.get(f"{path}/reviews/{one.id}/comments", list[GitHubComment]):
                settled = comment.resolver is not None or not comment.position
                yield self._make_remark(comment, "comment", settled=settled)
            yield self._make_review_remark(one)

    def _fetch_checks_passed(self, commit: str) -> bool | None:
        found = self._api.get(f"{self._repository}/commits/{commit}/status", _GiteaCombined)
        return have_all_passed(
            "success" if one.status == "warning" else one.status for one in found.statuses or ()
        )


def _format_title(spec: PullSpec) -> str:
    if spec.draft:
        return f"{_DRAFT_PREFIX}{spec.title}"
    return spec.title
