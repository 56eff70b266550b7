"""What an agent can make us keep or show is bounded, and the limit is named (ATTACKS.md O07)."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.agents.spool.requests import ArtifactWriteRequest
from phasegate.agents.spool.server import SpoolRequestHandler
from phasegate.core.plan.work_package import PackageState
from phasegate.engine.jobs.job_end import MAX_REASON_CHARS
from phasegate.engine.jobs.requests import (
    MAX_ARTIFACT_BYTES,
    MAX_ARTIFACTS,
    MAX_HISTORY_FACTOR,
    make_request_handler,
)
from phasegate.engine.project.project import open_project_store
from phasegate.engine.views.overview import open_reader
from phasegate.errors import ConfigError
from support.dispatch_project import (
    SLUG,
    DispatchProject,
    approves,
    implements,
    make_project,
    package,
    turn,
)

MIB = 1024**2


def _stored(project: DispatchProject) -> int:
    papers = project.project.location.data_folder / "papers"
    return sum(path.stat().st_size for path in papers.rglob("*") if path.is_file())


@pytest.mark.demand("D14.e")
def test_the_artifacts_of_a_package_are_bounded_together(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    with open_project_store(project.project) as store:
        answer = make_request_handler(project.project, store, SLUG, "WP01", "a job")
        said = [
            answer_of(answer, ArtifactWriteRequest(SLUG, f"WP01/{n}.log", f"{n}" + "x" * 4 * MIB))
            for n in range(50)
        ]
        assert said[0] == ""
        assert f"(limit {MAX_ARTIFACT_BYTES})" in said[-1]
        assert 0 < _stored(project) <= MAX_ARTIFACT_BYTES
        again = answer_of(
            answer, ArtifactWriteRequest(SLUG, "WP01/0.log", "a new one of the same name")
        )
        assert again == "", "what takes the place of another needs no more room"
        many = [
            answer_of(answer, ArtifactWriteRequest(SLUG, f"WP01/small/{n}", "x"))
            for n in range(MAX_ARTIFACTS + 10)
        ]
        assert f"(limit {MAX_ARTIFACTS})" in many[-1]
        over = [
            answer_of(answer, ArtifactWriteRequest(SLUG, "WP01/0.log", f"{n}" + "x" * 4 * MIB))
            for n in range(30)
        ]
        assert f"(limit {MAX_ARTIFACT_BYTES})" in over[-1], "one file, over and over, fills no disk"
        assert _stored(project) <= MAX_HISTORY_FACTOR * MAX_ARTIFACT_BYTES
    project.project.document_store.put(b"x" * MAX_HISTORY_FACTOR * MAX_ARTIFACT_BYTES)
    assert _stored(project) > MAX_HISTORY_FACTOR * MAX_ARTIFACT_BYTES, (
        "the writer itself sets no such bound"
    )


def answer_of(answer: SpoolRequestHandler, request: ArtifactWriteRequest) -> str:
    """Why it was refused; empty if it was written."""
    try:
        return answer(request).stderr
    except ConfigError as error:
        return error.message


@pytest.mark.demand("D7.c")
def test_five_megabytes_behind_a_blocker_are_neither_recorded_nor_printed(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    flood = {"run": "printf 'BLOCKER: '; head -c 5000000 /dev/zero | tr '\\0' x; echo"}
    project.play(turn("implement", flood, {"result": "success"}))
    done = project.command("dispatch", "WP01")
    assert (done.code, "BLOCKED" in done.stdout) == (1, True)
    assert "xxxx" in done.stdout, "the beginning is shown"
    assert len(done.stdout) + len(done.stderr) < 4 * MAX_REASON_CHARS
    assert len(project.command("status", "--json").stdout) < 4 * MAX_REASON_CHARS
    assert project.rows()["WP01"].state == PackageState.BLOCKED


@pytest.mark.demand("D6.c")
def test_an_exception_that_no_scope_could_honour_is_refused_and_not_recorded(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path)
    for path in (
        ".phasegate/store.db",
        ".worktrees/",
        ".gitmodules",
        ".git/config",
        "../out",
        "/etc/passwd",
    ):
        refused = project.command("scope", "allow", "WP01", path, "--reason", "why not")
        assert refused.code == 2, (path, refused)
    allowed = project.command("scope", "allow", "WP01", "src/other.ts", "--reason", "it is needed")
    assert allowed.code == 0, allowed
    reader = open_reader(str(project.root))
    assert reader is not None
    with reader:
        assert [event.kind for event in reader.events(SLUG)].count("scope.allowed") == 1


def test_characters_that_nobody_sees_are_told_by_dispatch_and_status_and_are_in_the_trail(
    tmp_path: Path,
) -> None:
    document = package().replace("Do it.", "Do it.\u200b\u202eand what is behind it")
    project = make_project(tmp_path, {"WP01": document})
    project.play(implements("src/login.ts"), approves())
    done = project.command("dispatch", "WP01")
    assert done.code == 0, done
    assert "invisible characters" in done.stderr
    assert "WP01.md:" in done.stderr
    notices = [
        one["text"] for one in project.trail(project.jobs()[0].id) if one["action"] == "notice"
    ]
    assert any("invisible characters" in text for text in notices)
    status = project.command("status").stdout
    assert status.count("WP01: invisible characters") == 1, "two jobs, one place"
    assert "WP01.md:" in status
    [told] = project.command("status", "--json").json["hidden"]
    assert told in status
    plain = make_project(tmp_path / "plain")
    plain.play(implements("src/login.ts"), approves())
    assert "nobody sees" not in plain.command("dispatch", "WP01").stderr
    assert "nobody sees" not in plain.command("status").stdout
