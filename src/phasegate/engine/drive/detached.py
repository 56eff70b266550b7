"""Start runs in processes that outlive the command, and stop them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from phasegate.engine.drive.run_feature import RunOptions, has_new_steps
from phasegate.engine.project.project import Project
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.sandbox.detached import DetachedProcess, terminate_process
from phasegate.storage.location import Location
from phasegate.storage.lock_holder import LockHolder, find_live_holder, is_alive, list_live_holders
from phasegate.storage.reader import open_store_reader

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 120.0
# A run is refused before its first step, which may take long
STARTUP_CHECK_TIMEOUT_S = 5.0
POLL_INTERVAL_S = 0.05
_LOG_TAIL_LINES = 5


class DetachedRun(NamedTuple):
    """A run in the background. `exit_code` is set if it has already ended."""

    feature: str
    pid: int
    log: str
    exit_code: int | None = None


class StopReport(NamedTuple):
    """The processes that received a stop request, and whether all of them ended in time."""

    feature: str
    processes: tuple[LockHolder, ...]
    ended: bool


def start_detached(project: Project, feature: str, options: RunOptions) -> DetachedRun:
    """Run a feature in a separate process; return as soon as it has made progress.

    The run may be refused after it has locked the feature: its branch is missing, or a role has no
    agent. The error is raised here, so that the user sees it, and not only in the log.
    """
    if (holder := find_live_holder(project.location.locks_folder, feature)) is not None:
        raise StateConflict(
            f"feature {feature} is already running: process {holder.pid} ({holder.command}) "
            f"since {holder.since}",
            f"follow it: phasegate status; stop it: phasegate stop --feature {feature}",
        )

    log = _prepare_log_file(project.location, feature)
    # -P: do not import modules from the repository.
    argv = [sys.executable, "-P", "-m", "phasegate", "run", "--feature", feature]
    if options.stop_at_gates:
        argv.append("--step")
    if options.merge:
        argv.append("--merge")
    if options.agent:
        argv += ["--agent", options.agent]

    log_offset = log.stat().st_size if log.exists() else 0
    last_seq, _ = _read_progress(project.location, feature)

    try:
        process = DetachedProcess(argv, str(project.root), os.environ, str(log))
    except OSError as error:
        raise EnvironmentUnavailable(
            f"cannot start a run: {error.strerror}", f"check {log}"
        ) from error

    run = DetachedRun(feature, process.pid, str(log))
    until_s = time.monotonic() + START_TIMEOUT_S

    while time.monotonic() < until_s:
        if (code := process.poll_exit_status()) is not None:
            return _report_early_exit(run, code, log_offset)
        if _read_progress(project.location, feature, last_seq)[1]:
            return run

        holder = find_live_holder(project.location.locks_folder, feature)
        if holder is not None and holder.pid == process.pid:
            until_s = min(until_s, time.monotonic() + STARTUP_CHECK_TIMEOUT_S)

        time.sleep(POLL_INTERVAL_S)

    return run


def _read_progress(location: Location, feature: str, after_seq: int = 0) -> tuple[int, bool]:
    """Return a feature's last event number, and whether it has advanced since `after_seq`."""
    reader = open_store_reader(location)
    if reader is None:
        return 0, False

    with reader:
        return reader.last_seq(feature), has_new_steps(reader, feature, after_seq)


def _report_early_exit(run: DetachedRun, code: int, log_offset: int) -> DetachedRun:
    """Return the result of a run that has already ended; raise its error if the run was refused."""
    if code in (0, 1):
        return run._replace(exit_code=code)

    with Path(run.log).open(encoding="utf-8", errors="replace") as log:
        log.seek(log_offset)
        lines = log.read().splitlines()[-_LOG_TAIL_LINES:]

    errors = [number for number, line in enumerate(lines) if line.startswith("phasegate: ")]
    # Notices may precede the error
    first = errors[-1] if errors else 0
    message = " / ".join(line.strip() for line in lines[first:])
    raise StateConflict(
        f"the run of {run.feature} ended immediately (exit {code}): {message}", f"see {run.log}"
    )


def _prepare_log_file(location: Location, feature: str) -> Path:
    folder = location.data_folder / "runs"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{feature}.log"


def stop_runs(location: Location, feature: str | None) -> StopReport:
    """Stop the processes that work on a feature, and wait until they have ended."""
    slug, holders = _find_holders_to_stop(location, feature)
    asked = tuple(
        holder for holder in holders if terminate_process(holder.pid, partial(is_alive, holder))
    )
    until_s = time.monotonic() + STOP_TIMEOUT_S
    while True:
        remaining = {*asked} & {*list_live_holders(location.locks_folder).values()}
        if not remaining or time.monotonic() >= until_s:
            return StopReport(slug, asked, not remaining)

        time.sleep(POLL_INTERVAL_S)


def _find_holders_to_stop(
    location: Location, feature: str | None
) -> tuple[str, Sequence[LockHolder]]:
    """Return the feature to stop, and the processes that work on it or on its packages."""
    by_feature: dict[str, set[LockHolder]] = {}

    for name, holder in list_live_holders(location.locks_folder).items():
        slug, package, number = name.rpartition("-WP")
        if not (package and number.isdecimal()):
            slug = name
        if feature in (None, slug) and holder.pid != os.getpid():
            by_feature.setdefault(slug, set()).add(holder)

    if not by_feature:
        of_feature = f" for {feature}" if feature else ""
        raise StateConflict(f"nothing is running{of_feature}", "phasegate status")

    if len(by_feature) > 1:
        raise StateConflict(
            "several features are running", f"choose one with --feature: {', '.join(by_feature)}"
        )

    ((slug, holders),) = by_feature.items()
    return slug, sorted(holders)
