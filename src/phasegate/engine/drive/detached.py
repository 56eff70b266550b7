"""Runs in processes of their own: started so that they outlive the door, and asked to end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from phasegate.engine.drive.feature import Wishes, has_moved
from phasegate.engine.project.project import Project
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.sandbox.detached import Detached, ask_to_end
from phasegate.storage.location import Location
from phasegate.storage.lock_holder import Holder, feature_holder, holders, is_alive
from phasegate.storage.reader import read_store

LONGEST_START_S, LONGEST_END_S = 60.0, 120.0
LONGEST_LOOK_S = 5.0  # a first step may take long, and a run that is refused is so before it
LOOK_EVERY_S = 0.05
_LAST_LINES = 5


class DetachedRun(NamedTuple):
    """A run that goes on by itself. `exit_code`: it came to its end before it could be let go."""

    feature: str
    pid: int
    log: str
    exit_code: int | None = None


class StopReport(NamedTuple):
    """Which processes were asked to end, and whether all did in time."""

    feature: str
    processes: tuple[Holder, ...]
    ended: bool


def start_detached(project: Project, feature: str, wishes: Wishes) -> DetachedRun:
    """Carry a feature on in a process of its own, and come back as soon as that has done something.

    It may be refused with the feature already in its hands: its branch is gone, or nobody serves a role. That is told
    here, where the person is, and not in a log alone.
    """
    if (holder := feature_holder(project.location.locks, feature)) is not None:
        raise StateConflict(
            f"feature {feature} is already running: process {holder.pid} ({holder.command}) since {holder.since}",
            f"follow it: phasegate status; end it: phasegate stop --feature {feature}",
        )
    log = _log_file(project.location, feature)
    given = (("--step",) if wishes.step else ()) + (("--merge",) if wishes.merge else ())
    agent = ("--agent", wishes.agent) if wishes.agent else ()
    # -P: the repository's own files must not be taken for ours.
    argv = (sys.executable, "-P", "-m", "phasegate", "run", "--feature", feature, *given, *agent)
    written, (known, _) = log.stat().st_size if log.exists() else 0, _progress(project.location, feature)
    try:
        process = Detached(argv, str(project.root), os.environ, str(log))
    except OSError as error:
        raise EnvironmentUnavailable(f"cannot start a run: {error.strerror}", f"check {log}") from error
    run = DetachedRun(feature, process.pid, str(log))
    until_s = time.monotonic() + LONGEST_START_S
    while time.monotonic() < until_s:
        if (code := process.exit_status()) is not None:
            return _ended_at_once(run, code, written)
        if _progress(project.location, feature, known)[1]:
            return run
        holder = feature_holder(project.location.locks, feature)
        if holder is not None and holder.pid == process.pid:
            until_s = min(until_s, time.monotonic() + LONGEST_LOOK_S)
        time.sleep(LOOK_EVERY_S)
    return run


def _progress(location: Location, feature: str, after_seq: int = 0) -> tuple[int, bool]:
    """The number of a feature's last event, and whether anything happened to it or its packages since another one."""
    reader = read_store(location)
    if reader is None:
        return 0, False
    with reader:
        return reader.seq(feature), has_moved(reader, feature, after_seq)


def _ended_at_once(run: DetachedRun, code: int, written: int) -> DetachedRun:
    """A run that has nothing to do ends well; one that is refused has said why."""
    if code in (0, 1):
        return run._replace(exit_code=code)
    with Path(run.log).open(encoding="utf-8", errors="replace") as log:
        log.seek(written)
        lines = log.read().splitlines()[-_LAST_LINES:]
    errors = [number for number, line in enumerate(lines) if line.startswith("phasegate: ")]
    said = " / ".join(line.strip() for line in lines[errors[-1] if errors else 0 :])  # notices may stand before it
    raise StateConflict(f"the run of {run.feature} ended at once (exit {code}): {said}", f"see {run.log}")


def _log_file(location: Location, feature: str) -> Path:
    folder = location.folder / "runs"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{feature}.log"


def stop_runs(location: Location, feature: str | None) -> StopReport:
    """Ask the processes that work on a feature to end, and wait until they have."""
    slug, found = _meant(location, feature)
    asked = tuple(holder for holder in found if ask_to_end(holder.pid, partial(is_alive, holder)))
    until_s = time.monotonic() + LONGEST_END_S
    while (left := {*asked} & {*holders(location.locks).values()}) and time.monotonic() < until_s:
        time.sleep(LOOK_EVERY_S)
    return StopReport(slug, asked, not left)


def _meant(location: Location, feature: str | None) -> tuple[str, Sequence[Holder]]:
    """The feature to be stopped, and who works on it or on one of its packages."""
    by_feature: dict[str, set[Holder]] = {}
    for name, holder in holders(location.locks).items():
        slug, package, number = name.rpartition("-WP")
        slug = slug if package and number.isdecimal() else name
        if feature in (None, slug) and holder.pid != os.getpid():
            by_feature.setdefault(slug, set()).add(holder)
    if not by_feature:
        raise StateConflict(f"nothing is running{f' for {feature}' if feature else ''}", "phasegate status")
    if len(by_feature) > 1:
        raise StateConflict("several features are running", f"choose one with --feature: {', '.join(by_feature)}")
    ((slug, found),) = by_feature.items()
    return slug, sorted(found)
