"""A forge on loopback that keeps state: pull requests in the words of three APIs, and a real git over smart HTTP.

It knows one repository, one token, and people who may write or not. Faults are played on demand.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import RLock, Thread
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from support import github_answers, gitlab_answers
from support.git_project import git

TOKEN = "forge-token-0123456789abcdef"
REPOSITORY = "team/greet"
WRITERS = ("ada", "grace")
Json = dict[str, object]


class Exchange(NamedTuple):
    """What was asked, and what was answered."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Json
    status: int
    answer: object


@dataclass
class FakeComment:
    id: int
    author: str
    text: str
    path: str = ""
    line: int = 0
    reply_to: int = 0
    resolved: bool = False


@dataclass
class FakeReview:
    id: int
    author: str
    state: str  # APPROVED, CHANGES_REQUESTED, COMMENTED
    text: str
    commit: str
    at: str = ""


@dataclass
class FakePull:
    number: int
    branch: str
    base: str
    title: str
    body: str
    draft: bool = False
    state: str = "open"
    merged_as: str = ""
    head_then: str = ""
    labels: list[str] = field(default_factory=list)
    reviewers: list[str] = field(default_factory=list)
    reviews: list[FakeReview] = field(default_factory=list)
    comments: list[FakeComment] = field(default_factory=list)  # with a path: at lines
    queued: bool = False
    mergeable: bool = True
    versions: list[tuple[str, str]] = field(default_factory=list)  # head, and when it was pushed


@dataclass
class FakeForge:
    """The state of the forge, and what was asked of it."""

    kind: str
    bare: Path
    url: str = ""
    pulls: dict[int, FakePull] = field(default_factory=dict)
    statuses: dict[str, list[tuple[str, str]]] = field(
        default_factory=dict
    )  # commit -> (context, state)
    ci: dict[str, str] = field(
        default_factory=lambda: {"ci/test": "success"}
    )  # what the CI server says of every commit
    required: list[str] = field(default_factory=list)  # checks that the rules of a base require
    bots: tuple[str, ...] = ()
    issue_pulls: set[int] = field(default_factory=set)  # numbers of pull requests, not issues
    closed_issues: set[int] = field(default_factory=set)
    is_admin: bool = True  # Gitea: whether the token may ask for the permission of others
    old_pulls: int = 0  # Gitea: merged ones that a list of all would have
    unknown_people: tuple[str, ...] = ()
    threads_before: int = 0  # GitHub: unresolved threads of others that are listed first
    late_head: str = ""  # what all pull requests still show after a push
    tick: int = 0
    issues: dict[int, tuple[str, str]] = field(default_factory=dict)
    labelled: dict[int, list[str]] = field(default_factory=dict)  # issue -> its labels
    exchanges: list[Exchange] = field(default_factory=list)
    faults: list[Callable[[str, str], int | None]] = field(
        default_factory=list
    )  # (method, path) -> a status to play
    lose_answers: list[str] = field(
        default_factory=list
    )  # "POST /…": carried out, and no answer sent
    merge_fails: str = ""
    on_done: Callable[[str], object] = lambda _: (
        None
    )  # after something was carried out, before it is answered
    people: list[Callable[[], object]] = field(
        default_factory=list
    )  # what people do, one thing before each look
    next_id: int = 100
    lock: RLock = field(default_factory=RLock)

    @property
    def remote(self) -> str:
        return f"{self.url}/{REPOSITORY}.git"

    def head(self, branch: str) -> str:
        return git(
            self.bare, "rev-parse", "--verify", "-q", f"refs/heads/{branch}", check=False
        ).strip()

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def now(self) -> str:
        """A time after all times before."""
        self.tick += 1
        return f"2026-11-18T10:{self.tick // 60 % 60:02}:{self.tick % 60:02}.{self.tick:06}Z"

    def note_head(self, pull: FakePull) -> None:
        """GitLab keeps a version of a merge request for each head."""
        head = self.head(pull.branch)
        if head and (not pull.versions or pull.versions[-1][0] != head):
            pull.versions.append((head, self.now()))

    def statuses_of(self, commit: str) -> dict[str, str]:
        return {**self.ci, **dict(self.statuses.get(commit, []))}

    # --- what people do at the forge

    def approve(self, number: int, who: str = "ada") -> None:
        with self.lock:
            pull = self.pulls[number]
            self.note_head(pull)
            head = self.head(pull.branch)
            pull.reviews.append(FakeReview(self.new_id(), who, "APPROVED", "", head, self.now()))

    def remark(
        self, number: int, text: str, who: str = "ada", path: str = "bye.py", line: int = 1
    ) -> FakeComment:
        with self.lock:
            comment = FakeComment(self.new_id(), who, text, path, line)
            self.pulls[number].comments.append(comment)
            return comment

    def merge_now(self, number: int, method: str = "merge") -> str:
        """What the forge's own merge does: in the bare repository, with a commit of its own."""
        with self.lock:
            pull = self.pulls[number]
            head, base = self.head(pull.branch), self.head(pull.base)
            tree = git(self.bare, "merge-tree", "--write-tree", base, head).split()[0]
            parents = ["-p", base] if method == "squash" else ["-p", base, "-p", head]
            names = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")
            env = {f"GIT_{name}": "forge" for name in names}
            commit = git(
                self.bare, "commit-tree", tree, *parents, "-m", pull.title, env=env
            ).strip()
            git(self.bare, "update-ref", f"refs/heads/{pull.base}", commit, base)
            pull.state, pull.merged_as, pull.head_then = "merged", commit, head
            return commit

    def delete_branch(self, number: int) -> None:
        """GitHub and Gitea close a pull request without a branch; GitLab has it open, at the commit that it knows."""
        with self.lock:
            pull = self.pulls[number]
            pull.head_then = self.head(pull.branch)
            git(self.bare, "update-ref", "-d", f"refs/heads/{pull.branch}")
            pull.state = "open" if self.kind == "gitlab" else "closed"

    # --- what the APIs share

    def create(self, branch: str, base: str, title: str, body: str, draft: bool) -> FakePull | None:
        if any(
            one.branch == branch and one.base == base and one.state == "open"
            for one in [*self.pulls.values()]
        ):
            return None
        number = len(self.pulls) + 1
        self.pulls[number] = FakePull(number, branch, base, title, body, draft)
        return self.pulls[number]

    def try_merge(self, pull: FakePull, head: str, method: str) -> int:
        if pull.state != "open" or self.merge_fails:
            return 405
        if head != self.head(pull.branch):
            return 409
        self.merge_now(pull.number, method)
        return 200

    def issues_with(self, label: str) -> list[int]:
        """Gitea answers a label that it does not know with all issues."""
        known = {name for names in self.labelled.values() for name in names}
        if self.kind == "gitea" and label not in known:
            return [*self.issues]
        return [number for number in self.issues if label in self.labelled.get(number, [])]

    def head_of(self, pull: FakePull) -> str:
        if self.late_head:
            return self.late_head
        now = self.head(pull.branch)
        return pull.head_then or now if pull.state == "merged" else now or pull.head_then


def _github(  # noqa: C901
    forge: FakeForge, method: str, path: str, query: Mapping[str, str], body: Json
) -> tuple[int, object]:
    if path == "/api/graphql":
        return 200, _github_graphql(forge, body)
    path = path.removeprefix(f"/api/v3/repos/{REPOSITORY}")
    if found := re.fullmatch(r"/pulls", path):
        if method == "GET":
            owner, _, branch = query.get("head", "").partition(":")
            assert owner == REPOSITORY.split("/", maxsplit=1)[0]
            some = [
                one
                for one in [*forge.pulls.values()]
                if one.branch == branch
                and one.base == query.get("base")
                and query.get("state") in ("all", one.state)
            ]
            return 200, [_github_pull(forge, one) for one in some]
        made = forge.create(
            str(body["head"]),
            str(body["base"]),
            str(body["title"]),
            str(body["body"]),
            bool(body["draft"]),
        )
        if made is None:
            wrong = {
                "resource": "PullRequest",
                "code": "custom",
                "message": "A pull request already exists",
            }
            return 422, {
                "message": "Validation Failed",
                "documentation_url": forge.url,
                "errors": [wrong],
            }
        return 201, _github_pull(forge, made)
    if found := re.fullmatch(r"/pulls/(\d+)", path):
        pull = forge.pulls[int(found[1])]
        if method == "PATCH":
            pull.title, pull.body = str(body.get("title", pull.title)), str(body["body"])
        return 200, _github_pull(forge, pull)
    if found := re.fullmatch(r"/pulls/(\d+)/merge", path):
        pull = forge.pulls[int(found[1])]
        status = forge.try_merge(pull, str(body["sha"]), str(body["merge_method"]))
        if status != 200:
            return status, {"message": forge.merge_fails or "Head branch was modified"}
        return status, {"sha": pull.merged_as, "merged": True, "message": "merged"}
    if found := re.fullmatch(r"/pulls/(\d+)/reviews", path):
        return 200, [
            github_answers.written(
                forge.url,
                one.id,
                one.author,
                {"state": one.state, "body": one.text, "commit_id": one.commit},
            )
            for one in forge.pulls[int(found[1])].reviews
        ]
    if found := re.fullmatch(r"/(pulls|issues)/(\d+)/comments(?:/(\d+)/replies)?", path):
        pull, at_lines = forge.pulls[int(found[2])], found[1] == "pulls"
        if method == "POST":
            first = next(
                (one for one in pull.comments if str(one.id) == found[3]), FakeComment(0, "", "")
            )
            reply = FakeComment(
                forge.new_id(), "grace", str(body["body"]), first.path, first.line, first.id
            )
            pull.comments.append(reply)
            return 201, _github_comment(forge, pull, reply)
        return 200, [
            _github_comment(forge, pull, one) for one in pull.comments if bool(one.path) == at_lines
        ]
    if found := re.fullmatch(r"/pulls/(\d+)/requested_reviewers", path):
        pull = forge.pulls[int(found[1])]
        if {*body["reviewers"]} & {*forge.unknown_people}:  # type: ignore[misc]
            return 422, {"message": "Reviews may only be requested from collaborators."}
        pull.reviewers += body["reviewers"]  # type: ignore[arg-type]
        return 201, _github_pull(forge, pull)
    if found := re.fullmatch(r"/issues/(\d+)/labels", path):
        pull = forge.pulls[int(found[1])]
        pull.labels += body["labels"]  # type: ignore[arg-type]
        return 200, [github_answers.label(forge.url, name) for name in pull.labels]
    if path == "/issues":
        return 200, [_github_issue(forge, number) for number in forge.issues_with(query["labels"])]
    if found := re.fullmatch(r"/issues/(\d+)", path):
        return 200, _github_issue(forge, int(found[1]))
    if found := re.fullmatch(r"/collaborators/([^/]+)/permission", path):
        right = "write" if found[1] in WRITERS else "read"
        return 200, {"permission": right, "role_name": right, "user": None}
    if found := re.fullmatch(r"/statuses/(\w+)", path):
        forge.statuses.setdefault(found[1], []).append((str(body["context"]), str(body["state"])))
        return 201, github_answers.status(forge.url, str(body["context"]), str(body["state"]))
    if found := re.fullmatch(r"/commits/(\w+)/(status|check-runs|check-suites)", path):
        if found[2] != "status":
            return 200, {"total_count": 0, found[2].replace("-", "_"): []}
        shown = forge.statuses_of(found[1])
        return 200, {
            "state": _combine(shown.values()),
            "sha": found[1],
            "total_count": len(shown),
            "statuses": [
                github_answers.status(forge.url, name, state) for name, state in shown.items()
            ],
            "repository": github_answers.brief_repository(forge.url, REPOSITORY),
            "commit_url": forge.url,
            "url": forge.url,
        }
    return 404, {"message": "Not Found"}


def _combine(states: Iterable[str]) -> str:
    """The summary of the statuses of a commit."""
    every = {*states}
    if every & {"failure", "error"}:
        return "failure"
    return "success" if every == {"success"} else "pending"


def _github_graphql(forge: FakeForge, body: Json) -> Json:
    variables = body["variables"]
    assert isinstance(variables, dict)
    pull = forge.pulls[int(str(variables["id"]).removeprefix("PR_"))]
    query = str(body["query"])
    if "enqueuePullRequest" in query:
        if variables["head"] != forge.head(pull.branch):
            return {"errors": [{"message": "head moved"}], "data": None}
        pull.queued = True
        return {"data": {"enqueuePullRequest": {"mergeQueueEntry": {"id": f"Q_{pull.number}"}}}}
    threads = [
        {
            "isResolved": one.resolved,
            "isOutdated": False,
            "comments": {"nodes": [{"databaseId": one.id}]},
        }
        for one in pull.comments
        if one.path
    ]
    others = [
        {"isResolved": False, "isOutdated": False, "comments": {"nodes": [{"databaseId": number}]}}
        for number in range(forge.threads_before)
    ]
    start = int(str(variables.get("after") or 0))
    page: Json = {
        "nodes": [*others, *threads][start : start + 100],
        "pageInfo": {
            "hasNextPage": len(others) + len(threads) > start + 100,
            "endCursor": str(start + 100),
        },
    }
    return {"data": {"node": {"isInMergeQueue": pull.queued, "reviewThreads": page}}}


def _github_pull(forge: FakeForge, pull: FakePull) -> Json:
    state: Json = {
        "number": pull.number,
        "node_id": f"PR_{pull.number}",
        "state": "open" if pull.state == "open" else "closed",
        "title": pull.title,
        "body": pull.body,
        "draft": pull.draft,
        "labels": [github_answers.label(forge.url, name) for name in pull.labels],
        "merged": pull.state == "merged",
        "merged_at": github_answers.TIME if pull.state == "merged" else None,
        "merge_commit_sha": pull.merged_as or None,
        "mergeable": pull.state == "open" and pull.mergeable,
    }
    ends = (pull.branch, forge.head_of(pull)), (pull.base, forge.head(pull.base))
    return github_answers.pull(forge.url, REPOSITORY, state, *ends)


def _github_comment(forge: FakeForge, pull: FakePull, one: FakeComment) -> Json:
    if not one.path:
        return github_answers.written(forge.url, one.id, one.author, {"body": one.text})
    head = forge.head_of(pull)
    more: Json = {"body": one.text, "path": one.path, "line": one.line, "diff_hunk": "@@ -1 +1 @@"}
    more |= {"commit_id": head, "original_commit_id": head, "pull_request_review_id": 1}
    answers: Json = {"in_reply_to_id": one.reply_to} if one.reply_to else {}
    return github_answers.written(forge.url, one.id, one.author, {**more, **answers})


def _github_issue(forge: FakeForge, number: int) -> Json:
    title, text = forge.issues[number]
    issue = github_answers.issue(forge.url, number, title, text, forge.labelled.get(number, []))
    pull = {"pull_request": {"url": forge.url}} if number in forge.issue_pulls else {}
    return {**issue, **pull, "state": "closed" if number in forge.closed_issues else "open"}


def _gitlab(  # noqa: C901
    forge: FakeForge, method: str, path: str, query: Mapping[str, str], body: Json
) -> tuple[int, object]:
    if path == "/api/v4/users":
        if query["username"] in forge.unknown_people:
            return 200, []
        return 200, [gitlab_answers.found_user(forge.url, query["username"])]
    path = unquote(path).removeprefix(f"/api/v4/projects/{REPOSITORY}")
    if path == "/merge_requests":
        if method == "GET":
            some = [
                one
                for one in [*forge.pulls.values()]
                if one.branch == query["source_branch"]
                and {"opened": "open"}.get(query["state"]) == one.state
            ]
            return 200, [
                _gitlab_merge(forge, one) for one in some if one.base == query["target_branch"]
            ]
        title = str(body["title"])
        made = forge.create(
            str(body["source_branch"]),
            str(body["target_branch"]),
            title,
            str(body["description"]),
            title[:6] == "Draft:",
        )
        if made is None:
            return 409, {
                "message": ["Another open merge request already exists for this source branch"]
            }
        made.labels = str(body.get("labels", "")).split(",") if body.get("labels") else []
        made.reviewers = [str(one) for one in body.get("reviewer_ids", [])]  # type: ignore[attr-defined]
        return 201, _gitlab_merge(forge, made)
    if found := re.fullmatch(r"/merge_requests/(\d+)", path):
        pull = forge.pulls[int(found[1])]
        if method == "PUT":
            pull.title = str(body.get("title", pull.title))
            pull.body = str(body.get("description", pull.body))
            pull.draft = pull.title.startswith("Draft:")
            pull.labels += [name for name in str(body.get("add_labels", "")).split(",") if name]
            pull.reviewers = [str(one) for one in body.get("reviewer_ids", pull.reviewers)]  # type: ignore[attr-defined]
        return 200, _gitlab_merge(forge, pull)
    if found := re.fullmatch(r"/merge_requests/(\d+)/versions", path):
        pull = forge.pulls[int(found[1])]
        forge.note_head(pull)
        return 200, [
            gitlab_answers.version(number, head, at)
            for number, (head, at) in enumerate(pull.versions, start=1)
        ][::-1]
    if found := re.fullmatch(r"/merge_requests/(\d+)/merge", path):
        pull = forge.pulls[int(found[1])]
        status = forge.try_merge(pull, str(body["sha"]), "squash" if body["squash"] else "merge")
        return status, _gitlab_merge(forge, pull) if status == 200 else {
            "message": forge.merge_fails or "SHA does not match"
        }
    if found := re.fullmatch(r"/merge_trains/merge_requests/(\d+)", path):
        pull = forge.pulls[int(found[1])]
        head = forge.head(pull.branch)
        train = gitlab_answers.train(forge.url, _gitlab_brief(forge, pull), pull.base, head)
        if method == "GET":
            return (200, train) if pull.queued else (404, {"message": "404 Not found"})
        if body["sha"] != head:
            return 409, {"message": "SHA does not match HEAD of source branch"}
        pull.queued = True
        return 201, [train]
    if found := re.fullmatch(r"/merge_requests/(\d+)/(approvals|reviewers)", path):
        pull = forge.pulls[int(found[1])]
        last = {one.author: one for one in pull.reviews}
        if found[2] == "reviewers":
            words = {"CHANGES_REQUESTED": "requested_changes", "APPROVED": "approved"}
            return 200, [
                {
                    "user": gitlab_answers.user(forge.url, one.author),
                    "state": words.get(one.state, "reviewed"),
                    "created_at": gitlab_answers.TIME,
                }
                for one in last.values()
            ]
        by = [
            {"user": gitlab_answers.user(forge.url, one.author), "approved_at": one.at}
            for one in last.values()
            if one.state == "APPROVED"
        ]
        more = {"merge_status": "can_be_merged", "approvals_required": 0, "approvals_left": 0}
        return 200, {**_gitlab_brief(forge, pull), **more, "approved": True, "approved_by": by}
    if found := re.fullmatch(r"/merge_requests/(\d+)/discussions(?:/(\d+)/notes)?", path):
        pull = forge.pulls[int(found[1])]
        if method == "POST":
            first = next(one for one in pull.comments if str(one.id) == found[2])
            pull.comments.append(
                FakeComment(
                    forge.new_id(), "grace", str(body["body"]), first.path, first.line, first.id
                )
            )
            return 201, _gitlab_note(forge, pull, pull.comments[-1])
        threads = [one for one in pull.comments if not one.reply_to]
        return 200, [
            {
                "id": str(thread.id),
                "individual_note": not thread.path,
                "notes": [
                    _gitlab_note(forge, pull, one)
                    for one in pull.comments
                    if thread.id in (one.id, one.reply_to)
                ],
            }
            for thread in threads
        ]
    if found := re.fullmatch(r"/merge_requests/(\d+)/notes", path):
        pull = forge.pulls[int(found[1])]
        pull.comments.append(FakeComment(forge.new_id(), "grace", str(body["body"])))
        return 201, _gitlab_note(forge, pull, pull.comments[-1])
    if found := re.fullmatch(r"/members/all/(\d+)", path):
        known = {gitlab_answers.user_id(name): name for name in WRITERS}
        if int(found[1]) not in known:
            return 404, {"message": "404 Not found"}
        return 200, {
            **gitlab_answers.user(forge.url, known[int(found[1])]),
            "access_level": 40,
            "expires_at": None,
        }
    if found := re.fullmatch(r"/statuses/(\w+)", path):
        forge.statuses.setdefault(found[1], []).append((str(body["name"]), str(body["state"])))
        return 201, gitlab_answers.status(
            forge.url, found[1], str(body["name"]), str(body["state"])
        )
    if found := re.fullmatch(r"/repository/commits/(\w+)/statuses", path):
        shown = forge.statuses_of(found[1]).items()
        return 200, [
            gitlab_answers.status(forge.url, found[1], name, state.replace("failure", "failed"))
            for name, state in shown
        ]
    if path == "/issues":
        return 200, [_gitlab_issue(forge, number) for number in forge.issues_with(query["labels"])]
    if found := re.fullmatch(r"/issues/(\d+)", path):
        return 200, _gitlab_issue(forge, int(found[1]))
    return 404, {"message": "404 Not found"}


def _gitlab_brief(forge: FakeForge, pull: FakePull) -> Json:
    url = f"{forge.url}/{REPOSITORY}/-/merge_requests/{pull.number}"
    state = {"open": "opened"}.get(pull.state, pull.state)
    return gitlab_answers.brief_merge(url, pull.number, pull.title, pull.body, state)


def _gitlab_merge(forge: FakeForge, pull: FakePull) -> Json:
    forge.note_head(pull)
    is_open = "mergeable" if pull.mergeable else "conflict"
    if not forge.head(pull.branch):
        is_open = "commits_status"
    more: Json = {
        "target_branch": pull.base,
        "source_branch": pull.branch,
        "labels": pull.labels,
        "draft": pull.draft,
        "work_in_progress": pull.draft,
        "merge_commit_sha": pull.merged_as or None,
        "merge_when_pipeline_succeeds": pull.queued,
        "detailed_merge_status": is_open if pull.state == "open" else "not_open",
    }
    return gitlab_answers.merge(forge.url, _gitlab_brief(forge, pull), forge.head_of(pull), more)


def _gitlab_note(forge: FakeForge, pull: FakePull, one: FakeComment) -> Json:
    if not one.path:
        return gitlab_answers.note(forge.url, one.id, one.author, one.text, {})
    head = forge.head_of(pull)
    lines = {"old_path": one.path, "new_path": one.path, "old_line": None, "new_line": one.line}
    place = {
        "base_sha": head,
        "start_sha": head,
        "head_sha": head,
        "position_type": "text",
        **lines,
    }
    more: Json = {
        "type": "DiffNote",
        "resolvable": True,
        "resolved": one.resolved,
        "position": place,
    }
    return gitlab_answers.note(forge.url, one.id, one.author, one.text, more)


def _gitlab_issue(forge: FakeForge, number: int) -> Json:
    title, text = forge.issues[number]
    issue = gitlab_answers.issue(forge.url, number, title, text, forge.labelled.get(number, []))
    return {**issue, "state": "closed" if number in forge.closed_issues else "opened"}


def _gitea(  # noqa: C901
    forge: FakeForge, method: str, path: str, query: Mapping[str, str], body: Json
) -> tuple[int, object]:
    path = path.removeprefix(f"/api/v1/repos/{REPOSITORY}")
    if path == "/pulls":
        if method == "GET":
            old = [{"number": 10_000 + number} for number in range(forge.old_pulls)]
            some_pulls = [
                _gitea_pull(forge, one)
                for one in [*forge.pulls.values()]
                if query["state"] in ("all", one.state)
            ]
            return 200, [*some_pulls, *(old if query["state"] == "all" else [])]
        title = str(body["title"])
        made = forge.create(
            str(body["head"]), str(body["base"]), title, str(body["body"]), title.startswith("WIP:")
        )
        return (
            (409, {"message": "pull request already exists"})
            if made is None
            else (201, _gitea_pull(forge, made))
        )
    if (found := re.fullmatch(r"/pulls/([^/]+)/([^/]+)", path)) and not found[1].isdigit():
        base, branch = unquote(found[1]), unquote(found[2])
        some_pulls = [
            _gitea_pull(forge, one)
            for one in [*forge.pulls.values()]
            if (one.base, one.branch) == (base, branch)
        ]
        return (200, some_pulls[-1]) if some_pulls else (404, {"message": "Not Found"})
    if found := re.fullmatch(r"/pulls/(\d+)", path):
        pull = forge.pulls[int(found[1])]
        if method == "PATCH":
            pull.title, pull.body = str(body.get("title", pull.title)), str(body["body"])
            pull.draft = pull.title.startswith("WIP:")
        return 200 if method == "GET" else 201, _gitea_pull(forge, pull)
    if found := re.fullmatch(r"/pulls/(\d+)/merge", path):
        pull = forge.pulls[int(found[1])]
        if body["merge_when_checks_succeed"] and body["head_commit_id"] == forge.head(pull.branch):
            known, pull.queued = pull.queued, True
            return (409, {"message": "already scheduled to auto merge"}) if known else (201, None)
        status = forge.try_merge(pull, str(body["head_commit_id"]), str(body["Do"]))
        return status, None if status == 200 else {
            "message": forge.merge_fails or "head out of date"
        }
    if found := re.fullmatch(r"/pulls/(\d+)/reviews", path):
        words = {"CHANGES_REQUESTED": "REQUEST_CHANGES", "COMMENTED": "COMMENT"}
        pull = forge.pulls[int(found[1])]
        reviews = [
            {
                "id": one.id,
                "user": {"login": one.author},
                "state": words.get(one.state, one.state),
                "body": one.text,
                "commit_id": one.commit,
            }
            for one in pull.reviews
        ]
        lines = {
            "id": 1,
            "user": {"login": "ada"},
            "state": "COMMENT",
            "body": "",
            "commit_id": forge.head_of(pull),
        }
        return 200, [*reviews, lines]
    if found := re.fullmatch(r"/pulls/(\d+)/reviews/(\d+)/comments", path):
        some = [one for one in forge.pulls[int(found[1])].comments if one.path and found[2] == "1"]
        return 200, [_gitea_comment(one) for one in some]
    if found := re.fullmatch(r"/issues/(\d+)/comments", path):
        pull = forge.pulls[int(found[1])]
        if method == "POST":
            pull.comments.append(FakeComment(forge.new_id(), "grace", str(body["body"])))
            return 201, _gitea_said(pull.comments[-1])
        return 200, [_gitea_said(one) for one in pull.comments if not one.path]
    if path == "/labels":
        return 200, [{"id": 7, "name": "phasegate"}]
    if found := re.fullmatch(r"/issues/(\d+)/labels", path):
        forge.pulls[int(found[1])].labels += [str(one) for one in body["labels"]]  # type: ignore[attr-defined]
        return 200, []
    if found := re.fullmatch(r"/pulls/(\d+)/requested_reviewers", path):
        if {*body["reviewers"]} & {*forge.unknown_people}:  # type: ignore[misc]
            return 404, {"message": "user does not exist"}
        forge.pulls[int(found[1])].reviewers += body["reviewers"]  # type: ignore[arg-type]
        return 201, []
    if found := re.fullmatch(r"/collaborators/([^/]+)/permission", path):
        if not forge.is_admin:
            return 403, {"message": "Only admins can query all permissions"}
        return 200, {"permission": "write" if found[1] in WRITERS else "read"}
    if path == "/assignees":
        return 200, [{"login": name} for name in WRITERS]
    if found := re.fullmatch(r"/statuses/(\w+)", path):
        forge.statuses.setdefault(found[1], []).append((str(body["context"]), str(body["state"])))
        return 201, {"context": body["context"], "status": body["state"]}
    if found := re.fullmatch(r"/commits/(\w+)/status", path):
        some_statuses = forge.statuses_of(found[1]).items()
        return 200, {
            "state": _combine(state for _, state in some_statuses),
            "statuses": [{"context": name, "status": state} for name, state in some_statuses],
        }
    if path == "/issues":
        some_issues = [_gitea_issue(forge, number) for number in forge.issues_with(query["labels"])]
        return 200, some_issues
    if found := re.fullmatch(r"/issues/(\d+)", path):
        return 200, _gitea_issue(forge, int(found[1]))
    return 404, {"message": "Not Found"}


def _gitea_pull(forge: FakeForge, pull: FakePull) -> Json:
    return {
        "number": pull.number,
        "html_url": f"{forge.url}/{REPOSITORY}/pulls/{pull.number}",
        "state": "open" if pull.state == "open" else "closed",
        "title": pull.title,
        "body": pull.body,
        "draft": pull.draft,
        "head": {"ref": pull.branch, "sha": forge.head_of(pull)},
        "base": {"ref": pull.base, "sha": forge.head(pull.base)},
        "merged": pull.state == "merged",
        "merged_at": github_answers.TIME if pull.state == "merged" else None,
        "merge_commit_sha": pull.merged_as or None,
        "mergeable": pull.state == "open" and pull.mergeable,
    }


def _gitea_said(one: FakeComment) -> Json:
    return {"id": one.id, "user": {"login": one.author}, "body": one.text}


def _gitea_issue(forge: FakeForge, number: int) -> Json:
    title, text = forge.issues[number]
    labels = [{"id": 7, "name": name} for name in forge.labelled.get(number, [])]
    where = f"{forge.url}/issues/{number}"
    return {
        "number": number,
        "title": title,
        "body": text,
        "html_url": where,
        "labels": labels,
        "state": "closed" if number in forge.closed_issues else "open",
        "pull_request": None,
    }


def _gitea_comment(one: FakeComment) -> Json:
    resolver = {"login": "ada"} if one.resolved else None
    return {
        "id": one.id,
        "user": {"login": one.author},
        "body": one.text,
        "path": one.path,
        "position": one.line,
        "resolver": resolver,
    }


# Gitea does not page these
_UNPAGED = re.compile(r"/api/v1/.*/(?:issues/\d+/comments|reviews/\d+/comments|assignees)$")
_PAGED_FIELDS = ("statuses", "check_runs", "check_suites")


def _page(
    kind: str, path: str, query: Mapping[str, str], said: object
) -> tuple[object, dict[str, str]]:
    """One page of a list, with the headers and the limits that each forge documents."""
    field_name = next(
        (name for name in _PAGED_FIELDS if isinstance(said, dict) and name in said), ""
    )
    every = said[field_name] if isinstance(said, dict) and field_name else said
    if not isinstance(every, list) or _UNPAGED.search(path):
        return said, {}
    limit, default, largest = ("limit", 30, 50) if kind == "gitea" else ("per_page", 30, 100)
    size = min(int(query.get(limit, default)), largest)
    page = int(query.get("page", 1))
    some, more = every[(page - 1) * size : page * size], len(every) > page * size
    headers = {}
    if kind == "gitlab":
        headers = {"X-Next-Page": str(page + 1) if more else "", "X-Total": str(len(every))}
    elif kind == "gitea" and not field_name:
        headers = {"X-Total-Count": str(len(every))}
    elif kind == "github" and more:
        headers = {"Link": f'<{path}?page={page + 1}>; rel="next"'}
    return ({**said, field_name: some} if isinstance(said, dict) else some), headers


APIS = {"github": _github, "gitlab": _gitlab, "gitea": _gitea}
_HEADERS = {
    "github": ("Authorization", f"Bearer {TOKEN}"),
    "gitlab": ("PRIVATE-TOKEN", TOKEN),
    "gitea": ("Authorization", f"token {TOKEN}"),
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    forge: FakeForge

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _answer(self, method: str) -> None:  # noqa: C901
        split = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        data = (
            self.rfile.read(length)
            if self.headers.get("Transfer-Encoding") != "chunked"
            else self._chunks()
        )
        if split.path.startswith(f"/{REPOSITORY}.git/"):
            self._git(method, split.path, split.query, data)
            return
        forge = self.forge
        with forge.lock:
            if (
                method == "GET"
                and re.search(r"/(pulls|merge_requests)/\d+$", split.path)
                and forge.people
            ):
                forge.people.pop(0)()
            for fault in forge.faults:
                if (status := fault(method, split.path)) is not None:
                    self._send(
                        status, {"message": "played"}, {"Retry-After": "0"} if status == 429 else {}
                    )
                    return
            name, value = _HEADERS[forge.kind]
            if self.headers.get(name) != value:
                self._send(401, {"message": "Bad credentials"})
                return
            query = {key: values[0] for key, values in parse_qs(split.query).items()}
            body = json.loads(data or b"{}")
            status, said = APIS[forge.kind](forge, method, split.path, query, body)
            headers: dict[str, str] = {}
            if method == "GET" and status == 200:
                said, headers = _page(forge.kind, split.path, query, said)
                # Gitea has none
                if forge.kind != "gitea":
                    headers["ETag"] = f'W/"{sha256(json.dumps(said).encode()).hexdigest()}"'
                if self.headers.get("If-None-Match", "-") == headers.get("ETag"):
                    status, said = 304, None
            forge.exchanges.append(Exchange(method, split.path, query, body, status, said))
            if method != "GET":
                forge.on_done(f"{method} {split.path}")
            if f"{method} {split.path}" in forge.lose_answers:
                forge.lose_answers.remove(f"{method} {split.path}")
                self.close_connection = True
                return
        self._send(status, said, headers)

    def _chunks(self) -> bytes:
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _send(self, status: int, said: object, headers: Mapping[str, str] | None = None) -> None:
        data = b"" if said is None else json.dumps(said).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _git(self, method: str, path: str, query: str, data: bytes) -> None:
        """`git http-backend`, behind Basic authentication."""
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        if not given or base64.b64decode(given).decode().partition(":")[2] != TOKEN:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="forge"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.forge.bare.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": "/" + self.forge.bare.name + path.removeprefix(f"/{REPOSITORY}.git"),
            "QUERY_STRING": query,
            "REQUEST_METHOD": method,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(data)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "grace",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=data, env=env, capture_output=True, timeout=60
        )
        if path.endswith("/git-receive-pack"):
            self.forge.on_done("git push")
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def fake_forge(kind: str, source: Path, room: Path) -> Iterator[FakeForge]:
    """A forge that holds a copy of a repository; `origin` of the source is set to it."""
    room.mkdir(parents=True, exist_ok=True)
    bare = room / "greet.git"
    git(room, "clone", "-q", "--bare", str(source), str(bare))
    git(bare, "config", "http.receivepack", "true")
    forge = FakeForge(kind, bare)
    handler = type("Handler", (_Handler,), {"forge": forge})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    forge.url = f"http://127.0.0.1:{server.server_port}"
    git(source, "remote", "add", "origin", forge.remote)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield forge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
