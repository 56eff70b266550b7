"""The journal of a feature, followed while it grows: what people are told comes from the record and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from phasegate.engine.feature_journal import HAPPENED, read_happened
from phasegate.engine.packages import HAPPENED as OF_PACKAGE
from phasegate.engine.packages import read_package_event
from phasegate.engine.run_log import read_notice
from phasegate.record.reader import Reader
from phasegate.record.row_events import row_of
from phasegate.record.rows import Job, Recorded
from phasegate.rules.decide import apply
from phasegate.rules.feature_state import Feature
from phasegate.rules.telling import Told, tell, tell_package

LOOK_EVERY_S = 0.1
Tell = Callable[[Told], None]


class Follower:
    """Reads a feature's journal from a point on, and folds it as it goes."""

    def __init__(self, reader: Reader, slug: str, *, from_now: bool = True) -> None:
        self._reader, self._slug = reader, slug
        self._seq = 0
        self.feature: Feature | None = None
        self.at_work: dict[str, Job] = {}
        if from_now:
            for _ in self.told():
                pass

    def told(self) -> Iterator[Told]:
        """What came since the last time."""
        for recorded in self._reader.events(self._slug, self._seq):
            self._seq = recorded.seq
            told = self._take(recorded)
            if told.line or told.block:
                yield told

    def _take(self, recorded: Recorded) -> Told:
        if recorded.kind == OF_PACKAGE:
            return Told(tell_package(*read_package_event(recorded.payload)))
        if (notice := read_notice(recorded)) is not None:
            return Told(f"{notice.work}: {notice.text}" if notice.work else notice.text)
        if recorded.kind in ("job.started", "job.ended"):
            self._note_job(recorded)
        if recorded.kind != HAPPENED:
            return Told()
        event, before = read_happened(recorded.payload), self.feature
        self.feature = apply(before, event)
        return tell(before, event, self.feature) if self.feature is not None else Told()

    def _note_job(self, recorded: Recorded) -> None:
        row = row_of(recorded.feature, recorded.kind, recorded.payload)
        assert isinstance(row, Job)
        if row.ended:
            self.at_work.pop(row.id, None)
        else:
            self.at_work[row.id] = row


@contextmanager
def following(
    reader: Reader, slug: str, hear: Tell, look: Callable[[Follower], None] = lambda _: None, *, from_now: bool = True
) -> Iterator[None]:
    """Tell what happens to a feature while the block runs, and at its end what is left; `look` is called often."""
    follower = Follower(reader, slug, from_now=from_now)
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
