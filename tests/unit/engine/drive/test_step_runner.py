"""The step loop reads every event of the journal a fixed number of times, however many steps it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import Event
from types import SimpleNamespace
from typing import cast

import msgspec

from phasegate.engine.drive.step_runner import StepRunner
from phasegate.engine.jobs.admission import DriverContext
from phasegate.engine.jobs.step import StepContext, StepResult, UnitSteps
from phasegate.engine.jobs.step_context import StepContextReader
from phasegate.engine.journal.artifacts import ARTIFACT_WRITTEN, StoredArtifact
from phasegate.engine.journal.unit_journal import DueStep, Transition, UnitJournal
from phasegate.storage.rows import NewEvent, RecordedEvent
from support.memory_ports import CountingClock, MemoryRecord, MemoryTrails

SLUG = "001-a"
COUNTED = "counted"


class CountingRecord(MemoryRecord):
    """Counts the events that callers read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def events(self, feature: str, after_seq: int = 0) -> Iterator[RecordedEvent]:
        for recorded in super().events(feature, after_seq):
            self.reads += 1
            yield recorded

    def last_seq(self, feature: str) -> int:
        # The base class reads all events for it; a store does not
        return max((one.seq for one in super().events(feature)), default=0)


class CounterUnit:
    """A unit of work whose state is the number of its steps."""

    slug = SLUG
    work = ""

    def read_event(self, recorded: RecordedEvent) -> str | None:
        return COUNTED if recorded.kind == COUNTED else None

    def encode_event(self, event: str) -> NewEvent:
        return NewEvent(event, b"{}")

    def fold(self, events: Iterable[str]) -> int:
        return len(list(events))

    def apply(self, state: int | None, event: str) -> int:
        return (state or 0) + 1

    def make_rows(
        self, transitions: Sequence[Transition[int, str]], ts: str
    ) -> tuple[NewEvent, ...]:
        return ()

    def find_due_step(self, state: int) -> DueStep:
        return DueStep("06-implementation", str(state), 1)


class ArtifactSteps:
    """Stores an artifact in every step, and remembers the context of the last one."""

    def __init__(self) -> None:
        self.context = StepContext()

    def list_agent_requests(self, _state: int) -> tuple[()]:
        return ()

    def run(self, state: int, context: StepContext) -> StepResult[str]:
        self.context = context
        artifact = StoredArtifact(f"a{state:03}.txt", 1, "", "")
        return StepResult(
            (COUNTED,), rows=(NewEvent(ARTIFACT_WRITTEN, msgspec.json.encode(artifact)),)
        )


def run_steps(count: int) -> tuple[CountingRecord, StepContext]:
    record, clock, steps = CountingRecord(), CountingClock(), ArtifactSteps()
    context = SimpleNamespace(
        project=SimpleNamespace(clock=clock), record=record, trails=MemoryTrails(), stop=Event()
    )
    journal = UnitJournal(record, clock, CounterUnit())
    loop = StepRunner(cast(DriverContext, context), journal, cast("UnitSteps[int, str]", steps))
    for _ in range(count):
        loop.run_step()
    return record, steps.context


def test_event_reads_grow_linearly_with_the_number_of_steps() -> None:
    reads = {count: run_steps(count)[0].reads for count in (20, 40, 80)}
    assert 0 < reads[80] <= 2 * reads[40] + 2 <= 4 * reads[20] + 6, reads


def test_a_context_that_is_read_incrementally_equals_one_that_is_read_at_once() -> None:
    record, context = run_steps(20)
    before_last_step = MemoryRecord()
    # A step appends an event and an artifact
    for recorded in list(record.events(SLUG))[:-2]:
        before_last_step.append_unconditionally(
            SLUG, recorded.ts, [NewEvent(recorded.kind, recorded.payload)]
        )
    assert len(context.artifacts) == 19
    assert context == StepContextReader(before_last_step, SLUG).read()._replace(
        chain_head=context.chain_head
    )
