"""Test whether a machine meets the prerequisites of a fleet (`fleet doctor`)."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from phasegate.engine.bucket import (
    FINAL_COPY_TIMEOUT_S,
    make_bucket_address,
    open_bucket,
    open_fleet_bucket,
)
from phasegate.engine.fleet.entry import require_temporal
from phasegate.engine.project.fleet_repository import find_registered_id, fleet_remote
from phasegate.engine.project.project import Project, open_project
from phasegate.engine.tools.agent_survey import FolderConfig, survey_agents
from phasegate.errors import EnvironmentUnavailable, PhasegateError
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import SandboxLevel

# S3 itself refuses requests with more than 15 minutes of skew.
MAX_CLOCK_SKEW_S = 60.0
SERVER_TIMEOUT_S = 10.0


class FleetCheck(NamedTuple):
    """One prerequisite of a fleet, and whether it is met."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def run_fleet_checks(folder: Path) -> tuple[FleetCheck, ...]:
    """Run all checks, in the order in which problems should be fixed."""
    return tuple(_iter_checks(open_project(folder)))


def _iter_checks(project: Project) -> Iterator[FleetCheck]:
    """Yield the result of each check of this machine, then of each agent."""
    for check in (_packages, _server, _bucket, _remote, _repository, _sandbox):
        name = check.__name__.strip("_")
        try:
            yield FleetCheck(name, True, check(project))
        except PhasegateError as error:
            yield FleetCheck(name, False, error.message, error.hint)

    for agent in survey_agents(FolderConfig(project.root, project.config)):
        if agent.configured:
            lacking = "; ".join(one.what for one in agent.missing)
            remedy = "; ".join(one.remedy for one in agent.missing)
            yield FleetCheck(
                f"agent {agent.name}",
                agent.can_start and not lacking,
                lacking or agent.path,
                remedy,
            )


def _packages(_project: Project) -> str:
    require_temporal()
    from temporalio.service import __version__

    return f"temporalio {__version__}"


def _server(project: Project) -> str:
    require_temporal()
    from phasegate.engine.fleet.client import connect_to_temporal

    asyncio.run(asyncio.wait_for(connect_to_temporal(project), SERVER_TIMEOUT_S))
    return f"{project.config.fleet.address} responds, namespace {project.config.fleet.namespace}"


def _bucket(project: Project) -> str:
    """Check conditional writes with an object of this machine: create, refuse, replace once."""
    bucket = open_bucket(project.config.storage, os.environ, FINAL_COPY_TIMEOUT_S)
    path = f"doctor/{socket.gethostname()}"
    bucket.create(path, b"made\n")
    made = bucket.get(path)
    if made is None:
        raise EnvironmentUnavailable(
            f"{bucket.address} does not return a stored object", "use another S3 server"
        )

    was_replaced = bucket.replace(path, project.now().encode(), made.etag)
    if (
        bucket.create(path, b"again\n")
        or not was_replaced
        or bucket.replace(path, b"late\n", made.etag)
    ):
        raise EnvironmentUnavailable(
            f"{bucket.address} does not support conditional writes",
            "a fleet needs a server with If-None-Match and If-Match on PUT",
        )

    stored = bucket.get(path)
    skew_s = time.time() - stored.modified_at_s if stored else 0.0
    if abs(skew_s) > MAX_CLOCK_SKEW_S:
        raise EnvironmentUnavailable(
            f"the local clock differs by {skew_s:+.0f} s from the bucket's", "set the clock"
        )

    address = make_bucket_address(project.config.storage)
    return f"{address} supports conditional writes; clocks differ by {abs(skew_s):.0f} s"


def _remote(project: Project) -> str:
    from phasegate.workspace.repository.remote import find_push_problem

    remote = fleet_remote(project)
    if problem := find_push_problem(project.repository, remote):
        raise EnvironmentUnavailable(
            f"{remote.shown_url} refuses pushes: {problem}",
            "check the address and your permissions",
        )

    return f"{remote.shown_url} accepts pushes"


def _repository(project: Project) -> str:
    """Check that remote, clone and bucket belong to the same repository."""
    id_ = find_registered_id(project)
    if not id_:
        return "has no id yet: the first worker or run creates one"

    address = open_fleet_bucket(project, FINAL_COPY_TIMEOUT_S).address
    return f"{id_[:12]}, with its record in {address}"


def _sandbox(project: Project) -> str:
    """Return the available sandbox level; raise if the wanted one does not work."""
    wanted = project.config.run.sandbox.value
    if wanted == SandboxLevel.NONE.value:
        return 'off, because of sandbox = "none" in [run]'

    levels = [
        level
        for level in (SandboxLevel.OFFLINE, SandboxLevel.WORKTREE)
        if wanted in ("auto", level.value)
    ]
    available = next((level for level in levels if probe_level(level).is_supported), None)

    if available is None:
        raise EnvironmentUnavailable(
            f"no sandbox available: {probe_level(levels[0]).problem if levels else wanted}",
            "install bubblewrap and allow user namespaces",
        )

    return f"{available} available"
