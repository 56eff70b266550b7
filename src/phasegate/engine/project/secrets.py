"""Collect the secrets that the agents of a project receive.

They are read from the environment and the sign-in files each time, and never stored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from phasegate.agents.run.secret_values import find_env_secrets, find_file_secrets
from phasegate.agents.run.sign_in_files import MAX_SIGN_IN_BYTES
from phasegate.config.acp_registry import resolve_harness_row
from phasegate.config.settings import AgentSettings
from phasegate.core.agents.harnesses import HARNESSES
from phasegate.core.agents.secrets import SecretMatcher
from phasegate.engine.project.project import Project
from phasegate.files import read_regular_file


def collect_lent_secrets(project: Project) -> SecretMatcher:
    """Return a matcher for all secrets that the agents of this project receive."""
    return SecretMatcher(
        secret
        for agent in project.config.agents.values()
        for secret in _collect_agent_secrets(agent)
    )


def _collect_agent_secrets(agent: AgentSettings) -> Iterator[bytes]:
    row = resolve_harness_row(agent.harness, agent.command) or HARNESSES[agent.harness]
    yield from find_env_secrets(os.environ, (*row.variables, *agent.env))
    for name in row.sign_in_files if agent.share_sign_in else ():
        yield from find_file_secrets(
            read_regular_file(Path(os.path.realpath(Path.home() / name)), MAX_SIGN_IN_BYTES) or b""
        )
