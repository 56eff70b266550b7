"""What every implementation of the engine's ports promises: those of this machine, and those in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

from phasegate.core.audit.trail import Action, Source, TrailEvent
from phasegate.core.workflow.spending import Spending
from phasegate.engine.project.local_services import FileDocumentStore, LocalRefs, SystemClock
from phasegate.engine.project.ports import (
    Clock,
    DocumentStore,
    Refs,
    RunRecord,
    TrailSink,
    format_timestamp,
)
from phasegate.errors import MovedOn, StateConflict
from phasegate.storage.row_events import (
    gate_judged_event,
    job_ended_event,
    job_started_event,
    package_changed_event,
    workflow_changed_event,
)
from phasegate.storage.rows import GateRow, JobRow, NewEvent, PackageRow, WorkflowRow
from phasegate.storage.trails import TrailWriter, trail_path
from phasegate.workspace.repository.repository import open_repository
from support.git_project import git
from support.git_project import make_repository as make_git
from support.memory_ports import CountingClock, MemoryPapers, MemoryRecord, MemoryRefs, MemoryTrails
from support.record import FEATURE, TS, make_repository, open_record

BOTH = pytest.mark.parametrize("kind", ["local", "memory"])


def note(number: int) -> NewEvent:
    return NewEvent("noted", json.dumps({"number": number}).encode())


@pytest.fixture
def record(tmp_path: Path, kind: str) -> Iterator[RunRecord]:
    if kind == "memory":
        yield MemoryRecord()
    else:
        with open_record(make_repository(tmp_path)) as store:
            yield store


@BOTH
@pytest.mark.demand("W5.a")
def test_a_journal_gives_back_what_was_appended_in_order_and_from_a_number_on(
    record: RunRecord,
) -> None:
    assert record.append(FEATURE, 0, TS, [note(1), note(2)]) == 2
    assert record.append("002-other", 0, TS, [note(9)]) == 1
    assert record.append(FEATURE, 2, TS, [note(3)]) == 3
    assert [(one.seq, one.kind, one.payload) for one in record.events(FEATURE, 1)] == [
        (2, "noted", note(2).payload),
        (3, "noted", note(3).payload),
    ]
    assert (
        record.last_seq(FEATURE),
        record.last_seq("002-other"),
        record.last_seq("003-none"),
    ) == (3, 1, 0)
    assert record.features() == [FEATURE, "002-other"]


@BOTH
@pytest.mark.demand("W5.a")
def test_a_journal_that_moved_on_refuses_the_step_and_takes_nothing_of_it(
    record: RunRecord,
) -> None:
    record.append(FEATURE, 0, TS, [note(1)])
    for expected in (0, 2):
        with pytest.raises(MovedOn):
            record.append(FEATURE, expected, TS, [note(2), note(3)])
    assert [one.payload for one in record.events(FEATURE)] == [note(1).payload]
    assert record.append(FEATURE, 1, TS, [note(2)]) == 2, "control: at the right number it is taken"


@BOTH
def test_of_many_writers_at_one_number_exactly_one_takes_the_step(record: RunRecord) -> None:
    taken: list[int] = []

    def write(number: int) -> None:
        try:
            record.append(FEATURE, 0, TS, [note(number)])
            taken.append(number)
        except MovedOn:
            pass

    threads = [Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [json.loads(one.payload)["number"] for one in record.events(FEATURE)] == taken
    assert len(taken) == 1


@BOTH
def test_a_step_with_a_row_of_another_feature_is_refused_whole(record: RunRecord) -> None:
    with pytest.raises(ValueError, match="002-other"):
        record.append(
            FEATURE,
            0,
            TS,
            [note(1), package_changed_event(PackageRow("002-other", "WP01", "Form", "DONE"))],
        )
    assert (record.last_seq(FEATURE), record.packages("002-other")) == (0, [])


@BOTH
def test_rows_are_as_their_last_events_say(record: RunRecord) -> None:
    job = JobRow(FEATURE, "job-a", "WP01", "implement", 1, "claude", TS)
    ended = job._replace(ended=TS, outcome="rate limited", tokens=7, cost_usd=0.5, retry_at_s=90.0)
    other = JobRow("002-other", "job-b", "", "plan", 1, "codex", TS, tokens=1)
    package = PackageRow(FEATURE, "WP01", "Form", "DOING", 1)
    workflow = WorkflowRow(FEATURE, "quick", "", "main", "01-requirements", 0, "working", 1)
    gate = GateRow(FEATURE, 1, "01-requirements", 1, "passed", "", TS)
    record.append_unconditionally(
        FEATURE,
        TS,
        [job_started_event(job), package_changed_event(package._replace(state="PLANNED"))],
    )
    record.append_unconditionally(
        "002-other", TS, [job_started_event(other), job_ended_event(other)]
    )
    record.append_unconditionally(
        FEATURE,
        TS,
        [job_ended_event(ended), package_changed_event(package), workflow_changed_event(workflow)],
    )
    record.append_unconditionally(FEATURE, TS, [gate_judged_event(gate)])
    assert (record.find_job("job-a"), record.find_job("none")) == (ended, None)
    assert record.jobs(FEATURE) == [ended]
    assert (record.packages(FEATURE), record.workflows(), record.gates(FEATURE)) == (
        [package],
        [workflow],
        [gate],
    )
    assert (record.total_spent(FEATURE), record.total_spent()) == (
        Spending(7, 0.5),
        Spending(8, 0.5),
    )
    assert (record.rate_limited_agents(80.0), record.rate_limited_agents(90.0)) == (
        {"claude": 90.0},
        {},
    )
    assert (
        record.count_consecutive_limits("claude"),
        record.count_consecutive_limits("codex"),
    ) == (1, 0)
    record.anchor()


def done(number: int) -> TrailEvent:
    return TrailEvent("agent:x", Action.WRITE_FILE, Source.REPORTED, {"path": f"{number}\n.py"})


def local_trails(
    tmp_path: Path, stack: ExitStack
) -> tuple[TrailSink, Callable[[str], list[bytes]]]:
    location = make_repository(tmp_path)
    store = stack.enter_context(open_record(location))
    trails = stack.enter_context(TrailWriter.create(location, store.heads.path.parent, "writer-1"))
    return (
        trails,
        lambda job: trail_path(location, FEATURE, job).read_bytes().splitlines(keepends=True),
    )


def memory_trails(
    _tmp_path: Path, _stack: ExitStack
) -> tuple[TrailSink, Callable[[str], list[bytes]]]:
    trails = MemoryTrails()
    return trails, lambda job: trails.lines[job]


@pytest.mark.demand("D13.i")
def test_trails_of_both_kinds_hold_the_same_lines_and_end_with_the_same_seal(
    tmp_path: Path,
) -> None:
    found = []
    for make in (local_trails, memory_trails):
        with ExitStack() as stack:
            trails, lines_of = make(tmp_path, stack)
            for job in ("job-a", "job-b"):
                trails.open(FEATURE, job)
            for number in range(3):
                trails.append_entry("job-a", TS, done(number))
            seals = [trails.close(job) for job in ("job-a", "job-b")]
            with pytest.raises(StateConflict):
                trails.open(FEATURE, "job-a")
            for job in ("job-a", "job-b", "never-begun"):
                trails.forget(job)
            found.append((seals, lines_of("job-a")))
    assert found[0] == found[1]
    assert [(seal.lines, seal.job) for seal in found[0][0]] == [(3, "job-a"), (0, "job-b")]


@pytest.fixture
def papers(tmp_path: Path, kind: str) -> DocumentStore:
    return MemoryPapers() if kind == "memory" else FileDocumentStore(tmp_path / "papers of a run")


@BOTH
def test_a_paper_is_found_by_its_content_and_put_twice_is_one(papers: DocumentStore) -> None:
    digest = papers.put(b"evidence\n", "evidence/001-a/WP01-1.md")
    assert papers.get(digest) == b"evidence\n"
    assert papers.put(b"evidence\n") == digest
    assert papers.put(b"") != digest
    assert papers.get(papers.put(b"")) == b""


@BOTH
def test_a_paper_that_is_not_there_or_was_changed_is_refused(
    papers: DocumentStore, tmp_path: Path
) -> None:
    digest = papers.put(b"evidence\n")
    with pytest.raises(StateConflict):
        papers.get("0" * 64)
    if isinstance(papers, MemoryPapers):
        papers.papers[digest] = b"forged\n"
    else:
        (tmp_path / "papers of a run" / "papers" / digest).write_bytes(b"forged\n")
    with pytest.raises(StateConflict):
        papers.get(digest)


@pytest.fixture
def refs(tmp_path: Path, kind: str) -> tuple[Refs, str, str]:
    """Branches `main` and `feat/a` at a first commit, and a second one that follows it."""
    root = tmp_path / "repo"
    make_git(root, {"a.txt": "a\n"})
    first = git(root, "rev-parse", "main").strip()
    git(root, "branch", "feat/a")
    git(root, "checkout", "-q", "-b", "other")
    git(root, "commit", "-q", "--allow-empty", "-m", "Second")
    second = git(root, "rev-parse", "other").strip()
    git(root, "checkout", "-q", "main")
    commits = {"main": first, "feat/a": first, "other": second}
    return (
        (MemoryRefs(commits) if kind == "memory" else LocalRefs(open_repository(root))),
        first,
        second,
    )


@BOTH
@pytest.mark.demand("W8.g")
def test_a_branch_moves_by_compare_and_swap(refs: tuple[Refs, str, str]) -> None:
    branches, first, second = refs
    assert branches.fetch("feat/a", "feat/none") == {"feat/a": first}
    assert not branches.move("other", first, first[::-1]), "it is elsewhere"
    assert branches.fetch("other") == {"other": second}
    assert branches.move("feat/a", first, second)
    assert branches.move("feat/a", first, second), "done twice is done"
    assert branches.fetch("feat/a", "main") == {"feat/a": second, "main": first}


@BOTH
def test_a_clock_goes_on_and_gives_no_id_twice(kind: str) -> None:
    clock: Clock = CountingClock() if kind == "memory" else SystemClock()
    assert clock.time_s() <= clock.time_s()
    assert clock.monotonic_s() <= clock.monotonic_s()
    assert all(0 <= clock.random_fraction() < 1 for _ in range(100))
    assert len({clock.new_id() for _ in range(100)}) == 100
    assert format_timestamp(0.0) == "1970-01-01T00:00:00.000Z"
