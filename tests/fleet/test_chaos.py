"""Whole features by a fleet that is disturbed: workers killed at each record, the bucket away, answers lost."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import obstore
import pytest

import support
from phasegate.storage.bucket.numbered_log import Page
from phasegate.storage.rows import RecordedEvent
from support.feature_run import DESCRIPTION, SLUG, TYPE, is_meant
from support.fleet_chaos import (
    OF_THE_RUN,
    Deaths,
    LostAnswers,
    Outages,
    Trial,
    check_evidence,
    step_of,
    undisturbed_events,
)
from support.git_project import git
from support.s3_server import Fault, FaultyProxy, Request, S3Server
from support.temporal_server import TemporalServer

PARTS = 5
SHIFTED_CLOCK = Path(support.__file__).with_name("shifted_clock")
LIVE = "create trails"  # where an agent takes longer than ten seconds
CALLS = [
    *(f"create {what}" for what in ("audit", "fleet", "heads", "journal", "papers")),
    *(f"get {what}" for what in ("audit", "fleet", "heads", "journal", "papers")),
    *("list fleet", "list journal", "replace audit", LIVE),
]
# The user's command makes them, before or after the worker has started
OF_THE_START = {"create numbers", "get numbers"}
Happened = list[tuple[str, Any]]


@pytest.fixture
def undisturbed(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Happened:
    """What happens where nobody disturbs; found out once for all workers."""
    base = tmp_path_factory.getbasetemp()
    kept = (base if worker_id == "master" else base.parent) / "undisturbed-feature.json"
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(json.dumps(undisturbed_events(tmp_path_factory.mktemp("undisturbed"))))
    return [(kind, fields) for kind, fields in json.loads(kept.read_text())]


@pytest.mark.demand("X8.h", "X8.j")
def test_a_worker_killed_around_records_of_a_feature_loses_nothing_and_doubles_nothing(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str, undisturbed: Happened
) -> None:
    """Three of all records. What is checked after each of these tests is seen to find what it looks for."""
    chosen = {
        ("after", "1 package.happened job-ended done WP01 + job.ended"),
        ("before", "1 package.happened validated"),
        ("before", "3 workflow.happened merged"),
    }
    deaths = Deaths(
        lambda when, name: any(when == one and name.startswith(begin) for one, begin in chosen)
    )
    trial, events = carried_out(deaths, tmp_path, s3, temporal, prefix, undisturbed)
    assert len(deaths.died) == len(chosen), deaths.died
    starts = trial.starts.read_text().split()
    for number in range(1, len(events)):
        if events[number].kind not in OF_THE_RUN:
            with pytest.raises(AssertionError):
                trial.check_record(
                    [*events[:number], events[number], *events[number:]], starts, undisturbed
                )
            with pytest.raises(AssertionError):
                trial.check_record([*events[:number], *events[number + 1 :]], starts, undisturbed)
    with pytest.raises(AssertionError, match="twice under one id"):
        trial.check_record(events, [*starts, starts[0]], undisturbed)
    with pytest.raises(AssertionError, match="without a record"):
        trial.check_record(events, [*starts, str(uuid4())], undisturbed)
    with pytest.raises(AssertionError):
        check_evidence(events, s3.bucket(f"{prefix}/elsewhere"), trial.fleet.remote)


@pytest.mark.long
@pytest.mark.demand("X8.h", "X8.j")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_worker_killed_at_every_record_of_a_feature_loses_nothing_and_doubles_nothing(
    tmp_path: Path,
    s3: S3Server,
    temporal: TemporalServer,
    prefix: str,
    undisturbed: Happened,
    when: str,
    part: int,
) -> None:
    """Killed at each record of a part of them, at those that the workers after it make, too."""
    which = f"{part}/{PARTS}"
    deaths = Deaths(lambda at, name: at == when and is_meant(name, which))
    carried_out(deaths, tmp_path, s3, temporal, prefix, undisturbed)
    meant = {name for name in deaths.took[1:] if is_meant(name, which)}
    assert {name for _, name in deaths.died} == meant != set()


def carried_out(
    deaths: Deaths,
    folder: Path,
    s3: S3Server,
    temporal: TemporalServer,
    prefix: str,
    undisturbed: Happened,
) -> tuple[Trial, list[RecordedEvent]]:
    with FaultyProxy(s3.port, deaths.before, deaths.after) as proxy:
        trial = deaths.trial = Trial(folder, s3, temporal, prefix, proxy, lost_after_s=3)
        trial.carry_out()
        return trial, trial.check(undisturbed)


@pytest.mark.demand("X8.h", "X8.j", "X8.l")
def test_two_repositories_in_one_bucket_are_disturbed_at_once_and_stay_apart(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, undisturbed: Happened
) -> None:
    """One loses its worker around three records; the bucket is away from the other, and answers are lost."""
    chosen = {
        ("after", "1 package.happened job-ended done WP01 + job.ended"),
        ("before", "1 package.happened validated"),
        ("before", "3 workflow.happened merged"),
    }
    deaths = Deaths(
        lambda when, name: any(when == one and name.startswith(begin) for one, begin in chosen)
    )
    outages, losses = Outages("", ["create journal"], 10), LostAnswers("")
    with (
        FaultyProxy(s3.port, deaths.before, deaths.after) as killed,
        FaultyProxy(s3.port, lambda one: outages.fault(one) or losses.fault(one)) as away,
        ThreadPoolExecutor(2) as threads,
    ):
        ours = deaths.trial = Trial(tmp_path / "ours", s3, temporal, "", killed, lost_after_s=3)
        theirs = outages.trial = Trial(tmp_path / "theirs", s3, temporal, "", away)
        before = git(theirs.fleet.remote, "rev-parse", "main").strip()
        for ending in [threads.submit(trial.carry_out) for trial in (ours, theirs)]:
            ending.result()
        for trial in (ours, theirs):
            trial.use_own_prefix()
            trial.check(undisturbed)
    assert len(deaths.died) == len(chosen), deaths.died
    assert git(theirs.fleet.remote, "rev-parse", "main").strip() != before, "control"
    for one, other in ((ours, theirs), (theirs, ours)):
        started = {*one.starts.read_text().split()}
        assert not started & {*other.starts.read_text().split()}
        found = {
            json.loads(event.payload)["id"]
            for event in one.fleet.events()
            if event.kind == "job.started"
        }
        assert started == found, "every agent that started is on record where it belongs"


@pytest.mark.demand("X8.c", "X8.h")
def test_answers_lost_at_every_kind_of_call_and_an_outage_of_ten_seconds_change_nothing(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str, undisturbed: Happened
) -> None:
    losses = LostAnswers(prefix)
    seen = with_outages(
        tmp_path, s3, temporal, prefix, undisturbed, ["create journal"], 10, losses.fault
    )
    assert {*losses.calls} >= seen
    assert {*CALLS} - {LIVE} <= seen <= {*CALLS} | OF_THE_START, "all kinds that there are"


@pytest.mark.long
@pytest.mark.demand("X8.c", "X8.h")
@pytest.mark.parametrize("for_s", [10, 60])
@pytest.mark.parametrize("part", range(3))
def test_a_bucket_that_is_gone_at_any_kind_of_call_makes_a_feature_late_and_changes_nothing(
    tmp_path: Path,
    s3: S3Server,
    temporal: TemporalServer,
    prefix: str,
    undisturbed: Happened,
    for_s: float,
    part: int,
) -> None:
    with_outages(tmp_path, s3, temporal, prefix, undisturbed, CALLS[part::3], for_s, lambda _: "")


def with_outages(
    folder: Path,
    s3: S3Server,
    temporal: TemporalServer,
    prefix: str,
    undisturbed: Happened,
    kinds: Sequence[str],
    for_s: float,
    besides: Fault,
) -> set[str]:
    """Carry a feature out; the kinds of calls that its worker made."""
    outages = Outages(prefix, kinds, for_s)
    with FaultyProxy(s3.port, lambda request: outages.fault(request) or besides(request)) as proxy:
        trial = outages.trial = Trial(
            folder, s3, temporal, prefix, proxy, linger_s=12 if LIVE in kinds else 0
        )
        trial.carry_out()
        events = trial.check(undisturbed)
    assert outages.waiting == set()
    assert not any(b'"lost"' in one.payload for one in events), "it costs no agent"
    return outages.seen


@pytest.mark.demand("X8.f", "X8.i")
def test_a_foreign_history_under_a_number_stops_its_feature_alone_with_a_reason_and_is_not_written_over(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str, undisturbed: Happened
) -> None:
    """It gets there just before the end of the plan's agent does. When it is taken away, the feature goes on."""
    bucket, taken = s3.bucket(prefix), list[str]()
    foreign = msgspec.json.encode(Page(4, "0" * 64, str(uuid4()), msgspec.Raw(b"{}")))

    def fault(request: Request) -> str:
        if not taken and "job-ended done" in step_of(request):
            taken.append(request.path.partition(f"{prefix}/")[2])
            bucket.create(taken[0], foreign)
        return ""

    with FaultyProxy(s3.port, fault) as proxy:
        trial = Trial(tmp_path, s3, temporal, prefix, proxy)
        person, order = trial.person, ("run", "--fleet", "--feature", SLUG, "--merge", "--json")
        with trial.at_work(trial.machines[0]) as worker:
            stopped = person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--json")
            assert (stopped.returncode, "a different history" in stopped.stderr) == (4, True), (
                stopped.stderr
            )
            again = person.phasegate(*order)
            assert (again.returncode, "a different history" in again.stderr) == (4, True), (
                again.stderr
            )
            told = person.phasegate("status", "--fleet")
            assert (told.returncode, "stopped: page" in told.stdout) == (0, True), (
                told.stdout + told.stderr
            )
            signs = json.loads(person.phasegate("status", "--fleet", "--json").stdout)["fleet"][
                "features"
            ]
            assert [(one["feature"], "a different history" in one["why"]) for one in signs] == [
                (SLUG, True)
            ]
            assert person.phasegate("audit", "verify", "--remote").returncode == 1
            besides = person.phasegate("run", TYPE, "Say more", "--fleet", "--json")
            assert besides.returncode == 0, besides.stdout + besides.stderr
            trial.besides.append(json.loads(besides.stdout)["feature"])
            assert worker.poll() is None
            kept = bucket.get(taken[0])
            assert kept is not None
            assert kept.data == foreign, "nothing was written over"
            assert bucket.list_paths(f"journal/{SLUG}")[-1] == taken[0], "nor behind it"
            obstore.delete(bucket._store, taken[0])
            done = person.phasegate(*order)
            assert done.returncode == 0, done.stdout + done.stderr
        trial.check(undisturbed)
        assert "stopped" not in person.phasegate("status", "--fleet").stdout, "control"


@pytest.mark.demand("X8.j")
@pytest.mark.parametrize("shift_s", [3600, pytest.param(-3600, marks=pytest.mark.long)])
def test_workers_whose_clocks_are_an_hour_apart_take_over_from_each_other(
    tmp_path: Path,
    s3: S3Server,
    temporal: TemporalServer,
    prefix: str,
    undisturbed: Happened,
    shift_s: int,
) -> None:
    """What is shifted: see `support/shifted_clock`. Each takes over from the other, so time jumps both ways."""
    chosen = {
        ("after", "1 package.happened job-started implement"),
        ("before", "1 package.happened merged"),
    }
    deaths = Deaths(
        lambda when, name: any(when == one and name.startswith(begin) for one, begin in chosen)
    )
    with FaultyProxy(s3.port, deaths.before, deaths.after) as proxy:
        trial = deaths.trial = Trial(tmp_path, s3, temporal, prefix, proxy, lost_after_s=3)
        trial.machines[0].environment |= {
            "PYTHONPATH": str(SHIFTED_CLOCK),
            "CLOCK_SHIFT_S": str(shift_s),
        }
        trial.carry_out(lambda life: life % 2)
        events = trial.check(undisturbed)
    assert len(deaths.died) == len(chosen), deaths.died
    times = [datetime.fromisoformat(one.ts).timestamp() for one in events]
    jumps = [round((later - earlier) / 3600) for earlier, later in pairwise(times)]
    assert (jumps.count(1), jumps.count(-1)) == ((2, 1) if shift_s > 0 else (1, 2)), (
        "control: the clocks are apart"
    )
    for one in events:
        fields = json.loads(one.payload)
        if isinstance(fields, dict):
            assert min(fields.get("duration_s", 0), fields.get("took_s", 0)) >= 0, one
