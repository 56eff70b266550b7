"""A few lines at the bottom of a terminal: phase, packages, what each agent does, and for how long.

Nothing of the terminal is changed but those lines; they are wiped before anything else is printed, and at the end.
Elsewhere (a pipe, a log, TERM=dumb) there are none.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from phasegate.doors.cli.render import printable
from phasegate.engine.watching import Follower
from phasegate.record.rows import Job
from phasegate.rules.feature_state import Feature
from phasegate.rules.work_package import State
from phasegate.rules.workflow import resolve_display_name

_COLUMNS = 80
_MOST_JOBS = 8


class LiveView:
    """The lines that are on the screen now. One thread at a time draws; `wipe` comes before other output."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_live = self._stream is not None and self._stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn: list[str] = []
        self._began = datetime.now(UTC)

    def draw(self, follower: Follower) -> None:
        """Show what is going on now."""
        if not self._is_live or follower.feature is None:
            return
        columns = self._columns() - 1
        lines = [cut(printable(line), columns) for line in self._lines(follower.feature, [*follower.at_work.values()])]
        if lines != self._drawn:
            self._write(self._wiping() + "".join(f"{line}\n" for line in lines))
            self._drawn = lines

    def wipe(self) -> None:
        """Take the lines off the screen."""
        if self._drawn:
            self._write(self._wiping())
            self._drawn = []

    def _wiping(self) -> str:
        return f"\x1b[{len(self._drawn)}A\r\x1b[J" if self._drawn else ""

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # the terminal was closed: the work goes on without a view
            self._is_live = False

    def _lines(self, feature: Feature, jobs: list[Job]) -> Iterator[str]:
        workflow, now = feature.workflow, datetime.now(UTC)
        place = f"{resolve_display_name(workflow.phase)} ({workflow.index + 1}/{len(workflow.phases)})"
        yield f"{workflow.feature}  {place}  round {workflow.round}  {_clock(self._began, now)}"
        if feature.packages:
            counts = Counter(feature.packages.values())
            yield "  packages: " + "  ".join(f"{state} {counts[state]}" for state in State if counts[state])
        for job in jobs[:_MOST_JOBS]:
            yield f"  {job.wp or workflow.phase}  {job.phase} by {job.agent}  {_clock(_moment(job.started), now)}"
        if len(jobs) > _MOST_JOBS:
            yield f"  and {len(jobs) - _MOST_JOBS} more"

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except (OSError, ValueError):
            return _COLUMNS


def cut(text: str, columns: int) -> str:
    """As much of a text as fits; letters of double width count twice."""
    used = 0
    for position, letter in enumerate(text):
        used += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if used > columns:
            return text[:position]
    return text


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _clock(since: datetime, now: datetime) -> str:
    passed_s = max(0, int((now - since).total_seconds()))
    return f"{passed_s // 60}:{passed_s % 60:02}"
