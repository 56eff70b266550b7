"""Launches carried out as they are, without a sandbox: what is tested with this is the harness."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from phasegate.agents.port import (
    AgentEvent,
    AgentReport,
    AgentTask,
    FinishedRun,
    Harness,
    Launch,
    StderrParser,
)


class Mute:
    """A job that cannot be talked to, and remembers who tried."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.stops = 0

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def close_stdin(self) -> None:
        pass

    def stop(self) -> None:
        self.stops += 1


def read(
    harness: Harness, task: AgentTask, finished: FinishedRun
) -> tuple[list[AgentEvent], AgentReport]:
    """What a harness makes of a run that is over."""
    parser = harness.make_parser(task, Mute())
    events = [
        event for line in finished.stdout.split("\n") if line for event in parser.parse_line(line)
    ]
    if isinstance(parser, StderrParser):
        events += [
            event
            for line in finished.stderr.split("\n")
            if line
            for event in parser.parse_stderr_line(line)
        ]
    return events, parser.build_report(finished)


def reported(harness: Harness, task: AgentTask, finished: FinishedRun) -> AgentReport:
    """Only what it says at the end."""
    return read(harness, task, finished)[1]


def carry_out(launch: Launch, checkout: Path, ours: Mapping[str, str] | None = None) -> FinishedRun:
    """Start what a harness described, in the checkout, with the variables that it asked for and a PATH."""
    ours = os.environ if ours is None else ours
    passed = {name: ours[name] for name in launch.pass_env if name in ours}
    stdin = launch.stdin if isinstance(launch.stdin, bytes) else launch.stdin.read_bytes()
    started_s = time.monotonic()
    done = subprocess.run(
        launch.argv,
        cwd=checkout,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(checkout),
            **launch.default_env,
            **passed,
            **launch.env,
        },
        input=stdin,
        capture_output=True,
        timeout=60,
    )
    return FinishedRun(
        exit_status=done.returncode if done.returncode >= 0 else None,
        signal=-done.returncode if done.returncode < 0 else None,
        stdout=done.stdout.decode("utf-8", "replace"),
        stderr=done.stderr.decode("utf-8", "replace"),
        duration_s=time.monotonic() - started_s,
        ended_at_s=time.time(),
    )
