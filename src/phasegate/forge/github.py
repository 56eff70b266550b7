"""Client for GitHub and GitHub Enterprise.

Review threads and merge queues are only available in the GraphQL API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote

import msgspec

from phasegate.core.forge.checks import (
    OWN_CONTEXT,
    Check,
    CheckState,
    CommitChecks,
    select_foreign_checks,
)
from phasegate.core.forge.pull_decision import PullRequest, PullRequestSnapshot, RemarkKind
from phasegate.errors import TemporarilyUnavailable
from phasegate.forge.github_api import (
    UNREAD_CHECKS,
    GitHubComment,
    GitHubCompatible,
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
from phasegate.typed import read_json, read_value

THREADS_QUERY = """
query($id: ID!, $after: String) { node(id: $id) { ... on PullRequest {
  isInMergeQueue
  reviewThreads(first: 100, after: $after) {
    nodes { isResolved isOutdated comments(first: 1) { nodes { databaseId } } }
    pageInfo { hasNextPage endCursor }
  }
} } }
"""
ENQUEUE_MUTATION = """
mutation($id: ID!, $head: GitObjectID!) {
  enqueuePullRequest(input: {pullRequestId: $id, expectedHeadOid: $head}) { mergeQueueEntry { id } }
}
"""


_ACTIONS_APP = "github-actions"


class _GitHubApp(ApiPayload, frozen=True):
    slug: str | None = None
    id: int = 0


class _GitHubStatus(ApiPayload, frozen=True):
    state: str
    context: str = ""
    # Not in the combined status
    creator: GitHubUser | None = None


class _GitHubCombined(ApiPayload, frozen=True):
    statuses: tuple[_GitHubStatus, ...]
    state: str = ""
    total_count: int = 0


class _GitHubRun(ApiPayload, frozen=True):
    status: str
    name: str = ""
    conclusion: str | None = None
    app: _GitHubApp | None = None

    @property
    def app_id(self) -> int:
        return self.app.id if self.app else 0

    @property
    def state(self) -> str:
        if self.status != "completed":
            return "queued"
        return self.conclusion or ""


class _GitHubRuns(ApiPayload, frozen=True):
    check_runs: tuple[_GitHubRun, ...]
    total_count: int


class _GitHubSuite(ApiPayload, frozen=True):
    status: str | None = None
    conclusion: str | None = None
    latest_check_runs_count: int = 0
    app: _GitHubApp | None = None

    @property
    def is_used(self) -> bool:
        """Return False for the empty suite that GitHub adds for every app.

        Suites of GitHub Actions are added for workflows, whose jobs register later.
        """
        return bool(self.latest_check_runs_count) or (
            self.app is not None and self.app.slug == _ACTIONS_APP
        )

    @property
    def state(self) -> str:
        if self.status != "completed":
            return "queued"
        return self.conclusion or "success"


class _GitHubSuites(ApiPayload, frozen=True):
    check_suites: tuple[_GitHubSuite, ...] = ()


class _GitHubContext(ApiPayload, frozen=True):
    context: str = ""
    # The app that must report it; none or -1: any. Branch protection and rulesets name it
    # differently.
    app_id: int | None = None
    integration_id: int | None = None

    @property
    def app(self) -> int:
        """Return the id of the app that must report it; 0: any."""
        return max(self.app_id or self.integration_id or 0, 0)

    @property
    def name(self) -> str:
        return f"{self.context} of app {self.app}" if self.app else self.context


class _GitHubRequiredChecks(ApiPayload, frozen=True):
    contexts: tuple[str, ...] = ()
    # Replaces `contexts`
    checks: tuple[_GitHubContext, ...] = ()
    # In rules of a ruleset
    required_status_checks: tuple[_GitHubContext, ...] = ()

    @property
    def contexts_with_apps(self) -> tuple[_GitHubContext, ...]:
        given = (*self.checks, *self.required_status_checks)
        return (*map(_GitHubContext, self.contexts), *given)


class _GitHubProtection(ApiPayload, frozen=True):
    required_status_checks: _GitHubRequiredChecks | None = None


class _GitHubBranch(ApiPayload, frozen=True):
    protection: _GitHubProtection | None = None


class _GitHubRule(ApiPayload, frozen=True):
    type: str
    parameters: Mapping[str, object] | None = None


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


class _GitHubPageInfo(ApiPayload, frozen=True):
    hasNextPage: bool = False
    endCursor: str | None = None


class _GitHubThreads(ApiPayload, frozen=True):
    nodes: tuple[_GitHubThread, ...] = ()
    pageInfo: _GitHubPageInfo = _GitHubPageInfo()


class _GitHubNode(ApiPayload, frozen=True):
    isInMergeQueue: bool = False
    reviewThreads: _GitHubThreads = _GitHubThreads()


class GraphQLError(ApiError):
    """An error that GraphQL reports; its HTTP status is 200."""


class GitHub(GitHubCompatible):
    """Implements `port.Forge` for GitHub."""

    shows_queue = True

    def find_pulls(self, branch: str, base: str) -> Sequence[PullRequest]:
        head = f"{self._owner}:{branch}"
        found = self._api.get_all(
            f"{self._repository}/pulls", PullPayload, head=head, base=base, state="open"
        )
        return sort_open_first(to_pull(one) for one in found if one.is_between(branch, base))

    def create_pull(self, spec: PullSpec) -> PullRequest | None:
        """Open a pull request, or return None if one exists for the branch."""
        body = {"title": spec.title, "head": spec.branch, "base": spec.base, "body": spec.body}
        answer = self._api.send(
            "POST", f"{self._repository}/pulls", {**body, "draft": spec.draft}, (422,)
        )

        if answer.status == 422:
            if b"already exists" in answer.body:
                return None
            raise ApiError(
                f"cannot open a pull request: {answer.get_error_text()}",
                "check the branch on the forge",
                422,
            )

        return to_pull(self._api.decode(answer, PullPayload))

    def fetch_pull(self, number: int) -> PullRequestSnapshot:
        with self._api.one_at_a_time():
            return self._fetch_pull(number)

    def _fetch_pull(self, number: int) -> PullRequestSnapshot:
        """Fetch a pull request with its reviews, threads, conversation and checks."""
        # Write access may have changed since the last poll
        self._writers.clear()
        path = f"{self._repository}/pulls/{number}"
        pull = self._api.get(path, PullPayload)
        reviews = self._api.get_all(f"{path}/reviews", GitHubReview)
        comments = self._api.get_all(f"{path}/comments", GitHubComment)
        conversation = self._api.get_all(
            f"{self._repository}/issues/{number}/comments", GitHubComment
        )
        is_queued, settled_threads = self._fetch_threads(pull.node_id)

        threads = ((one, one.in_reply_to_id or one.id) for one in comments)
        remarks = (
            *(
                self._make_remark(
                    one,
                    "comment",
                    RemarkKind.THREAD,
                    settled=thread in settled_threads,
                    thread=str(thread),
                )
                for one, thread in threads
            ),
            *map(self._make_talk_remark, conversation),
            *self._make_review_remarks(reviews),
        )

        return PullRequestSnapshot(
            pull=msgspec.structs.replace(to_pull(pull), queued=is_queued),
            review_decision=self._summarize_reviews(reviews, pull),
            checks=self._fetch_commit_checks(pull),
            mergeable=pull.mergeable,
            is_blocked=pull.mergeable_state == "blocked",
            is_behind=pull.mergeable_state == "behind",
            remarks=remarks,
        )

    def _fetch_threads(self, node_id: str) -> tuple[bool, set[int | None]]:
        """Return whether a pull request is queued, and the first comments of settled threads."""
        settled: set[int | None] = set()
        variables = {"id": node_id}

        while True:
            node = self._send_graphql(THREADS_QUERY, variables)
            for thread in node.reviewThreads.nodes:
                if thread.isResolved or thread.isOutdated:
                    settled.update(one.databaseId for one in thread.comments.nodes)

            page = node.reviewThreads.pageInfo
            if not page.hasNextPage or not page.endCursor:
                return node.isInMergeQueue, settled
            variables = {"id": node_id, "after": page.endCursor}

    def merge_pull(self, number: int, head: str, method: str, *, queue: bool) -> MergeResult:
        """Merge or enqueue a pull request if its head is still `head`."""
        path = f"{self._repository}/pulls/{number}"
        if queue:
            node_id = self._api.get(path, PullPayload).node_id
            try:
                self._send_graphql(ENQUEUE_MUTATION, {"id": node_id, "head": head})
            except GraphQLError as error:
                return MergeResult(MergeOutcome.NOT_YET, error.message)
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
        path = f"{self._repository}/pulls/{number}/comments/{thread}/replies"
        self._api.send("POST", path, {"body": text}, may_repeat=False)

    def _fetch_commit_checks(self, pull: PullPayload) -> CommitChecks:
        found, runs = self._fetch_checks(pull.head.sha)
        base_has_checks = True
        if not select_foreign_checks(found):
            base_checks, _ = self._fetch_checks(pull.base.sha)
            base_has_checks = bool(select_foreign_checks(base_checks))

        required = self._fetch_required_checks(pull.base.ref)
        of_apps = self._find_checks_of_apps(pull.head.sha, required, runs)
        return CommitChecks(
            found=(*found, *of_apps),
            required=tuple(one.name for one in required),
            base_has_checks=base_has_checks,
        )

    def _find_checks_of_apps(
        self, commit: str, required: Iterable[_GitHubContext], runs: Sequence[_GitHubRun]
    ) -> Iterator[Check]:
        """Yield the checks that the rules require of one app: those of others do not count."""
        for one in required:
            if not one.app:
                continue

            own = [run for run in runs if run.name == one.context and run.app_id == one.app]
            states = [run.state for run in own] or self._fetch_status_of_app(commit, one)
            yield from (make_check(one.name, state) for state in states)

    def _fetch_status_of_app(self, commit: str, required: _GitHubContext) -> Sequence[str]:
        """Return the state of a required status if its app set it last."""
        # The newest comes first
        pages = self._api.get_optional_pages(
            f"{self._repository}/commits/{commit}/statuses", list[_GitHubStatus], len
        )
        found = (one for page in pages for one in page if one.context == required.context)
        last = next(found, None)
        if last is None or last.creator is None or not last.creator.is_bot:
            return ()

        slug = quote(last.creator.login.removesuffix("[bot]"), safe="")
        app = self._api.get_optional(f"/apps/{slug}", _GitHubApp)
        return (last.state,) if app is not None and app.id == required.app else ()

    def _fetch_checks(self, commit: str) -> tuple[Sequence[Check], Sequence[_GitHubRun]]:
        """Return all statuses and check runs of a commit, and the runs with their apps.

        A check suite that is not completed has jobs that have not registered yet.
        """
        path = f"{self._repository}/commits/{commit}"
        pages = self._api.get_pages(
            f"{path}/status", _GitHubCombined, lambda page: len(page.statuses)
        )
        statuses = [one for page in pages for one in page.statuses]
        run_pages = self._api.get_pages(
            f"{path}/check-runs", _GitHubRuns, lambda page: len(page.check_runs)
        )
        runs = [one for page in run_pages for one in page.check_runs]
        suite_pages = self._api.get_optional_pages(
            f"{path}/check-suites", _GitHubSuites, lambda page: len(page.check_suites)
        )

        checks = [
            *(make_check(one.context, one.state) for one in statuses),
            *(make_check(_name_run(one), one.state) for one in runs),
        ]
        # What has passed shows in its runs; a suite without runs is not a passed check
        suites = (
            make_check("check suite", one.state)
            for page in suite_pages
            for one in page.check_suites
            if one.is_used
        )
        checks += [one for one in suites if one.state is not CheckState.PASSED]
        is_complete = len(statuses) >= pages[0].total_count and len(runs) >= max(
            page.total_count for page in run_pages
        )
        if not is_complete:
            checks.append(UNREAD_CHECKS)

        return add_combined_state(checks, pages[0].state), runs

    def _fetch_required_checks(self, branch: str) -> Sequence[_GitHubContext]:
        """Return the checks that branch protection and rulesets require, as far as GitHub tells."""
        name = quote(branch, safe="")
        found = self._api.get_optional(f"{self._repository}/branches/{name}", _GitHubBranch)
        required: list[_GitHubContext] = []
        if found and found.protection and found.protection.required_status_checks:
            required += found.protection.required_status_checks.contexts_with_apps

        pages = self._api.get_optional_pages(
            f"{self._repository}/rules/branches/{name}", list[_GitHubRule], len
        )
        for rule in (rule for page in pages for rule in page):
            if rule.type == "required_status_checks":
                parameters = read_value(dict(rule.parameters or {}), _GitHubRequiredChecks)
                required += parameters.contexts_with_apps

        return required

    def _send_graphql(self, query: str, variables: Mapping[str, str]) -> _GitHubNode:
        """Send a GraphQL query and return its node; raise ApiError on errors."""
        answer = self._api.send(
            "POST", "/graphql", {"query": query, "variables": variables}, strip_suffix="/v3"
        )
        found = read_json(answer.body)

        if (
            not isinstance(found, dict)
            or found.get("errors")
            or not isinstance(found.get("data"), dict)
        ):
            if "RATE_LIMIT" in str(found):
                raise TemporarilyUnavailable(
                    "GraphQL: the rate limit of the token is used up", retry_after_s=60.0
                )
            if "Something went wrong" in str(found):
                raise TemporarilyUnavailable("GraphQL: the query was not completed")
            raise GraphQLError(
                f"GraphQL: {answer.get_error_text()}", "check the permissions of the token", 422
            )

        return read_value(found["data"].get("node") or {}, _GitHubNode)


def _name_run(run: _GitHubRun) -> str:
    """Return the name of a check run. Ours are statuses: a run with their name is foreign."""
    if run.name == OWN_CONTEXT:
        return f"{OWN_CONTEXT} (check run)"
    return run.name
