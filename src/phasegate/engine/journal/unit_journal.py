"""The journal of a unit of work, a feature or a package.

Its events, where they lead, and how long each step took.

Every record is one durable step. Only whoever holds the unit's lock writes; others may write about
other units of the same feature meanwhile.
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
    """The step that a unit of work is at."""

    phase: str
    step: str
    round: int


class Transition(NamedTuple, Generic[S, E]):
    """An event, and where the unit stood before and stands after it."""

    before: S | None
    event: E
    after: S


class WorkUnit(Protocol[S, E]):
    """A feature or a package, as its journal must know it."""

    @property
    def slug(self) -> str: ...

    @property
    def work(self) -> str:
        """The package; empty for a feature."""

    def read_event(self, recorded: RecordedEvent) -> E | None:
        """The event that a record of the journal is, if it is one of this unit."""

    def encode_event(self, event: E) -> NewEvent: ...

    def fold(self, events: Iterable[E]) -> S | None: ...

    def apply(self, state: S | None, event: E) -> S: ...

    def make_rows(self, transitions: Sequence[Transition[S, E]], ts: str) -> Iterable[NewEvent]:
        """What else is to be recorded with these events: rows that they change."""

    def find_due_step(self, state: S) -> DueStep | None:
        """The step that time is spent on now; None where nothing is done before a person says so."""


class UnitJournal(Generic[S, E]):
    """One unit's events and the state that they make.

    `heard` is told of each record, `noted` of each notice.
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
        assert self._state is not None, "nothing was started"
        return self._state

    @property
    def due_step(self) -> DueStep | None:
        """The step that time is spent on now."""
        return self.unit.find_due_step(self.state)

    @property
    def is_started(self) -> bool:
        return self._state is not None

    def reload(self) -> None:
        """Take in what is on record: an interrupted step may be, or may not."""
        recorded = list(self._journal.events(self.unit.slug))
        self._seq = recorded[-1].seq if recorded else 0
        self._state = self.unit.fold(
            event for one in recorded if (event := self.unit.read_event(one)) is not None
        )

    def start_timing(self) -> None:
        """From now on record how long each step takes."""
        self._is_timing = True
        self._restart_step_timer(self._clock.monotonic_s(), format_timestamp(self._clock.time_s()))

    def record(
        self,
        *events: E,
        rows: Sequence[NewEvent] = (),
        command_durations_s: Mapping[str, float] | None = None,
    ) -> S:
        """Append what happened as one durable step, with what is to be told, and take it in."""
        taken: list[Transition[S, E]] = []
        state = self._state
        for event in events:
            after = self.unit.apply(state, event)
            taken.append(Transition(state, event, after))
            state = after

        ts = format_timestamp(self._clock.time_s())
        own = [*map(self.unit.encode_event, events), *rows, *self.unit.make_rows(taken, ts)]
        is_next = (
            self._is_timing
            and state is not None
            and self.unit.find_due_step(state) != self._timed_step
        )
        moment_s = self._clock.monotonic_s()
        self._append(
            ts,
            [
                *own,
                *self._drain_notices(),
                *(self._make_timing(moment_s, command_durations_s) if is_next else ()),
            ],
        )

        self._state = state
        if is_next:
            # The record itself is part of what follows
            self._restart_step_timer(moment_s, ts)

        self._on_recorded(taken)
        return self.state

    def queue_notices(self, *texts: str) -> None:
        """Have something told with the next record."""
        self._notices += texts
        for text in texts:
            self._on_notice(text)

    def notify(self, *texts: str) -> None:
        """Have something told at once: what follows may take long."""
        self.queue_notices(*texts)
        self._append(format_timestamp(self._clock.time_s()), self._drain_notices())

    @contextmanager
    def finish_on_exit(self) -> Iterator[None]:
        """Record what waits, and the time of a step that is not done, when a run ends, is stopped
        or fails.
        """
        with self.finish_on_error():
            yield
        self._finish()

    @contextmanager
    def finish_on_error(self) -> Iterator[None]:
        """The same where what is done here is stopped or fails."""
        try:
            yield
        except (Interrupted, PhasegateError):
            # The one that ended the run is told
            with suppress(PhasegateError):
                self._finish()
            raise

    def _finish(self) -> None:
        waiting = [
            *self._drain_notices(),
            *(self._make_timing(self._clock.monotonic_s()) if self._is_timing else ()),
        ]
        self._is_timing = False
        if waiting:
            self._append(format_timestamp(self._clock.time_s()), waiting)

    def _drain_notices(self) -> list[NewEvent]:
        waiting = self._notices
        self._notices = []
        return [encode_notice(self.unit.work, text) for text in waiting]

    def _make_timing(
        self, now_s: float, command_durations_s: Mapping[str, float] | None = None
    ) -> list[NewEvent]:
        if self._timed_step is None:
            return []

        took_s = round(now_s - self._step_started_s, 3)
        return [
            encode_step_timed(
                StepTimed(
                    self.unit.work,
                    *self._timed_step,
                    self._step_started_at,
                    took_s,
                    command_durations_s or {},
                )
            )
        ]

    def _restart_step_timer(self, started_s: float, started_at: str) -> None:
        if self._state is not None:
            self._timed_step = self.unit.find_due_step(self._state)
        else:
            self._timed_step = None
        self._step_started_s = started_s
        self._step_started_at = started_at

    def _append(self, ts: str, events: Sequence[NewEvent]) -> None:
        """Append behind what this journal has seen.

        What others put there meanwhile must not be of this unit.
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
