"""A job's spool: the commands inside a job, the requests they make, the answers they get."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from phasegate.agents import spool_shim
from phasegate.agents.request_spool import RequestSpool, SpoolAnswer, place_commands
from phasegate.agents.spool_request import (
    ArtifactList,
    ArtifactRead,
    ArtifactWrite,
    SpoolRequest,
    Status,
    Unanswerable,
    WorktreeList,
    read_request,
)
from phasegate.errors import ConfigError

READ = [
    ("status WP01", Status("WP01")),
    ("status", Status(None)),
    ("status WP01 --json", Status("WP01", as_json=True)),
    ("worktree list", WorktreeList(everything=False)),
    ("worktree list --all --json", WorktreeList(everything=True, as_json=True)),
    (
        "artifact write --feature-slug 001-login --relative-path WP01/r.txt --content x",
        ArtifactWrite("001-login", "WP01/r.txt", "x"),
    ),
    ("artifact write --content=--json --feature-slug=s --relative-path=p", ArtifactWrite("s", "p", "--json")),
    ("artifact write --feature-slug s --relative-path p --content --all", ArtifactWrite("s", "p", "--all")),
    ("artifact read --feature-slug s --relative-path p", ArtifactRead("s", "p")),
    ("artifact list", ArtifactList(None)),
    ("artifact list --feature-slug s --json", ArtifactList("s", as_json=True)),
]


@pytest.mark.demand("D14.d")
@pytest.mark.parametrize(("line", "request_"), READ)
def test_the_commands_of_the_specification_are_understood(line: str, request_: SpoolRequest) -> None:
    assert read_request(line.split()) == request_


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
        *("worktree remove x", "artifact", "artifact delete", "artifact write", "artifact write --feature-slug s"),
        *(
            "artifact write --feature-slug s --relative-path p",
            "artifact read --feature-slug s --content x --relative-path p",
        ),
        *("status --relative-path s", "status --force", "artifact list --feature-slug", "status --json --json"),
        "artifact write --feature-slug s --feature-slug t --relative-path p --content c",
        "status " + "x " * 50,
    ],
)
def test_anything_else_is_refused_by_name(line: str) -> None:
    with pytest.raises(Unanswerable):
        read_request(line.split())


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RequestSpool]:
    with RequestSpool(tmp_path / "job's spool") as made:
        place_commands(tmp_path / "bin", made.folder)
        yield made


def call(
    spool: RequestSpool, *arguments: str, stdin: str = "", name: str = "agileplus"
) -> subprocess.CompletedProcess[str]:
    """Call a command as an agent does, by its name, with a bare environment."""
    env = {"PATH": f"{spool.folder.parent / 'bin'}:/usr/bin:/bin"}
    return subprocess.run((name, *arguments), env=env, input=stdin, capture_output=True, text=True, timeout=60)


@pytest.mark.demand("D14.d", "D14.e")
@pytest.mark.parametrize("name", ["phasegate", "agileplus"])
def test_a_command_inside_a_job_is_answered_by_the_orchestrator(spool: RequestSpool, name: str) -> None:
    seen: list[SpoolRequest] = []

    def answer(request: SpoolRequest) -> SpoolAnswer:
        seen.append(request)
        return SpoolAnswer(1, stdout="WP01 DOING é\n", stderr="careful\n")

    with spool.serving(answer):
        done = call(spool, "status", "WP01", name=name)
    assert (done.returncode, done.stdout, done.stderr) == (1, "WP01 DOING é\n", "careful\n")
    assert seen == [Status("WP01")]
    assert not [*(spool.folder / "requests").iterdir()]


@pytest.mark.demand("D14.d", "D14.e")
def test_an_artifact_arrives_whole_by_value_by_file_and_by_stdin(spool: RequestSpool, tmp_path: Path) -> None:
    seen: list[SpoolRequest] = []
    text = 'Tests: 42 passed, 0 failed\n{"é": "\\" \\n"}\n'
    (tmp_path / "report.txt").write_text(text)
    where = ("artifact", "write", "--feature-slug", "001-login", "--relative-path", "WP01/test-report.txt")
    with spool.serving(lambda request: (seen.append(request), SpoolAnswer(0))[1]):
        for rest in (("--content", text), ("--file", str(tmp_path / "report.txt"))):
            assert call(spool, *where, *rest).returncode == 0
        assert call(spool, *where, "-", stdin=text).returncode == 0
    assert seen == [ArtifactWrite("001-login", "WP01/test-report.txt", text)] * 3


@pytest.mark.demand("D14.e")
def test_an_error_of_ours_is_told_and_does_not_end_the_run(
    spool: RequestSpool, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(request: SpoolRequest) -> SpoolAnswer:
        if isinstance(request, ArtifactRead):
            raise ConfigError("no such artifact", "List them.")
        raise ZeroDivisionError

    with spool.serving(answer):
        missing = call(spool, "artifact", "read", "--feature-slug", "s", "--relative-path", "p")
        broken = call(spool, "status")
    assert (missing.returncode, missing.stderr) == (2, "phasegate: no such artifact\nList them.\n")
    assert broken.returncode == 70
    assert "internal error" in broken.stderr


def test_a_wrong_command_is_refused_with_a_word(spool: RequestSpool) -> None:
    with spool.serving(lambda request: SpoolAnswer(0)):
        done = call(spool, "advance")
    assert done.returncode == 2
    assert "not available inside a job" in done.stderr


def test_help_needs_no_orchestrator(spool: RequestSpool) -> None:
    done = call(spool, "--help")
    assert done.returncode == 0
    assert "artifact write" in done.stdout


def test_without_an_answer_the_command_gives_up_politely(spool: RequestSpool, tmp_path: Path) -> None:
    shim = tmp_path / "bin/spool_shim.py"
    shim.write_text(shim.read_text().replace(f"PATIENCE_S = {spool_shim.PATIENCE_S}", "PATIENCE_S = 0.05"))
    done = call(spool, "status")
    assert done.returncode == 75
    assert "did not answer" in done.stderr


def test_serving_never_waits(spool: RequestSpool) -> None:
    assert spool.serve(lambda request: SpoolAnswer(0)) == 0


def test_a_spool_is_made_once(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted/requests").symlink_to(tmp_path)
    with pytest.raises(FileExistsError):
        RequestSpool(tmp_path / "planted")
