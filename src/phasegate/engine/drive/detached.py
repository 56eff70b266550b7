"""Runs in processes of their own: started so that they outlive the door, and asked to end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from phasegate.engine.drive.feature import RunOptions, has_new_steps
from phasegate.engine.project.project import Project
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.sandbox.detached import DetachedProcess, terminate_process
from phasegate.storage.location import Location
from phasegate.storage.lock_holder import LockHolder, find_live_holder, is_alive, list_live_holders
from phasegate.storage.reader import open_store_reader

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 120.0
# A first step may take long, and a run that is refused is so before it
STARTUP_CHECK_TIMEOUT_S = 5.0
POLL_INTERVAL_S = 0.05
_LOG_TAIL_LINES = 5


class DetachedRun(NamedTuple):
    """A run that goes on by itself. `exit_code`: it came to its end before it could be let go."""

    feature: str
    pid: int
    log: str
    exit_code: int | None = None


class StopReport(NamedTuple):
    """Which processes were asked to end, and whether all did in time."""

    feature: str
    processes: tuple[LockHolder, ...]
    ended: bool


def start_detached(project: Project, feature: str, options: RunOptions) -> DetachedRun:
    """Carry a feature on in a process of its own, and come back as soon as that has done something.

    It may be refused with the feature already in its hands: its branch is gone, or nobody serves a
    role. That is told here, where the person is, and not in a log alone.
    """
    if (holder := find_live_holder(project.location.locks_folder, feature)) is not None:
        raise StateConflict(
            f"feature {feature} is already running: process {holder.pid} ({holder.command}) since {holder.since}",
            f"follow it: phasegate status; end it: phasegate stop --feature {feature}",
        )

    log = _prepare_log_file(project.location, feature)
    given = (("--step",) if options.stop_at_gates else ()) + (("--merge",) if options.merge else ())
    agent = ("--agent", options.agent) if options.agent else ()
    # -P: the repository's own files must not be taken for ours.
    argv = (sys.executable, "-P", "-m", "phasegate", "run", "--feature", feature, *given, *agent)
    written, (known, _) = (
        log.stat().st_size if log.exists() else 0,
        _read_progress(project.location, feature),
    )

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
            return _report_early_exit(run, code, written)
        if _read_progress(project.location, feature, known)[1]:
            return run

        holder = find_live_holder(project.location.locks_folder, feature)
        if holder is not None and holder.pid == process.pid:
            until_s = min(until_s, time.monotonic() + STARTUP_CHECK_TIMEOUT_S)

        time.sleep(POLL_INTERVAL_S)

    return run


def _read_progress(location: Location, feature: str, after_seq: int = 0) -> tuple[int, bool]:
    """The number of a feature's last event, and whether anything happened to it or its packages
    since another one.
    """
    reader = open_store_reader(location)
    if reader is None:
        return 0, False

    with reader:
        return reader.last_seq(feature), has_new_steps(reader, feature, after_seq)


def _report_early_exit(run: DetachedRun, code: int, log_offset: int) -> DetachedRun:
    """A run that has nothing to do ends well; one that is refused has said why."""
    if code in (0, 1):
        return run._replace(exit_code=code)

    with Path(run.log).open(encoding="utf-8", errors="replace") as log:
        log.seek(log_offset)
        lines = log.read().splitlines()[-_LOG_TAIL_LINES:]

    errors = [number for number, line in enumerate(lines) if line.startswith("phasegate: ")]
    # Notices may stand before it
    said = " / ".join(line.strip() for line in lines[errors[-1] if errors else 0 :])
    raise StateConflict(
        f"the run of {run.feature} ended at once (exit {code}): {said}", f"see {run.log}"
    )


def _prepare_log_file(location: Location, feature: str) -> Path:
    folder = location.data_folder / "runs"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{feature}.log"


def stop_runs(location: Location, feature: str | None) -> StopReport:
    """Ask the processes that work on a feature to end, and wait until they have."""
    slug, found = _find_holders_to_stop(location, feature)
    asked = tuple(
        holder for holder in found if terminate_process(holder.pid, partial(is_alive, holder))
    )
    until_s = time.monotonic() + STOP_TIMEOUT_S
    while (
        left := {*asked} & {*list_live_holders(location.locks_folder).values()}
    ) and time.monotonic() < until_s:
        time.sleep(POLL_INTERVAL_S)

    return StopReport(slug, asked, not left)


def _find_holders_to_stop(
    location: Location, feature: str | None
) -> tuple[str, Sequence[LockHolder]]:
    """The feature to be stopped, and who works on it or on one of its packages."""
    by_feature: dict[str, set[LockHolder]] = {}

    for name, holder in list_live_holders(location.locks_folder).items():
        slug, package, number = name.rpartition("-WP")
        if not (package and number.isdecimal()):
            slug = name
        if feature in (None, slug) and holder.pid != os.getpid():
            by_feature.setdefault(slug, set()).add(holder)

    if not by_feature:
        raise StateConflict(
            f"nothing is running{f' for {feature}' if feature else ''}", "phasegate status"
        )

    if len(by_feature) > 1:
        raise StateConflict(
            "several features are running", f"choose one with --feature: {', '.join(by_feature)}"
        )

    ((slug, found),) = by_feature.items()
    return slug, sorted(found)
