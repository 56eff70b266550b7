"""What a run prints: progress to stderr, gates and blocks to stdout.

A block is always the last thing of all.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock

from phasegate.core.display.activity import Activity, RunningCommand
from phasegate.core.display.status import NOTICE_KIND
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.workflows import resolve_display_name
from phasegate.engine.views.follow import JournalFollower, StreamEvent
from phasegate.engine.views.overview import JobRow
from phasegate.interfaces.cli.live_display import LiveLines, format_clock
from phasegate.interfaces.cli.render import is_stdout_separate_file, make_printable, print_line
from phasegate.interfaces.fast_path.status import can_use_colours

_MAX_JOBS = 8


class ProgressPrinter:
    """Prints what happens. A block is held back until it is known whether something follows it."""

    def __init__(
        self,
        *,
        quiet: bool = False,
        activities: Mapping[str, Activity] | None = None,
        commands: Mapping[str, RunningCommand] | None = None,
    ) -> None:
        self._block = ""
        self._quiet = quiet
        self._activities = {} if activities is None else activities
        self._commands = {} if commands is None else commands
        self._started_at = datetime.now(UTC)
        self._printed_warnings: set[str] = set()
        self._lock = Lock()
        self.live = LiveLines()
        self.gates_printed = 0
        self._has_log = not quiet and is_stdout_separate_file()

    def __call__(self, event: StreamEvent) -> None:
        if self._quiet:
            return

        with self._lock:
            if event.line:
                # Which leads nowhere: a block before it stays the last one
                if event.kind != NOTICE_KIND:
                    self._flush_block(is_last=False)

                is_gate = event.line.startswith("GATE-")
                self.gates_printed += is_gate
                self.print_line(event.line, err=not is_gate)

            self._block = event.block or self._block

    def print_line(self, line: str, *, err: bool = True) -> None:
        """A line that stays.

        In a file that stdout goes to, gates and blocks alone would tell no story.
        """
        self.live.print_above(make_printable(line), err=err)
        if err and self._has_log:
            print_line(make_printable(line))

    def print_warning(self, text: str) -> None:
        """A remark of ours, once: ten agents have ten times the same to say."""
        with self._lock:
            if text not in self._printed_warnings and not self._quiet:
                self._printed_warnings.add(text)
                self.print_line(f"note: {text}")

    def redraw(self, follower: JournalFollower) -> None:
        """Bring the live lines up to date, where there are any."""
        if not self._quiet and follower.feature is not None:
            lines = _render_progress(
                follower.feature,
                [*follower.running_jobs.values()],
                self._activities,
                self._started_at,
            )

            running = [f"  {one.line(time.monotonic())}" for one in [*self._commands.values()]]
            self.live.draw([*lines, *running])

    def hold_block(self, block: str) -> None:
        """The block of something that is on no record: the last one, unless something follows."""
        self._block = block

    def finish(self, lines: tuple[str, ...] = ()) -> None:
        """Say where things stand, then the last block."""
        self.live.clear()
        for line in lines:
            self.print_line(line)
        self._flush_block()

    def _flush_block(self, *, is_last: bool = True) -> None:
        """On a terminal a block that something follows is dimmed.

        Progress is read, and the last one stands out.
        """
        if self._block:
            block = self._block.removesuffix("\n")
            self.live.print_above(
                block if is_last or not can_use_colours() else f"\x1b[2m{block}\x1b[0m", err=False
            )
            self._block = ""


def _render_progress(
    feature: Feature,
    jobs: Sequence[JobRow],
    activities: Mapping[str, Activity],
    started_at: datetime,
) -> Iterator[str]:
    """Phase, packages, what each agent does, for how long, and what it did last."""
    workflow = feature.workflow
    now = datetime.now(UTC)
    place = f"{resolve_display_name(workflow.phase)} ({workflow.index + 1}/{len(workflow.phases)})"
    yield f"{workflow.feature}  {place}  round {workflow.round}  {format_clock((now - started_at).total_seconds())}"

    if feature.packages:
        counts = Counter(feature.packages.values())
        yield "  packages: " + "  ".join(
            f"{state} {counts[state]}" for state in PackageState if counts[state]
        )

    for job in jobs[:_MAX_JOBS]:
        passed = format_clock((now - datetime.fromisoformat(job.started)).total_seconds())
        doing = activities.get(job.id, Activity()).line
        yield f"  {job.wp or workflow.phase}  {job.phase} by {job.agent}  {passed}" + (
            f"  {doing}" if doing else ""
        )

    if len(jobs) > _MAX_JOBS:
        yield f"  and {len(jobs) - _MAX_JOBS} more"


class WarningPrinter(logging.Handler):
    """Warnings of our own, handed to whoever tells."""

    def __init__(self, printer: ProgressPrinter) -> None:
        super().__init__(logging.WARNING)
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        self._printer.print_warning(record.getMessage())


@contextmanager
def print_warnings_with(printer: ProgressPrinter) -> Iterator[None]:
    """Have the warnings of the product told while the block runs."""
    logger = logging.getLogger("phasegate")
    handler = WarningPrinter(printer)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
