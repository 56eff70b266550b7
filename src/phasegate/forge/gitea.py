"""Gitea and Forgejo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from phasegate.core.forge.pull_request import Look, Pull, PullState, Remark
from phasegate.forge.github_api import Comment, GitHubLike, Label, PullAnswer, Review, all_passed, as_pull, open_first
from phasegate.forge.http import Read
from phasegate.forge.port import MergeAnswer, MergeOutcome, Wanted

_DRAFT = "WIP: "


class _GiteaStatus(Read, frozen=True):
    status: str = ""


class _GiteaCombined(Read, frozen=True):
    statuses: tuple[_GiteaStatus, ...] | None = None


class Gitea(GitHubLike):
    """Fulfils `port.Forge`. Its API has no answer in a thread: answers go below the pull request."""

    def find(self, branch: str, base: str) -> Sequence[Pull]:
        found = self._api.get_all(f"{self._repository}/pulls", PullAnswer, state="all", sort="recentupdate")
        return open_first(as_pull(one) for one in found if one.head.ref == branch and one.base.ref == base)

    def create(self, wanted: Wanted) -> Pull | None:
        body = {"title": _title(wanted), "head": wanted.branch, "base": wanted.base, "body": wanted.body}
        answer = self._api.send("POST", f"{self._repository}/pulls", body, (409,))
        if answer.status == 409:
            return None
        made = self._api.decode(answer, PullAnswer)
        self._ask_for_review(made.number, wanted)
        if wanted.labels:
            known = self._api.get_all(f"{self._repository}/labels", Label)
            ids = [one.id for one in known if one.name in wanted.labels]
            self._api.send("POST", f"{self._repository}/issues/{made.number}/labels", {"labels": ids})
        return as_pull(made)

    def update(self, pull: Pull, wanted: Wanted) -> Pull:
        body = {"title": _title(wanted), "body": wanted.body}
        answer = self._api.send("PATCH", f"{self._repository}/pulls/{pull.number}", body)
        return as_pull(self._api.decode(answer, PullAnswer))

    def look(self, number: int) -> Look:
        path = f"{self._repository}/pulls/{number}"
        found = self._api.get(path, PullAnswer)
        reviews = self._api.get_all(f"{path}/reviews", Review)
        said = self._api.get(f"{self._repository}/issues/{number}/comments", list[Comment])  # all of them: no pages
        return Look(
            pull=as_pull(found),
            opinion=self._opinion(reviews, found.head.sha),
            checks_passed=self._checks(found.head.sha),
            mergeable=found.mergeable,
            remarks=(
                *self._of_reviews(path, reviews),
                *(self._remark(one, "said", settled=False) for one in said),
            ),
        )

    def merge(self, number: int, head: str, method: str, *, queue: bool) -> MergeAnswer:
        body = {"Do": method, "head_commit_id": head, "merge_when_checks_succeed": queue}
        path = f"{self._repository}/pulls/{number}"
        answer = self._api.send("POST", f"{path}/merge", body, (405, 409))
        if answer.status == 405:
            return MergeAnswer(MergeOutcome.NOT_YET, answer.said())
        if answer.status == 409:
            return MergeAnswer(MergeOutcome.MOVED, answer.said())
        after = as_pull(self._api.get(path, PullAnswer))  # the answer to a merge is empty
        if after.state is PullState.MERGED:
            return MergeAnswer(MergeOutcome.MERGED, after.merged_as)
        return MergeAnswer(MergeOutcome.QUEUED if queue else MergeOutcome.NOT_YET)

    def _of_reviews(self, path: str, reviews: Iterable[Review]) -> Iterator[Remark]:
        for one in reviews:
            for comment in self._api.get(f"{path}/reviews/{one.id}/comments", list[Comment]):
                settled = comment.resolver is not None or not comment.position
                yield self._remark(comment, "comment", settled=settled)
            yield self._review_remark(one)

    def _checks(self, commit: str) -> bool | None:
        found = self._api.get(f"{self._repository}/commits/{commit}/status", _GiteaCombined)
        return all_passed("success" if one.status == "warning" else one.status for one in found.statuses or ())


def _title(wanted: Wanted) -> str:
    return f"{_DRAFT}{wanted.title}" if wanted.draft else wanted.title
