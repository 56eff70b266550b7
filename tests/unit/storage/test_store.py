"""The store: durable steps, one writer at a time, refused when it is not what it was."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from phasegate.errors import ConfigError, EnvironmentUnavailable, StateConflict
from phasegate.storage import chain_heads
from phasegate.storage.journal_store import MovedOn, open_store
from phasegate.storage.location import Location
from phasegate.storage.lock import feature_lock, named_lock
from phasegate.storage.lock_holder import find_live_holder
from phasegate.storage.reader import StoreReader, open_store_reader
from phasegate.storage.row_events import (
    job_ended_event,
    job_started_event,
    package_changed_event,
    workflow_changed_event,
)
from phasegate.storage.rows import JobRow, NewEvent, PackageRow, WorkflowRow
from phasegate.storage.schema import SCHEMA, Schema
from phasegate.storage.verify_audit import verify_audit
from support.growth import assert_grows_no_faster_than_its_input
from support.record import (
    FEATURE,
    STORE_ID,
    TS,
    append_numbers,
    event,
    make_record,
    make_repository,
    open_record,
)

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow

WRITER = """
import sys
from pathlib import Path
from phasegate.storage.location import Location
from phasegate.storage.rows import NewEvent
from phasegate.storage.journal_store import MovedOn, open_store
root, state, times = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
with open_store(Location(root, root / ".git", state), "unused", "now") as store:
    for _ in range(times):
        while True:
            seq = store.last_seq("counter")
            last = [int(event.payload) for event in store.events("counter", seq - 1)]
            try:
                store.append("counter", seq, "now", [NewEvent("count", str(last[0] + 1 if last else 1).encode())])
                break
            except MovedOn:
                pass
"""


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return make_repository(tmp_path)


@pytest.fixture
def reader(location: Location) -> Iterator[StoreReader]:
    make_record(location)
    found = open_store_reader(location)
    assert found is not None
    with found:
        yield found


def test_nothing_recorded_is_no_store(location: Location) -> None:
    assert open_store_reader(location) is None


def test_events_come_back_as_they_were_appended(location: Location) -> None:
    with open_record(location) as store:
        assert store.append(FEATURE, 0, TS, [event(1), event(2)]) == 2
        assert store.append("002-other", 0, TS, [event(3)]) == 1
        assert store.append(FEATURE, 2, TS, [event(4)]) == 3
    with open_record(location) as store:
        assert [recorded.seq for recorded in store.events(FEATURE)] == [1, 2, 3]
        assert [recorded.payload for recorded in store.events(FEATURE, after_seq=2)] == [
            b'{"number": 4}'
        ]
        assert [recorded.position for recorded in store.events_since(2)] == [3, 4]
        assert store.features() == [FEATURE, "002-other"]
        assert store.last_seq(FEATURE) == 3


@pytest.mark.demand("W5.a")
def test_of_two_writers_that_saw_the_same_step_one_is_refused(location: Location) -> None:
    with open_record(location) as one, open_record(location) as other:
        append_numbers(one, range(3))
        one.append(FEATURE, 3, TS, [event(1)])
        with pytest.raises(MovedOn):
            other.append(FEATURE, 3, TS, [event(2)])
        assert [recorded.payload for recorded in other.events(FEATURE, after_seq=3)] == [
            b'{"number": 1}'
        ]


def count_with_processes(location: Location, writers: int, times: int) -> list[int]:
    open_record(location).__exit__()
    command = [
        sys.executable,
        "-c",
        WRITER,
        str(location.root),
        str(location.state_home),
        str(times),
    ]
    running = [subprocess.Popen(command) for _ in range(writers)]
    assert [process.wait() for process in running] == [0] * writers
    with open_record(location) as store:
        return [int(recorded.payload) for recorded in store.events("counter")]


@pytest.mark.demand("W5.c")
def test_eight_processes_lose_no_update(location: Location) -> None:
    assert count_with_processes(location, 8, 12) == list(range(1, 97))


@pytest.mark.long
@pytest.mark.demand("W5.c")
def test_eight_processes_of_a_thousand_updates_lose_none(location: Location) -> None:
    assert count_with_processes(location, 8, 1000) == list(range(1, 8001))


_LOOKS = """
import sys
from pathlib import Path
from phasegate.storage.location import Location
from phasegate.storage.journal_store import open_store
with open_store(Location(*map(Path, sys.argv[1:4])), "unused", "2026-01-01T00:00:00.000Z") as store:
    print(store.last_seq(sys.argv[4]))
"""


def looked_at(location: Location) -> int:
    """How many events another process sees that opens the store and closes it."""
    argv = [sys.executable, "-c", _LOOKS, *map(str, location[:3]), FEATURE]
    return int(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout)


def test_nothing_is_lost_when_a_process_that_writes_also_reads_and_another_comes_and_goes(
    location: Location,
) -> None:
    with open_record(location) as store:
        append_numbers(store, range(3))
        looker = open_store_reader(location)
        assert looker is not None
        with looker:
            assert looker.last_seq(FEATURE) == 3
        assert (
            looked_at(location) == 3
        )  # the last to close, as it would think without the writer's locks
        append_numbers(store, range(3, 6))
        assert looked_at(location) == 6
    assert looked_at(location) == 6


def test_a_file_that_is_opened_and_closed_beside_sqlite_costs_a_process_its_locks(
    location: Location,
) -> None:
    """The control of the test above: it fails if the store is looked at in this manner."""
    with open_record(location) as store:
        append_numbers(store, range(3))
        location.store_path.open("rb").close()
        assert looked_at(location) == 3
        append_numbers(store, range(3, 6))
        with pytest.raises(
            subprocess.CalledProcessError
        ):  # fewer entries than the heads outside know of
            looked_at(location)


def test_without_the_expected_number_updates_are_lost(tmp_path: Path) -> None:
    """The control: read, add one, write, without comparing, loses what came in between."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    seen_by_one, seen_by_other = int(counter.read_text()), int(counter.read_text())
    counter.write_text(str(seen_by_one + 1))
    counter.write_text(str(seen_by_other + 1))
    assert counter.read_text() == "1"


def test_packages_and_jobs_are_shown_as_their_last_event_left_them(location: Location) -> None:
    job = JobRow(FEATURE, "job-1", "WP01", "06-implementation", 1, "claude", TS)
    with open_record(location) as store:
        for state in ("PLANNED", "DOING"):
            store.append_unconditionally(
                FEATURE, TS, [package_changed_event(PackageRow(FEATURE, "WP01", "Form", state))]
            )
        store.append_unconditionally(FEATURE, TS, [job_started_event(job)])
        assert store.find_job("job-1") == job
        ended = job._replace(ended=TS, outcome="done", logs="a.log\nb.log")
        store.append_unconditionally(FEATURE, TS, [job_ended_event(ended)])
        assert store.packages(FEATURE) == [PackageRow(FEATURE, "WP01", "Form", "DOING")]
        assert store.jobs(FEATURE) == [ended]
        assert store.find_job("another") is None


def test_threads_that_share_a_store_see_whole_steps_only(location: Location) -> None:
    with open_record(location) as store:

        def work(name: int) -> None:
            for number in range(10):
                store.append_unconditionally(FEATURE, TS, [event(number), event(name)])

        workers = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for worker in workers:
            worker.start()
        seen = [len(list(store.events(FEATURE))) for _ in range(60)]
        for worker in workers:
            worker.join()
        assert all(number % 2 == 0 for number in seen)
        assert store.last_seq(FEATURE) == 80


def test_the_file_of_heads_stays_small_and_keeps_what_counts(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_heads, "COMPACT_THRESHOLD_BYTES", 1000)
    with open_record(location) as store:
        append_numbers(store, range(20))
        store.anchor()
        shutil.copytree(location.data_folder, tmp_path / "older")
        append_numbers(store, range(20))
        assert store.heads.path.stat().st_size < 1300
    assert verify_audit(location).ok
    shutil.rmtree(location.data_folder)
    shutil.copytree(tmp_path / "older", location.data_folder)
    assert "entry 21" in verify_audit(location).problems[0].where


def test_an_event_cannot_set_another_features_row(location: Location) -> None:
    with open_record(location) as store:
        with pytest.raises(ValueError, match="002-other"):
            store.append_unconditionally(
                FEATURE,
                TS,
                [package_changed_event(PackageRow("002-other", "WP01", "Form", "DONE"))],
            )
        with pytest.raises(ValueError, match="has a missing or unexpected field: id"):
            store.append_unconditionally(
                FEATURE, TS, [NewEvent("package.changed", b'{"feature": "001-user-login"}')]
            )
        assert store.last_seq(FEATURE) == 0


@pytest.mark.parametrize("slug", ["..", ".git", "con", "a/b", "a\nb", "-x"])
def test_a_feature_is_named_by_a_slug(location: Location, slug: str) -> None:
    with open_record(location) as store, pytest.raises(ConfigError):
        store.append(slug, 0, TS, [event(1)])


def test_reading_the_state_of_packages_grows_with_their_number(location: Location) -> None:
    with open_record(location) as store:

        def fill(packages: int) -> str:
            feature = f"{packages}-packages"
            rows = [
                package_changed_event(PackageRow(feature, f"WP{n}", "a title", "DOING"))
                for n in range(packages)
            ]
            store.append_unconditionally(feature, TS, rows)
            return feature

        assert len(store.packages(fill(30))) == 30
        assert_grows_no_faster_than_its_input(store.packages, fill, 500, 4000)


# --- damage ---------------------------------------------------------------------------------------------------------


def refuses(location: Location) -> bool:
    """The store refuses for writing with a message, and its bytes are left as they were."""
    before = location.store_path.read_bytes() if location.store_path.is_file() else b""
    try:
        with open_record(location) as store:
            list(store.chain_links())
    except StateConflict as error:
        after = location.store_path.read_bytes() if location.store_path.is_file() else b""
        return str(location.store_path) in error.message and before == after
    return False


@pytest.mark.demand("W5.c")
@pytest.mark.parametrize(
    "content", [b"", b"\0", b"\0" * 40_000, b"not a store", b"SQLite format 3\0" + b"\0" * 5000]
)
def test_a_damaged_store_is_refused_and_left_as_it_is(location: Location, content: bytes) -> None:
    make_record(location)
    location.store_path.write_bytes(content)
    with closing(sqlite3.connect(":memory:")) as control:
        control.execute("CREATE TABLE event (x)")
    assert refuses(location)


def truncated_at(location: Location, offsets: list[int]) -> None:
    whole = location.store_path.read_bytes()
    assert not refuses(location), "control: the whole store opens"
    for offset in offsets:
        location.store_path.write_bytes(whole[:offset])
        for suffix in ("-wal", "-shm"):
            location.store_path.with_name(location.store_path.name + suffix).unlink(missing_ok=True)
        assert refuses(location), offset


def test_a_store_cut_off_at_any_page_is_refused(location: Location) -> None:
    make_record(location)
    size = location.store_path.stat().st_size
    pages = range(0, size, 4096)
    truncated_at(
        location,
        sorted({0, 1, 15, 16, 99, 100, size - 1, *pages, *(page + 7 for page in pages)} - {size}),
    )


@pytest.mark.long
def test_a_store_cut_off_at_any_byte_is_refused(location: Location) -> None:
    make_record(location)
    truncated_at(location, list(range(location.store_path.stat().st_size)))


def test_sqlite_alone_takes_an_empty_file_for_a_new_store(tmp_path: Path) -> None:
    """The control: this is what `never starts empty` protects from."""
    empty = tmp_path / "store.db"
    empty.touch()
    with closing(sqlite3.connect(empty)) as connection:
        connection.execute("CREATE TABLE event (x)")
        assert connection.execute("SELECT count(*) FROM event").fetchone() == (0,)


def test_a_store_that_is_gone_does_not_start_empty(location: Location) -> None:
    make_record(location)
    shutil.rmtree(location.data_folder)
    with pytest.raises(StateConflict, match=r"is missing; it contained 1[0-9] entries"):
        open_record(location)
    assert not location.store_path.exists()


def test_one_can_start_over_on_purpose(location: Location) -> None:
    make_record(location)
    shutil.rmtree(location.data_folder)
    subprocess.run(
        ["git", "-C", location.root, "update-ref", "-d", "refs/phasegate/audit"], check=True
    )
    with open_store(location, "another-id", TS) as store:
        append_numbers(store, [1])
    assert verify_audit(location).ok


def test_a_store_that_is_replaced_while_in_use_is_not_written_any_more(
    location: Location, tmp_path: Path
) -> None:
    make_record(location)
    shutil.copytree(location.data_folder, tmp_path / "copy")
    with open_record(location) as store:
        shutil.rmtree(location.data_folder)
        shutil.copytree(tmp_path / "copy", location.data_folder)
        with pytest.raises(StateConflict, match="replaced while it was in use"):
            append_numbers(store, [1])
    assert verify_audit(location).ok, "what was put back is what there was"


@pytest.mark.parametrize("store_id", ["../../x", "another-id"])
def test_a_store_that_claims_another_identity_is_refused(location: Location, store_id: str) -> None:
    make_record(location)
    before = set(location.state_home.rglob("*"))
    with closing(sqlite3.connect(location.store_path)) as connection, connection:
        connection.execute("UPDATE meta SET value = ?", (store_id,))
    with pytest.raises(StateConflict):
        open_record(location)
    assert not verify_audit(location).ok
    assert set(location.state_home.rglob("*")) == before


def test_a_foreign_database_is_refused(location: Location) -> None:
    make_record(location)
    location.store_path.unlink()
    with closing(sqlite3.connect(location.store_path)) as connection:
        connection.execute("CREATE TABLE event (position, feature, seq, ts, kind, payload, hash)")
    assert refuses(location)


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_is_no_file_is_refused(location: Location, tmp_path: Path, kind: str) -> None:
    make_record(location)
    moved = tmp_path / "moved.db"
    location.store_path.rename(moved)
    if kind == "link":
        location.store_path.symlink_to(moved)
    else:
        location.store_path.mkdir()
    with pytest.raises(StateConflict, match=r"not a regular file|is a link"):
        open_record(location)


@pytest.mark.parametrize(
    "what", ["TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM package; END", "VIEW v AS SELECT 1"]
)
def test_a_store_with_code_in_it_is_refused(location: Location, what: str) -> None:
    make_record(location)
    with closing(sqlite3.connect(location.store_path)) as connection, connection:
        connection.execute(f"CREATE {what}")
    assert refuses(location)


def test_a_write_ahead_log_that_lost_its_end_is_refused(location: Location, tmp_path: Path) -> None:
    make_record(location)
    copy = tmp_path / "copy"
    with open_record(location) as store:
        append_numbers(store, range(4))
        shutil.copytree(location.data_folder, copy)
        append_numbers(store, range(1))
    shutil.rmtree(location.data_folder)
    shutil.copytree(copy, location.data_folder)
    with closing(sqlite3.connect(location.store_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",), (
            "control: SQLite sees nothing"
        )
    with pytest.raises(StateConflict, match="not the head kept in"):
        open_record(location)


def test_a_store_that_was_used_with_another_state_folder_is_refused_and_that_folder_is_named(
    location: Location, tmp_path: Path
) -> None:
    make_record(location)
    elsewhere = tmp_path / "elsewhere" / location.state_home.name
    with open_record(location._replace(state_home=elsewhere)) as store:
        append_numbers(store, range(2))
    with pytest.raises(StateConflict, match="was used with another state folder") as refused:
        open_record(location)
    assert refused.value.hint.startswith(
        f"start phasegate with XDG_STATE_HOME={elsewhere.parent}, "
    )
    with open_record(location._replace(state_home=elsewhere)):
        pass  # the control: as the hint says
    with closing(sqlite3.connect(location.store_path)) as connection, connection:
        connection.execute("UPDATE event SET hash = 'x' || hash")
    with pytest.raises(
        StateConflict, match=r"is damaged: .* not the head kept in"
    ):  # not what was known here
        open_record(location)


def test_a_state_directory_that_cannot_be_written_is_named(location: Location) -> None:
    location.state_home.parent.mkdir()
    location.state_home.write_text("a file in its place")
    with pytest.raises(EnvironmentUnavailable, match="cannot use the chain heads"):
        open_record(location)


# --- versions -------------------------------------------------------------------------------------------------------

LATER = SCHEMA.version + 1
NEXT = Schema(
    LATER,
    SCHEMA.create_sql + "CREATE TABLE added (x);",
    {SCHEMA.version: "INSERT INTO added VALUES (7)"},
)
# What the first version of the store did not have yet.
AGED = """
DROP TABLE workflow; DROP TABLE gate;
ALTER TABLE job DROP COLUMN tokens; ALTER TABLE job DROP COLUMN cost_usd; ALTER TABLE job DROP COLUMN retry_at_s;
"""


def age(location: Location, version: int = 1) -> None:
    """Turn a store into one as the first version made it."""
    with closing(sqlite3.connect(location.store_path)) as connection:
        connection.executescript(f"{AGED} PRAGMA user_version = {version};")


def test_an_older_store_is_moved_on_after_a_backup(location: Location) -> None:
    make_record(location)
    with open_record(location) as store:
        links = list(store.chain_links())
    with open_store(location, STORE_ID, TS, NEXT) as store:
        assert list(store.chain_links()) == links
        append_numbers(store, [1])
    with closing(sqlite3.connect(location.store_path)) as connection:
        assert connection.execute("SELECT x FROM added").fetchone() == (7,)
    backup = location.store_path.with_name(f"store.db.version-{SCHEMA.version}")
    with closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("SELECT count(*) FROM event").fetchone() == (len(links),)
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA.version,)


@pytest.mark.parametrize("write", [True, False])
def test_a_store_of_the_first_version_gets_the_tables_and_columns_that_it_lacks(
    location: Location, write: bool
) -> None:
    make_record(location)
    age(location)
    reader = open_record(location) if write else open_store_reader(location)
    assert reader is not None
    with reader:
        assert {row.id for row in reader.packages(FEATURE)} == {"WP01", "WP02"}
        assert [job.tokens for job in reader.jobs(FEATURE)] == [0, 0]
        assert (reader.workflows(), reader.gates(FEATURE)) == ([], [])
    with open_record(location) as store:
        over = WorkflowRow(
            FEATURE, "quick", "x", "main", "01-a", 0, "completed", 1, merged="c0ffee"
        )
        store.append_unconditionally(
            FEATURE,
            TS,
            [
                workflow_changed_event(over),
                job_started_event(JobRow(FEATURE, "j", "", "plan", 1, "a", TS)),
            ],
        )
        assert store.workflows() == [over]
    assert verify_audit(location).ok
    with closing(sqlite3.connect(location.store_path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA.version,)


@pytest.mark.parametrize("version", [0, SCHEMA.version])
def test_a_store_of_this_version_that_lacks_a_table_is_damaged_and_not_mended(
    location: Location, version: int
) -> None:
    make_record(location)
    age(location, version)
    before = location.store_path.read_bytes()
    with pytest.raises(StateConflict, match="damaged"):
        open_record(location)
    with pytest.raises(StateConflict, match="damaged"):
        open_store_reader(location)
    assert location.store_path.read_bytes() == before


def test_a_row_that_was_taken_out_of_an_older_store_is_found_after_it_is_moved_on(
    location: Location,
) -> None:
    make_record(location)
    age(location)
    with closing(sqlite3.connect(location.store_path)) as connection, connection:
        connection.execute("DROP TABLE package")
    with open_record(location) as store:
        assert store.packages(FEATURE) == []
    assert [problem.where for problem in verify_audit(location).problems] == [
        f"package {FEATURE} WP01",
        f"package {FEATURE} WP02",
    ]


def test_a_newer_store_is_refused_and_left_as_it_is(location: Location) -> None:
    with open_store(location, STORE_ID, TS, NEXT) as store:
        append_numbers(store, range(3))
    before = location.store_path.read_bytes()
    with pytest.raises(
        StateConflict, match=f"created by a newer version of Phasegate .*{LATER}"
    ) as refused:
        open_record(location)
    assert "damaged" not in refused.value.message
    assert "newer Phasegate" in str(refused.value.hint)
    with pytest.raises(StateConflict, match="created by a newer version"):
        open_store_reader(location)
    assert location.store_path.read_bytes() == before


def test_a_migration_that_fails_leaves_the_old_store(location: Location) -> None:
    make_record(location)
    broken = Schema(LATER, SCHEMA.create_sql, {SCHEMA.version: "INSERT INTO nowhere VALUES (1)"})
    with pytest.raises(StateConflict):
        open_store(location, STORE_ID, TS, broken)
    with open_record(location) as store:
        assert store.last_seq(FEATURE) > 0


# --- locks ----------------------------------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from phasegate.storage.lock import feature_lock
with feature_lock(Path(sys.argv[1]), "001-login", "phasegate run", "2026-03-01"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.demand("W4.e", "W4.h")
def test_a_second_process_is_refused_a_feature_and_told_who_has_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(
                StateConflict, match=rf"process {holder.pid} \(phasegate run\) since 2026-03-01"
            ),
            feature_lock(tmp_path, "001-login", "phasegate run", "later"),
        ):
            pass
        with feature_lock(tmp_path, "002-other", "phasegate run", "now"):
            pass  # another feature does not wait
        found = find_live_holder(tmp_path, "001-login")
        assert found is not None
        assert found.pid == holder.pid
        holder.kill()
    with feature_lock(tmp_path, "001-login", "phasegate run", "now"):
        pass  # a lock does not outlive its process
    assert find_live_holder(tmp_path, "001-login") is None
    assert find_live_holder(tmp_path, "never-seen") is None


def test_asking_who_holds_a_feature_never_takes_its_lock(tmp_path: Path) -> None:
    with feature_lock(tmp_path, "001-login", "phasegate run", "now"):
        before = (tmp_path / "feature-001-login.lock").read_bytes()
    (tmp_path / "feature-001-login.lock").write_bytes(before)
    calls: list[str] = []
    hook = lambda event, _: calls.append(event) if event.startswith("fcntl") else None  # noqa: E731 - audit hooks stay
    sys.addaudithook(hook)
    with feature_lock(tmp_path, "002-other", "control", "now"):
        assert calls.pop() == "fcntl.flock"  # the hook sees a lock that is taken
    assert find_live_holder(tmp_path, "001-login") is not None  # this process lives, and signed it
    assert calls == []


@pytest.mark.parametrize(
    "signed",
    [
        b"",
        b"{",
        b"[1]",
        b'{"pid": 1}',
        b'{"pid": "1", "process_start": "", "command": "", "since": ""}',
        b'{"pid": -1, "process_start": "", "command": "", "since": ""}',
        b'{"pid": 99999999999999999999, "process_start": "", "command": "", "since": ""}',
        b'{"pid": 1, "process_start": "of another boot", "command": "", "since": ""}',
    ],
)
def test_a_lock_file_that_names_no_living_process_names_nobody(
    tmp_path: Path, signed: bytes
) -> None:
    (tmp_path / "feature-001-login.lock").write_bytes(signed)
    assert find_live_holder(tmp_path, "001-login") is None


def test_a_killed_process_holds_nothing_even_before_anybody_has_waited_for_it(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert find_live_holder(tmp_path, "001-login") is not None
        holder.kill()
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # it is dead, and still a zombie
        assert find_live_holder(tmp_path, "001-login") is None


@pytest.mark.demand("W4.i")
def test_the_repository_lock_waits_and_then_says_so(tmp_path: Path) -> None:
    with named_lock(tmp_path, "git"):
        with (
            pytest.raises(StateConflict, match="git lock"),
            named_lock(tmp_path, "git", timeout_s=0.02),
        ):
            pass
        with named_lock(tmp_path, "other", timeout_s=0.02):
            pass
    with named_lock(tmp_path, "git", timeout_s=0.02):
        pass


def test_a_read_only_view_of_the_store_sees_packages_and_jobs(reader: StoreReader) -> None:
    assert [package.state for package in reader.packages(FEATURE)] == ["DONE", "DOING"]
    assert [job.id for job in reader.jobs(FEATURE)] == ["job-a", "job-b"]


def test_a_lock_that_a_power_failure_left_on_the_anchor_is_in_nobodys_way(
    location: Location,
) -> None:
    make_record(location)
    (location.git_dir / "refs/phasegate/audit.lock").write_bytes(b"")
    with open_record(location) as store:
        append_numbers(store, [9])
        store.anchor()
    assert verify_audit(location).ok
