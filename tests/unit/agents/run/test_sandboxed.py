"""A run is read line by line while it runs, and neither reader nor listener can harm it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest

from phasegate.agents.port import AgentEvent, AgentReport, Ending, EventKind, FinishedRun
from phasegate.agents.run.sandboxed import install_tools, resolve_argv, run_agent
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import JobRequest, SandboxLevel

PYTHON = (sys.executable, "-I", "-c")


def job_of(folder: Path, code: str) -> SandboxedJob:
    (folder / "work").mkdir()
    return SandboxedJob(
        JobRequest(
            argv=(*PYTHON, code),
            cwd=folder / "work",
            folder=folder / "job",
            tag=uuid.uuid4().hex,
            env=build_environment(),
            level=SandboxLevel.NONE,
            timeout_s=60,
        )
    )


class Lister:
    """Remembers the lines, and ends well when it saw the last one."""

    def __init__(self, fails_at: str = "") -> None:
        self.lines: list[str] = []
        self._fails_at = fails_at

    def parse_line(self, text: str) -> Iterable[AgentEvent]:
        if self._fails_at and text == self._fails_at:
            raise RuntimeError("a mistake of ours")
        self.lines.append(text)
        return (AgentEvent(EventKind.TEXT, text),)

    def build_report(self, finished: FinishedRun) -> AgentReport:
        if self._fails_at == "report":
            raise RuntimeError("a mistake of ours")
        return AgentReport(self.lines[-1], Ending.COMPLETED)


def test_lines_are_read_while_the_agent_runs(tmp_path: Path) -> None:
    """The agent waits for a file that is only made when its first line was heard."""
    wait = "while not os.path.exists('heard'): time.sleep(0.01)"
    code = f"import os, time\nprint('first', flush=True)\n{wait}\nprint('last')"
    parser = Lister()
    ran = run_agent(job_of(tmp_path, code), parser, lambda _: (tmp_path / "work/heard").touch())
    assert parser.lines == ["first", "last"]
    assert (ran.report.ending, ran.finished.exit_status) == (Ending.COMPLETED, 0)


def test_a_last_line_without_a_line_feed_is_read_too(tmp_path: Path) -> None:
    parser = Lister()
    run_agent(job_of(tmp_path, "print('one\\n\\ntwo', end='')"), parser)
    assert parser.lines == ["one", "", "two"]


@pytest.mark.parametrize("fails_at", ["2", "report"])
def test_a_reading_that_fails_does_not_harm_the_job_and_never_completes_it(
    tmp_path: Path, fails_at: str
) -> None:
    code = "for n in range(5): print(n, flush=True)\nopen('done', 'x')"
    ran = run_agent(job_of(tmp_path, code), Lister(fails_at))
    assert (tmp_path / "work/done").exists()
    assert ran.finished.exit_status == 0
    assert ran.finished.stdout == "0\n1\n2\n3\n4\n"
    assert ran.report.ending is Ending.FAILED


def test_a_listener_that_fails_harms_neither_job_nor_report(tmp_path: Path) -> None:
    told: list[AgentEvent] = []

    def listen(event: AgentEvent) -> None:
        told.append(event)
        raise RuntimeError("a view that fell over")

    ran = run_agent(job_of(tmp_path, "print('a\\nb\\nc')"), Lister(), listen)
    assert (ran.report.answer, ran.report.ending) == ("c", Ending.COMPLETED)
    assert len(told) == 1


def test_a_line_that_is_too_long_is_skipped_and_flagged(tmp_path: Path) -> None:
    parser = Lister()
    ran = run_agent(job_of(tmp_path, "print('a'); print('x' * (17 * 2**20)); print('b')"), parser)
    assert parser.lines == ["a", "b"]
    assert ran.finished.skipped_lines == 1


def test_bytes_that_are_no_text_are_read_with_marks(tmp_path: Path) -> None:
    parser = Lister()
    run_agent(job_of(tmp_path, "import sys; sys.stdout.buffer.write(b'\\xff\\x00\\n')"), parser)
    assert parser.lines == ["\ufffd\0"]


def test_a_reading_can_talk_to_its_job_and_stop_it(tmp_path: Path) -> None:
    job = job_of(tmp_path, "import time\nprint('ready', flush=True)\ntime.sleep(60)")

    class Stopper(Lister):
        def parse_line(self, text: str) -> Iterable[AgentEvent]:
            job.stop()
            return super().parse_line(text)

    assert run_agent(job, Stopper()).finished.sigterm_sent


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.demand("R5.e")
def test_an_agent_s_program_and_its_interpreter_are_those_of_the_person(tmp_path: Path) -> None:
    person = program(tmp_path / "person/agent", "#!/usr/bin/env -S sh -e\necho agent\n").parent
    path = f"{person}:/usr/bin:/bin"
    shell = shutil.which("sh", path=path)
    assert resolve_argv(("agent", "--now"), path, tmp_path) == (
        shell,
        "-e",
        str(person / "agent"),
        "--now",
    )
    assert resolve_argv(("sh", "-c", "true"), path, tmp_path) == (shell, "-c", "true")
    assert resolve_argv(("no-such-agent",), path, tmp_path) == ("no-such-agent",)
    binary = program(tmp_path / "person/empty", "")
    assert resolve_argv(("empty",), path, tmp_path) == (str(binary),)


@pytest.mark.demand("R5.a")
def test_a_tool_is_started_where_it_lies(tmp_path: Path) -> None:
    tool = program(tmp_path / "a folder's/.venv/bin/where", '#!/bin/sh\necho "$0" "$@"\n')
    install_tools(tmp_path / "tools", [tool])
    done = subprocess.run(
        [tmp_path / "tools/where", "a b"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{tool} a b\n"
