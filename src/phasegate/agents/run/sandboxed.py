"""Run a launch as a sandboxed job, and pass its output and its end to the harness.

`sandbox.launch` starts the process; `sandbox.supervisor` ends it on a timeout.
"""

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
from phasegate.agents.run.sign_in_files import SignIn
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
    """An ended run: the agent's report, and how its process ended."""

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
    """Build the job request of a launch and install its commands in the job's `folder`.

    The agent can read the files of its envelope and the answers of the spool, and write to its
    checkout and to the spool's requests. It gets the variables that its harness lists; secret
    values are redacted from its output. `tools` are programs in the checkout to add to PATH.
    """
    bin_folder = folder / "bin"
    tools_folder = folder / "tools"
    home = folder / "home"
    install_commands(bin_folder, spool.folder)
    _write_home_files(launch, home)
    home_paths = {name: str(home / path) for name, path in launch.home_path_variables.items()}
    env = {**launch.default_env, **build_environment(launch.pass_env, {**launch.env, **home_paths})}
    search_path = [str(bin_folder), env["PATH"]]
    program_folders = [bin_folder]
    argv = launch.argv

    if tools:
        argv = resolve_argv(argv, ":".join(search_path), task.checkout)
        install_tools(tools_folder, tools)
        program_folders.append(tools_folder)
        search_path = [
            str(bin_folder),
            str(tools_folder),
            env["PATH"],
            *dict.fromkeys(str(tool.parent) for tool in tools),
        ]

    return JobRequest(
        argv=argv,
        # The user configured the command, so its files are readable wherever they are.
        configured_command=argv,
        cwd=task.checkout,
        folder=folder,
        tag=tag,
        env={**env, "PATH": ":".join(search_path)},
        level=level,
        timeout_s=timeout_s,
        limits=limits,
        secrets=(*find_env_secrets(env, launch.pass_env), *sign_in.secrets),
        stdin=launch.stdin,
        keep_stdin_open=launch.keep_stdin_open,
        writable=(task.checkout, spool.folder / "requests"),
        readable=(
            task.prompt_xml,
            *_list_outside_documents(task),
            *launch.readable,
            *program_folders,
            spool.folder / "answers",
        ),
    )


def _list_outside_documents(task: AgentTask) -> list[Path]:
    """Return the context documents outside of the checkout.

    Those inside are readable already; a planner revises some of them.
    """
    documents = map(Path, task.envelope.context_paths)
    return [path for path in documents if not path.is_relative_to(task.checkout)]


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
    """Run a job to its end; pass each line of stdout to the parser and its events to `on_event`.

    Exceptions of either do not stop the job. If the parser fails, the run has failed, since its
    output was not read. If `on_event` fails, it is not called again.
    """
    dispatcher = _OutputDispatcher(parser, on_event)
    if isinstance(parser, JobStartListener):
        parser.on_job_start()

    outcome = job.run(dispatcher.feed, on_signal)
    finished = build_finished_run(outcome, time.time(), dispatcher.count_skipped_lines())

    try:
        if not outcome.listener_failed:
            dispatcher.flush()
            report = parser.build_report(finished)
            if report.remark:
                dispatcher.emit_events([make_notice_event(report.remark)])
            return AgentRun(report, finished)
    except Exception:
        _log.exception("the end of a run could not be parsed")

    failure = AgentReport(
        answer="",
        ending=Ending.FAILED,
        reason="its output could not be parsed; this is a bug in Phasegate: see the log",
    )
    return AgentRun(failure, finished)


def redact_report(report: AgentReport, secrets: tuple[bytes, ...]) -> AgentReport:
    """Redact secrets from a report, including those whose parts arrived in separate messages."""
    if not secrets:
        return report

    redact = Redactor(secrets).redact_text
    fields = ("answer", "reason", "remedy", "remark")
    texts = {name: redact(getattr(report, name)) for name in fields}
    blockers = tuple(map(redact, report.blockers))

    return msgspec.structs.replace(report, **texts, blockers=blockers)


class _OutputDispatcher:
    """Pass output lines to the parser, and its events to the listener."""

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
        """Parse a last line without a line feed; the parser refuses it if it is incomplete."""
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
            _log.exception("an agent event listener failed and is disabled")
            self._on_event = None


def build_finished_run(
    outcome: JobOutcome, ended_at_s: float, skipped_lines: int = 0
) -> FinishedRun:
    """Convert the outcome of a job for the harness."""
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
    """Write one wrapper command per tool to a folder that the job cannot write to.

    The tools' own folder is last on PATH. An agent could add a fake `git` there, and the next agent
    in this checkout, perhaps of another provider, would run it with its key.
    """
    folder.mkdir(exist_ok=True)
    for tool in tools:
        command = folder / tool.name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(tool))} "$@"\n')
        command.chmod(0o755)


def resolve_argv(argv: tuple[str, ...], path: str, cwd: Path) -> tuple[str, ...]:
    """Resolve the program on this PATH, and its interpreter if its first line uses `env`."""
    program = find_program(argv[0], path=path, cwd=cwd)
    # The sandbox reports a missing program.
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
