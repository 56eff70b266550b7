"""A work package carried out by an agent that speaks the Agent Client Protocol, configured and in the sandbox."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.storage.rows import JobRow
from support.acp_runs import agent_command
from support.dispatch_project import FEATURE, DispatchProject, make_project


def acp_project(folder: Path, behaviour: str, argument: object, more: str = "") -> DispatchProject:
    command = json.dumps(agent_command(behaviour, argument))
    return make_project(folder, harness=f'harness = "acp"\ncommand = {command}\n{more}')


def output_of(project: DispatchProject, job: JobRow) -> list[dict[str, object]]:
    """What the program in the sandbox told the harness."""
    lines = (
        (project.project.jobs_folder / job.id / "stdout.log")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    return [json.loads(line) for line in lines]


@pytest.mark.demand("D3.g", "D7.a")
def test_an_acp_agent_implements_and_reviews_a_package(tmp_path: Path) -> None:
    project = acp_project(tmp_path, "implements", ["src/login.ts"])
    done = project.command("dispatch", "WP01")
    assert done.code == 0, done.stderr
    assert "src/login.ts" in project.files_of(FEATURE)
    assert [job.outcome for job in project.jobs()] == ["done", "done"]
    assert project.audit_problems() == []


@pytest.mark.demand("D3.g", "D6.a")
def test_a_write_outside_the_scope_never_reaches_the_checkout(tmp_path: Path) -> None:
    outside = tmp_path / "stolen.txt"
    project = acp_project(tmp_path, "implements", ["README.md", str(outside), "src/login.ts"])
    done = project.command("dispatch", "WP01")
    assert done.code == 0, done.stderr  # a violation that was made would have blocked it
    assert project.git("show", f"{FEATURE}:README.md") == "A project"
    assert not outside.exists()
    implemented, _ = project.jobs()
    refused = [line for line in output_of(project, implemented) if line["type"] == "notice"]
    assert [str(line["path"]).rpartition("/")[2] for line in refused] == ["README.md", "stolen.txt"]


@pytest.mark.demand("D6.b", "D6.g")
def test_what_an_agent_writes_without_asking_is_found_afterwards(tmp_path: Path) -> None:
    project = acp_project(tmp_path, "implements", ["src/login.ts", "!README.md"])
    done = project.command("dispatch", "WP01")
    assert done.code == 1
    assert "README.md" in done.stdout + done.stderr


@pytest.mark.demand("D10.b")
def test_an_agent_that_is_not_signed_in_blocks_with_what_to_do(tmp_path: Path) -> None:
    project = acp_project(tmp_path, "wants_sign_in", "", "max_retries = 0")
    done = project.command("dispatch", "WP01", "--json")
    assert done.code == 1
    assert "sign in" in json.dumps(done.json)


@pytest.mark.demand("D9.a", "D9.c")
def test_an_acp_agent_that_hangs_is_ended_by_the_sandbox(tmp_path: Path) -> None:
    project = acp_project(tmp_path, "hangs", "ready", "timeout_s = 4\nmax_retries = 0")
    done = project.command("dispatch", "WP01")
    assert done.code == 1
    assert "timed out" in done.stdout + done.stderr
