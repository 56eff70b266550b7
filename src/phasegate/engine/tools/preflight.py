"""Check the requirements of a run before anything is recorded or a token is spent."""

from __future__ import annotations

import sys

from phasegate.engine.drive.orders import choose_workflow_agents
from phasegate.engine.project.project import Project
from phasegate.engine.tools.agent_survey import find_missing_sign_in
from phasegate.errors import ConfigError


def refuse_unready_agents(project: Project, type_: str, agent: str | None = None) -> None:
    """Raise ConfigError if an agent of a workflow has neither a sign-in nor a key.

    On macOS a program may keep its sign-in in the keychain, which is not read.
    """
    chosen = choose_workflow_agents(project, type_, agent)
    if sys.platform == "darwin":
        return

    for name, settings in chosen.items():
        missing = find_missing_sign_in(settings)
        if missing is not None:
            raise ConfigError(f"{name} cannot run: {missing.what}", missing.remedy)
