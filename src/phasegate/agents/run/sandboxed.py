"""A launch as a job of the cage, and the end of that job as the harness reads it."""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from phasegate.agents.port import (
    AgentEvent,
    AgentReport,
    AgentTask,
    AwaitsModel,
    Ending,
    EventKind,
    FinishedRun,
    HearsErrors,
    Launch,
    StreamReading,
)
from phasegate.agents.run.secret_values import secrets_of
from phasegate.agents.run.sign_in import SignIn
from phasegate.agents.spool.server import RequestSpool, place_commands
from phasegate.agents.stream.tool_use import notice
from phasegate.core.answer.parse import blockers_in
from phasegate.sandbox.bounded_output import Lines, Stream
from phasegate.sandbox.environment import scrubbed
from phasegate.sandbox.job import CagedJob, OnSignal
from phasegate.sandbox.redact import Redactor
from phasegate.sandbox.request import JobLimits, JobOutcome, Level, Request
from phasegate.sandbox.run_program import find_program

OnEvent = Callable[[AgentEvent], None]
_log = logging.getLogger(__name__)


class AgentRun(NamedTuple):
    """A run that is over: what the agent brought, and how its process ended."""

    report: AgentReport
    finished: FinishedRun


def job_request(
    task: AgentTask,
    launch: Launch,
    folder: Path,
    spool: RequestSpool,
    *,
    tag: str,
    level: Level,
    timeout_s: float,
    sign_in: SignIn = SignIn(),  # noqa: B008 - frozen
    tools: Sequence[Path] = (),
    limits: JobLimits = JobLimits(),  # noqa: B008 - frozen
) -> Request:
    """What to ask of the cage. `folder` is the job's own; the commands of the spool are put into it, first on PATH.

    The agent can read what its envelope names and the answers of the spool, and write to its checkout and requests.
    Of our own environment it has what its harness names; the values that are secret are taken out of what it prints.
    `tools` are programs in the checkout that are to be on PATH.
    """
    programs, own_tools = folder / "bin", folder / "tools"
    place_commands(programs, spool.folder)
    _place(launch, folder / "home")
    own = {name: str(folder / "home" / path) for name, path in launch.home_paths.items()}
    env = {**launch.default_env, **scrubbed(launch.pass_env, {**launch.env, **own})}
    own_programs = (programs, own_tools) if tools else (programs,)
    context = (Path(path) for path in task.envelope.context_paths)
    search, argv = [str(programs), env["PATH"]], launch.argv
    if tools:
        argv = pinned(argv, ":".join(search), task.checkout)
        place_tools(own_tools, tools)
        search = [search[0], str(own_tools), search[1], *dict.fromkeys(str(tool.parent) for tool in tools)]
    return Request(
        argv=argv,
        command=argv,  # the person configured it: it stays readable wherever it lies
        cwd=task.checkout,
        folder=folder,
        tag=tag,
        env={**env, "PATH": ":".join(search)},
        level=level,
        timeout_s=timeout_s,
        limits=limits,
        secrets=(*secrets_of(env, launch.pass_env), *sign_in.secrets),
        stdin=launch.stdin,
        keep_stdin_open=launch.keep_stdin_open,
        writable=(task.checkout, spool.folder / "requests"),
        readable=(task.prompt_xml, *context, *launch.readable, *own_programs, spool.folder / "answers"),
    )


def _place(launch: Launch, home: Path) -> None:
    for name, content in launch.home_files.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{name} is not inside the home folder")
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)


def run_agent(
    job: CagedJob, reading: StreamReading, on_event: OnEvent | None = None, on_signal: OnSignal | None = None
) -> AgentRun:
    """Run a job to its end. Its stdout goes to the reading line by line, and what happens to `on_event`, both live.

    Neither can harm the run. What the reading could not take in was not read, so the run has failed; a listener that
    fails only hears nothing more.
    """
    ear = _Ear(reading, on_event)
    if isinstance(reading, AwaitsModel):
        reading.begin()
    outcome = job.run(ear.hear, on_signal)
    finished = finished_of(outcome, time.time(), ear.skipped_lines())
    try:
        if not outcome.unheard:
            ear.hear_the_rest()
            report = reading.report(finished)
            ear.tell([notice(report.remark)] if report.remark else ())
            return AgentRun(report, finished)
    except Exception:
        _log.exception("the end of a run could not be read")
    unread = AgentReport(
        "", Ending.FAILED, "what it printed could not be read; this is a bug in Phasegate: see the log"
    )
    return AgentRun(unread, finished)


def without_secrets(report: AgentReport, secrets: tuple[bytes, ...]) -> AgentReport:
    """What a run brought, with no secret in it that came in pieces which alone looked harmless."""
    if not secrets:
        return report
    hide = Redactor(secrets).whole
    texts = {name: hide(getattr(report, name)) for name in ("answer", "reason", "remedy", "remark")}
    blockers = tuple(map(hide, report.blockers))
    return msgspec.structs.replace(report, **texts, blockers=blockers)


class _Ear:
    """Cuts stdout into lines for a reading, and stderr too for one that wants it."""

    def __init__(self, reading: StreamReading, on_event: OnEvent | None) -> None:
        self._reading = reading
        self._on_event = on_event
        self._lines = Lines()
        self._error_lines = Lines()
        self._rest: list[bytes] = []

    def hear(self, stream: Stream, chunk: bytes) -> None:
        if stream is Stream.STDOUT:
            for line in self._lines.feed(chunk):
                self._take(line)
        else:
            for line in self._error_lines.feed(chunk):
                self._take_error(line.decode("utf-8", "replace"))

    def skipped_lines(self) -> int:
        self._rest = self._lines.rest()
        return self._lines.skipped

    def hear_the_rest(self) -> None:
        """A last line without a line feed is one too: a parser refuses it if it was cut."""
        for line in self._rest:
            if line:
                self._take(line)

    def _take_error(self, line: str) -> None:
        if isinstance(self._reading, HearsErrors):
            self.tell(self._reading.error_line(line))
        if blockers_in(line):
            self.tell((AgentEvent(EventKind.BLOCKER, line),))

    def _take(self, line: bytes) -> None:
        self.tell(self._reading.line(line.decode("utf-8", "replace")))

    def tell(self, events: Iterable[AgentEvent]) -> None:
        for event in events:
            if self._on_event is not None:
                self._tell(event, self._on_event)

    def _tell(self, event: AgentEvent, on_event: OnEvent) -> None:
        try:
            on_event(event)
        except Exception:
            _log.exception("what listens to an agent has failed; it hears nothing more")
            self._on_event = None


def finished_of(outcome: JobOutcome, ended_at_s: float, skipped_lines: int = 0) -> FinishedRun:
    """How the job ended, in the words of the port."""
    return FinishedRun(
        exit_status=outcome.exit_code,
        signal=outcome.signal,
        stdout=outcome.stdout.text,
        stderr=outcome.stderr.text,
        cut=outcome.stdout.cut or outcome.stderr.cut,
        told_to_stop=outcome.told_to_stop,
        stopped=outcome.stopped,
        timed_out=outcome.timed_out,
        over=outcome.over,
        duration_s=outcome.duration_s,
        ended_at_s=ended_at_s,
        skipped_lines=skipped_lines,
    )


def place_tools(folder: Path, tools: Sequence[Path]) -> None:
    """One command a tool, in a folder that the job cannot write to.

    The tools' own folder goes last on PATH. An agent could put a `git` of its own there, and the next agent in this
    checkout, perhaps of another provider, would start it with its key.
    """
    folder.mkdir(exist_ok=True)
    for tool in tools:
        command = folder / tool.name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(tool))} "$@"\n')
        command.chmod(0o755)


def pinned(argv: tuple[str, ...], path: str, cwd: Path) -> tuple[str, ...]:
    """The command with its program found on this PATH, and the interpreter too where `env` would look for it."""
    program = find_program(argv[0], path=path, cwd=cwd)
    if program is None:  # the cage says so
        return argv
    with Path(program).open("rb") as file:
        first, *words = file.readline(512).split() or [b""]
    words = words[1:] if words[:1] == [b"-S"] else words
    interpreter = None
    if first.startswith(b"#!") and first.endswith(b"/env") and words:
        interpreter = find_program(os.fsdecode(words[0]), path=path)
    if interpreter is None:
        return (program, *argv[1:])
    return (interpreter, *map(os.fsdecode, words[1:]), program, *argv[1:])
