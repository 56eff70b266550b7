"""The journal of a unit of work, a feature or a package: its events, where they lead, and how long each step took.

Every record is one durable step. Only whoever holds the unit's lock writes; others may write about other units of the
same feature meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, NamedTuple, Protocol, TypeVar

from phasegate.engine.journal.entries import StepTimed, notice, timed
from phasegate.engine.project.ports import Clock, Journal, stamp
from phasegate.errors import Interrupted, MovedOn, PhasegateError
from phasegate.storage.rows import Event, Recorded

S = TypeVar("S")
E = TypeVar("E")


class Due(NamedTuple):
    """The step that a unit of work is at."""

    phase: str
    step: str
    round: int


class Transition(NamedTuple, Generic[S, E]):
    """An event, and where the unit stood before and stands after it."""

    before: S | None
    event: E
    after: S


class Unit(Protocol[S, E]):
    """A feature or a package, as its journal must know it."""

    @property
    def slug(self) -> str: ...

    @property
    def work(self) -> str:
        """The package; empty for a feature."""

    def read(self, recorded: Recorded) -> E | None:
        """The event that a record of the journal is, if it is one of this unit."""

    def write(self, event: E) -> Event: ...

    def fold(self, events: Iterable[E]) -> S | None: ...

    def apply(self, state: S | None, event: E) -> S: ...

    def rows(self, taken: Sequence[Transition[S, E]], ts: str) -> Iterable[Event]:
        """What else is to be recorded with these events: rows that they change."""

    def due(self, state: S) -> Due | None:
        """The step that time is spent on now; None where nothing is done before a person says so."""


class WorkJournal(Generic[S, E]):
    """One unit's events and the state that they make. `heard` is told of each record, `noted` of each notice."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        unit: Unit[S, E],
        heard: Callable[[Sequence[Transition[S, E]]], None] = lambda _: None,
        noted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._journal, self._clock, self.unit = journal, clock, unit
        self._heard, self._noted = heard, noted
        self._notices: list[str] = []
        self._due: Due | None = None
        self._since_s, self._since = 0.0, ""
        self._is_timing = False
        self.read_again()

    @property
    def state(self) -> S:
        assert self._state is not None, "nothing was started"
        return self._state

    @property
    def due(self) -> Due | None:
        """The step that time is spent on now."""
        return self.unit.due(self.state)

    @property
    def is_begun(self) -> bool:
        return self._state is not None

    def read_again(self) -> None:
        """Take in what is on record: an interrupted step may be, or may not."""
        recorded = list(self._journal.events(self.unit.slug))
        self._seq = recorded[-1].seq if recorded else 0
        self._state = self.unit.fold(event for one in recorded if (event := self.unit.read(one)) is not None)

    def time_steps(self) -> None:
        """From now on record how long each step takes."""
        self._is_timing = True
        self._start_clock(self._clock.monotonic_s(), stamp(self._clock.time_s()))

    def record(self, *events: E, rows: Sequence[Event] = (), parts: Mapping[str, float] | None = None) -> S:
        """Append what happened as one durable step, with what is to be told, and take it in."""
        taken: list[Transition[S, E]] = []
        state = self._state
        for event in events:
            after = self.unit.apply(state, event)
            taken.append(Transition(state, event, after))
            state = after
        ts = stamp(self._clock.time_s())
        own = [*map(self.unit.write, events), *rows, *self.unit.rows(taken, ts)]
        is_next = self._is_timing and state is not None and self.unit.due(state) != self._due
        moment_s = self._clock.monotonic_s()
        self._append(ts, [*own, *self._waiting(), *(self._timed(moment_s, parts) if is_next else ())])
        self._state = state
        if is_next:
            self._start_clock(moment_s, ts)  # the record itself is part of what follows
        self._heard(taken)
        return self.state

    def note(self, *texts: str) -> None:
        """Have something told with the next record."""
        self._notices += texts
        for text in texts:
            self._noted(text)

    def tell(self, *texts: str) -> None:
        """Have something told at once: what follows may take long."""
        self.note(*texts)
        self._append(stamp(self._clock.time_s()), self._waiting())

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Record what waits, and the time of a step that is not done, when a run ends, is stopped or fails."""
        with self.failed():
            yield
        self._end()

    @contextmanager
    def failed(self) -> Iterator[None]:
        """The same where what is done here is stopped or fails."""
        try:
            yield
        except (Interrupted, PhasegateError):
            with suppress(PhasegateError):  # the one that ended the run is told
                self._end()
            raise

    def _end(self) -> None:
        waiting = [*self._waiting(), *(self._timed(self._clock.monotonic_s()) if self._is_timing else ())]
        self._is_timing = False
        if waiting:
            self._append(stamp(self._clock.time_s()), waiting)

    def _waiting(self) -> list[Event]:
        waiting, self._notices = self._notices, []
        return [notice(self.unit.work, text) for text in waiting]

    def _timed(self, moment_s: float, parts: Mapping[str, float] | None = None) -> list[Event]:
        if self._due is None:
            return []
        took_s = round(moment_s - self._since_s, 3)
        return [timed(StepTimed(self.unit.work, *self._due, self._since, took_s, parts or {}))]

    def _start_clock(self, since_s: float, since: str) -> None:
        self._due = self.unit.due(self._state) if self._state is not None else None
        self._since_s, self._since = since_s, since

    def _append(self, ts: str, events: Sequence[Event]) -> None:
        """Append behind what this journal has seen. What others put there meanwhile must not be of this unit."""
        while True:
            try:
                self._seq = self._journal.append(self.unit.slug, self._seq, ts, events)
                return
            except MovedOn:
                for recorded in self._journal.events(self.unit.slug, self._seq):
                    if self.unit.read(recorded) is not None:
                        raise
                    self._seq = recorded.seq
