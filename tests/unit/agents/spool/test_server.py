"""A job's spool: the commands inside a job, the requests they make, the answers they get."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phasegate.agents.spool import mcp_shim, shim
from phasegate.agents.spool.requests import (
    ArtifactListRequest,
    ArtifactReadRequest,
    ArtifactWriteRequest,
    AskRequest,
    InvalidSpoolRequest,
    SpoolRequest,
    StatusRequest,
    WorktreeListRequest,
    parse_spool_request,
)
from phasegate.agents.spool.server import RequestSpool, SpoolAnswer, install_commands
from phasegate.errors import ConfigError

READ = [
    ("status WP01", StatusRequest("WP01")),
    ("status", StatusRequest(None)),
    ("status WP01 --json", StatusRequest("WP01", as_json=True)),
    ("worktree list", WorktreeListRequest(include_all=False)),
    ("worktree list --all --json", WorktreeListRequest(include_all=True, as_json=True)),
    (
        "artifact write --feature-slug 001-login --relative-path WP01/r.txt --content x",
        ArtifactWriteRequest("001-login", "WP01/r.txt", "x"),
    ),
    (
        "artifact write --content=--json --feature-slug=s --relative-path=p",
        ArtifactWriteRequest("s", "p", "--json"),
    ),
    (
        "artifact write --feature-slug s --relative-path p --content --all",
        ArtifactWriteRequest("s", "p", "--all"),
    ),
    ("artifact read --feature-slug s --relative-path p", ArtifactReadRequest("s", "p")),
    ("artifact list", ArtifactListRequest(None)),
    ("artifact list --feature-slug s --json", ArtifactListRequest("s", as_json=True)),
]


@pytest.mark.demand("D14.d")
@pytest.mark.parametrize(("line", "request_"), READ)
def test_the_commands_of_the_specification_are_understood(
    line: str, request_: SpoolRequest
) -> None:
    assert parse_spool_request(line.split()) == request_


@pytest.mark.parametrize(
    "line",
    [
        *(
            "",
            "dispatch WP01",
            "scope allow WP01 x --reason y",
            "advance",
            "status WP01 WP02",
            "status list",
            "worktree",
        ),
        *(
            "worktree remove x",
            "artifact",
            "artifact delete",
            "artifact write",
            "artifact write --feature-slug s",
        ),
        *(
            "artifact write --feature-slug s --relative-path p",
            "artifact read --feature-slug s --content x --relative-path p",
        ),
        *(
            "status --relative-path s",
            "status --force",
            "artifact list --feature-slug",
            "status --json --json",
        ),
        "artifact write --feature-slug s --feature-slug t --relative-path p --content c",
        "status " + "x " * 50,
    ],
)
def test_anything_else_is_refused_by_name(line: str) -> None:
    with pytest.raises(InvalidSpoolRequest):
        parse_spool_request(line.split())


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RequestSpool]:
    with RequestSpool(tmp_path / "job's spool") as made:
        install_commands(tmp_path / "bin", made.folder)
        yield made


def call(
    spool: RequestSpool, *arguments: str, stdin: str = "", name: str = "agileplus"
) -> subprocess.CompletedProcess[str]:
    """Call a command as an agent does, by its name, with a bare environment."""
    env = {"PATH": f"{spool.folder.parent / 'bin'}:/usr/bin:/bin"}
    return subprocess.run(
        (name, *arguments), env=env, input=stdin, capture_output=True, text=True, timeout=60
    )


@pytest.mark.demand("D14.d", "D14.e")
@pytest.mark.parametrize("name", ["phasegate", "agileplus"])
def test_a_command_inside_a_job_is_answered_by_the_orchestrator(
    spool: RequestSpool, name: str
) -> None:
    seen: list[SpoolRequest] = []

    def answer(request: SpoolRequest) -> SpoolAnswer:
        seen.append(request)
        return SpoolAnswer(1, stdout="WP01 DOING é\n", stderr="careful\n")

    with spool.serve_in_background(answer):
        done = call(spool, "status", "WP01", name=name)
    assert (done.returncode, done.stdout, done.stderr) == (1, "WP01 DOING é\n", "careful\n")
    assert seen == [StatusRequest("WP01")]
    assert not [*(spool.folder / "requests").iterdir()]


@pytest.mark.demand("D14.d", "D14.e")
def test_an_artifact_arrives_whole_by_value_by_file_and_by_stdin(
    spool: RequestSpool, tmp_path: Path
) -> None:
    seen: list[SpoolRequest] = []
    text = 'Tests: 42 passed, 0 failed\n{"é": "\\" \\n"}\n'
    (tmp_path / "report.txt").write_text(text)
    where = (
        "artifact",
        "write",
        "--feature-slug",
        "001-login",
        "--relative-path",
        "WP01/test-report.txt",
    )
    with spool.serve_in_background(lambda request: (seen.append(request), SpoolAnswer(0))[1]):
        for rest in (("--content", text), ("--file", str(tmp_path / "report.txt"))):
            assert call(spool, *where, *rest).returncode == 0
        assert call(spool, *where, "-", stdin=text).returncode == 0
    assert seen == [ArtifactWriteRequest("001-login", "WP01/test-report.txt", text)] * 3


@pytest.mark.demand("D14.e")
def test_an_error_of_ours_is_told_and_does_not_end_the_run(
    spool: RequestSpool, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(request: SpoolRequest) -> SpoolAnswer:
        if isinstance(request, ArtifactReadRequest):
            raise ConfigError("no such artifact", "List them.")
        raise ZeroDivisionError

    with spool.serve_in_background(answer):
        missing = call(spool, "artifact", "read", "--feature-slug", "s", "--relative-path", "p")
        broken = call(spool, "status")
    assert (missing.returncode, missing.stderr) == (2, "phasegate: no such artifact\nList them.\n")
    assert broken.returncode == 70
    assert "internal error" in broken.stderr


def test_a_wrong_command_is_refused_with_a_word(spool: RequestSpool) -> None:
    with spool.serve_in_background(lambda request: SpoolAnswer(0)):
        done = call(spool, "advance")
    assert done.returncode == 2
    assert "not available inside a job" in done.stderr


def test_help_needs_no_orchestrator(spool: RequestSpool) -> None:
    done = call(spool, "--help")
    assert done.returncode == 0
    assert "artifact write" in done.stdout
    assert call(spool, "ask", "--help").stdout.startswith('  ask "..."')


def test_without_an_answer_the_command_gives_up_politely(
    spool: RequestSpool, tmp_path: Path
) -> None:
    program = tmp_path / "bin/shim.py"
    program.write_text(
        program.read_text().replace(
            f"ANSWER_TIMEOUT_S = {shim.ANSWER_TIMEOUT_S}", "ANSWER_TIMEOUT_S = 0.05"
        )
    )
    done = call(spool, "status")
    assert done.returncode == 75
    assert "did not answer" in done.stderr


def test_serving_never_waits(spool: RequestSpool) -> None:
    assert spool.serve_pending(lambda request: SpoolAnswer(0)) == 0


def test_a_spool_is_made_once(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted/requests").symlink_to(tmp_path)
    with pytest.raises(FileExistsError):
        RequestSpool(tmp_path / "planted")


def rpc(folder: Path, *messages: dict[str, object]) -> dict[object, dict[str, Any]]:
    """What the server of a job answers, by id."""
    lines = "".join(
        json.dumps({"jsonrpc": "2.0", "id": at, **one}) + "\n" for at, one in enumerate(messages)
    )
    process = subprocess.Popen([folder / "bin/phasegate", "mcp"], stdin=-1, stdout=-1, text=True)
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"no message\n{lines}")
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in messages]
    process.communicate(timeout=30)
    return {answer["id"]: answer for answer in answers}


def tool_call(name: str, **arguments: object) -> dict[str, object]:
    return {"method": "tools/call", "params": {"name": name, "arguments": arguments}}


@pytest.mark.demand("X2.a", "X2.d")
def test_the_commands_are_tools_too_and_no_value_of_a_call_becomes_an_option(
    tmp_path: Path, spool: RequestSpool
) -> None:
    seen: list[SpoolRequest] = []

    def answer(request: SpoolRequest) -> SpoolAnswer:
        seen.append(request)
        if isinstance(request, AskRequest):
            return SpoolAnswer(0, "the short one\n" if request.question_id else "q1 30\n")
        return (
            SpoolAnswer(0, "done\n")
            if isinstance(request, StatusRequest)
            else SpoolAnswer(2, stderr="no\n")
        )

    with spool.serve_in_background(answer):
        found = rpc(
            tmp_path,
            {"method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
            {"method": "tools/list"},
            tool_call("status", package="WP01"),
            tool_call("artifact_write", path="--all", content="--json"),
            tool_call("ask", question="--known q0", options=["--no-wait"]),
            tool_call("status", package=["WP01"]),
            tool_call("dispatch", package="WP01"),
            {"method": "resources/list"},
            {"method": "tools/call", "params": {"name": "status", "arguments": None}},
            {"method": "tools/call", "params": {"name": "status", "arguments": ["WP01"]}},
        )
    assert found[0]["result"]["protocolVersion"] == "2025-06-18"
    tools = found[1]["result"]["tools"]
    assert [tool["name"] for tool in tools] == [*mcp_shim.TOOLS]
    assert len(json.dumps(tools)) < 2_000
    assert found[2]["result"] == {"content": [{"type": "text", "text": "done\n"}], "isError": False}
    assert found[3]["result"] == {"content": [{"type": "text", "text": "no\n"}], "isError": True}
    assert found[4]["result"]["content"][0]["text"] == "the short one\n"
    assert [found[at]["error"]["code"] for at in (5, 6, 7, 9)] == [-32602, -32602, -32601, -32602]
    assert not found[8]["result"]["isError"]  # null is how some clients say that there are none
    assert found[9]["error"]["message"] == "status: the arguments are not an object"
    assert {*seen} == {
        StatusRequest(None),
        StatusRequest("WP01"),
        ArtifactWriteRequest(None, "--all", "--json"),
        AskRequest(" --known q0", ("--no-wait",)),
        AskRequest("", (), "q1"),
    }
