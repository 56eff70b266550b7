"""What a run prints: progress to stderr, gates and blocks to stdout; a block is always the last thing of all."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock

from phasegate.core.display.activity import Activity, RunningCommand
from phasegate.core.display.status import NOTICE
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.work_package import State
from phasegate.core.workflow.workflows import resolve_display_name
from phasegate.engine.views.follow import Follower, StreamEvent
from phasegate.engine.views.overview import Job
from phasegate.interfaces.cli.live_display import LiveLines, clock
from phasegate.interfaces.cli.render import printable, say, stdout_is_a_file_of_its_own
from phasegate.interfaces.fast_path.status import colours_fit

_MOST_JOBS = 8


class Teller:
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
        self._began = datetime.now(UTC)
        self._warned: set[str] = set()
        self._lock = Lock()
        self.live = LiveLines()
        self.gates_told = 0
        self._has_log = not quiet and stdout_is_a_file_of_its_own()

    def __call__(self, told: StreamEvent) -> None:
        if self._quiet:
            return
        with self._lock:
            if told.line:
                if told.kind != NOTICE:  # which leads nowhere: a block before it stays the last one
                    self._flush(is_last=False)
                is_gate = told.line.startswith("GATE-")
                self.gates_told += is_gate
                self.say(told.line, err=not is_gate)
            self._block = told.block or self._block

    def say(self, line: str, *, err: bool = True) -> None:
        """A line that stays. In a file that stdout goes to, gates and blocks alone would tell no story."""
        self.live.above(printable(line), err=err)
        if err and self._has_log:
            say(printable(line))

    def warn(self, text: str) -> None:
        """A remark of ours, once: ten agents have ten times the same to say."""
        with self._lock:
            if text not in self._warned and not self._quiet:
                self._warned.add(text)
                self.say(f"note: {text}")

    def look(self, follower: Follower) -> None:
        """Bring the live lines up to date, where there are any."""
        if not self._quiet and follower.feature is not None:
            lines = _going_on(follower.feature, [*follower.at_work.values()], self._activities, self._began)
            running = [f"  {one.line(time.monotonic())}" for one in [*self._commands.values()]]
            self.live.draw([*lines, *running])

    def keep(self, block: str) -> None:
        """The block of something that is on no record: the last one, unless something follows."""
        self._block = block

    def end(self, lines: tuple[str, ...] = ()) -> None:
        """Say where things stand, then the last block."""
        self.live.wipe()
        for line in lines:
            self.say(line)
        self._flush()

    def _flush(self, *, is_last: bool = True) -> None:
        """On a terminal a block that something follows is dimmed: progress is read, and the last one stands out."""
        if self._block:
            block = self._block.removesuffix("\n")
            self.live.above(block if is_last or not colours_fit() else f"\x1b[2m{block}\x1b[0m", err=False)
            self._block = ""


def _going_on(
    feature: Feature, jobs: Sequence[Job], activities: Mapping[str, Activity], began: datetime
) -> Iterator[str]:
    """Phase, packages, what each agent does, for how long, and what it did last."""
    workflow, now = feature.workflow, datetime.now(UTC)
    place = f"{resolve_display_name(workflow.phase)} ({workflow.index + 1}/{len(workflow.phases)})"
    yield f"{workflow.feature}  {place}  round {workflow.round}  {clock((now - began).total_seconds())}"
    if feature.packages:
        counts = Counter(feature.packages.values())
        yield "  packages: " + "  ".join(f"{state} {counts[state]}" for state in State if counts[state])
    for job in jobs[:_MOST_JOBS]:
        passed = clock((now - datetime.fromisoformat(job.started)).total_seconds())
        doing = activities.get(job.id, Activity()).line
        yield f"  {job.wp or workflow.phase}  {job.phase} by {job.agent}  {passed}" + (f"  {doing}" if doing else "")
    if len(jobs) > _MOST_JOBS:
        yield f"  and {len(jobs) - _MOST_JOBS} more"


class Remarks(logging.Handler):
    """Warnings of our own, handed to whoever tells."""

    def __init__(self, teller: Teller) -> None:
        super().__init__(logging.WARNING)
        self._teller = teller

    def emit(self, record: logging.LogRecord) -> None:
        self._teller.warn(record.getMessage())


@contextmanager
def remarks_to(teller: Teller) -> Iterator[None]:
    """Have the warnings of the product told while the block runs."""
    logger, handler = logging.getLogger("phasegate"), Remarks(teller)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
