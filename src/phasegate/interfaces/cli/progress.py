"""Print the progress of a run: event lines to stderr, gates and blocks to stdout.

A block is printed when its event is recorded. The block of the event that ends the run is held
back until the closing lines are printed: it is always the last output.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock

from phasegate.core.display.activity import Activity, RunningCommand
from phasegate.core.display.status import NOTICE_KIND
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.work_package import PackageState
from phasegate.core.text.wrap import wrap_line
from phasegate.core.workflow.workflow_phases import resolve_display_name
from phasegate.engine.views.follow import JournalFollower, StreamEvent
from phasegate.engine.views.overview import JobRow
from phasegate.interfaces.cli.live_display import LiveLines, format_clock
from phasegate.interfaces.cli.render import is_stdout_separate_file, make_printable, print_line
from phasegate.interfaces.fast_path.status import build_status_page

_MAX_JOBS = 8
_FAILURE = re.compile(r"GATE-\S+ FAILED|\S+: BLOCKED|\S+ is blocked")


class ProgressPrinter:
    """Prints the events of a run.

    `ends_run` decides which blocks are held back for `finish`: those of the last event. By default
    every block is, because an order ends with its event.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        as_json: bool = False,
        activities: Mapping[str, Activity] | None = None,
        commands: Mapping[str, RunningCommand] | None = None,
        ends_run: Callable[[StreamEvent], bool] = lambda _: True,
    ) -> None:
        self._block = ""
        self._ends_run = ends_run
        self._quiet = quiet
        self._activities = {} if activities is None else activities
        self._commands = {} if commands is None else commands
        self._started_at = datetime.now(UTC)
        self._printed_warnings: set[str] = set()
        self._lock = Lock()
        self.live = LiveLines()
        self.gates_printed = 0
        # With --json, stdout has the result only
        self._has_log = not quiet and not as_json and is_stdout_separate_file()

    def __call__(self, event: StreamEvent) -> None:
        """Print the line of an event, and its block when it is the last one."""
        if self._quiet:
            return

        with self._lock:
            if event.line:
                # A notice changes no state, so the block before it remains the last one.
                if event.kind != NOTICE_KIND:
                    self._flush_block()

                is_gate = event.line.startswith("GATE-")
                if is_gate:
                    self.gates_printed += 1
                self.print_line(event.line, err=not is_gate)

            self._block = event.block or self._block
            if event.block and not self._ends_run(event):
                # A terminal gets the last block only; pipes and hooks get all of them
                if sys.stdout is not None and sys.stdout.isatty():
                    self._block = ""
                self._flush_block()

    def print_line(self, line: str, *, err: bool = True) -> None:
        """Print a line above the live lines.

        If stdout is a log file, event lines go there as well: otherwise the log would contain only
        gates and blocks.
        """
        for part in _fit_to_terminal(make_printable(line), err=err):
            self.live.print_above(part, err=err)
        if err and self._has_log:
            print_line(make_printable(line))

    def print_warning(self, text: str) -> None:
        """Print a warning once, since parallel agents cause the same warning several times."""
        with self._lock:
            if text not in self._printed_warnings and not self._quiet:
                self._printed_warnings.add(text)
                self.print_line(f"note: {text}")

    def redraw(self, follower: JournalFollower) -> None:
        """Update the live lines."""
        if not self._quiet and follower.feature is not None:
            lines = render_progress(
                follower.feature,
                [*follower.running_jobs.values()],
                self._activities,
                self._started_at,
            )

            now_s = time.monotonic()
            commands = [f"  {command.line(now_s)}" for command in [*self._commands.values()]]
            self.live.draw([*lines, *commands])

    def hold_block(self, block: str) -> None:
        """Defer a block that belongs to no event; `finish` or the next event prints it."""
        self._block = block

    def finish(self, lines: tuple[str, ...] = ()) -> None:
        """Erase the live lines, print the closing lines, then the last block."""
        self.live.clear()
        for line in lines:
            self.print_line(line)
        self._flush_block()

    def _flush_block(self) -> None:
        """Print the held block as its bytes: colours would hide it from programs."""
        if self._block:
            self.live.print_above(self._block.removesuffix("\n"), err=False)
        self._block = ""


def _fit_to_terminal(line: str, *, err: bool) -> list[str]:
    """Wrap a line by words and colour the outcome of a gate, if it goes to a terminal."""
    stream = sys.stderr if err else sys.stdout
    if stream is None or not stream.isatty():
        return [line]

    page = build_status_page(show_all=False)
    colour = "plain"
    if _FAILURE.match(line):
        colour = "red"
    elif line.startswith("GATE-") and line.endswith("PASSED"):
        colour = "green"
    return [page.style(part, colour) for part in wrap_line(line, page.width)]


def render_progress(
    feature: Feature,
    jobs: Sequence[JobRow],
    activities: Mapping[str, Activity],
    started_at: datetime,
) -> Iterator[str]:
    """Yield the phase, the package counts, and each running agent with its last activity."""
    workflow = feature.workflow
    now = datetime.now(UTC)
    phase = f"{resolve_display_name(workflow.phase)} ({workflow.index + 1}/{len(workflow.phases)})"
    passed = format_clock((now - started_at).total_seconds())
    yield f"{workflow.feature}  {phase}  round {workflow.round}  {passed}"

    if feature.packages:
        # The feature's own record says DOING until the package has ended
        in_review = {job.wp: PackageState.FOR_REVIEW for job in jobs if job.phase == "review"}
        counts = Counter(in_review.get(name, state) for name, state in feature.packages.items())
        states = [f"{state} {counts[state]}" for state in PackageState if counts[state]]
        yield f"  packages: {'  '.join(states)}"

    for job in jobs[:_MAX_JOBS]:
        passed = format_clock((now - datetime.fromisoformat(job.started)).total_seconds())
        activity = activities.get(job.id, Activity()).line
        suffix = f"  {activity}" if activity else ""
        yield f"  {job.wp or workflow.phase}  {job.phase} by {job.agent}  {passed}{suffix}"

    if len(jobs) > _MAX_JOBS:
        yield f"  and {len(jobs) - _MAX_JOBS} more"


class WarningPrinter(logging.Handler):
    """A logging handler that passes warnings to a progress printer."""

    def __init__(self, printer: ProgressPrinter) -> None:
        super().__init__(logging.WARNING)
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        self._printer.print_warning(record.getMessage())


@contextmanager
def print_warnings_with(printer: ProgressPrinter) -> Iterator[None]:
    """Print the warnings of the `phasegate` logger while the block runs."""
    logger = logging.getLogger("phasegate")
    handler = WarningPrinter(printer)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
