"""The real agent programs, set up as a person would: a key, the model's address, and nothing else of this machine.

Everything is a dummy and on loopback: the model is a stand-in, and a job's environment holds what is named here only.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.agents.port import (
    AgentConfig,
    AgentEvent,
    AgentReport,
    AgentTask,
    EventKind,
    FinishedRun,
    Launch,
    get_harness,
)
from phasegate.agents.run.sandboxed import build_job_request, run_agent
from phasegate.agents.spool.server import RequestSpool
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.probe import choose_level
from phasegate.sandbox.request import SandboxLevel
from support.git_project import make_repository
from support.tasks import make_task

KEY = "dummy-key-4711"
MODEL = "stand-in"


class Configured(NamedTuple):
    """What a person has in phasegate.toml and in the environment."""

    command: tuple[str, ...]
    env: Mapping[str, str]


class Subject(NamedTuple):
    """One real program."""

    kind: str
    program: str
    configured: Callable[[str], Configured]

    def agent(self, url: str) -> AgentConfig:
        found = self.configured(url)
        return AgentConfig("real", command=found.command, env=tuple(found.env))


def _claude(url: str) -> Configured:
    return Configured((), {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url})


def _codex(url: str) -> Configured:
    provider = f'model_providers.standin={{name="s",base_url="{url}/v1",env_key="STANDIN_KEY",wire_api="responses"}}'
    command = ("codex", "-c", 'model_provider="standin"', "-c", provider, "-c", 'model="gpt-5.5"')
    return Configured(command, {"STANDIN_KEY": KEY})


def _gemini(url: str) -> Configured:
    command = ("gemini", "-m", "gemini-2.5-flash")  # by default it asks a model which model to ask
    return Configured(command, {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url})


def opencode_settings(url: str) -> str:
    """The person's own configuration of opencode, with one provider."""
    options = {"baseURL": f"{url}/v1", "apiKey": KEY}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "s",
        "options": options,
        "models": {MODEL: {"name": MODEL}},
    }
    model = f"standin/{MODEL}"
    return json.dumps({"model": model, "small_model": model, "provider": {"standin": provider}})


def _opencode(url: str) -> Configured:
    return Configured((), {"OPENCODE_CONFIG_CONTENT": opencode_settings(url)})


def _qwen(url: str) -> Configured:
    return Configured(
        (), {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": MODEL}
    )


def _copilot(url: str) -> Configured:
    env = {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_MODEL": MODEL,
    }
    return Configured((), {**env, "COPILOT_OFFLINE": "true"})


COPILOT = Subject("copilot", "copilot", _copilot)  # by ACP: its tests are its own
SUBJECTS = {
    subject.kind: subject
    for subject in (
        Subject("claude_code", "claude", _claude),
        Subject("codex", "codex", _codex),
        Subject("gemini", "gemini", _gemini),
        Subject("opencode", "opencode", _opencode),
        Subject("qwen", "qwen", _qwen),
    )
}


class Room(NamedTuple):
    """A repository of its own, and a folder for the job beside it."""

    root: Path
    subject: Subject

    @property
    def checkout(self) -> Path:
        return self.root / "checkout"

    def task(self, url: str, prompt: str, phase: str = "implement") -> AgentTask:
        task = make_task(
            self.checkout, self.subject.agent(url), kind=self.subject.kind, phase=phase
        )
        task.prompt_xml.write_text(prompt, encoding="utf-8")
        return task


def make_room(root: Path, subject: Subject, files: Mapping[str, str] | None = None) -> Room:
    make_repository(root / "checkout", {"README.md": "A project\n", **(files or {})})
    return Room(root, subject)


class Ran(NamedTuple):
    """A run that is over, and all that came of it."""

    report: AgentReport
    finished: FinishedRun
    events: list[AgentEvent]
    tag: str

    def of_kind(self, kind: EventKind) -> list[AgentEvent]:
        return [event for event in self.events if event.kind is kind]

    def __str__(self) -> str:
        """For a failed test."""
        return f"{self.report}\n{self.finished.stdout[-2000:]}\n{self.finished.stderr[-2000:]}"


def run_real(
    room: Room,
    url: str,
    prompt: str,
    *,
    phase: str = "implement",
    timeout_s: float = 240.0,
    stop_when: Callable[[], object] | None = None,
    ours: Mapping[str, str] | None = None,
    first_output_timeout_s: float = 300.0,
) -> Ran:
    """Run the program as the orchestrator does: launch, sandbox, reading. `stop_when` blocks until it is to be stopped."""
    level = strongest()
    task = msgspec.structs.replace(room.task(url, prompt, phase), sandboxed=level.is_sandboxed)
    task = msgspec.structs.replace(
        task,
        agent=msgspec.structs.replace(task.agent, first_output_timeout_s=first_output_timeout_s),
    )
    harness = get_harness(room.subject.kind)
    with _environment({**room.subject.configured(url).env, **(ours or {})}):
        job, tag = _job(room, task, harness.launch(task), level, timeout_s)
    events: list[AgentEvent] = []
    if stop_when is not None:
        threading.Thread(target=_stop, args=(job, stop_when), daemon=True).start()
    ran = run_agent(job, harness.make_parser(task, job), events.append)
    return Ran(ran.report, ran.finished, events, tag)


def _stop(job: SandboxedJob, when: Callable[[], object]) -> None:
    when()
    job.stop()


def _job(
    room: Room, task: AgentTask, launch: Launch, level: SandboxLevel, timeout_s: float
) -> tuple[SandboxedJob, str]:
    folder, tag = room.root / f"job-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    folder.mkdir()
    with RequestSpool(folder / "spool") as spool:
        request = build_job_request(
            task, launch, folder, spool, tag=tag, level=level, timeout_s=timeout_s
        )
    return SandboxedJob(request._replace(grace_s=3.0)), tag


class _environment:
    """Our own environment with these values in it, for as long as the block lasts."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __enter__(self) -> None:
        self._before = dict(os.environ)
        os.environ.update(self._values)

    def __exit__(self, *error: object) -> None:
        os.environ.clear()
        os.environ.update(self._before)


def processes_tagged(tag: str) -> list[int]:
    """The living processes of a job, by the variable that each of them carries."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                state = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[0]
                if (
                    f"PHASEGATE_JOB={tag}".encode() in Path(entry.path, "environ").read_bytes()
                    and state != b"Z"
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def strongest() -> SandboxLevel:
    return choose_level(None, needs_network=True)
