"""Client for Gitea and Forgejo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

import msgspec

from phasegate.core.forge.checks import Check, CommitChecks, select_foreign_checks
from phasegate.core.forge.pull_decision import (
    PullRequest,
    PullRequestSnapshot,
    PullState,
    Remark,
    RemarkKind,
)
from phasegate.forge.github_api import (
    UNREAD_CHECKS,
    GitHubComment,
    GitHubCompatible,
    GitHubLabel,
    GitHubReview,
    GitHubUser,
    PullPayload,
    add_combined_state,
    make_check,
    sort_open_first,
    to_pull,
)
from phasegate.forge.http import ApiError, ApiPayload
from phasegate.forge.port import MergeOutcome, MergeResult, PullSpec

_DRAFT_PREFIX = "WIP: "
# In versions without the field `draft`, the title alone shows it
_DRAFT_PREFIXES = ("WIP:", "[WIP]")


class _GiteaStatus(ApiPayload, frozen=True):
    status: str = ""
    context: str = ""

    @property
    def state(self) -> str:
        return "success" if self.status == "warning" else self.status


class _GiteaCombined(ApiPayload, frozen=True):
    statuses: tuple[_GiteaStatus, ...] | None = None
    state: str = ""
    total_count: int = 0


class _GiteaBranch(ApiPayload, frozen=True):
    protected: bool = False
    required_approvals: int = 0
    enable_status_check: bool = False
    # Names, or patterns with `*`
    status_check_contexts: tuple[str, ...] | None = None


class Gitea(GitHubCompatible):
    """Implements `port.Forge` for Gitea and Forgejo.

    Their API cannot reply in a thread, so replies become comments on the pull request.
    """

    # A scheduled merge is not in the API
    shows_queue = False

    def find_pulls(self, branch: str, base: str) -> Sequence[PullRequest]:
        """Ask for the pull request by its branches; a list of all could have thousands.

        The forge returns the newest one. If that is closed, an older one may be open.
        """
        path = f"{self._repository}/pulls"
        newest = self._api.get_optional(
            f"{path}/{quote(base, safe='')}/{quote(branch, safe='')}", PullPayload
        )
        if newest and newest.state == "open" and newest.is_between(branch, base):
            return [to_pull(newest)]

        found = self._api.get_all(path, PullPayload, state="open", sort="recentupdate")
        return sort_open_first(to_pull(one) for one in found if one.is_between(branch, base))

    def create_pull(self, spec: PullSpec) -> PullRequest | None:
        """Open a pull request, or return None if one exists for the branch."""
        body = {
            "title": _format_title(spec),
            "head": spec.branch,
            "base": spec.base,
            "body": spec.body,
        }

        answer = self._api.send("POST", f"{self._repository}/pulls", body, (409,))
        if answer.status == 409:
            return None

        return to_pull(self._api.decode(answer, PullPayload))

    def _add_labels(self, number: int, names: Sequence[str]) -> Sequence[str]:
        """Add labels by their ids, which a label of the repository or its organization has."""
        known = self._api.get_all(f"{self._repository}/labels", GitHubLabel)
        if not {*names} <= {one.name for one in known}:
            path = f"/orgs/{self._owner}/labels"
            known += self._api.get_optional(path, list[GitHubLabel], limit="50") or []

        ids = {one.name: one.id for one in known if one.name in names}
        if ids:
            path = f"{self._repository}/issues/{number}/labels"
            self._api.send("POST", path, {"labels": [*ids.values()]})

        return [f"the forge has no label {name}" for name in names if name not in ids]

    def fetch_pull(self, number: int) -> PullRequestSnapshot:
        with self._api.one_at_a_time():
            return self._fetch_pull(number)

    def _fetch_pull(self, number: int) -> PullRequestSnapshot:
        """Fetch a pull request with its reviews, checks and remarks."""
        self._writers.clear()
        path = f"{self._repository}/pulls/{number}"
        found = self._api.get(path, PullPayload)
        reviews = self._api.get_all(f"{path}/reviews", GitHubReview)
        # Not paginated: returns all comments
        said = self._api.get(f"{self._repository}/issues/{number}/comments", list[GitHubComment])

        base = f"{self._repository}/branches/{quote(found.base.ref, safe='')}"
        branch = self._api.get_optional(base, _GiteaBranch) or _GiteaBranch()

        if found.draft is None:
            is_draft = found.title.upper().startswith(_DRAFT_PREFIXES)
            found = msgspec.structs.replace(found, draft=is_draft)

        return PullRequestSnapshot(
            pull=to_pull(found),
            review_decision=self._summarize_reviews(
                reviews,
                found,
                required=branch.required_approvals,
                official_only=branch.protected,
            ),
            checks=self._fetch_commit_checks(found, branch),
            mergeable=found.mergeable,
            remarks=(
                *self._read_thread_remarks(path, reviews),
                *self._make_review_remarks(reviews),
                *map(self._make_talk_remark, said),
            ),
        )

    def merge_pull(self, number: int, head: str, method: str, *, queue: bool) -> MergeResult:
        """Merge or schedule a pull request if its head is still `head`."""
        body = {"Do": method, "head_commit_id": head, "merge_when_checks_succeed": queue}
        path = f"{self._repository}/pulls/{number}"
        answer = self._api.send("POST", f"{path}/merge", body, (405, 409))
        if answer.status == 405:
            return MergeResult(MergeOutcome.NOT_YET, answer.get_error_text())
        if answer.status == 409:
            # Also the answer to a merge that was scheduled before
            is_scheduled = queue and b"schedul" in answer.body
            outcome = MergeOutcome.QUEUED if is_scheduled else MergeOutcome.MOVED
            return MergeResult(outcome, answer.get_error_text())

        # The response to a merge has no body
        after = to_pull(self._api.get(path, PullPayload))
        if after.state is PullState.MERGED:
            return MergeResult(MergeOutcome.MERGED, after.merge_commit)

        return MergeResult(MergeOutcome.QUEUED if queue else MergeOutcome.NOT_YET)

    def _read_thread_remarks(self, path: str, reviews: Iterable[GitHubReview]) -> Iterator[Remark]:
        for one in reviews:
            for comment in self._api.get(f"{path}/reviews/{one.id}/comments", list[GitHubComment]):
                settled = comment.resolver is not None or not comment.position
                yield self._make_remark(comment, "comment", RemarkKind.THREAD, settled=settled)

    def _fetch_commit_checks(self, pull: PullPayload, branch: _GiteaBranch) -> CommitChecks:
        """Fetch the checks of the head, and which of them are required."""
        found = self._fetch_checks(pull.head.sha)
        base_has_checks = True
        if not select_foreign_checks(found):
            base_has_checks = bool(select_foreign_checks(self._fetch_checks(pull.base.sha)))

        required: Sequence[str] = ()
        if branch.enable_status_check:
            required = branch.status_check_contexts or ()

        return CommitChecks(
            found=tuple(found), required=tuple(required), base_has_checks=base_has_checks
        )

    def _fetch_checks(self, commit: str) -> Sequence[Check]:
        pages = self._api.get_pages(
            f"{self._repository}/commits/{commit}/status",
            _GiteaCombined,
            lambda page: len(page.statuses or ()),
        )
        checks = [
            make_check(one.context, one.state) for page in pages for one in page.statuses or ()
        ]
        if len(checks) < pages[0].total_count:
            checks.append(UNREAD_CHECKS)
        return add_combined_state(checks, pages[0].state)

    def _has_write_access(self, login: str) -> bool:
        """Ask for the permission of an account.

        Only administrators get an answer for others; everybody may list who can be assigned, which
        are the accounts with write access.
        """
        try:
            return super()._has_write_access(login)
        except ApiError as error:
            if error.status != 403:
                raise

        assignable = self._api.get_optional(f"{self._repository}/assignees", list[GitHubUser])
        return login in [user.login for user in assignable or ()]


def _format_title(spec: PullSpec) -> str:
    if spec.draft:
        return f"{_DRAFT_PREFIX}{spec.title}"
    return spec.title
