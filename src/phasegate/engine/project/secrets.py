"""What the agents of a project are lent: found anew from the environment and the sign-ins, and never kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from phasegate.agents.run.secret_values import secrets_in, secrets_of
from phasegate.agents.run.sign_in import LARGEST_BYTES
from phasegate.config import Agent
from phasegate.config.acp_registry import row_of
from phasegate.core.agents.harnesses import ROWS
from phasegate.core.agents.secrets import LentValues
from phasegate.engine.project.project import Project
from phasegate.files import read_plain


def lent_keys(project: Project) -> LentValues:
    """Every secret that some agent of this project is lent."""
    return LentValues(secret for agent in project.config.agents.values() for secret in _lent_to(agent))


def _lent_to(agent: Agent) -> Iterator[bytes]:
    row = row_of(agent.harness, agent.command) or ROWS[agent.harness]
    yield from secrets_of(os.environ, (*row.variables, *agent.env))
    for name in row.sign_in_files if agent.sign_in else ():
        yield from secrets_in(read_plain(Path(os.path.realpath(Path.home() / name)), LARGEST_BYTES) or b"")
