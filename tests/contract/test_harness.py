"""What every harness must do, run over all of them. A new one is added to the table and to SUBJECTS, and to no test."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from phasegate.agents.envelope import Envelope
from phasegate.agents.port import AgentConfig, AgentTask, Ending, FinishedRun, Harness, get_harness
from phasegate.core.agents.harnesses import HARNESSES
from phasegate.errors import ConfigError
from support.acp_runs import agent_command
from support.agents import carry_out, reported
from support.tasks import make_task


class Subject(NamedTuple):
    """How to make an agent of this kind run a shell command and end with its status."""

    configured: Callable[[Path, str], AgentConfig]
    network: bool
    takes_envelope: bool
    says: Callable[[str], str] | None = (
        None  # an answer in its own protocol; None: it has none, all of stdout counts
    )
    converses: bool = (
        False  # a program of ours speaks with it: what the agent itself prints is in the answer
    )


def _command(folder: Path, script: str) -> AgentConfig:
    return AgentConfig("tested", command=("sh", "-c", script), env=("AGENT_KEY",))


def _scripted(folder: Path, script: str) -> AgentConfig:
    path = folder.parent / "scenario.json"
    path.write_text(json.dumps([{"steps": [{"run": script}]}]))
    return AgentConfig("tested", scenario=str(path), env=("AGENT_KEY",))


def _in_json(*lines: object) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def _claude(answer: str) -> str:
    return _in_json({"type": "result", "subtype": "success", "is_error": False, "result": answer})


def _codex(answer: str) -> str:
    message = {"type": "agent_message", "text": answer}
    return _in_json(
        {"type": "item.completed", "item": message}, {"type": "turn.completed", "usage": {}}
    )


def _gemini(answer: str) -> str:
    said = {"type": "message", "role": "assistant", "content": answer}
    return _in_json(said, {"type": "result", "status": "success"})


def _opencode(answer: str) -> str:
    said = {"type": "text", "part": {"text": answer}}
    return _in_json(said, {"type": "step_finish", "part": {"reason": "stop"}})


def _speaks(says: Callable[[str], str]) -> Subject:
    return Subject(_command, network=True, takes_envelope=False, says=says)


def _acp(folder: Path, script: str) -> AgentConfig:
    return AgentConfig("tested", command=agent_command("shell", script), env=("AGENT_KEY",))


SUBJECTS = {
    "acp": Subject(_acp, network=True, takes_envelope=False, converses=True),
    "claude_code": _speaks(_claude),
    "copilot": Subject(_acp, network=True, takes_envelope=False, converses=True),
    "codex": _speaks(_codex),
    "cursor": _speaks(_claude),
    "gemini": _speaks(_gemini),
    "opencode": _speaks(_opencode),
    "qwen": _speaks(_claude),
    "command": Subject(_command, network=True, takes_envelope=True),
    "scripted": Subject(_scripted, network=False, takes_envelope=True),
}


@pytest.fixture(params=sorted(HARNESSES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "a repository"
    folder.mkdir()
    return folder


def task_of(kind: str, repository: Path, script: str = "true") -> AgentTask:
    return make_task(repository, SUBJECTS[kind].configured(repository, script), kind=kind)


def output_of(kind: str, repository: Path, script: str) -> str:
    """What an agent prints that runs this script."""
    task = task_of(kind, repository, script)
    finished = carry_out(get_harness(kind).launch(task), repository)
    return (
        reported(get_harness(kind), task, finished).answer
        if SUBJECTS[kind].converses
        else finished.stdout
    )


def test_every_harness_of_the_table_is_tested_here() -> None:
    assert SUBJECTS.keys() == HARNESSES.keys()


def test_the_port_is_small() -> None:
    assert len(Harness._fields) <= 3


def test_the_name_in_the_table_is_the_harnesss_own(kind: str) -> None:
    assert get_harness(kind).row.kind == kind
    assert get_harness(kind).row.template.isupper()


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as error:
        get_harness("clairvoyant")
    assert all(kind in error.value.hint for kind in HARNESSES)


def test_a_launch_says_all_that_the_sandbox_must_know(kind: str, repository: Path) -> None:
    launch = get_harness(kind).launch(task_of(kind, repository))
    assert launch.argv
    assert all(isinstance(argument, str) and "\0" not in argument for argument in launch.argv)
    assert launch.network is SUBJECTS[kind].network
    assert all(path.is_absolute() for path in launch.readable)
    assert "AGENT_KEY" in launch.pass_env
    assert not any(
        path.startswith("/") or ".." in path for path in (*launch.sign_in_files, *launch.home_files)
    )


@pytest.mark.demand("D1.d")
def test_every_agent_is_told_its_job_in_its_environment(kind: str, repository: Path) -> None:
    task = task_of(kind, repository)
    lines = output_of(kind, repository, 'env; cat "$AGILEPLUS_PROMPT"').splitlines()
    assert f"AGILEPLUS_JOB_ID={task.envelope.job_id}" in lines
    assert "AGILEPLUS_WP_ID=WP01" in lines
    assert f"AGILEPLUS_PROMPT={task.prompt_xml}" in lines
    assert f"AGILEPLUS_CONTEXT={':'.join(task.envelope.context_paths)}" in lines
    assert "<prompt>é</prompt>" in lines


@pytest.mark.demand("D1.a", "D3.h")
@pytest.mark.parametrize(
    "kind", [kind for kind in sorted(HARNESSES) if SUBJECTS[kind].takes_envelope]
)
def test_an_agent_that_takes_the_envelope_gets_all_of_it_on_stdin(
    kind: str, repository: Path
) -> None:
    launch = get_harness(kind).launch(task_of(kind, repository))
    assert isinstance(launch.stdin, bytes)
    assert json.loads(launch.stdin).keys() == {
        *("job_id", "feature_slug", "wp_sequence", "wp_id", "prompt_path"),
        *("context_paths", "worktree_path", "config"),
    }
    assert Envelope.__struct_fields__[:8] == tuple(json.loads(launch.stdin))


def test_a_launch_holds_no_value_of_our_own_environment(
    kind: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_KEY", "canary-7431")
    launch = get_harness(kind).launch(task_of(kind, repository))
    assert "canary-7431" not in repr(launch)
    assert "canary-7431" in output_of(kind, repository, "echo $AGENT_KEY")


def test_the_repositorys_own_files_add_nothing_to_the_environment(
    kind: str, repository: Path
) -> None:
    settings = (
        "ANTHROPIC_BASE_URL=http://evil.test\nHTTPS_PROXY=http://evil.test\nCODEX_HOME=/evil.test\n"
    )
    for name in (".env", ".envrc", ".claude/settings.json", ".codex/config.toml"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text(settings)
    assert "evil.test" in output_of(kind, repository, "cat .env")
    assert "evil.test" not in output_of(kind, repository, "env")


def test_what_the_program_said_is_the_answer(kind: str, repository: Path, tmp_path: Path) -> None:
    says = SUBJECTS[kind].says or (lambda answer: f"{answer}\n")
    (tmp_path / "said").write_text(says("an answer"))
    task = task_of(kind, repository, f"cat '{tmp_path}/said'; echo 'no answer' >&2")
    report = reported(
        get_harness(kind), task, carry_out(get_harness(kind).launch(task), repository)
    )
    assert (report.answer.strip(), report.ending) == ("an answer", Ending.COMPLETED)


ENDS = [
    ("exit 1", Ending.FAILED),
    ("kill -9 $$", Ending.FAILED),
    ("exit 127", Ending.NOT_RUNNABLE),
    ("exit 75", Ending.TRANSIENT),
    ("echo 'connect ECONNREFUSED' >&2; exit 1", Ending.TRANSIENT),
    ("echo '429 Too Many Requests, retry after 60s' >&2; exit 1", Ending.RATE_LIMITED),
    ("echo 'the test met ECONNREFUSED and passed'; exit 1", Ending.FAILED),
]


@pytest.mark.demand("D10.a", "D10.b")
@pytest.mark.parametrize(("script", "ending"), ENDS)
def test_the_end_of_a_run_is_a_value_with_a_reason(
    kind: str, repository: Path, tmp_path: Path, script: str, ending: Ending
) -> None:
    path = tmp_path / "end.sh"
    path.write_text(script)
    task = make_task(repository, _ending(kind, repository, path), kind=kind)
    report = reported(
        get_harness(kind), task, carry_out(get_harness(kind).launch(task), repository)
    )
    assert report.ending is ending
    assert report.reason
    assert (report.retry_at_s is not None) is (ending is Ending.RATE_LIMITED)


def _ending(kind: str, repository: Path, script: Path) -> AgentConfig:
    """A configuration whose program is the shell itself."""
    if kind != "scripted":
        return AgentConfig("tested", command=("sh", str(script)))
    return SUBJECTS[kind].configured(repository, f"exec sh '{script}'")


HOSTILE = [
    "",
    "\0",
    "\x1b]0;x\x07",
    "{",
    "[" * 100_000,
    '{"type":"result"}\n' * 3,
    "\ud800",
    "é" * 10,
    "NaN",
    "null\n",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize(
    ("status", "signal"),
    [(0, None), (1, None), (78, None), (126, None), (None, 9), (None, None), (-1, None)],
)
def test_whatever_was_printed_the_report_is_a_value(
    kind: str, repository: Path, text: str, status: int | None, signal: int | None
) -> None:
    finished = FinishedRun(status, text, text, signal)
    report = reported(get_harness(kind), task_of(kind, repository), finished)
    assert isinstance(report.answer, str)
    completes = status == 0 and SUBJECTS[kind].says is None and not SUBJECTS[kind].converses
    assert (report.ending is Ending.COMPLETED) is completes


@pytest.mark.demand("P5.a", "P5.c", "D1.e")
@pytest.mark.parametrize(
    "kind", [kind for kind in sorted(HARNESSES) if SUBJECTS[kind].says is not None]
)
def test_a_known_program_gets_the_prompts_xml_on_stdin_and_nothing_of_it_in_its_arguments(
    kind: str, repository: Path
) -> None:
    task = task_of(kind, repository, "cat")
    long = "<prompt>" + "ü" * 300_000 + "</prompt>\n"
    task.prompt_xml.write_text(long)
    launch = get_harness(kind).launch(task)
    assert not any(
        "prompt" in argument.replace("--permission-prompts", "") for argument in launch.argv
    )
    assert carry_out(launch, repository).stdout == long


def test_a_run_that_ran_out_of_time_did_not_complete(kind: str, repository: Path) -> None:
    finished = FinishedRun(0, "<review>PASS</review>", "", timed_out=True, duration_s=1800)
    report = reported(get_harness(kind), task_of(kind, repository), finished)
    assert report.ending in (Ending.FAILED, Ending.SILENT)


NEED_SETTINGS = [kind for kind in sorted(HARNESSES) if not HARNESSES[kind].program]


@pytest.mark.parametrize("kind", NEED_SETTINGS)
def test_a_configuration_that_does_not_suffice_is_refused_with_a_hint(
    kind: str, repository: Path
) -> None:
    with pytest.raises(ConfigError) as error:
        get_harness(kind).launch(make_task(repository, AgentConfig("tested"), kind=kind))
    assert "[agents.tested]" in error.value.hint


def test_a_command_means_the_persons_own_files(repository: Path) -> None:
    (repository / "tools").mkdir()
    (repository / "tools/agent.py").write_text("")
    agent = AgentConfig("mine", command=("tools/run", "tools/agent.py", "-x", "word", "/abs"))
    argv = get_harness("command").launch(make_task(repository, agent)).argv
    assert argv == (f"{repository}/tools/run", f"{repository}/tools/agent.py", "-x", "word", "/abs")
    by_name = AgentConfig("mine", command=("python3", "-c", "0"))
    assert get_harness("command").launch(make_task(repository, by_name)).argv == (
        "python3",
        "-c",
        "0",
    )


def test_the_interpreter_of_the_scripted_agent_looks_for_nothing_in_the_checkout(
    repository: Path,
) -> None:
    (repository / "json.py").write_text("raise SystemExit('hijacked')")
    task = task_of("scripted", repository, "echo fine")
    hijacked = carry_out(
        get_harness("command").launch(
            make_task(repository, AgentConfig("x", command=(sys.executable, "-m", "json.tool")))
        ),
        repository,
    )
    assert "hijacked" in hijacked.stderr
    assert carry_out(get_harness("scripted").launch(task), repository).stdout == "fine\n"
