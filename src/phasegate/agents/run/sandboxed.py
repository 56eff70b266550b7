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
    Ending,
    EventKind,
    FinishedRun,
    JobStartListener,
    Launch,
    OutputParser,
    StderrParser,
)
from phasegate.agents.run.secret_values import find_env_secrets
from phasegate.agents.run.sign_in import SignIn
from phasegate.agents.spool.server import RequestSpool, install_commands
from phasegate.agents.stream.tool_use import make_notice_event
from phasegate.core.answer.parse import find_blockers
from phasegate.sandbox.bounded_output import LineSplitter, OutputStream
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.job import OnSignal, SandboxedJob
from phasegate.sandbox.redact import Redactor
from phasegate.sandbox.request import JobLimits, JobOutcome, JobRequest, SandboxLevel
from phasegate.sandbox.run_program import find_program

OnEvent = Callable[[AgentEvent], None]
_log = logging.getLogger(__name__)


class AgentRun(NamedTuple):
    """A run that is over: what the agent brought, and how its process ended."""

    report: AgentReport
    finished: FinishedRun


def build_job_request(
    task: AgentTask,
    launch: Launch,
    folder: Path,
    spool: RequestSpool,
    *,
    tag: str,
    level: SandboxLevel,
    timeout_s: float,
    sign_in: SignIn = SignIn(),  # noqa: B008 - frozen
    tools: Sequence[Path] = (),
    limits: JobLimits = JobLimits(),  # noqa: B008 - frozen
) -> JobRequest:
    """What to ask of the cage.

    `folder` is the job's own; the commands of the spool are put into it, first on PATH.

    The agent can read what its envelope names and the answers of the spool, and write to its
    checkout and requests. Of our own environment it has what its harness names; the values that are
    secret are taken out of what it prints. `tools` are programs in the checkout that are to be on
    PATH.
    """
    programs = folder / "bin"
    own_tools = folder / "tools"
    install_commands(programs, spool.folder)
    _write_home_files(launch, folder / "home")
    own = {name: str(folder / "home" / path) for name, path in launch.home_path_variables.items()}
    env = {**launch.default_env, **build_environment(launch.pass_env, {**launch.env, **own})}
    own_programs = (programs, own_tools) if tools else (programs,)
    context = (Path(path) for path in task.envelope.context_paths)
    search = [str(programs), env["PATH"]]
    argv = launch.argv

    if tools:
        argv = resolve_argv(argv, ":".join(search), task.checkout)
        install_tools(own_tools, tools)
        search = [
            search[0],
            str(own_tools),
            search[1],
            *dict.fromkeys(str(tool.parent) for tool in tools),
        ]

    return JobRequest(
        argv=argv,
        # The person configured it: it stays readable wherever it lies
        configured_command=argv,
        cwd=task.checkout,
        folder=folder,
        tag=tag,
        env={**env, "PATH": ":".join(search)},
        level=level,
        timeout_s=timeout_s,
        limits=limits,
        secrets=(*find_env_secrets(env, launch.pass_env), *sign_in.secrets),
        stdin=launch.stdin,
        keep_stdin_open=launch.keep_stdin_open,
        writable=(task.checkout, spool.folder / "requests"),
        readable=(
            task.prompt_xml,
            *context,
            *launch.readable,
            *own_programs,
            spool.folder / "answers",
        ),
    )


def _write_home_files(launch: Launch, home: Path) -> None:
    for name, content in launch.home_files.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{name} is not inside the home folder")
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)


def run_agent(
    job: SandboxedJob,
    parser: OutputParser,
    on_event: OnEvent | None = None,
    on_signal: OnSignal | None = None,
) -> AgentRun:
    """Run a job to its end.

    Its stdout goes to the reading line by line, and what happens to `on_event`, both live.

    Neither can harm the run. What the reading could not take in was not read, so the run has
    failed; a listener that fails only hears nothing more.
    """
    ear = _OutputDispatcher(parser, on_event)
    if isinstance(parser, JobStartListener):
        parser.on_job_start()

    outcome = job.run(ear.feed, on_signal)
    finished = build_finished_run(outcome, time.time(), ear.count_skipped_lines())

    try:
        if not outcome.listener_failed:
            ear.flush()
            report = parser.build_report(finished)
            ear.emit_events([make_notice_event(report.remark)] if report.remark else ())
            return AgentRun(report, finished)
    except Exception:
        _log.exception("the end of a run could not be read")

    unread = AgentReport(
        answer="",
        ending=Ending.FAILED,
        reason="what it printed could not be read; this is a bug in Phasegate: see the log",
    )
    return AgentRun(unread, finished)


def redact_report(report: AgentReport, secrets: tuple[bytes, ...]) -> AgentReport:
    """What a run brought, with no secret in it that came in pieces which alone looked harmless."""
    if not secrets:
        return report

    hide = Redactor(secrets).redact_text
    texts = {name: hide(getattr(report, name)) for name in ("answer", "reason", "remedy", "remark")}
    blockers = tuple(map(hide, report.blockers))

    return msgspec.structs.replace(report, **texts, blockers=blockers)


class _OutputDispatcher:
    """Cuts stdout into lines for a reading, and stderr too for one that wants it."""

    def __init__(self, parser: OutputParser, on_event: OnEvent | None) -> None:
        self._parser = parser
        self._on_event = on_event
        self._stdout_splitter = LineSplitter()
        self._stderr_splitter = LineSplitter()
        self._last_lines: list[bytes] = []

    def feed(self, stream: OutputStream, chunk: bytes) -> None:
        if stream is OutputStream.STDOUT:
            for line in self._stdout_splitter.feed(chunk):
                self._handle_stdout_line(line)
        else:
            for line in self._stderr_splitter.feed(chunk):
                self._handle_stderr_line(line.decode("utf-8", "replace"))

    def count_skipped_lines(self) -> int:
        self._last_lines = self._stdout_splitter.flush()
        return self._stdout_splitter.skipped_lines

    def flush(self) -> None:
        """A last line without a line feed is one too: a parser refuses it if it was cut."""
        for line in self._last_lines:
            if line:
                self._handle_stdout_line(line)

    def _handle_stderr_line(self, line: str) -> None:
        if isinstance(self._parser, StderrParser):
            self.emit_events(self._parser.parse_stderr_line(line))
        if find_blockers(line):
            self.emit_events((AgentEvent(EventKind.BLOCKER, line),))

    def _handle_stdout_line(self, line: bytes) -> None:
        self.emit_events(self._parser.parse_line(line.decode("utf-8", "replace")))

    def emit_events(self, events: Iterable[AgentEvent]) -> None:
        for event in events:
            if self._on_event is not None:
                self._emit_event(event, self._on_event)

    def _emit_event(self, event: AgentEvent, on_event: OnEvent) -> None:
        try:
            on_event(event)
        except Exception:
            _log.exception("what listens to an agent has failed; it hears nothing more")
            self._on_event = None


def build_finished_run(
    outcome: JobOutcome, ended_at_s: float, skipped_lines: int = 0
) -> FinishedRun:
    """How the job ended, in the words of the port."""
    return FinishedRun(
        exit_status=outcome.exit_code,
        signal=outcome.signal,
        stdout=outcome.stdout.text,
        stderr=outcome.stderr.text,
        truncated=outcome.stdout.truncated or outcome.stderr.truncated,
        sigterm_sent=outcome.sigterm_sent,
        stop_requested=outcome.stop_requested,
        timed_out=outcome.timed_out,
        exceeded_limit=outcome.exceeded_limit,
        duration_s=outcome.duration_s,
        ended_at_s=ended_at_s,
        skipped_lines=skipped_lines,
    )


def install_tools(folder: Path, tools: Sequence[Path]) -> None:
    """One command a tool, in a folder that the job cannot write to.

    The tools' own folder goes last on PATH. An agent could put a `git` of its own there, and the
    next agent in this checkout, perhaps of another provider, would start it with its key.
    """
    folder.mkdir(exist_ok=True)
    for tool in tools:
        command = folder / tool.name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(tool))} "$@"\n')
        command.chmod(0o755)


def resolve_argv(argv: tuple[str, ...], path: str, cwd: Path) -> tuple[str, ...]:
    """The command with its program found on this PATH, and the interpreter too where `env` would
    look for it.
    """
    program = find_program(argv[0], path=path, cwd=cwd)
    # The cage says so
    if program is None:
        return argv

    with Path(program).open("rb") as file:
        first, *words = file.readline(512).split() or [b""]

    if words[:1] == [b"-S"]:
        words = words[1:]

    interpreter = None
    if first.startswith(b"#!") and first.endswith(b"/env") and words:
        interpreter = find_program(os.fsdecode(words[0]), path=path)
    if interpreter is None:
        return (program, *argv[1:])

    return (interpreter, *map(os.fsdecode, words[1:]), program, *argv[1:])
