"""`fleet doctor`: what a machine lacks to be part of a fleet, found out by trying it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from phasegate.engine.bucket import FINAL_COPY_TIMEOUT_S, make_bucket_address, open_bucket
from phasegate.engine.fleet.entry import require_temporal
from phasegate.engine.project.project import Project, open_project
from phasegate.engine.tools.agent_survey import FolderConfig, survey_agents
from phasegate.errors import EnvironmentUnavailable, PhasegateError
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import SandboxLevel

# S3 itself refuses requests with more than 15 minutes
MAX_CLOCK_SKEW_S = 60.0
SERVER_TIMEOUT_S = 10.0


class FleetCheck(NamedTuple):
    """One thing that a fleet needs, and whether it is there."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def run_fleet_checks(folder: Path) -> tuple[FleetCheck, ...]:
    """All checks, in the order in which a person would put things right."""
    return tuple(_iter_checks(open_project(folder)))


def _iter_checks(project: Project) -> Iterator[FleetCheck]:
    for check in (_packages, _server, _bucket, _remote, _sandbox):
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
    from phasegate.engine.fleet.liveness import check_namespace

    asyncio.run(asyncio.wait_for(check_namespace(project), SERVER_TIMEOUT_S))
    return f"{project.config.fleet.address} answers, namespace {project.config.fleet.namespace}"


def _bucket(project: Project) -> str:
    """An object of this machine's own is made, refused a second time, and replaced only as it was
    read.
    """
    bucket = open_bucket(project.config.storage, os.environ, FINAL_COPY_TIMEOUT_S)
    path = f"doctor/{socket.gethostname()}"
    bucket.create(path, b"made\n")
    made = bucket.get(path)
    if made is None:
        raise EnvironmentUnavailable(
            f"{bucket.address} does not give back what it took", "use another S3 server"
        )

    was_replaced = bucket.replace(path, project.now().encode(), made.etag)
    if (
        bucket.create(path, b"again\n")
        or not was_replaced
        or bucket.replace(path, b"late\n", made.etag)
    ):
        raise EnvironmentUnavailable(
            f"{bucket.address} has no conditional writes",
            "a fleet needs a server with If-None-Match and If-Match on PUT",
        )

    now = bucket.get(path)
    if now:
        skew_s = time.time() - now.modified_at_s
    else:
        skew_s = 0.0

    if abs(skew_s) > MAX_CLOCK_SKEW_S:
        raise EnvironmentUnavailable(
            f"the clock here is {skew_s:+.0f} s off that of the bucket", "set the clock"
        )

    return f"{make_bucket_address(project.config.storage)} takes conditional writes; clocks differ by {abs(skew_s):.0f} s"


def _remote(project: Project) -> str:
    from phasegate.engine.fleet.client import fleet_remote
    from phasegate.workspace.remote import find_push_problem

    remote = fleet_remote(project)
    if why := find_push_problem(project.repository, remote):
        raise EnvironmentUnavailable(
            f"{remote.url} takes no push: {why}", "see the address and your rights there"
        )

    return f"{remote.url} takes pushes"


def _sandbox(project: Project) -> str:
    wanted = project.config.run.sandbox.value
    levels = [
        level
        for level in (SandboxLevel.OFFLINE, SandboxLevel.WORKTREE)
        if wanted in ("auto", level.value)
    ]
    held = next((level for level in levels if probe_level(level).is_supported), None)

    if held is None:
        raise EnvironmentUnavailable(
            f"no sandbox holds here: {probe_level(levels[0]).problem if levels else wanted}",
            "install bubblewrap and allow user namespaces",
        )

    return f"{held} holds"
