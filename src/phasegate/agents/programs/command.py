"""`command`: any program that reads the task envelope from stdin and answers on stdout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from phasegate.agents.envelope import build_envelope_env
from phasegate.agents.port import AgentTask, JobHandle, Launch, OutputParser
from phasegate.agents.stream.plain_output import PlainOutputParser
from phasegate.core.agents.harnesses import HarnessRow
from phasegate.errors import ConfigError


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    """Launch the configured command; its relative paths are relative to the repository."""
    if not task.agent.command:
        raise ConfigError(
            f"agent {task.agent.name!r} has no command",
            f'set `command = ["program"]` in [agents.{task.agent.name}]',
        )

    return Launch(
        argv=resolve_repository_files(task.repository, task.agent.command),
        stdin=task.envelope.to_json(),
        # It may have to call a model.
        network=True,
        env=build_run_env(task),
        pass_env=task.agent.env,
    )


def make_parser(row: HarnessRow, task: AgentTask, job: JobHandle) -> OutputParser:
    return PlainOutputParser()


def build_run_env(task: AgentTask) -> dict[str, str]:
    """Return the variables of every run, including phase and round.

    The envelope has no fields for these.
    """
    return {
        **build_envelope_env(task.envelope, task.prompt_xml),
        "PHASEGATE_PHASE": task.phase,
        "PHASEGATE_WORKFLOW_PHASE": task.workflow_phase,
        "PHASEGATE_ROUND": str(task.round),
    }


def resolve_repository_files(repository: Path, command: Sequence[str]) -> tuple[str, ...]:
    """Resolve `./agent.sh` and `tools/agent.py` against the user's repository.

    The files of the same names in the checkout may have been changed by agents.
    """
    program, *arguments = command
    if "/" in program:
        program = str(repository / program)
    return (program, *(_resolve_repository_file(repository, argument) for argument in arguments))


def _resolve_repository_file(repository: Path, argument: str) -> str:
    path = repository / argument
    try:
        if not argument.startswith("-") and path.is_file():
            return str(path)
        return argument
    except OSError:
        # It is too long to be a file name.
        return argument
