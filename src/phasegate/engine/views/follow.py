"""The journal, followed while it grows: what people are told comes from the record and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import NamedTuple

from phasegate.core.display.event_lines import Told, tell, tell_package
from phasegate.core.machine.feature_machine import apply
from phasegate.core.machine.feature_state import Feature
from phasegate.engine.journal.entries import (
    FEATURE_STEP,
    PACKAGE_STEP,
    AskedQuestion,
    GivenAnswer,
    read_feature_step,
    read_notice,
    read_package_step,
    read_timed,
)
from phasegate.engine.journal.questions import ANSWERED, ASKED
from phasegate.storage.lock_holder import Holder, holders
from phasegate.storage.reader import Reader
from phasegate.storage.row_events import ROW_OF_KIND, row_of
from phasegate.storage.rows import Job, Recorded
from phasegate.typed import read_json

LOOK_EVERY_S = 0.1


class StreamEvent(NamedTuple):
    """One record of the journal: where it stands, what it is, and how it is told. `position` is the cursor."""

    position: int
    feature: str
    seq: int
    ts: str
    kind: str
    package: str  # empty for what concerns the whole feature
    phase: str  # of the workflow, when it happened; empty without one
    event: object  # typed; None for kinds that only the engine reads
    line: str = ""
    block: str = ""


Hear = Callable[[StreamEvent], None]


class Follower:
    """Reads the journal of one feature, or of all, from a cursor on, and folds it as it goes."""

    def __init__(self, reader: Reader, slug: str | None = None, *, after: int | None = None) -> None:
        """`after`: the position behind which events are handed out; None for what comes from now on."""
        self._reader, self._slug = reader, slug
        self._read_to = self._after = 0
        self._features: dict[str, Feature | None] = {}
        self.at_work: dict[str, Job] = {}
        if after is None:
            for event in self.events():
                self._after = event.position
        else:
            self._after = after

    @property
    def feature(self) -> Feature | None:
        """The feature that is followed, as it stands now."""
        return self._features.get(self._slug or "")

    def events(self) -> Iterator[StreamEvent]:
        """What came since the last time."""
        for recorded in self._recorded():
            event = self._take(recorded)
            self._read_to = recorded.seq if self._slug else recorded.position
            if recorded.position > self._after:
                yield event

    def told(self) -> Iterator[StreamEvent]:
        """Of what came since the last time, that which people are told."""
        return (event for event in self.events() if event.line or event.block)

    def _recorded(self) -> Iterator[Recorded]:
        return (
            self._reader.events(self._slug, self._read_to) if self._slug else self._reader.events_since(self._read_to)
        )

    def _take(self, recorded: Recorded) -> StreamEvent:
        package, event, told = self._read(recorded)
        feature = self._features.get(recorded.feature)
        phase = "" if feature is None else "archive" if feature.closing else feature.workflow.phase
        return StreamEvent(*recorded[:5], package, phase, event, *told)

    def _read(self, recorded: Recorded) -> tuple[str, object, Told]:
        """The package that an event is about, the event itself, and how it is told."""
        if recorded.kind == PACKAGE_STEP:
            package, of_package = read_package_step(recorded.payload)
            return package, of_package, Told(tell_package(package, of_package))
        if recorded.kind == FEATURE_STEP:
            return self._happened(recorded)
        if (notice := read_notice(recorded)) is not None:
            return notice.work, notice, Told(f"{notice.work}: {notice.text}" if notice.work else notice.text)
        if (timed := read_timed(recorded)) is not None:
            return timed.work, timed, Told()
        if recorded.kind in (ASKED, ANSWERED):
            return _question(recorded)
        if recorded.kind not in ROW_OF_KIND:
            return "", None, Told()
        row = row_of(recorded.feature, recorded.kind, recorded.payload)
        if not isinstance(row, Job):
            return "", row, Told()
        if row.ended:
            self.at_work.pop(row.id, None)
        else:
            self.at_work[row.id] = row
        return row.wp, row, Told()

    def _happened(self, recorded: Recorded) -> tuple[str, object, Told]:
        event, before = read_feature_step(recorded.payload), self._features.get(recorded.feature)
        after = self._features[recorded.feature] = apply(before, event)
        return "", event, tell(before, event, after) if after is not None else Told()


def _question(recorded: Recorded) -> tuple[str, object, Told]:
    """A question of an agent, or its answer, as it is told."""
    if recorded.kind == ASKED:
        asked = read_json(recorded.payload, AskedQuestion)
        where = f"{asked.work}: " if asked.work else ""
        then = f'phasegate answer {asked.id} "..." --feature {recorded.feature}'
        return asked.work, asked, Told(f"{where}asks: {' '.join(asked.text.split())[:300]} ({then})")
    given = read_json(recorded.payload, GivenAnswer)
    return "", given, Told(f"answered {given.id}: {' '.join(given.text.split())[:300]}")


class Pulse:
    """Tells which features of a repository have moved since the last look: their journal, or who works on them."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._changes, self._position = -1, 0
        self._workers: dict[str, Holder] = {}

    def moved(self) -> set[str]:
        """The features that have moved; the first look names all of them."""
        workers = holders(self._reader.location.locks)
        found = {name.rpartition("-WP")[0] or name for name, _ in {*workers.items()} ^ {*self._workers.items()}}
        self._workers = workers
        changes = self._reader.changes()
        if changes != self._changes:
            moved = self._reader.moved_since(self._position)
            self._changes, self._position = changes, max((self._position, *moved.values()))
            found |= moved.keys()
        return found


def stamp_of(reader: Reader, feature: str = "") -> object:
    """Differs when anything has moved that a view of a feature, or of all, is made of."""
    position = reader.seq(feature) if feature else reader.head().entries
    return position, tuple(holders(reader.location.locks).items())


@contextmanager
def following(
    reader: Reader, slug: str, hear: Hear, look: Callable[[Follower], None] = lambda _: None, *, from_now: bool = True
) -> Iterator[None]:
    """Tell what happens to a feature while the block runs, and at its end what is left; `look` is called often."""
    follower = Follower(reader, slug, after=None if from_now else 0)
    ended = Event()

    def follow() -> None:
        while not ended.wait(LOOK_EVERY_S):
            for told in follower.told():
                hear(told)
            look(follower)

    thread = Thread(target=follow, name=f"follow {slug}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for told in follower.told():
            hear(told)
