"""What each forge documents as "not yet" or "no" never leads to a merge. Answers are written by hand, from its pages.

Each case changes one thing in a pull request that would be merged, which is the control.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from phasegate.core.forge.pull_decision import (
    PullDecision,
    PullProgress,
    PullRules,
    PullStep,
    decide_pull_step,
)
from phasegate.errors import TemporarilyUnavailable
from phasegate.forge.http import ApiError, ForgeApi, HttpResponse, _retry_after_s
from phasegate.forge.port import MergeOutcome
from phasegate.forge.registry import FORGES, connect_forge

HEAD, OLD, BASE, MERGED = "a" * 40, "b" * 40, "c" * 40, "d" * 40
APPROVERS = {7: "ada", 8: "grace", 10: "lin"}
Answers = dict[str, Any]
Change = Callable[[Answers], object]
GITHUB = "/api/v3/repos/team/greet"
GITLAB = "/api/v4/projects/team/greet"
GITEA = "/api/v1/repos/team/greet"
MERGE_REQUEST = f"{GITLAB}/merge_requests/1"
APPROVALS = f"{MERGE_REQUEST}/approvals"
STATUSES = f"{GITLAB}/repository/commits/{HEAD}/statuses"


def github() -> Answers:
    return {
        f"{GITHUB}/pulls/1": {
            "number": 1,
            "node_id": "PR_1",
            "html_url": "http://forge/1",
            "state": "open",
            "title": "One",
            "user": {"login": "phasegate-user", "type": "User"},
            "head": {"ref": "one", "sha": HEAD},
            "base": {"ref": "main", "sha": BASE},
            "mergeable": True,
            "mergeable_state": "clean",
        },
        f"{GITHUB}/pulls/1/reviews": [review(1, "ada", "APPROVED")],
        f"{GITHUB}/pulls/1/comments": [],
        f"{GITHUB}/issues/1/comments": [],
        f"{GITHUB}/commits/{HEAD}/status": {"state": "pending", "statuses": [], "total_count": 0},
        f"{GITHUB}/commits/{HEAD}/check-runs": {
            "total_count": 1,
            "check_runs": [run("test", "success")],
        },
        f"{GITHUB}/commits/{HEAD}/check-suites": {"total_count": 1, "check_suites": [suite()]},
        f"{GITHUB}/commits/{BASE}/status": {"state": "pending", "statuses": [], "total_count": 0},
        f"{GITHUB}/commits/{BASE}/check-runs": {"total_count": 0, "check_runs": []},
        f"{GITHUB}/branches/main": {"name": "main", "protected": True},
        f"{GITHUB}/rules/branches/main": [],
        **{
            f"{GITHUB}/collaborators/{name}/permission": {"permission": right}
            for name, right in (
                *(("ada", "write"), ("grace", "write"), ("mallory", "read")),
                *(("phasegate-user", "admin"), ("robot[bot]", "write")),
            )
        },
        "/api/graphql": {
            "data": {
                "node": {
                    "isInMergeQueue": False,
                    "reviewThreads": {"nodes": [], "pageInfo": {"hasNextPage": False}},
                }
            }
        },
    }


def review(number: int, who: str, state: str, commit: str = HEAD, **more: object) -> Answers:
    user = {"login": who, "type": "Bot" if who.endswith("[bot]") else "User"}
    return {"id": number, "user": user, "state": state, "body": "", "commit_id": commit, **more}


def run(name: str, conclusion: str | None, status: str = "completed", app: int = 1) -> Answers:
    return {"name": name, "status": status, "conclusion": conclusion, "app": {"id": app}}


def suite(status: str = "completed", conclusion: str | None = "success", runs: int = 1) -> Answers:
    return {
        "status": status,
        "conclusion": conclusion,
        "latest_check_runs_count": runs,
        "app": {"slug": "github-actions"},
    }


def gitlab() -> Answers:
    ada, author = {"id": 7, "username": "ada"}, {"id": 9, "username": "phasegate-user"}
    return {
        MERGE_REQUEST: {
            "iid": 1,
            "web_url": "http://forge/1",
            "state": "opened",
            "title": "One",
            "target_branch": "main",
            "author": author,
            "sha": HEAD,
            "draft": False,
            "detailed_merge_status": "mergeable",
            "has_conflicts": False,
            "diff_refs": {"start_sha": BASE},
            "head_pipeline": {"status": "success", "sha": HEAD},
        },
        f"{MERGE_REQUEST}/discussions": [],
        f"{MERGE_REQUEST}/reviewers": [],
        f"{MERGE_REQUEST}/versions": [
            {"head_commit_sha": HEAD, "created_at": "2026-11-18T10:00:00.000Z"}
        ],
        APPROVALS: {
            "approved": True,
            "approvals_required": 1,
            "approved_by": [{"user": ada, "approved_at": "2026-11-18T10:01:00.000Z"}],
        },
        STATUSES: [job(1, "test", "success")],
        **{f"{GITLAB}/members/all/{number}": {"access_level": 40} for number in range(7, 11)},
    }


def job(number: int, name: str, status: str, ref: str = "one", **more: object) -> Answers:
    return {"id": number, "name": name, "status": status, "ref": ref, **more}


def gitea() -> Answers:
    return {
        f"{GITEA}/pulls/1": {
            "number": 1,
            "html_url": "http://forge/1",
            "state": "open",
            "title": "One",
            "user": {"login": "phasegate-user"},
            "head": {"ref": "one", "sha": HEAD},
            "base": {"ref": "main", "sha": BASE},
            "mergeable": True,
        },
        f"{GITEA}/pulls/1/reviews": [
            review(1, "ada", "APPROVED", official=True, stale=False, dismissed=False)
        ],
        f"{GITEA}/pulls/1/reviews/1/comments": [],
        f"{GITEA}/pulls/1/reviews/2/comments": [],
        f"{GITEA}/issues/1/comments": [],
        f"{GITEA}/commits/{HEAD}/status": {
            "state": "success",
            "total_count": 1,
            "statuses": [{"context": "test", "status": "success"}],
        },
        f"{GITEA}/branches/main": {"name": "main", "protected": True, "required_approvals": 1},
        **{
            f"{GITEA}/collaborators/{name}/permission": {"permission": right}
            for name, right in (("ada", "write"), ("phasegate-user", "owner"))
        },
    }


MAKE = {"github": github, "gitlab": gitlab, "gitea": gitea}


def put(path: str, **fields: object) -> Change:
    return lambda answers: answers[path].update(fields)


def put_list(path: str, *items: object) -> Change:
    return lambda answers: answers.update({path: [*items]})


def runs(*found: Answers) -> Change:
    return put(f"{GITHUB}/commits/{HEAD}/check-runs", check_runs=[*found], total_count=len(found))


def suites(*found: Answers) -> Change:
    return put(f"{GITHUB}/commits/{HEAD}/check-suites", check_suites=[*found])


def required(*names: str) -> Change:
    return put_list(
        f"{GITHUB}/rules/branches/main",
        *({"type": "deletion"} for _ in range(120)),
        {
            "type": "required_status_checks",
            "parameters": {"required_status_checks": [{"context": name} for name in names]},
        },
    )


def protection(**found: object) -> Change:
    return put(f"{GITHUB}/branches/main", protection={"required_status_checks": found})


def required_of_app(app: int | None, *found: Answers, key: str = "app_id") -> Change:
    """The base requires `late` of one app; these runs are there."""
    check = {"context": "late", key: app}
    if key == "app_id":
        change = protection(contexts=["late"], checks=[check])
    else:
        rule = {"type": "required_status_checks", "parameters": {"required_status_checks": [check]}}
        change = put_list(f"{GITHUB}/rules/branches/main", rule)
    return lambda answers: (change(answers), runs(*found)(answers))


def status_of(login: str) -> Change:
    """The base requires `late` of app 15, and this account set it as a status."""
    status = {"context": "late", "state": "success", "creator": {"login": login, "type": "Bot"}}

    def change(answers: Answers) -> None:
        required_of_app(15)(answers)
        path = f"{GITHUB}/commits/{HEAD}"
        answers[f"{path}/status"] = {"state": "success", "statuses": [status], "total_count": 1}
        answers[f"{path}/statuses"] = [status, {**status, "creator": {"login": "ada"}}]
        answers["/api/v3/apps/ci"] = {"id": 15, "slug": "ci"}
        answers["/api/v3/apps/other"] = {"id": 16, "slug": "other"}

    return change


def reviews(*found: Answers) -> Change:
    return put_list(f"{GITHUB}/pulls/1/reviews", *found)


def gitea_reviews(*found: Answers) -> Change:
    return put_list(f"{GITEA}/pulls/1/reviews", *found)


def approved_by(identity: int, username: str, **more: object) -> Change:
    user = {"id": identity, "username": username, **more}
    return put(
        APPROVALS,
        approved_by=[{"user": user, "approved_at": "2026-11-18T10:01:00.000Z"}],
    )


def rules_of_gitlab(*approved_at: str) -> Change:
    """Two rules, which GitLab reports as met: by ada, and by grace or lin. Three have approved."""
    people = [{"id": number, "username": name} for number, name in APPROVERS.items()]

    def change(answers: Answers) -> None:
        approvals = [
            {"user": user, "approved_at": f"2026-11-18T{time}:00.000Z"}
            for user, time in zip(people, approved_at, strict=False)
        ]
        put(APPROVALS, approvals_required=2, approved_by=approvals)(answers)
        rules = [
            {"approvals_required": 1, "approved_by": people[:1]},
            {"approvals_required": 1, "approved_by": people},
            {"approvals_required": 0, "approved_by": []},
        ]
        answers[f"{MERGE_REQUEST}/approval_state"] = {"rules": rules}

    return change


def merged_results(status: str, *parents: str) -> Change:
    """The pipeline ran on a merge of these commits; the head has no check but our own."""

    def change(answers: Answers) -> None:
        commit = f"{GITLAB}/repository/commits/{MERGED}"
        answers[STATUSES] = [job(1, "phasegate", "success")]
        answers[f"{GITLAB}/repository/commits/{BASE}/statuses"] = [job(2, "test", "success")]
        answers[commit] = {"parent_ids": [*parents]}
        answers[f"{commit}/statuses"] = [job(3, "test", status, "refs/merge-requests/1/merge")]
        put(MERGE_REQUEST, head_pipeline={"status": status, "sha": MERGED})(answers)

    return change


def pushed(answers: Answers) -> None:
    """Another commit is the head, with the same checks."""
    answers[f"{GITHUB}/pulls/1"]["head"] = {"ref": "one", "sha": OLD}
    for path in [*answers]:
        answers[path.replace(HEAD, OLD)] = answers[path]


REFUSED: list[tuple[str, str, Change]] = [
    *(
        ("github", conclusion, runs(run("test", "success"), run("lint", conclusion)))
        for conclusion in (
            *("failure", "cancelled", "timed_out", "action_required", "stale"),
            *("startup_failure", "a new conclusion", None),
        )
    ),
    *(
        ("github", status, runs(run("test", "success"), run("lint", None, status)))
        for status in ("queued", "in_progress", "waiting", "requested", "pending", "a new status")
    ),
    ("github", "no check at all", runs()),
    (
        "github",
        "a run that has our name",
        runs(run("test", "success"), run("phasegate", "failure")),
    ),
    ("github", "only our own status", lambda a: (runs()(a), own_status(a))),
    (
        "github",
        "fewer runs than counted",
        put(f"{GITHUB}/commits/{HEAD}/check-runs", total_count=2),
    ),
    ("github", "workflow not begun", suites(suite(), suite("queued", None, runs=0))),
    ("github", "broken workflow", suites(suite(), suite(conclusion="startup_failure", runs=0))),
    (
        "github",
        "approval of workflow",
        suites(suite(), suite(conclusion="action_required", runs=0)),
    ),
    ("github", "suite on page two", suites(*(suite() for _ in range(100)), suite("queued", None))),
    ("github", "required contexts", protection(contexts=["late"])),
    (
        "github",
        "required checks",
        protection(contexts=[], checks=[{"context": "late", "app_id": 1}]),
    ),
    ("github", "ruleset on page two", required("late")),
    ("github", "required name is no pattern", required("tes[t]")),
    *(
        (
            "github",
            f"required of another app by {key}",
            required_of_app(15, run("late", "success", app=16), key=key),
        )
        for key in ("app_id", "integration_id")
    ),
    ("github", "required status of another app", status_of("other[bot]")),
    ("github", "required status of a user", status_of("ada")),
    ("github", "blocked", put(f"{GITHUB}/pulls/1", mergeable_state="blocked")),
    ("github", "behind", put(f"{GITHUB}/pulls/1", mergeable_state="behind")),
    ("github", "not mergeable", put(f"{GITHUB}/pulls/1", mergeable=False, mergeable_state="dirty")),
    ("github", "not computed", put(f"{GITHUB}/pulls/1", mergeable=None, mergeable_state="unknown")),
    ("github", "draft", put(f"{GITHUB}/pulls/1", draft=True)),
    ("github", "retargeted", put(f"{GITHUB}/pulls/1", base={"ref": "other", "sha": BASE})),
    ("github", "pushed meanwhile", pushed),
    ("github", "no review", reviews()),
    ("github", "approval of another head", reviews(review(1, "ada", "APPROVED", OLD))),
    ("github", "dismissed", reviews(review(1, "ada", "DISMISSED"))),
    (
        "github",
        "changes requested later",
        reviews(review(1, "ada", "APPROVED"), review(2, "ada", "CHANGES_REQUESTED")),
    ),
    (
        "github",
        "another requests changes of an old head",
        reviews(review(1, "grace", "CHANGES_REQUESTED", OLD), review(2, "ada", "APPROVED")),
    ),
    (
        "github",
        "changes requested on page two",
        reviews(
            review(1, "ada", "APPROVED"),
            *(review(number, "mallory", "COMMENTED") for number in range(2, 110)),
            review(200, "grace", "CHANGES_REQUESTED"),
        ),
    ),
    ("github", "pending review", reviews(review(1, "ada", "PENDING"))),
    ("github", "comment only", reviews(review(1, "ada", "COMMENTED"))),
    ("github", "reader", reviews(review(1, "mallory", "APPROVED"))),
    ("github", "author", reviews(review(1, "phasegate-user", "APPROVED"))),
    ("github", "bot", reviews(review(1, "robot[bot]", "APPROVED"))),
    ("github", "nobody", reviews({**review(1, "ada", "APPROVED"), "user": None})),
    *(
        ("gitlab", status, put_list(STATUSES, job(1, "test", status)))
        for status in (
            *("failed", "canceled", "canceling", "created", "pending", "running", "manual"),
            *("scheduled", "preparing", "waiting_for_resource", "a new state"),
        )
    ),
    *(
        ("gitlab", f"pipeline {status}", put(MERGE_REQUEST, head_pipeline=pipeline))
        for status in ("failed", "canceled", "skipped", "running", "manual", "a new state")
        for pipeline in [{"status": status, "sha": HEAD}]
    ),
    *(
        ("gitlab", status or "no status", put(MERGE_REQUEST, detailed_merge_status=status))
        for status in (
            *("", "not_approved", "ci_must_pass", "ci_still_running", "checking", "unchecked"),
            *("discussions_not_resolved", "draft_status", "blocked_status", "policies_denied"),
            *("requested_changes", "need_rebase", "conflict", "preparing", "merge_time"),
            *("external_status_checks", "approvals_syncing", "status_checks_must_pass", "new"),
        )
    ),
    ("gitlab", "conflicts", put(MERGE_REQUEST, has_conflicts=True)),
    ("gitlab", "old draft", put(MERGE_REQUEST, work_in_progress=True)),
    ("gitlab", "not approved", put(APPROVALS, approved=False)),
    ("gitlab", "two required", put(APPROVALS, approvals_required=2)),
    ("gitlab", "nobody", put(APPROVALS, approved_by=[])),
    ("gitlab", "author", approved_by(9, "phasegate-user")),
    ("gitlab", "bot", approved_by(8, "project_1_bot")),
    ("gitlab", "service account", approved_by(8, "helper", bot=True)),
    ("gitlab", "service account by its name", approved_by(8, f"service_account_{'0a' * 16}")),
    (
        "gitlab",
        "blocked account",
        put(f"{GITLAB}/members/all/7", access_level=40, state="blocked"),
    ),
    ("gitlab", "a rule is met by an old approval", rules_of_gitlab("09:59", "10:01", "10:01")),
    *(
        ("gitlab", f"merged results {status}", merged_results(status, BASE, HEAD))
        for status in ("failed", "running", "created")
    ),
    (
        "gitlab",
        "green on the branch, red merged results",
        lambda a: (
            merged_results("failed", BASE, HEAD)(a),
            a[STATUSES].append(job(4, "lint", "success")),
        ),
    ),
    ("gitlab", "merged results of another head", merged_results("success", BASE, OLD)),
    (
        "gitlab",
        "only a pipeline of another head, beside a green check",
        put(MERGE_REQUEST, head_pipeline={"status": "success", "sha": OLD}),
    ),
    (
        "gitlab",
        "a red job that has our name",
        lambda a: (
            put(MERGE_REQUEST, head_pipeline={"status": "failed", "sha": HEAD})(a),
            a[STATUSES].append(job(2, "phasegate", "failed", "refs/merge-requests/1/head")),
        ),
    ),
    ("gitlab", "approvals left", put(APPROVALS, approvals_left=1)),
    (
        "gitlab",
        "approved in the second of the push",
        put_list(
            f"{MERGE_REQUEST}/versions",
            {"head_commit_sha": HEAD, "created_at": "2026-11-18T10:01:00.000Z"},
            {"head_commit_sha": OLD, "created_at": "2026-11-18T10:00:00.000Z"},
        ),
    ),
    (
        "gitlab",
        "old version that cannot merge",
        lambda a: old_gitlab(a, merge_status="cannot_be_merged"),
    ),
    ("gitlab", "merged results of a later push", merged_results("success", HEAD)),
    (
        "gitlab",
        "red in a later pipeline",
        put_list(STATUSES, job(2, "test", "failed"), job(1, "test", "success")),
    ),
    (
        "gitlab",
        "red in the pipeline of another ref",
        put_list(STATUSES, job(1, "test", "failed"), job(2, "test", "success", "two")),
    ),
    (
        "gitlab",
        "approved before the push",
        put_list(
            f"{MERGE_REQUEST}/versions",
            {"head_commit_sha": HEAD, "created_at": "2026-11-18T10:02:00.000Z"},
            {"head_commit_sha": OLD, "created_at": "2026-11-18T10:00:00.000Z"},
        ),
    ),
    (
        "gitlab",
        "pushed back to an older head",
        put_list(
            f"{MERGE_REQUEST}/versions",
            {"head_commit_sha": HEAD, "created_at": "2026-11-18T10:03:00.000Z"},
            {"head_commit_sha": OLD, "created_at": "2026-11-18T10:02:00.000Z"},
            {"head_commit_sha": HEAD, "created_at": "2026-11-18T10:00:00.000Z"},
        ),
    ),
    (
        "gitlab",
        "changes requested",
        put_list(
            f"{MERGE_REQUEST}/reviewers",
            {"user": {"id": 8, "username": "grace"}, "state": "requested_changes"},
        ),
    ),
    *(
        ("gitea", state, put(f"{GITEA}/commits/{HEAD}/status", statuses=[found]))
        for state in ("pending", "error", "failure", "a new state", "")
        for found in [{"context": "test", "status": state}]
    ),
    ("gitea", "fewer statuses than counted", put(f"{GITEA}/commits/{HEAD}/status", total_count=2)),
    (
        "gitea",
        "required pattern",
        put(f"{GITEA}/branches/main", enable_status_check=True, status_check_contexts=["late/*"]),
    ),
    ("gitea", "two required", put(f"{GITEA}/branches/main", required_approvals=2)),
    ("gitea", "not mergeable", put(f"{GITEA}/pulls/1", mergeable=False)),
    ("gitea", "draft", put(f"{GITEA}/pulls/1", draft=True)),
    *(
        ("gitea", f"draft by its title: {title}", put(f"{GITEA}/pulls/1", title=title))
        for title in ("WIP: One", "[wip] One")
    ),
    (
        "gitea",
        "a red status that has our name",
        put(
            f"{GITEA}/commits/{HEAD}/status",
            statuses=[
                {"context": "test", "status": "success"},
                {"context": "phasegate", "status": "failure"},
            ],
            total_count=2,
        ),
    ),
    *(
        ("gitea", name, gitea_reviews(review(1, "ada", "APPROVED", **{"official": True, **more})))
        for name, more in (
            ("stale", {"stale": True}),
            ("dismissed", {"dismissed": True}),
            ("not official on a protected branch", {"official": False}),
        )
    ),
    ("gitea", "author", gitea_reviews(review(1, "phasegate-user", "APPROVED", official=True))),
    ("gitea", "former collaborator", gitea_reviews(review(1, "gone", "APPROVED", official=True))),
    (
        "gitea",
        "official rejection of a reader",
        gitea_reviews(
            review(1, "ada", "APPROVED", official=True),
            review(2, "gone", "REQUEST_CHANGES", official=True),
        ),
    ),
    ("gitea", "another head", gitea_reviews(review(1, "ada", "APPROVED", OLD, official=True))),
    *(
        (
            "gitea",
            f"{state} later",
            gitea_reviews(
                review(1, "ada", "APPROVED", official=True), review(2, "ada", state, official=True)
            ),
        )
        for state in ("REQUEST_CHANGES", "REQUEST_REVIEW")
    ),
]
ACCEPTED: list[tuple[str, str, Change]] = [
    *((kind, "as it is", lambda _: None) for kind in sorted(FORGES)),
    *(
        ("github", conclusion, runs(run("test", "success"), run("docs", conclusion)))
        for conclusion in ("neutral", "skipped")
    ),
    (
        "github",
        "suites of apps that report nothing",
        suites(suite(), {**suite("queued", None, runs=0), "app": {"slug": "helper"}}),
    ),
    ("github", "required check is there", required("test")),
    *(
        ("github", f"required of app {app} by {key}", required_of_app(app, found, key=key))
        for key in ("app_id", "integration_id")
        for app in (15, None, -1)
        for found in [run("late", "success", app=15)]
    ),
    ("github", "required status of its app", status_of("ci[bot]")),
    ("github", "state not told", lambda a: a[f"{GITHUB}/pulls/1"].pop("mergeable_state")),
    ("github", "unstable", put(f"{GITHUB}/pulls/1", mergeable_state="unstable")),
    (
        "github",
        "approved after changes were requested",
        reviews(review(1, "ada", "CHANGES_REQUESTED", OLD), review(2, "ada", "APPROVED")),
    ),
    (
        "gitlab",
        "a job that may fail",
        put_list(
            STATUSES,
            job(1, "test", "success"),
            job(2, "docs", "failed", allow_failure=True),
        ),
    ),
    ("gitlab", "both rules met by one user", rules_of_gitlab("10:01")),
    (
        "gitlab",
        "null where nothing is to be told",
        put(MERGE_REQUEST, merge_when_pipeline_succeeds=None, labels=None, work_in_progress=None),
    ),
    ("gitlab", "old version", lambda a: old_gitlab(a, merge_status="can_be_merged")),
    (
        "gitlab",
        "the status in the documents",
        put(MERGE_REQUEST, detailed_merge_status="can_be_merged"),
    ),
    (
        "gitlab",
        "approved in the second of the only push",
        put_list(
            f"{MERGE_REQUEST}/versions",
            {"head_commit_sha": HEAD, "created_at": "2026-11-18T10:01:00.000Z"},
        ),
    ),
    ("gitlab", "merged results", merged_results("success", BASE, HEAD)),
    (
        "gitlab",
        "green in a later pipeline of the same ref",
        put_list(STATUSES, job(2, "test", "success"), job(1, "test", "failed")),
    ),
    (
        "gitlab",
        "author, where the project allows it",
        lambda a: (
            approved_by(9, "phasegate-user")(a),
            a.update({f"{GITLAB}/approvals": {"merge_requests_author_approval": True}}),
        ),
    ),
    (
        "gitlab",
        "skipped pipeline, where the project allows it",
        lambda a: (
            put(MERGE_REQUEST, head_pipeline={"status": "skipped", "sha": HEAD})(a),
            a.update({GITLAB: {"allow_merge_on_skipped_pipeline": True}}),
        ),
    ),
    (
        "gitea",
        "not official where nothing is protected",
        lambda a: (
            put(f"{GITEA}/branches/main", protected=False, required_approvals=0)(a),
            gitea_reviews(review(1, "ada", "APPROVED", official=False))(a),
        ),
    ),
    ("gitea", "branch not told", lambda a: a.pop(f"{GITEA}/branches/main")),
]


def old_gitlab(answers: Answers, merge_status: str) -> None:
    """A version without the newer fields."""
    for path, name in ((MERGE_REQUEST, "detailed_merge_status"), (APPROVALS, "approved")):
        del answers[path][name]
    answers[MERGE_REQUEST]["merge_status"] = merge_status
    answers[APPROVALS]["approvals_left"] = 0
    for one in answers[APPROVALS]["approved_by"]:
        del one["approved_at"]
        note = {
            "id": 5,
            "system": True,
            "author": one["user"],
            "body": "approved this merge request",
        }
        note["created_at"] = "2026-11-18T10:01:00.000Z"
        answers[f"{MERGE_REQUEST}/discussions"] = [{"id": "5", "notes": [note]}]


def own_status(answers: Answers) -> None:
    own = {"state": "success", "context": "phasegate"}
    answers[f"{GITHUB}/commits/{HEAD}/status"] = {
        "state": "success",
        "statuses": [own],
        "total_count": 1,
    }


@contextmanager
def served(answers: Answers) -> Iterator[str]:
    """Serve these answers in pages; the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            split = urlsplit(self.path)
            query = {
                key: int(value[0])
                for key, value in parse_qs(split.query).items()
                if value[0].isdigit()
            }
            said = answers.get(unquote(split.path))
            name = (
                next((key for key in ("statuses", "check_runs", "check_suites") if key in said), "")
                if isinstance(said, dict)
                else ""
            )
            items = said[name] if name else said
            if isinstance(items, list) and "page" in query:
                size = query.get("per_page") or query["limit"]
                items = items[(query["page"] - 1) * size : query["page"] * size]
                said = {**said, name: items} if name else items
            self._send(404 if said is None else 200, said)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(200, answers[urlsplit(self.path).path])

        def _send(self, status: int, said: object) -> None:
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def decision(kind: str, change: Change) -> PullDecision:
    answers = deepcopy(MAKE[kind]())
    change(answers)
    with served(answers) as url:
        forge = connect_forge(kind, url, "team/greet", "token", wait=lambda _: None)
        look = forge.fetch_pull(1)
    rules = PullRules(auto_merge=True)
    return decide_pull_step(look, head=HEAD, base="main", progress=PullProgress(), rules=rules)


@pytest.mark.parametrize(("kind", "name", "change"), REFUSED)
def test_what_a_forge_documents_as_no_or_not_yet_is_not_merged(
    kind: str, name: str | None, change: Change
) -> None:
    found = decision(kind, change)
    assert found.step is not PullStep.MERGE, name
    assert found.reason


@pytest.mark.parametrize(("kind", "name", "change"), ACCEPTED)
def test_what_a_forge_documents_as_passed_is_merged(kind: str, name: str, change: Change) -> None:
    found = decision(kind, change)
    assert found.step is PullStep.MERGE, (name, found.reason)


def test_a_queue_that_refuses_is_waited_for_and_so_is_a_limit_of_graphql() -> None:
    answers = github()
    with served(answers) as url:
        forge = connect_forge("github", url, "team/greet", "token", wait=lambda _: None)
        merge = partial(forge.merge_pull, 1, HEAD, "merge", queue=True)
        assert merge().outcome is MergeOutcome.QUEUED, "control"
        message = "Required status check is expected."
        errors = [{"type": "UNPROCESSABLE", "message": message}]
        answers["/api/graphql"] = {"data": {"enqueuePullRequest": None}, "errors": errors}
        assert merge() == (MergeOutcome.NOT_YET, f"GraphQL: {message}")
        for error in (
            {"type": "RATE_LIMITED", "message": "API rate limit exceeded"},
            {"type": "RATE_LIMIT", "code": "graphql_rate_limit", "message": "already exceeded"},
            {"message": "Something went wrong while executing your query."},
        ):
            answers["/api/graphql"] = {"errors": [error]}
            with pytest.raises(TemporarilyUnavailable):
                forge.fetch_pull(1)


def test_the_reason_that_github_adds_to_a_failed_validation_is_told() -> None:
    body = {
        "message": "Validation Failed",
        "errors": [{"resource": "PullRequest", "message": "No commits between main and feat/x"}],
    }
    found = HttpResponse(422, json.dumps(body).encode(), {}).get_error_text()
    assert found == "Validation Failed; No commits between main and feat/x"
    assert HttpResponse(422, b'{"errors": "odd"}', {}).get_error_text() == ""


@pytest.mark.parametrize(
    ("state", "obstacle"), [("checking", ""), ("locked_paths", "locked paths")]
)
def test_what_gitlab_names_as_an_obstacle_is_told_and_what_it_computes_is_not(
    state: str, obstacle: str
) -> None:
    found = decision("gitlab", put(MERGE_REQUEST, detailed_merge_status=state))
    assert found.reason.partition(": ")[2] == obstacle
    assert found.needs_user is bool(obstacle)


def test_a_manual_job_is_told_to_be_started_once_the_others_have_ended() -> None:
    deploy = job(2, "deploy", "manual")
    found = decision("gitlab", put_list(STATUSES, job(1, "test", "success"), deploy))
    assert (found.reason, found.needs_user) == ("CI waits for a user to start deploy", True)
    found = decision("gitlab", put_list(STATUSES, job(1, "test", "running"), deploy))
    assert (found.reason, found.needs_user) == ("CI is running", False)


def one_of_fork(kind: str, is_fork: bool) -> Answers:
    """The open pull requests of the forge: one, from a branch named like ours."""
    answers = deepcopy(MAKE[kind]())
    source = {"id": 2} if is_fork else {"id": 1}
    if kind == "gitlab":
        merge_request = answers[MERGE_REQUEST]
        merge_request.update(source_project_id=source["id"], target_project_id=1)
        return {f"{GITLAB}/merge_requests": [merge_request]}
    root = {"github": GITHUB, "gitea": GITEA}[kind]
    pull = answers[f"{root}/pulls/1"]
    pull["head"]["repo"], pull["base"]["repo"] = source, {"id": 1}
    return {f"{root}/pulls": [pull], f"{root}/pulls/main/one": pull}


@pytest.mark.parametrize("kind", sorted(FORGES))
@pytest.mark.parametrize("is_fork", [True, False])
def test_a_branch_of_a_fork_with_our_name_is_not_ours(kind: str, is_fork: bool) -> None:
    with served(one_of_fork(kind, is_fork)) as url:
        forge = connect_forge(kind, url, "team/greet", "token", wait=lambda _: None)
        assert len(forge.find_pulls("one", "main")) == (0 if is_fork else 1)


def test_null_is_an_empty_list_and_a_success_is_not_repeated_although_it_says_when_to_retry() -> (
    None
):
    api = ForgeApi("http://forge", {}, {})
    assert api.decode(HttpResponse(200, b"null", {}), list[int]) == []
    with pytest.raises(ApiError):
        api.decode(HttpResponse(200, b"[null]", {}), list[int])
    assert _retry_after_s(HttpResponse(429, b"", {"retry-after": "3"})) == 3.0
    assert _retry_after_s(HttpResponse(202, b"", {"retry-after": "3"})) is None


@pytest.mark.parametrize("status", ["idle", "fresh", "stale", "merging", "skip_merged"])
def test_what_is_on_a_merge_train_of_gitlab_waits_there(status: str) -> None:
    train = f"{GITLAB}/merge_trains/merge_requests/1"
    found = decision("gitlab", lambda answers: answers.update({train: {"id": 2, "status": status}}))
    waits = (PullStep.WAIT, "it is in the merge queue")
    assert (found.step, found.reason) == (
        (PullStep.MERGE, "") if status == "skip_merged" else waits
    )
