"""`scripted`: the shipped agent that plays a scenario file and needs no model."""

from __future__ import annotations

import sys
from pathlib import Path

from phasegate.agents.port import (
    AgentReport,
    AgentTask,
    Ending,
    FinishedRun,
    JobHandle,
    Launch,
    OutputParser,
)
from phasegate.agents.programs.command import build_run_env
from phasegate.agents.scripted.program import BAD_SCENARIO_EXIT
from phasegate.agents.scripted.scenario import load_scenario
from phasegate.agents.stream.plain_output import PlainOutputParser, build_plain_report
from phasegate.core.agents.harnesses import HarnessRow
from phasegate.errors import ConfigError

PROGRAM = (sys.executable, "-P", "-m", "phasegate.agents.scripted.program")


def launch(row: HarnessRow, task: AgentTask) -> Launch:
    """Launch the scripted agent; an invalid scenario is reported before anything is started."""
    scenario = _get_scenario_path(task)
    load_scenario(scenario)
    return Launch(
        argv=(*PROGRAM, str(scenario)),
        stdin=task.envelope.to_json(),
        network=False,
        env=build_run_env(task),
        pass_env=task.agent.env,
        readable=(scenario,),
    )


def make_parser(row: HarnessRow, task: AgentTask, job: JobHandle) -> OutputParser:
    return PlainOutputParser(_build_report)


def _build_report(finished: FinishedRun) -> AgentReport:
    if finished.exit_status == BAD_SCENARIO_EXIT:
        lines = finished.stderr.strip().splitlines()
        return AgentReport(
            answer=finished.stdout,
            ending=Ending.NOT_RUNNABLE,
            reason=lines[0] if lines else "its scenario is invalid",
        )

    return build_plain_report(finished)


def _get_scenario_path(task: AgentTask) -> Path:
    """Return the path of `scenario = "file"`, or of `command = ["file"]`, which also works."""
    name = task.agent.scenario or next(iter(task.agent.command), "")

    if not name:
        raise ConfigError(
            f"agent {task.agent.name!r} has no scenario",
            f'set `scenario = "file.toml"` in [agents.{task.agent.name}]',
        )

    return task.repository / name
