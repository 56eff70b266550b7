"""Agents and checks in the real sandbox: what they need works there, and what they must not have is not there.

At level `none` nothing is held back, so those cases are the controls.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from phasegate.agents.port import AgentConfig, Ending, FinishedRun, get_harness
from phasegate.agents.run.sandboxed import build_finished_run, build_job_request
from phasegate.agents.spool.requests import ArtifactWriteRequest, SpoolRequest, StatusRequest
from phasegate.agents.spool.server import RequestSpool, SpoolAnswer
from phasegate.checks.command_runner import SandboxedRunner
from phasegate.checks.manifest import gather_evidence
from phasegate.checks.plan import Command
from phasegate.core.trust import Trust
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import SandboxLevel
from support.agents import reported
from support.checkout import PYTEST, SOURCE, TESTS, commit, git, plan, repository, work_since, write
from support.sandboxed import ALL_LEVELS, SANDBOXED, need
from support.tasks import make_task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo", {"README.md": "x\n"})


def play(folder: Path, steps: str, level: SandboxLevel, answer: object = None) -> FinishedRun:
    """Run the scripted agent in a sandbox, with its spool served."""
    need(level)
    scenario = folder.parent / "elsewhere/scenario.toml"
    scenario.parent.mkdir(exist_ok=True)
    scenario.write_text(f"[[turns]]\nsteps = [{steps}]\n")
    task = make_task(folder, AgentConfig("actor", scenario=str(scenario)), kind="scripted")
    launch = get_harness("scripted").launch(task)
    with RequestSpool(folder.parent / "job/spool") as spool:
        request = build_job_request(
            task,
            launch,
            folder.parent / "job",
            spool,
            tag=uuid.uuid4().hex,
            level=level,
            timeout_s=60,
        )
        with spool.serve_in_background(answer or (lambda request: SpoolAnswer(0))):  # type: ignore[arg-type]
            return build_finished_run(SandboxedJob(request).run(), time.time())


@pytest.mark.demand("D3.i", "D14.d", "D14.e", "D1.d")
@pytest.mark.parametrize("level", ALL_LEVELS)
def test_the_scripted_agent_works_in_the_sandbox_with_its_commands(
    folder: Path, level: SandboxLevel
) -> None:
    seen: list[SpoolRequest] = []

    def answer(request: SpoolRequest) -> SpoolAnswer:
        seen.append(request)
        return SpoolAnswer(0, "WP01 DOING\n")

    artifact = "agileplus artifact write --feature-slug {feature_slug} --relative-path WP01/r.txt --content 'Tests: 42'"
    finished = play(
        folder,
        '{ run = "cat $AGILEPLUS_PROMPT" }, { run = "agileplus status WP01 && phasegate status" },'
        f'{{ run = "{artifact}" }}, {{ write = "calc.py", content = "x = 1" }},'
        '{ commit = "{wp_id}: Add", paths = ["calc.py"] }, { result = "success" }',
        level,
        answer,
    )
    assert (finished.exit_status, finished.stderr) == (0, "")
    assert finished.stdout.startswith("<prompt>é</prompt>\nWP01 DOING\nWP01 DOING\nWP01 DOING\n{")
    assert seen == [
        StatusRequest("WP01"),
        StatusRequest(None),
        ArtifactWriteRequest("001-user-login", "WP01/r.txt", "Tests: 42"),
    ]
    assert git(folder, "log", "-1", "--format=%s") == "WP01: Add"


@pytest.mark.demand("D14.e")
@pytest.mark.parametrize("level", ALL_LEVELS)
def test_an_agent_in_the_sandbox_cannot_write_its_own_answers(
    folder: Path, level: SandboxLevel
) -> None:
    forge = "echo forged > ../job/spool/answers/x.json"
    finished = play(folder, f'{{ run = "{forge}", may_fail = true }}, {{ print = "done" }}', level)
    assert finished.stdout == "done\n"
    assert (folder.parent / "job/spool/answers/x.json").exists() is (level is SandboxLevel.NONE)


@pytest.mark.demand("D9.a", "D9.b")
def test_an_agent_that_runs_out_of_time_has_failed(folder: Path) -> None:
    task = make_task(folder, AgentConfig("slow", command=("sleep", "60")))
    harness = get_harness("command")
    with RequestSpool(folder.parent / "job/spool") as spool:
        request = build_job_request(
            task,
            harness.launch(task),
            folder.parent / "job",
            spool,
            tag=uuid.uuid4().hex,
            level=SandboxLevel.NONE,
            timeout_s=0.5,
        )
        finished = build_finished_run(SandboxedJob(request).run(), time.time())
    assert finished.sigterm_sent
    assert reported(harness, task, finished).ending is Ending.FAILED


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks find our interpreter, which has pytest."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.demand("D8.g")
@pytest.mark.parametrize("level", ALL_LEVELS)
@pytest.mark.usefixtures("on_path")
def test_the_manifest_is_gathered_in_the_sandbox(folder: Path, level: SandboxLevel) -> None:
    need(level)
    base = git(folder, "rev-parse", "HEAD")
    write(folder, {"calc.py": SOURCE, "test_calc.py": TESTS})
    commit(folder, "WP01: Add")
    commands = {
        "setup": "mkdir -p .venv/bin && touch .venv/bin/x",
        "test": PYTEST,
        "lint": "no-such-linter",
    }
    runner = SandboxedRunner(folder.parent / "checks", uuid.uuid4().hex, level)
    evidence = gather_evidence(plan(commands=commands), work_since(folder, base), runner)
    assert [check.name for check in evidence.failures] == ["lint"], evidence.failures
    assert evidence.failures[0].exit_status == 127


def checked(folder: Path, line: str, level: SandboxLevel | None, *, network: bool = False) -> str:
    runner = SandboxedRunner(
        folder.parent / "checks", uuid.uuid4().hex, level, trust=Trust(accepts_all=True)
    )
    ran = runner(Command(("sh", "-c", line), folder, {}, (), network, 30))
    return ran.stdout + ran.stderr


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_a_check_gets_no_key_of_an_agent_at_any_level(
    folder: Path, level: SandboxLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L05: the names that agents are configured with are not even known here."""
    need(level)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AGENT_KEY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "canary-9921")
    assert "canary-9921" in subprocess.run(("env",), capture_output=True, text=True).stdout, (
        "control"
    )
    assert "canary-9921" not in checked(folder, "env; cat /proc/self/environ", level)
    launch_env = get_harness("command").launch(
        make_task(folder, AgentConfig("x", command=("env",), env=("AGENT_KEY",)))
    )
    assert launch_env.pass_env == ("AGENT_KEY",), (
        "control: an agent that is configured so does get it"
    )


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_a_check_can_write_to_its_checkout_only(folder: Path, level: SandboxLevel) -> None:
    need(level)
    victim = folder.parent / "victim"
    victim.write_text("precious")
    checked(folder, f"echo in > inside; echo spoilt > {victim}", level)
    assert (folder / "inside").read_text() == "in\n"
    assert (victim.read_text() == "spoilt\n") is (level is SandboxLevel.NONE)


@pytest.mark.parametrize("network", [False, True])
def test_only_a_command_that_needs_the_network_is_in_ours(folder: Path, network: bool) -> None:
    for level in SANDBOXED:
        need(level)
    ours = str(Path("/proc/self/ns/net").readlink())
    assert (
        checked(folder, "readlink /proc/self/ns/net", None, network=network).strip() == ours
    ) is network
