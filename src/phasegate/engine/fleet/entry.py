"""Entry points of the fleet for interfaces; Temporal is imported only when one is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.project.project import Project, open_project, open_project_store
from phasegate.errors import EnvironmentUnavailable
from phasegate.storage.record import WritableStore
from phasegate.workspace.snapshots.feature_snapshot import parse_assignment
from phasegate.workspace.snapshots.job_snapshot import CheckoutSnapshot

if TYPE_CHECKING:
    from phasegate.engine.drive.run_feature import RunOptions
    from phasegate.engine.fleet.client import FleetRun, ResumedFeature

# First words of the line that `phasegate worker` prints when it is ready; `fleet up` waits for it.
WORKER_READY = "serving queue"
PAUSE_TIMEOUT_S = 5.0


def run_on_fleet(
    project: Project,
    type_: str | None,
    description: str,
    feature: str | None,
    options: RunOptions,
    *,
    wait: bool,
) -> FleetRun:
    """Start or continue a feature on the fleet."""
    require_temporal()
    from phasegate.engine.fleet.client import run_on_fleet

    return asyncio.run(run_on_fleet(project, type_, description, feature, options, wait=wait))


def signal_order(project: Project, slug: str, by: OrderOrigin, *, ends_feature: bool) -> str:
    """Cancel the running step of a feature. Return the error if the server is unreachable."""
    try:
        require_temporal()
        from phasegate.engine.fleet.client import signal_order

        asyncio.run(signal_order(project, slug, by, ends_feature=ends_feature))
    except EnvironmentUnavailable as error:
        return error.message

    return ""


@contextmanager
def open_record(project: Project, *, fleet: bool) -> Iterator[WritableStore]:
    """Open the record for an order: of the fleet, or of this repository."""
    if not fleet:
        with open_project_store(project) as store:
            yield store
        return

    # Imports obstore.
    from phasegate.engine.bucket import open_fleet_record

    with open_fleet_record(project) as record:
        yield record


def fetch_published_checkouts(
    project: Project, package: WorkPackage
) -> tuple[CheckoutSnapshot, ...]:
    """Fetch the files that the agents of a package left in their checkouts on a worker."""
    from phasegate.engine.fleet.code_transfer import fetch_snapshot

    snapshot = fetch_snapshot(project, package.feature_slug)
    if snapshot is None:
        return ()

    return tuple(
        checkout
        for name, checkout in sorted(snapshot.checkouts.items())
        if (assignment := parse_assignment(package.feature_slug, name))
        and assignment.work_id == package.work_package_id
    )


def resume_fleet(root: Path) -> tuple[ResumedFeature, ...]:
    """Restart every open feature that is not running."""
    require_temporal()
    from phasegate.engine.fleet.client import resume_features

    return asyncio.run(resume_features(open_project(root)))


def change_fleet_pause(root: Path, *, is_paused: bool) -> str:
    """Pause the fleet, or end its pause. Return since when it was paused before, or ""."""
    require_temporal()
    from phasegate.engine.bucket import open_fleet_bucket
    from phasegate.engine.fleet.pause import change_pause

    project = open_project(root)
    bucket = open_fleet_bucket(project, PAUSE_TIMEOUT_S)
    return change_pause(bucket, project.now() if is_paused else "")


def run_worker(root: Path, report: Callable[[str], None]) -> None:
    """Run a worker until it is stopped; `report` gets a line when its state changes."""
    require_temporal()
    from phasegate.engine.fleet.worker import serve_queues

    asyncio.run(serve_queues(root, report))


def require_temporal() -> None:
    """Raise EnvironmentUnavailable if the `fleet` extra is not installed."""
    try:
        import temporalio  # noqa: F401 - only to check that it is installed
    except ImportError as error:
        raise EnvironmentUnavailable(
            "the fleet needs packages that are not installed",
            "in a checkout of Phasegate: pip install '.[fleet]'",
        ) from error
