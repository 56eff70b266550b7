"""Follow the journal while it grows: everything that is reported comes from the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from phasegate.background import repeat_in_background
from phasegate.core.display.event_lines import EventText, render_event, render_package_event
from phasegate.core.machine.feature_machine import apply_feature_event
from phasegate.core.machine.feature_state import Feature
from phasegate.engine.journal.entries import (
    FEATURE_STEP,
    PACKAGE_STEP,
    AskedQuestion,
    GivenAnswer,
    read_feature_step,
    read_notice,
    read_package_step,
    read_step_timed,
)
from phasegate.engine.journal.questions import QUESTION_ANSWERED, QUESTION_ASKED
from phasegate.storage.lock_holder import LockHolder, list_live_holders
from phasegate.storage.reader import StoreReader
from phasegate.storage.row_events import ROW_TYPES_BY_KIND, decode_row
from phasegate.storage.rows import JobRow, RecordedEvent
from phasegate.typed import read_json

POLL_INTERVAL_S = 0.1


class StreamEvent(NamedTuple):
    """One journal entry with its decoded event and the text that is reported for it.

    `position` is the cursor.
    """

    position: int
    feature: str
    seq: int
    ts: str
    kind: str
    # Empty for events of the whole feature
    package: str
    # Phase of the workflow at that time; empty without a workflow
    phase: str
    # Decoded; None for kinds that only the engine reads
    event: object
    line: str = ""
    block: str = ""


EventListener = Callable[[StreamEvent], None]


class JournalFollower:
    """Reads and folds the journal of one feature, or of all, from a cursor on."""

    def __init__(
        self, reader: StoreReader, slug: str | None = None, *, after: int | None = None
    ) -> None:
        """Start to follow. Events after position `after` are returned; None: only new ones."""
        self._reader = reader
        self._slug = slug
        self._cursor = self._after = 0
        self._features: dict[str, Feature | None] = {}
        self.running_jobs: dict[str, JobRow] = {}

        if after is None:
            for event in self.read_events():
                self._after = event.position
        else:
            self._after = after

    @property
    def feature(self) -> Feature | None:
        """Return the current state of the followed feature."""
        return self._features.get(self._slug or "")

    def read_events(self) -> Iterator[StreamEvent]:
        """Yield the events since the last call."""
        for recorded in self._read_recorded():
            event = self._to_stream_event(recorded)
            self._cursor = recorded.seq if self._slug else recorded.position
            if recorded.position > self._after:
                yield event

    def read_reported_events(self) -> Iterator[StreamEvent]:
        """Yield the events since the last call that have a text to report."""
        return (event for event in self.read_events() if event.line or event.block)

    def _read_recorded(self) -> Iterator[RecordedEvent]:
        if self._slug:
            return self._reader.events(self._slug, self._cursor)
        return self._reader.events_since(self._cursor)

    def _to_stream_event(self, recorded: RecordedEvent) -> StreamEvent:
        """Convert a recorded event, with its phase and display line."""
        package, event, text = self._decode_entry(recorded)
        feature = self._features.get(recorded.feature)

        if feature is None:
            phase = ""
        elif feature.closing:
            phase = "archive"
        else:
            phase = feature.workflow.phase

        return StreamEvent(*recorded[:5], package, phase, event, *text)

    def _decode_entry(self, recorded: RecordedEvent) -> tuple[str, object, EventText]:
        """Return the package of an entry, its event and the text to report."""
        if recorded.kind == PACKAGE_STEP:
            package, event = read_package_step(recorded.payload)
            return package, event, EventText(render_package_event(package, event))
        if recorded.kind == FEATURE_STEP:
            return self._apply_feature_step(recorded)

        if (notice := read_notice(recorded)) is not None:
            prefix = f"{notice.work}: " if notice.work else ""
            return notice.work, notice, EventText(prefix + notice.text)

        if (timed := read_step_timed(recorded)) is not None:
            return timed.work, timed, EventText()
        if recorded.kind in (QUESTION_ASKED, QUESTION_ANSWERED):
            return _decode_question(recorded)
        if recorded.kind not in ROW_TYPES_BY_KIND:
            return "", None, EventText()

        row = decode_row(recorded.feature, recorded.kind, recorded.payload)
        if not isinstance(row, JobRow):
            return "", row, EventText()

        if row.ended:
            self.running_jobs.pop(row.id, None)
        else:
            self.running_jobs[row.id] = row

        return row.wp, row, EventText()

    def _apply_feature_step(self, recorded: RecordedEvent) -> tuple[str, object, EventText]:
        event = read_feature_step(recorded.payload)
        before = self._features.get(recorded.feature)
        after = self._features[recorded.feature] = apply_feature_event(before, event)
        return "", event, render_event(before, event, after) if after is not None else EventText()


def _decode_question(recorded: RecordedEvent) -> tuple[str, object, EventText]:
    """Decode an agent's question, or the answer to it."""
    if recorded.kind == QUESTION_ASKED:
        asked = read_json(recorded.payload, AskedQuestion)
        prefix = f"{asked.work}: " if asked.work else ""
        command = f'phasegate answer {asked.id} "..." --feature {recorded.feature}'
        text = f"{prefix}asks: {' '.join(asked.text.split())[:300]} ({command})"
        return asked.work, asked, EventText(text)

    given = read_json(recorded.payload, GivenAnswer)
    return "", given, EventText(f"answered {given.id}: {' '.join(given.text.split())[:300]}")


class ChangeDetector:
    """Detects which features have changed since the last poll: their journal or their worker."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._changes = -1
        self._position = 0
        self._workers: dict[str, LockHolder] = {}

    def find_changed_features(self) -> set[str]:
        """Return the features that have changed; the first call returns all of them."""
        workers = list_live_holders(self._reader.location.locks_folder)
        features = {
            name.rpartition("-WP")[0] or name
            for name, _ in {*workers.items()} ^ {*self._workers.items()}
        }
        self._workers = workers
        changes = self._reader.data_version()
        if changes != self._changes:
            positions = self._reader.features_changed_since(self._position)
            self._changes = changes
            self._position = max((self._position, *positions.values()))
            features |= positions.keys()

        return features


def compute_stamp(reader: StoreReader, feature: str = "") -> object:
    """Return a value that differs when the view of a feature, or of all, has changed."""
    position = reader.last_seq(feature) if feature else reader.chain_head().entries
    return position, tuple(list_live_holders(reader.location.locks_folder).items())


@contextmanager
def follow_feature(
    reader: StoreReader,
    slug: str,
    listener: EventListener,
    on_poll: Callable[[JournalFollower], None] = lambda _: None,
    *,
    from_now: bool = True,
) -> Iterator[None]:
    """Report a feature's events while the block runs, and the remaining ones at its end.

    `on_poll` is called after every poll.
    """
    follower = JournalFollower(reader, slug, after=None if from_now else 0)

    def report_new_events() -> None:
        for event in follower.read_reported_events():
            listener(event)

    def poll() -> None:
        report_new_events()
        on_poll(follower)

    try:
        with repeat_in_background(poll, POLL_INTERVAL_S, f"follow {slug}"):
            yield
    finally:
        report_new_events()
