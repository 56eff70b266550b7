"""How the known agent programs are started: what they may do, what they get of ours, and what a repository can add."""

from __future__ import annotations

import uuid
from pathlib import Path

import msgspec
import pytest

from phasegate.agents.port import AgentConfig, AgentTask, Launch, get_harness
from phasegate.agents.run.sandboxed import build_job_request, run_agent
from phasegate.agents.run.sign_in_files import share_sign_in
from phasegate.agents.spool.server import RequestSpool
from phasegate.core.agents.harnesses import HARNESSES
from phasegate.core.prompt.template import AgentPhase
from phasegate.prompts.templates import load_system_template
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import SandboxLevel
from support.agent_streams import PROGRAMS
from support.tasks import JOB_ID, make_task

ANYTHING_GOES = {
    "claude_code": "--dangerously-skip-permissions",
    "codex": "--dangerously-bypass-approvals-and-sandbox",
    "cursor": "--force",
    "gemini": "yolo",
    "qwen": "--yolo",
}
KEYS = {
    "claude_code": "ANTHROPIC_API_KEY",
    "codex": "CODEX_API_KEY",
    "cursor": "CURSOR_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "opencode": "OPENCODE_API_KEY",
    "qwen": "OPENAI_API_KEY",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


def launch_of(
    kind: str, repository: Path, *, sandboxed: bool = True, agent: AgentConfig | None = None
) -> Launch:
    task = make_task(repository, agent or AgentConfig("tested"), kind=kind)
    return get_harness(kind).launch(msgspec.structs.replace(task, sandboxed=sandboxed))


@pytest.mark.parametrize("kind", ANYTHING_GOES)
def test_a_program_may_do_anything_only_where_the_sandbox_holds_it(
    kind: str, repository: Path
) -> None:
    assert ANYTHING_GOES[kind] in launch_of(kind, repository).argv
    assert ANYTHING_GOES[kind] not in launch_of(kind, repository, sandboxed=False).argv


def test_opencode_has_no_shell_where_no_sandbox_holds_it(repository: Path) -> None:
    assert "OPENCODE_PERMISSION" not in launch_of("opencode", repository).env
    assert (
        '"*":"deny"'
        in launch_of("opencode", repository, sandboxed=False).env["OPENCODE_PERMISSION"]
    )


def test_a_task_is_not_sandboxed_unless_somebody_says_so(repository: Path) -> None:
    assert not make_task(repository, AgentConfig("tested")).sandboxed


@pytest.mark.parametrize("kind", PROGRAMS)
def test_the_configured_command_and_model_are_used(kind: str, repository: Path) -> None:
    agent = AgentConfig("tested", command=("tools/program", "--more"), model="model-7")
    launch = launch_of(kind, repository, agent=agent)
    assert launch.argv[:2] == (f"{repository}/tools/program", "--more")
    at = launch.argv.index("model-7")
    assert launch.argv[at - 1] in ("-m", "--model")
    assert "model-7" not in launch_of(kind, repository).argv


@pytest.mark.demand("P5.c")
@pytest.mark.parametrize("kind", PROGRAMS)
def test_no_flag_of_a_program_carries_a_system_prompt(kind: str, repository: Path) -> None:
    launch = launch_of(kind, repository)
    assert not any(
        "system-prompt" in argument or "instructions" in argument for argument in launch.argv
    )
    assert not any("SYSTEM" in name and value for name, value in launch.env.items())


def test_the_only_mcp_server_that_gemini_may_run_has_a_name_that_no_project_can_guess(
    repository: Path,
) -> None:
    argv = launch_of("gemini", repository).argv
    assert JOB_ID in argv[argv.index("--allowed-mcp-server-names") + 1]


@pytest.mark.parametrize("kind", HARNESSES)
def test_every_harness_has_a_template_for_every_phase(kind: str, tmp_path: Path) -> None:
    for phase in AgentPhase:
        assert load_system_template(HARNESSES[kind].template, phase, root=tmp_path)


def test_the_templates_are_those_of_the_programs() -> None:
    named = {kind: HARNESSES[kind].template for kind in ("claude_code", "codex", "gemini")}
    assert named == {"claude_code": "CLAUDE", "codex": "CODEX", "gemini": "GEMINI"}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_gets_the_key_of_its_own_model_and_of_no_other(
    kind: str, repository: Path
) -> None:
    passed = launch_of(kind, repository).pass_env
    assert KEYS[kind] in passed
    if kind != "opencode":  # it serves the models of all
        foreign = {key for other, key in KEYS.items() if other != kind} - {"OPENAI_API_KEY"}
        assert not foreign.intersection(passed)
    assert not any(name.startswith(("AWS_", "GITHUB_", "SSH_", "NPM_")) for name in passed)


SPY = r"""
env > "$HOME/../env"; (cat /proc/$$/cmdline || ps -o args= -p $$) > "$HOME/../cmdline"
cd "$HOME" && find . -type f > ../files
echo "the key is $1"; echo "and again $1" >&2
"""


def spy(kind: str, repository: Path, tmp_path: Path) -> AgentTask:
    script = tmp_path / "spy.sh"
    script.write_text(SPY.replace("$1", f"${KEYS[kind]}"))
    return make_task(repository, AgentConfig("tested", command=("sh", str(script))), kind=kind)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_in_a_job_a_key_is_in_the_environment_and_nowhere_else(
    kind: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L01, L03: other variables do not get in, the key is on no command line, and what prints it is redacted."""
    for name in KEYS.values():
        monkeypatch.setenv(name, f"canary-of-{name}")
    monkeypatch.setenv("SOMEBODYS_SECRET", "canary-of-somebody")
    task, folder = spy(kind, repository, tmp_path), tmp_path / "job"
    harness = get_harness(kind)
    launch = harness.launch(task)
    home = tmp_path / "person"
    for name in (*launch.sign_in_files, ".ssh/id_ed25519"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text('{"token":"canary-of-the-sign-in"}')
    with (
        RequestSpool(folder / "spool") as spool,
        share_sign_in(launch.sign_in_files, home, folder / "home") as sign_in,
    ):
        request = build_job_request(
            task,
            launch,
            folder,
            spool,
            tag=uuid.uuid4().hex,
            level=SandboxLevel.NONE,
            timeout_s=60,
            sign_in=sign_in,
        )
        request = request._replace(
            stdout_log=folder / "stdout.log", stderr_log=folder / "stderr.log"
        )
        job = SandboxedJob(request)
        ran = run_agent(job, harness.make_parser(task, job))
    seen = (folder / "env").read_text()
    assert f"canary-of-{KEYS[kind]}" in seen, "control: it had the key"
    assert "canary-of-somebody" not in seen
    assert "spy.sh" in (folder / "cmdline").read_text()
    assert "canary" not in (folder / "cmdline").read_text()
    assert {f"./{name}" for name in launch.sign_in_files} <= set(
        (folder / "files").read_text().split()
    )
    assert "id_ed25519" not in (folder / "files").read_text()
    shown = [ran.finished.stdout, ran.finished.stderr, repr(ran.report)]
    shown += [(folder / name).read_text() for name in ("stdout.log", "stderr.log")]
    assert not any("canary" in text for text in shown)
    assert "the key is [redacted]" in ran.finished.stdout
