"""A fleet, for the doors: Temporal is asked for here, and loaded no sooner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from phasegate.core.workflow.origin import By
from phasegate.engine.project.project import Project, open_project
from phasegate.errors import EnvironmentUnavailable

if TYPE_CHECKING:
    from phasegate.engine.drive.feature import Wishes
    from phasegate.engine.fleet.client import FleetRun, ResumedFeature


def run_on_fleet(
    project: Project, type_: str | None, description: str, feature: str | None, wishes: Wishes, *, wait: bool
) -> FleetRun:
    """Start a feature, or go on with one, on the fleet."""
    need_temporal()
    from phasegate.engine.fleet.client import run_on_fleet

    return asyncio.run(run_on_fleet(project, type_, description, feature, wishes, wait=wait))


def tell_of_order(project: Project, slug: str, by: By, *, is_end: bool) -> str:
    """Have a step ended that runs meanwhile; why not, where that could not be told to the server."""
    try:
        need_temporal()
        from phasegate.engine.fleet.client import tell_of_order

        asyncio.run(tell_of_order(project, slug, by, is_end=is_end))
    except EnvironmentUnavailable as error:
        return error.message
    return ""


def resume_fleet(root: Path) -> tuple[ResumedFeature, ...]:
    """Begin every open feature again that is not begun already."""
    need_temporal()
    from phasegate.engine.fleet.client import resume_all

    return asyncio.run(resume_all(open_project(root)))


def work(root: Path, ready: Callable[[str], None]) -> None:
    """Be a worker until somebody says to end."""
    need_temporal()
    from phasegate.engine.fleet.worker import serve

    asyncio.run(serve(root, ready))


def need_temporal() -> None:
    """Refuse in plain words where the extra is not installed."""
    try:
        import temporalio  # noqa: F401 - to say so in time
    except ImportError as error:
        raise EnvironmentUnavailable(
            "a fleet needs packages that are not installed", "pip install 'phasegate[fleet]'"
        ) from error
