"""What our adapters send and what our fake forge answers, held against what each forge publishes of its interface.

GitHub: its OpenAPI description by Prism in proxy mode, and its GraphQL schema. Gitea and GitLab publish theirs in their
repositories only; they are typed against the client packages gitea-js (generated from Gitea's description) and
@gitbeaker/core (written by hand after GitLab's documents).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from phasegate.forge import github
from phasegate.forge.github import GitHub
from phasegate.forge.http import ForgeApi, HttpResponse
from phasegate.forge.registry import connect_forge
from support.fake_forge import REPOSITORY, TOKEN, Exchange, fake_forge
from support.forge_talk import make_source, talk

INSTALLED = os.environ.get("PHASEGATE_TEST_FORGES", "")
pytestmark = pytest.mark.skipif(not INSTALLED, reason="run `make test-forges`")
MODULES = Path(INSTALLED or "/nowhere")
HERE = Path(__file__).parent


def node(script: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A script of node's, with nothing of this machine's environment."""
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd), "NODE_PATH": str(MODULES)}
    return subprocess.run(
        ["node", script, *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def exchanges(kind: str, room: Path) -> list[Exchange]:
    with fake_forge(kind, make_source(room), room / "forge") as fake:
        talk(connect_forge(kind, fake.url, REPOSITORY, TOKEN), fake)
        assert fake.exchanges
        return fake.exchanges


# --- GitHub


class Watched(ForgeApi):
    """Keeps what Prism says of each exchange. GraphQL is not in that description: it goes straight to the forge."""

    violations: list[str]
    forge: ForgeApi

    def _request(
        self, method: str, path: str, body: object, etag: str = "", strip_suffix: str = ""
    ) -> HttpResponse:
        if path == "/graphql":
            return self.forge._request(method, path, body, etag, strip_suffix)
        # Prism reads a body from every answer, and a 304 has none
        answer = super()._request(method, path, body, "", strip_suffix)
        found = answer.headers.get("sl-violations")
        # Prism does not read the description of this response: it finds no status code in it
        is_unread = "/rules/branches/" in path and "returned status code" in str(found)
        if found and not is_unread:
            self.violations.append(f"{method} {path}: {found}")
        return answer


def cut(
    description: Mapping[str, dict[str, object]], exchanges: Iterable[Exchange]
) -> dict[str, object]:
    """The part of GitHub's description that is asked for: the whole takes Prism minutes."""
    asked = {one.path.removeprefix("/api/v3") for one in exchanges}
    names = {
        name: re.compile(re.sub(r"\{[^}]+\}", "[^/]+", name) + "$") for name in description["paths"]
    }
    paths = {
        name: description["paths"][name]
        for name, shape in names.items()
        if any(map(shape.match, asked))
    }
    return {**description, "paths": paths}


@contextmanager
def prism(description: Path, upstream: str) -> Iterator[str]:
    """Prism in front of a forge; its address."""
    argv = [
        "node",
        str(MODULES / ".bin" / "prism"),
        "proxy",
        "-h",
        "127.0.0.1",
        "-p",
        "0",
        str(description),
        upstream,
    ]
    env = {"PATH": os.environ["PATH"], "HOME": str(description.parent), "NO_COLOR": "1"}
    log = description.with_suffix(".log")
    with log.open("w") as output:
        running = subprocess.Popen(argv, env=env, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield _address(log, running)
        finally:
            running.terminate()
            running.wait(timeout=60)


def _address(log: Path, running: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + 300
    while time.monotonic() < until and running.poll() is None:
        if found := re.search(r"listening on (http://127\.0\.0\.1:\d+)", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.mark.demand("X7.g")
def test_every_request_to_github_and_every_answer_of_the_fake_is_as_github_publishes_it(
    tmp_path: Path,
) -> None:
    whole = json.loads((MODULES / "@octokit/openapi/generated/api.github.com.json").read_text())
    description = tmp_path / "github.json"
    description.write_text(json.dumps(cut(whole, exchanges("github", tmp_path / "first"))))
    with (
        fake_forge("github", make_source(tmp_path), tmp_path / "forge") as fake,
        prism(description, f"{fake.url}/api/v3") as address,
    ):
        header = {"Authorization": f"Bearer {TOKEN}"}
        api = Watched(address, header, {"per_page": "100"}, timeout_s=120)
        api.violations, api.forge = [], ForgeApi(f"{fake.url}/api/v3", header, {})
        talk(GitHub(api, REPOSITORY), fake)
        assert api.violations == []
        assert len(fake.exchanges) > 30
        # The control: what is not as published is told, of a request and of an answer.
        api.send(
            "POST",
            f"/repos/{REPOSITORY}/statuses/{fake.head('main')}",
            {"state": "fine", "context": "x"},
        )
        assert "state" in api.violations[-1]
        fake.pulls[2].title = None  # type: ignore[assignment]
        api.get(f"/repos/{REPOSITORY}/pulls/2", object)
        assert len(api.violations) == 2


@pytest.mark.demand("X7.g")
def test_the_graphql_documents_and_the_fakes_answers_to_them_are_of_githubs_schema(
    tmp_path: Path,
) -> None:
    asked = [one for one in exchanges("github", tmp_path) if one.path == "/api/graphql"]
    assert {one.body["query"] for one in asked} == {
        github.THREADS_QUERY,
        github.ENQUEUE_MUTATION,
    }
    wrong = asked[0]._replace(
        body={**asked[0].body, "query": github.THREADS_QUERY.replace("isResolved", "isDone")}
    )
    talked = tmp_path / "talked.json"
    talked.write_text(json.dumps([one._asdict() for one in (*asked, wrong)]))
    done = node(str(HERE / "graphql.cjs"), str(talked), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *said, of_wrong = json.loads(done.stdout)
    assert said == [[]] * len(asked)
    assert "isDone" in str(of_wrong), "the control: a field that there is not"


# --- Gitea and GitLab: their client packages


def compiled(room: Path, source: str) -> list[str]:
    """The complaints of the TypeScript compiler."""
    (room / "node_modules").symlink_to(MODULES)
    (room / "talked.ts").write_text(source)
    options = (
        "--noEmit",
        "--strict",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--module",
        "nodenext",
    )
    done = node(str(MODULES / "typescript" / "bin" / "tsc"), *options, "talked.ts", cwd=room)
    return [line for line in done.stdout.splitlines() if line.startswith("talked.ts")]


def literal(name: str, type_: str, value: object) -> str:
    return f"export const {name}: {type_} = {json.dumps(value)};"


@pytest.mark.demand("X7.g")
def test_every_request_to_gitea_and_every_answer_of_the_fake_is_of_its_clients_types(
    tmp_path: Path,
) -> None:
    types = (MODULES / "gitea-js/dist/index.d.ts").read_text()
    calls = re.findall(r"@request (\w+):(\S+)\n[^/]*?\*/\s+(\w+): \(", types)
    calls.sort(key=lambda call: call[1].count("{"))  # a path with fewer blanks is meant
    lines = [
        'import { giteaApi } from "gitea-js";',
        "type Repos = ReturnType<typeof giteaApi>['repos'];",
        "type Given<K extends keyof Repos> = Parameters<Repos[K]>;",
        "type Answer<K extends keyof Repos> = Awaited<ReturnType<Repos[K]>>['data'];",
        "type Last<T extends unknown[]> = Required<T> extends [...infer _, infer L, infer _P] ? L : never;",
    ]
    talked = exchanges("gitea", tmp_path)
    for number, one in enumerate(talked):
        path = one.path.removeprefix("/api/v1")
        names = [
            name for method, shape, name in calls if method == one.method and _matches(shape, path)
        ]
        assert names, f"Gitea has no {one.method} {path}"
        if one.query:
            lines.append(literal(f"query{number}", f"Last<Given<'{names[0]}'>>", _typed(one.query)))
        if one.body:
            lines.append(literal(f"body{number}", f"Last<Given<'{names[0]}'>>", one.body))
        if one.status < 300 and one.answer is not None:
            lines.append(
                literal(f"answer{number}", f"Answer<'{names[0]}'>", _without_null(one.answer))
            )
    wrong = [
        literal("wrong1", "Last<Given<'repoMergePullRequest'>>", {"Do": "meld"}),
        literal("wrong2", "Answer<'repoGetPullRequest'>", {"number": 1, "node_id": "PR_1"}),
    ]
    said = compiled(tmp_path, "\n".join([*lines, *wrong]))
    assert [
        line for line in said if "(" in line and int(re.findall(r"\((\d+),", line)[0]) <= len(lines)
    ] == []
    assert len(said) == len(wrong), "the controls: a word and a field that there are not"


def _matches(shape: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", shape), path) is not None


def _typed(query: Mapping[str, str]) -> dict[str, object]:
    """A query is text; what it stands for is not."""
    return {key: int(value) if value.isdigit() else value for key, value in query.items()}


def _without_null(value: object) -> object:
    """Gitea answers null where its description has text that may be absent."""
    if isinstance(value, dict):
        return {key: _without_null(one) for key, one in value.items() if one is not None}
    return [_without_null(one) for one in value] if isinstance(value, list) else value


# What GitLab is asked: the call, what is sent and what is answered, as its client package types them.
GITLAB = (
    ("GET", "users", "{ username: string }", "UserSchema[]"),
    ("GET", "projects/*/merge_requests", "AllMergeRequestsOptions & Paged", "MergeRequestSchema[]"),
    (
        "POST",
        "projects/*/merge_requests",
        "CreateMergeRequestOptions & Ends",
        "ExpandedMergeRequestSchema",
    ),
    ("GET", "projects/*/merge_requests/*", "", "ExpandedMergeRequestSchema"),
    ("PUT", "projects/*/merge_requests/*", "EditMergeRequestOptions", "ExpandedMergeRequestSchema"),
    (
        "PUT",
        "projects/*/merge_requests/*/merge",
        "AcceptMergeRequestOptions",
        "ExpandedMergeRequestSchema",
    ),
    (
        "GET",
        "projects/*/merge_requests/*/approvals",
        "",
        "MergeRequestLevelMergeRequestApprovalSchema",
    ),
    ("GET", "projects/*/merge_requests/*/approval_state", "", "ApprovalStateSchema"),
    ("GET", "projects/*/approvals", "", "ProjectLevelMergeRequestApprovalSchema"),
    ("GET", "projects/*/merge_trains/merge_requests/*", "", "MergeTrainSchema"),
    ("GET", "projects/*/merge_requests/*/versions", "", "MergeRequestDiffVersionsSchema[]"),
    ("GET", "projects/*/merge_requests/*/reviewers", "Paged", "MergeRequestReviewerSchema[]"),
    ("GET", "projects/*/merge_requests/*/discussions", "Paged", "DiscussionSchema[]"),
    (
        "POST",
        "projects/*/merge_requests/*/discussions/*/notes",
        "{ body: string }",
        "DiscussionNoteSchema",
    ),
    ("POST", "projects/*/merge_requests/*/notes", "{ body: string }", "MergeRequestNoteSchema"),
    ("POST", "projects/*/merge_trains/merge_requests/*", "Train", "MergeTrainSchema[]"),
    ("GET", "projects/*/members/all/*", "", "Omit<MemberSchema, Unshown>"),
    ("POST", "projects/*/statuses/*", "EditPipelineStatusOptions & Verdict", "CommitStatusSchema"),
    ("GET", "projects/*/repository/commits/*/statuses", "Paged", "CommitStatusSchema[]"),
    ("GET", "projects/*/issues", "AllIssuesOptions & Paged", "IssueSchema[]"),
    ("GET", "projects/*/issues/*", "", "IssueSchema"),
)
KNOWN = """
import * as g from "@gitbeaker/core";
type Paged = { page?: number; perPage?: number };
type Ends = { sourceBranch: string; targetBranch: string };
type Verdict = { state: g.CommitablePipelineStatus };
type Train = NonNullable<Parameters<g.MergeTrains["addMergeRequest"]>[2]>;
type Unshown = "email" | "group_saml_identity" | "expires_at";
"""


def _without_approval_times(answer: object) -> object:
    """GitLab documents `approved_at` of an approval; the types of its client do not have it yet."""
    if not isinstance(answer, dict) or "approved_by" not in answer:
        return answer
    approvals = [
        {key: value for key, value in one.items() if key != "approved_at"}
        for one in answer["approved_by"]
    ]
    return {**answer, "approved_by": approvals}


@pytest.mark.demand("X7.g")
def test_every_request_to_gitlab_and_every_answer_of_the_fake_is_of_its_clients_types(
    tmp_path: Path,
) -> None:
    done = node(str(HERE / "gitlab.cjs"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    of_client = [
        (method, path.removeprefix("/api/v4/")) for method, path in json.loads(done.stdout)
    ]
    for method, shape, _, _ in GITLAB:
        pattern = re.compile(shape.replace("*", "[^/]+"))
        assert any(asked == method and pattern.fullmatch(path) for asked, path in of_client), (
            method,
            shape,
        )
    lines = KNOWN.splitlines()
    for number, one in enumerate(exchanges("gitlab", tmp_path)):
        path = one.path.removeprefix("/api/v4/")
        sent, answered = next(
            (sent, answered)
            for method, shape, sent, answered in GITLAB
            if method == one.method and re.fullmatch(shape.replace("*", "[^/]+"), path)
        )
        if given := {
            _camel(key): value for key, value in {**_typed(one.query), **one.body}.items()
        }:
            lines.append(literal(f"sent{number}", re.sub(r"\b(\w+Options)", r"g.\1", sent), given))
        if one.status < 300:
            lines.append(
                literal(
                    f"answer{number}",
                    re.sub(r"\b(\w+Schema)", r"g.\1", answered),
                    _without_approval_times(one.answer),
                )
            )
    wrong = [
        literal("wrong1", "g.AcceptMergeRequestOptions", {"head": "x"}),
        literal(
            "wrong2", "g.MergeRequestReviewerSchema", {"user": 1, "state": "fine", "created_at": ""}
        ),
    ]
    said = compiled(tmp_path, "\n".join([*lines, *wrong]))
    told = [line for line in said if int(re.findall(r"\((\d+),", line)[0]) <= len(lines)]
    assert told == [], "\n".join(told)
    assert len(said) >= len(wrong), "the controls: an option and a word that there are not"


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)
