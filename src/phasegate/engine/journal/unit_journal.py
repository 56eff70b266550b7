"""The journal of a unit of work, a feature or a package: its events, state and step durations.

Every append is one durable step. Only the holder of the unit's lock writes its events; others may
append events about other units of the same feature at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, NamedTuple, Protocol, TypeVar

from phasegate.engine.journal.entries import StepTimed, encode_notice, encode_step_timed
from phasegate.engine.project.ports import Clock, Journal, format_timestamp
from phasegate.errors import Interrupted, MovedOn, PhasegateError
from phasegate.storage.rows import NewEvent, RecordedEvent

S = TypeVar("S")
E = TypeVar("E")


class DueStep(NamedTuple):
    """The current step of a unit of work."""

    phase: str
    step: str
    round: int


class Transition(NamedTuple, Generic[S, E]):
    """An event with the states before and after it."""

    before: S | None
    event: E
    after: S


class WorkUnit(Protocol[S, E]):
    """A feature or a package: how its events are encoded and folded."""

    @property
    def slug(self) -> str: ...

    @property
    def work(self) -> str:
        """The package; empty for a feature."""

    def read_event(self, recorded: RecordedEvent) -> E | None:
        """Decode an event of this unit, or return None for other entries."""

    def encode_event(self, event: E) -> NewEvent: ...

    def fold(self, events: Iterable[E]) -> S | None: ...

    def apply(self, state: S | None, event: E) -> S: ...

    def make_rows(self, transitions: Sequence[Transition[S, E]], ts: str) -> Iterable[NewEvent]:
        """Make the row events that are recorded together with these transitions."""

    def find_due_step(self, state: S) -> DueStep | None:
        """Return the step that is due; None while the unit waits for the user."""


class UnitJournal(Generic[S, E]):
    """The events of one unit and the state that they fold to.

    `on_recorded` is called for every append, `on_notice` for every notice.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        unit: WorkUnit[S, E],
        on_recorded: Callable[[Sequence[Transition[S, E]]], None] = lambda _: None,
        on_notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self.unit = unit
        self._on_recorded = on_recorded
        self._on_notice = on_notice
        self._notices: list[str] = []
        self._timed_step: DueStep | None = None
        self._step_started_s = 0.0
        self._step_started_at = ""
        self._is_timing = False
        self.reload()

    @property
    def state(self) -> S:
        assert self._state is not None, "the unit is not started"
        return self._state

    @property
    def due_step(self) -> DueStep | None:
        """The step that is due; None while the unit waits for the user."""
        return self.unit.find_due_step(self.state)

    @property
    def is_started(self) -> bool:
        return self._state is not None

    def reload(self) -> None:
        """Read the state from the record: an interrupted append may or may not be in it."""
        recorded = list(self._journal.events(self.unit.slug))
        self._seq = recorded[-1].seq if recorded else 0
        self._state = self.unit.fold(
            event for one in recorded if (event := self.unit.read_event(one)) is not None
        )

    def start_timing(self) -> None:
        """Record the duration of every step from now on."""
        self._is_timing = True
        self._restart_step_timer(self._clock.monotonic_s(), format_timestamp(self._clock.time_s()))

    def record(
        self,
        *events: E,
        rows: Sequence[NewEvent] = (),
        command_durations_s: Mapping[str, float] | None = None,
    ) -> S:
        """Append events, rows and queued notices as one durable step; return the new state."""
        transitions: list[Transition[S, E]] = []
        state = self._state
        for event in events:
            after = self.unit.apply(state, event)
            transitions.append(Transition(state, event, after))
            state = after

        ts = format_timestamp(self._clock.time_s())
        entries = [
            *map(self.unit.encode_event, events),
            *rows,
            *self.unit.make_rows(transitions, ts),
            *self._drain_notices(),
        ]
        step_changed = (
            self._is_timing
            and state is not None
            and self.unit.find_due_step(state) != self._timed_step
        )
        now_s = self._clock.monotonic_s()
        if step_changed:
            entries += self._make_timing(now_s, command_durations_s)
        self._append(ts, entries)

        self._state = state
        if step_changed:
            # The time of the append counts for the next step
            self._restart_step_timer(now_s, ts)

        self._on_recorded(transitions)
        return self.state

    def queue_notices(self, *texts: str) -> None:
        """Report notices, and record them with the next append."""
        self._notices += texts
        for text in texts:
            self._on_notice(text)

    def notify(self, *texts: str) -> None:
        """Report and record notices immediately, because the next step may take long."""
        self.queue_notices(*texts)
        self._append(format_timestamp(self._clock.time_s()), self._drain_notices())

    @contextmanager
    def finish_on_exit(self) -> Iterator[None]:
        """Record queued notices and the duration of the current step when a run ends, is stopped or
        fails.
        """
        with self.finish_on_error():
            yield
        self._finish()

    @contextmanager
    def finish_on_error(self) -> Iterator[None]:
        """Do the same as `finish_on_exit`, but only if the run is stopped or fails."""
        try:
            yield
        except (Interrupted, PhasegateError):
            # The error that ended the run is more important than an error of this append
            with suppress(PhasegateError):
                self._finish()
            raise

    def _finish(self) -> None:
        entries = self._drain_notices()
        if self._is_timing:
            entries += self._make_timing(self._clock.monotonic_s())

        self._is_timing = False
        if entries:
            self._append(format_timestamp(self._clock.time_s()), entries)

    def _drain_notices(self) -> list[NewEvent]:
        texts = self._notices
        self._notices = []
        return [encode_notice(self.unit.work, text) for text in texts]

    def _make_timing(
        self, now_s: float, command_durations_s: Mapping[str, float] | None = None
    ) -> list[NewEvent]:
        """Return the event with the duration of the step; empty if none is timed."""
        if self._timed_step is None:
            return []

        timed = StepTimed(
            work=self.unit.work,
            phase=self._timed_step.phase,
            step=self._timed_step.step,
            round=self._timed_step.round,
            started=self._step_started_at,
            duration_s=round(now_s - self._step_started_s, 3),
            parts=command_durations_s or {},
        )
        return [encode_step_timed(timed)]

    def _restart_step_timer(self, started_s: float, started_at: str) -> None:
        if self._state is not None:
            self._timed_step = self.unit.find_due_step(self._state)
        else:
            self._timed_step = None
        self._step_started_s = started_s
        self._step_started_at = started_at

    def _append(self, ts: str, events: Sequence[NewEvent]) -> None:
        """Append after the last event that this journal has read.

        Other writers may have appended since, but not events of this unit.
        """
        while True:
            try:
                self._seq = self._journal.append(self.unit.slug, self._seq, ts, events)
                return
            except MovedOn:
                for recorded in self._journal.events(self.unit.slug, self._seq):
                    if self.unit.read_event(recorded) is not None:
                        raise

                    self._seq = recorded.seq
