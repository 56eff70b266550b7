"""Gitea and Forgejo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from phasegate.forge.github import CONTEXT, all_passed, may_write
from phasegate.forge.http import Api, Read
from phasegate.forge.people import Writers
from phasegate.forge.port import Issue, MergeAnswer, MergeOutcome, Wanted
from phasegate.rules.pull_request import Look, Opinion, Pull, PullState, Remark

_DRAFT = "WIP: "


class _GiteaUser(Read, frozen=True):
    login: str


class _GiteaRef(Read, frozen=True):
    ref: str
    sha: str


class _GiteaPull(Read, frozen=True):
    number: int
    html_url: str
    state: str
    head: _GiteaRef
    base: _GiteaRef
    title: str
    body: str | None = None
    draft: bool = False
    merged: bool = False
    merge_commit_sha: str | None = None
    mergeable: bool | None = None


class _GiteaReview(Read, frozen=True):
    id: int
    state: str
    user: _GiteaUser | None = None
    body: str | None = None
    commit_id: str = ""
    stale: bool = False
    dismissed: bool = False


class _GiteaComment(Read, frozen=True):
    id: int
    user: _GiteaUser | None = None
    body: str | None = None
    path: str = ""
    position: int | None = None  # the line in the new file; 0: the lines are not there any more
    resolver: _GiteaUser | None = None


class _GiteaStatus(Read, frozen=True):
    status: str = ""


class _GiteaCombined(Read, frozen=True):
    statuses: tuple[_GiteaStatus, ...] | None = None


class _GiteaLabel(Read, frozen=True):
    id: int
    name: str


class _GiteaIssue(Read, frozen=True):
    number: int
    title: str
    html_url: str
    body: str | None = None


class Gitea:
    """Fulfils `port.Forge`."""

    def __init__(self, api: Api, repository: str) -> None:
        self._api, self._repository = api, f"/repos/{repository}"
        self._writers = Writers(self._may_write)

    def find(self, branch: str, base: str) -> Sequence[Pull]:
        found = self._api.get_all(f"{self._repository}/pulls", _GiteaPull, state="all", sort="recentupdate")
        ours = (_as_pull(one) for one in found if one.head.ref == branch and one.base.ref == base)
        return sorted(ours, key=lambda one: (one.state is not PullState.OPEN, -one.number))

    def create(self, wanted: Wanted) -> Pull | None:
        body = {"title": _title(wanted), "head": wanted.branch, "base": wanted.base, "body": wanted.body}
        answer = self._api.send("POST", f"{self._repository}/pulls", body, (409,))
        if answer.status == 409:
            return None
        made = self._api.decode(answer, _GiteaPull)
        if wanted.reviewers:
            path = f"{self._repository}/pulls/{made.number}/requested_reviewers"
            self._api.send("POST", path, {"reviewers": list(wanted.reviewers)}, (422,))
        if wanted.labels:
            known = self._api.get_all(f"{self._repository}/labels", _GiteaLabel)
            ids = [one.id for one in known if one.name in wanted.labels]
            self._api.send("POST", f"{self._repository}/issues/{made.number}/labels", {"labels": ids})
        return _as_pull(made)

    def update(self, pull: Pull, wanted: Wanted) -> Pull:
        body = {"title": _title(wanted), "body": wanted.body}
        answer = self._api.send("PATCH", f"{self._repository}/pulls/{pull.number}", body)
        return _as_pull(self._api.decode(answer, _GiteaPull))

    def look(self, number: int) -> Look:
        path = f"{self._repository}/pulls/{number}"
        found = self._api.get(path, _GiteaPull)
        reviews = self._api.get_all(f"{path}/reviews", _GiteaReview)
        said = self._api.get_all(f"{self._repository}/issues/{number}/comments", _GiteaComment)
        return Look(
            pull=_as_pull(found),
            opinion=self._opinion(reviews, found.head.sha),
            checks_passed=self._checks(found.head.sha),
            mergeable=found.mergeable,
            remarks=(*self._of_reviews(path, reviews), *(self._remark(one, "said") for one in said)),
        )

    def set_status(self, commit: str, passed: bool, description: str) -> None:
        state = "success" if passed else "failure"
        body = {"state": state, "context": CONTEXT, "description": description[:140]}
        self._api.send("POST", f"{self._repository}/statuses/{commit}", body)

    def merge(self, number: int, head: str, method: str, *, queue: bool) -> MergeAnswer:
        body = {"Do": method, "head_commit_id": head, "merge_when_checks_succeed": queue}
        path = f"{self._repository}/pulls/{number}"
        answer = self._api.send("POST", f"{path}/merge", body, (405, 409))
        if answer.status == 405:
            return MergeAnswer(MergeOutcome.NOT_YET, answer.said())
        if answer.status == 409:
            return MergeAnswer(MergeOutcome.MOVED, answer.said())
        after = _as_pull(self._api.get(path, _GiteaPull))  # the answer to a merge is empty
        if after.state is PullState.MERGED:
            return MergeAnswer(MergeOutcome.MERGED, after.merged_as)
        return MergeAnswer(MergeOutcome.QUEUED if queue else MergeOutcome.NOT_YET)

    def answer(self, number: int, thread: str, text: str) -> None:
        """Its API has no answer in a thread: it goes below the pull request."""
        self._api.send("POST", f"{self._repository}/issues/{number}/comments", {"body": text})

    def issue(self, number: int) -> Issue:
        found = self._api.get(f"{self._repository}/issues/{number}", _GiteaIssue)
        return Issue(found.number, found.title, found.body or "")

    def _opinion(self, reviews: Iterable[_GiteaReview], head: str) -> Opinion:
        last: dict[str, str] = {}
        for one in reviews:
            if one.user and one.state in ("APPROVED", "REQUEST_CHANGES") and one.user.login in self._writers:
                stale = one.dismissed or (one.state == "APPROVED" and (one.stale or one.commit_id != head))
                last[one.user.login] = "STALE" if stale else one.state
        if "REQUEST_CHANGES" in last.values():
            return Opinion.CHANGES
        return Opinion.APPROVED if "APPROVED" in last.values() else Opinion.NONE

    def _of_reviews(self, path: str, reviews: Iterable[_GiteaReview]) -> Iterator[Remark]:
        for one in reviews:
            for comment in self._api.get(f"{path}/reviews/{one.id}/comments", list[_GiteaComment]):
                yield self._remark(comment, "comment")
            if one.state in ("REQUEST_CHANGES", "COMMENT") and one.user:
                text, author = one.body or "", one.user.login
                remark = Remark(id=f"review-{one.id:020}", author=author, text=text, may_write=author in self._writers)
                yield msgspec.structs.replace(remark, settled=one.dismissed)

    def _remark(self, one: _GiteaComment, kind: str) -> Remark:
        author = one.user.login if one.user else ""
        return Remark(
            id=f"{kind}-{one.id:020}",
            author=author,
            text=one.body or "",
            may_write=bool(author) and author in self._writers,
            path=one.path,
            line=one.position or 0,
            settled=one.resolver is not None or (kind == "comment" and not one.position),
        )

    def _checks(self, commit: str) -> bool | None:
        found = self._api.get(f"{self._repository}/commits/{commit}/status", _GiteaCombined)
        return all_passed("success" if one.status == "warning" else one.status for one in found.statuses or ())

    def _may_write(self, login: str) -> bool:
        return may_write(self._api, self._repository, login)


def _title(wanted: Wanted) -> str:
    return f"{_DRAFT}{wanted.title}" if wanted.draft else wanted.title


def _as_pull(found: _GiteaPull) -> Pull:
    state = PullState.MERGED if found.merged else PullState.OPEN if found.state == "open" else PullState.CLOSED
    return Pull(
        number=found.number,
        url=found.html_url,
        state=state,
        head=found.head.sha,
        base=found.base.ref,
        body=found.body or "",
        draft=found.draft,
        merged_as=(found.merge_commit_sha or "") if found.merged else "",
    )
