"""Attacks on the record (I01 to I05): by somebody who can write everything in `.phasegate`, and nothing outside it."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from phasegate.core.audit.chain import (
    ChainLink,
    chain_origin_hash,
    compute_entry_hash,
    find_first_break,
)
from phasegate.core.audit.trail import chain_entry, encode_entry, scan_trail
from phasegate.core.audit.trail import trail_origin_hash as trail_origin
from phasegate.errors import StateConflict
from phasegate.interfaces.cli.main import run_command
from phasegate.storage.git_anchor import read_anchor
from phasegate.storage.location import Location
from phasegate.storage.row_events import job_started_event
from phasegate.storage.rows import JobRow
from phasegate.storage.trail_recovery import recover_trails
from phasegate.storage.trails import TrailWriter
from phasegate.storage.verify_audit import verify_audit
from support.record import (
    FEATURE,
    STORE_ID,
    TS,
    append_numbers,
    make_record,
    make_repository,
    open_content,
    open_record,
    read_links,
    run_job,
    trail_of,
    write_links,
    wrote,
)

SEED = 20260301
Links = list[ChainLink]


@pytest.fixture
def location(tmp_path: Path) -> Location:
    location = make_repository(tmp_path)
    make_record(location)
    return location


def rehashed(links: Links) -> Links:
    """The same entries with positions and hashes as they would be if they had been written so."""
    previous, result = chain_origin_hash(STORE_ID), []
    for position, link in enumerate(links, 1):
        entry = link.entry._replace(position=position)
        previous = compute_entry_hash(previous, entry)
        result.append(ChainLink(entry, previous))
    return result


def renumbered(links: Links) -> Links:
    return [
        ChainLink(link.entry._replace(position=position), link.hash)
        for position, link in enumerate(links, 1)
    ]


def edited(link: ChainLink) -> ChainLink:
    return ChainLink(link.entry._replace(payload=b'{"number": 99}'), link.hash)


CHAIN_ATTACKS: dict[str, Callable[[Links], Links]] = {
    "edit": lambda links: [*links[:3], edited(links[3]), *links[4:]],
    "edit and re-hash the rest": lambda links: rehashed([*links[:3], edited(links[3]), *links[4:]]),
    "delete": lambda links: [*links[:3], *links[4:]],
    "insert": lambda links: renumbered([*links[:3], edited(links[3]), *links[3:]]),
    "reorder": lambda links: renumbered([*links[:3], links[4], links[3], *links[5:]]),
    "duplicate": lambda links: [*links[:4], links[3], *links[4:]],
    "truncate the tail": lambda links: links[:-2],
    "truncate to nothing": lambda links: [],
    "roll back": lambda links: links[:4],
    "replace the whole log": lambda links: rehashed([edited(link) for link in links]),
    "edit the last entry": lambda links: rehashed([*links[:-1], edited(links[-1])]),
    "forge a tail": lambda links: rehashed([*links, edited(links[-1])]),
}
CAUGHT_BY_A_PLAIN_CHAIN = {"edit", "delete", "insert", "reorder", "duplicate"}


@pytest.mark.demand("D13.g", "D13.h", "D13.i")
@pytest.mark.parametrize("name", CHAIN_ATTACKS)
def test_an_attack_on_the_chain_is_found_and_its_first_entry_named(
    location: Location, name: str
) -> None:
    assert verify_audit(location).ok, "the record as it was written verifies"
    attacked = CHAIN_ATTACKS[name](read_links(location))
    write_links(location, attacked)
    alone = find_first_break(chain_origin_hash(STORE_ID), read_links(location), [], [])
    assert (alone is not None) == (name in CAUGHT_BY_A_PLAIN_CHAIN), (
        "control: what a plain hash chain sees"
    )
    report = verify_audit(location)
    assert not report.ok
    first = report.problems[0].where
    expected = {
        "truncate the tail": 15,
        "truncate to nothing": 1,
        "roll back": 5,
        "replace the whole log": 1,
    }
    expected |= {"edit the last entry": 16, "forge a tail": 17}
    assert first == f"entry {expected.get(name, 4)}"


@pytest.mark.demand("D13.h", "D13.i")
@pytest.mark.parametrize("name", CHAIN_ATTACKS)
def test_nobody_goes_on_from_an_attacked_chain_unless_its_end_is_the_written_one(
    location: Location, name: str
) -> None:
    links = read_links(location)
    attacked = CHAIN_ATTACKS[name](links)
    write_links(location, attacked)
    if attacked and attacked[-1] == links[-1]:
        return  # the end is right: `audit verify` finds the rest
    with pytest.raises(StateConflict):
        open_record(location)


def forged(previous: str, number: int) -> bytes:
    return chain_entry(previous, encode_entry(TS, "job-a", wrote("forged.py", number))).line


def hash_of(line: bytes) -> str:
    return str(json.loads(line)["entry_hash"])


def rehashed_lines(bodies: list[bytes]) -> list[bytes]:
    previous, lines = trail_origin(FEATURE, "job-a"), []
    for number, _ in enumerate(bodies):
        line = forged(previous, number)
        previous = hash_of(line)
        lines.append(line)
    return lines


Lines = list[bytes]
TRAIL_ATTACKS: dict[str, Callable[[Lines], Lines]] = {
    "edit": lambda lines: [*lines[:2], lines[2].replace(b"src/2.py", b"src/7.py"), *lines[3:]],
    "edit and re-hash the rest": lambda lines: [
        *lines[:2],
        *(rest := [forged(hash_of(lines[1]), 2)]),
        *([forged(hash_of(rest[0]), 3)]),
        *lines[4:4],
    ],
    "delete": lambda lines: [*lines[:2], *lines[3:]],
    "insert": lambda lines: [*lines[:2], forged(hash_of(lines[1]), 9), *lines[2:]],
    "reorder": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "duplicate": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "truncate the tail": lambda lines: lines[:-2],
    "truncate to nothing": lambda lines: [],
    "roll back": lambda lines: lines[:3],
    "replace the whole log": rehashed_lines,
    "edit the last entry": lambda lines: [*lines[:-1], forged(hash_of(lines[-2]), 9)],
    "forge a tail": lambda lines: [*lines, forged(hash_of(lines[-1]), 9)],
}


@pytest.mark.demand("D13.h", "D13.i")
@pytest.mark.parametrize("name", TRAIL_ATTACKS)
def test_an_attack_on_a_finished_trail_is_found_and_its_line_named(
    location: Location, name: str
) -> None:
    path = trail_of(location)
    attacked = b"".join(TRAIL_ATTACKS[name](path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(attacked)
    alone = scan_trail(attacked, trail_origin(FEATURE, "job-a")).broken
    assert (alone is not None) == (name in CAUGHT_BY_A_PLAIN_CHAIN), (
        "control: what a plain hash chain sees"
    )
    report = verify_audit(location)
    assert not report.ok
    assert report.problems[0].where.startswith(f"trail {FEATURE}/job-a line ")


def leave_an_open_trail(location: Location, entries: int = 6) -> None:
    """A job whose process ended without ending its trail."""
    with open_record(location) as store:
        store.append_unconditionally(
            FEATURE,
            TS,
            [job_started_event(JobRow(FEATURE, "job-c", "WP02", "06", 1, "claude", TS))],
        )
        with TrailWriter.create(location, store.heads.folder, "writer-c") as trails:
            trails.open(FEATURE, "job-c")
            for number in range(entries):
                trails.append_entry("job-c", TS, wrote(f"src/{number}.py", number))


# An earlier state of an open trail is what an export leaves that was not sealed: the next one replaces it.
ATTACKS_THAT_CUT = {"truncate the tail", "truncate to nothing", "roll back"}


@pytest.mark.demand("D13.h", "D13.i")
@pytest.mark.parametrize("name", TRAIL_ATTACKS)
def test_no_attack_on_the_file_of_an_open_trail_gets_into_the_record(
    location: Location, name: str
) -> None:
    leave_an_open_trail(location)
    assert verify_audit(location).ok
    with open_record(location) as store:
        whole = open_content(store, "job-c")
    path = trail_of(location, "job-c")
    assert not path.exists(), "there is nothing to attack yet"
    path.write_bytes(b"".join(TRAIL_ATTACKS[name](whole.splitlines(keepends=True))))
    report = verify_audit(location)
    with open_record(location) as store:
        (found,) = recover_trails(store, location, "recovery", TS)
    if name in ATTACKS_THAT_CUT:
        assert (report.ok, found.problem) == (True, "")
        assert path.read_bytes().startswith(whole)
        assert verify_audit(location).ok
    else:
        assert report.problems[0].where.startswith(f"trail {FEATURE}/job-c line ")
        assert "was not written by Phasegate" in found.problem
        assert not verify_audit(location).ok, "it is not made good in silence"


@pytest.mark.demand("D13.i")
def test_an_attack_on_a_trail_that_was_opened_again_is_found(location: Location) -> None:
    with (
        open_record(location) as store,
        TrailWriter.create(location, store.heads.folder, "later") as trails,
    ):
        trails.reopen(next(seal for seal in store.seals() if seal.job == "job-a"))
        trails.append_entry("job-a", TS, wrote("later.py", 1))
        assert verify_audit(location).ok
        path = trail_of(location)
        sealed = path.read_bytes()
        for name, attack in TRAIL_ATTACKS.items():
            path.write_bytes(b"".join(attack(sealed.splitlines(keepends=True))))
            assert (
                verify_audit(location).problems[0].where.startswith(f"trail {FEATURE}/job-a line ")
            ), name
        path.write_bytes(sealed)
        assert verify_audit(location).ok


def test_a_trail_that_nobody_wrote_is_found(location: Location) -> None:
    shutil.copy(trail_of(location), trail_of(location, "job-x"))
    (location.trails_folder / "002-other").mkdir()
    shutil.copy(trail_of(location), location.trails_folder / "002-other" / "job-a.jsonl")
    (location.trails_folder / FEATURE / "notes.txt").write_text("x")
    found = {problem.where for problem in verify_audit(location).problems}
    assert found == {
        f"trail {FEATURE}/job-x line 1",
        "trail 002-other/job-a line 1",
        f"audit/{FEATURE}/notes.txt",
    }


def test_a_trail_behind_a_link_is_found(location: Location, tmp_path: Path) -> None:
    moved = tmp_path / "moved.jsonl"
    trail_of(location).rename(moved)
    trail_of(location).symlink_to(moved)
    assert not verify_audit(location).ok


# --- the whole folder -----------------------------------------------------------------------------------------------


def copy_tree(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


@pytest.mark.demand("D13.g", "D13.i")
def test_an_older_consistent_copy_of_the_whole_folder_is_found(
    location: Location, tmp_path: Path
) -> None:
    copy_tree(location.data_folder, tmp_path / "older")
    with open_record(location) as store:
        append_numbers(store, range(3))
        run_job(location, store, "job-d", 4)
    assert verify_audit(location).ok
    copy_tree(tmp_path / "older", location.data_folder)
    links = read_links(location)
    assert find_first_break(chain_origin_hash(STORE_ID), links, [], []) is None, (
        "control: in itself the copy is whole"
    )
    report = verify_audit(location)
    assert (report.ok, report.problems[0].where) == (False, f"entry {len(links) + 1}")
    with pytest.raises(StateConflict, match="replaced by another copy"):
        open_record(location)


@pytest.mark.demand("D13.g", "D13.i")
def test_git_alone_finds_a_copy_that_is_older_than_its_ref(
    location: Location, tmp_path: Path
) -> None:
    copy_tree(location.data_folder, tmp_path / "older")
    copy_tree(location.state_home, tmp_path / "older-heads")
    with open_record(location) as store:
        append_numbers(store, range(3))
        store.anchor()
    copy_tree(tmp_path / "older", location.data_folder)
    copy_tree(tmp_path / "older-heads", location.state_home)
    report = verify_audit(location)
    assert not report.ok
    assert "refs/phasegate/audit covers" in report.problems[0].why


@pytest.mark.demand("D13.g")
def test_another_repositorys_folder_is_found(location: Location, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    from phasegate.storage.journal_store import open_store

    with open_store(other, "another-id", TS) as store:
        append_numbers(store, range(5))
    copy_tree(other.data_folder, location.data_folder)
    report = verify_audit(location)
    assert not report.ok
    assert any("belongs to another repository" in problem.why for problem in report.problems)


@pytest.mark.demand("D13.i")
def test_a_folder_that_is_gone_is_found(location: Location) -> None:
    shutil.rmtree(location.data_folder)
    assert "is missing: the store" in verify_audit(location).problems[0].why


@pytest.mark.demand("D13.g")
def test_heads_that_are_gone_are_said_and_never_passed_over(location: Location) -> None:
    shutil.rmtree(location.state_home)
    report = verify_audit(location)
    assert not report.ok
    assert "cannot be checked against" in report.problems[0].why
    subprocess.run(
        ["git", "-C", location.root, "update-ref", "-d", "refs/phasegate/audit"], check=True
    )
    whys = [problem.why for problem in verify_audit(location).problems]
    assert sum("cannot be checked against" in why for why in whys) == 2


@pytest.mark.demand("D13.g")
def test_heads_that_were_begun_anew_are_on_record_for_good(location: Location) -> None:
    shutil.rmtree(location.state_home)
    with open_record(location) as store:
        append_numbers(store, range(2))
    report = verify_audit(location)
    assert report.ok
    assert "heads were missing and were recreated" in report.notes[0]
    subprocess.run(
        ["git", "-C", location.root, "update-ref", "-d", "refs/phasegate/audit"], check=True
    )
    with open_record(location):
        pass
    report = verify_audit(location)
    assert report.ok
    assert len(report.notes) == 2
    assert "refs/phasegate/audit" in report.notes[1]


def test_a_ref_that_was_moved_back_is_found(location: Location) -> None:
    git = ["git", "-C", str(location.root)]
    older = subprocess.run(
        [*git, "rev-parse", "refs/phasegate/audit"], capture_output=True, text=True, check=True
    )
    with open_record(location) as store:
        append_numbers(store, range(2))
        store.anchor()
    subprocess.run([*git, "update-ref", "refs/phasegate/audit", older.stdout.strip()], check=True)
    assert any("was moved back" in problem.why for problem in verify_audit(location).problems)


def test_a_fresh_clone_starts_anew(location: Location, tmp_path: Path) -> None:
    git = ["git", "-C", str(location.root)]
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "first"], check=True)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(location.root), str(clone)], check=True)
    there = Location(clone, clone / ".git", location.state_home)
    assert verify_audit(there).ok
    with open_record(there) as store:
        append_numbers(store, [1])
    assert verify_audit(there).ok


# --- the tables -----------------------------------------------------------------------------------------------------


@pytest.mark.demand("D13.h", "D13.i")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE package SET state = 'DONE'",
        "DELETE FROM package WHERE id = 'WP02'",
        "INSERT INTO package VALUES ('001-user-login', 'WP09', 't', 'DONE', 0, '', '', '', '')",
        "UPDATE job SET outcome = 'done' WHERE id = 'job-a'",
        "UPDATE seal SET hash = ''",
        "DELETE FROM seal",
    ],
)
def test_a_table_that_says_other_than_the_journal_is_found(
    location: Location, statement: str
) -> None:
    with closing(sqlite3.connect(location.store_path)) as connection, connection:
        connection.execute(statement)
    assert any(
        "differs from the journal" in problem.why for problem in verify_audit(location).problems
    )


# --- I02 ------------------------------------------------------------------------------------------------------------


def random_edit(rng: random.Random, data: bytes) -> tuple[bytes, int]:
    """Some edit of a trail, and the first line that it touches."""
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    match rng.choice(["byte", "drop", "swap", "duplicate"]):
        case "drop":
            return b"".join(lines[:at] + lines[at + 1 :]), at + 1
        case "swap" if at + 1 < len(lines):
            return b"".join([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]), at + 1
        case "duplicate":
            return b"".join([*lines[: at + 1], lines[at], *lines[at + 1 :]]), at + 2
    place = rng.randrange(len(data))
    changed = data[:place] + bytes([data[place] ^ rng.randrange(1, 256)]) + data[place + 1 :]
    return changed, data[:place].count(b"\n") + 1


@pytest.mark.demand("D13.h", "D13.i")
def test_ten_thousand_random_edits_of_a_trail_are_all_found(location: Location) -> None:
    rng = random.Random(SEED)
    data, start = trail_of(location).read_bytes(), trail_origin(FEATURE, "job-a")
    written = scan_trail(data, start)
    for _ in range(10_000):
        changed, line = random_edit(rng, data)
        reading = scan_trail(changed, start)
        assert reading != written
        named = reading.broken.position if reading.broken else reading.lines + 1
        assert named == line


@pytest.mark.demand("D13.h", "D13.i")
def test_random_edits_of_the_files_are_found_by_the_command(location: Location) -> None:
    rng = random.Random(SEED + 1)
    path = trail_of(location)
    data = path.read_bytes()
    for _ in range(40):
        changed, line = random_edit(rng, data)
        path.write_bytes(changed)
        report = verify_audit(location)
        assert not report.ok
        assert report.problems[0].where == f"trail {FEATURE}/job-a line {line}"
    path.write_bytes(data)
    assert verify_audit(location).ok


def dump(location: Location) -> list[object]:
    """Every row of every table, and the names of the columns: the text of a table's definition is not read."""
    with closing(sqlite3.connect(f"file:{location.store_path}?mode=ro", uri=True)) as connection:
        names = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        asked = [connection.execute(f"SELECT * FROM {name}") for name in sorted(names)]
        return [([column[0] for column in rows.description], rows.fetchall()) for rows in asked]


@pytest.mark.demand("D13.h")
def test_a_flipped_byte_of_the_store_is_found_or_changes_nothing_that_is_read(
    location: Location,
) -> None:
    rng = random.Random(SEED + 2)
    whole, read = location.store_path.read_bytes(), dump(location)
    found = 0
    for _ in range(60):
        place = rng.randrange(100, len(whole))
        location.store_path.write_bytes(
            whole[:place] + bytes([whole[place] ^ rng.randrange(1, 256)]) + whole[place + 1 :]
        )
        if verify_audit(location).ok:
            assert dump(location) == read
        else:
            found += 1
    assert found > 5


# --- I03, I04 -------------------------------------------------------------------------------------------------------


@pytest.mark.demand("D13.a")
def test_a_forged_line_in_a_field_stays_one_record(location: Location) -> None:
    with open_record(location) as store:
        store.append_unconditionally(
            FEATURE,
            TS,
            [job_started_event(JobRow(FEATURE, "job-e", "WP01", "06", 1, "claude", TS))],
        )
        with TrailWriter.create(location, store.heads.folder, "writer-e") as trails:
            trails.open(FEATURE, "job-e")
            trails.append_entry("job-e", TS, wrote('x"}\n{"action":"exit","code":0}\n=\tf\tj\n', 1))
            assert open_content(store, "job-e").count(b"\n") == 1
            assert verify_audit(location).trails == 3
            trails.close("job-e")
    assert trail_of(location, "job-e").read_bytes().count(b"\n") == 1
    assert verify_audit(location).ok


def test_a_child_inherits_no_descriptor_of_the_record(location: Location) -> None:
    """What a sandbox refuses besides belongs to the sandbox; that nothing leaks to it belongs here."""
    listing = "import os; print(sorted(set(os.listdir('/proc/self/fd')) - {'0', '1', '2'}))"
    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc here")

    def seen_by_child(*, keep: bool) -> list[int]:
        command = [sys.executable, "-c", listing]
        result = subprocess.run(
            command, capture_output=True, text=True, check=True, close_fds=not keep
        )
        return [int(number) for number in json.loads(result.stdout.replace("'", '"'))]

    with (
        open_record(location) as store,
        TrailWriter.create(location, store.heads.folder, "writer-f") as trails,
    ):
        store.append_unconditionally(
            FEATURE,
            TS,
            [job_started_event(JobRow(FEATURE, "job-f", "WP01", "06", 1, "claude", TS))],
        )
        bare = len(seen_by_child(keep=True))
        leaking = os.open(location.store_path, os.O_RDONLY)
        os.set_inheritable(leaking, True)
        assert len(seen_by_child(keep=True)) == bare + 1, (
            "control: an inheritable descriptor is seen"
        )
        os.close(leaking)
        trails.open(FEATURE, "job-f")
        trails.append_entry("job-f", TS, wrote("a.py", 1))
        assert len(seen_by_child(keep=True)) == bare
        trails.close("job-f")
        assert (
            trail_of(location, "job-f").stat().st_mode & 0o077,
            location.data_folder.stat().st_mode & 0o077,
        ) == (
            0,
            0,
        )


# --- while somebody writes ------------------------------------------------------------------------------------------


def test_a_record_that_is_being_written_verifies(location: Location) -> None:
    stop = threading.Event()

    def work() -> None:
        with open_record(location) as store:
            number = 0
            while not stop.is_set():
                run_job(location, store, f"busy-{number}", 3)
                number += 1

    worker = threading.Thread(target=work)
    worker.start()
    try:
        reports = [verify_audit(location) for _ in range(8)]
    finally:
        stop.set()
        worker.join()
    assert [report.problems for report in reports] == [()] * len(reports)


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.demand("D13.h")
def test_the_command_says_no_with_exit_1_and_the_first_bad_entry(
    location: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(location.root)
    monkeypatch.setenv("XDG_STATE_HOME", str(location.state_home.parent))
    assert run_command(["audit", "verify"]) == 0
    assert capsys.readouterr().out == "verified: 16 entries, 2 trails\n"
    write_links(location, CHAIN_ATTACKS["edit"](read_links(location)))
    assert run_command(["audit", "verify"]) == 1
    assert capsys.readouterr().out.startswith("NOT VERIFIED. First problem: entry 4: was changed")
    assert run_command(["audit", "verify", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["problems"][0]["where"] == "entry 4"


@pytest.mark.demand("D13.e", "D13.f")
def test_the_command_finds_every_field_that_is_changed_and_text_that_moves_to_the_next_field(
    location: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(location.root)
    monkeypatch.setenv("XDG_STATE_HOME", str(location.state_home.parent))
    links = read_links(location)
    at, said = links[3], links[3].entry
    changes: list[dict[str, Any]] = [
        {"feature": f"{said.feature}x"},
        {"seq": said.seq + 1},
        {"ts": f"{said.ts}0"},
        {"kind": f"{said.kind}x"},
        {"payload": said.payload + b" "},
        {"ts": said.ts[:-1], "kind": said.ts[-1] + said.kind},
        {"kind": said.kind + said.payload[:1].decode(), "payload": said.payload[1:]},
    ]
    before = links[2].entry._replace(payload=b"{}")
    rehashed_before = ChainLink(before, compute_entry_hash(links[1].hash, before))
    assert {name for change in changes for name in change} == {*said._fields} - {"position"}
    for change in changes:
        write_links(location, [*links[:3], ChainLink(said._replace(**change), at.hash), *links[4:]])
        assert run_command(["audit", "verify"]) == 1, change
        assert capsys.readouterr().out.startswith(
            "NOT VERIFIED. First problem: entry 4: was changed"
        ), change
    assert (
        find_first_break(chain_origin_hash(STORE_ID), [*links[:2], rehashed_before], [], []) is None
    ), "control: whole in itself"
    bound = find_first_break(
        chain_origin_hash(STORE_ID), [*links[:2], rehashed_before, *links[3:]], [], []
    )
    assert bound is not None
    assert bound.position == 4, "an entry is bound to the one before"
    write_links(location, links)
    assert run_command(["audit", "verify"]) == 0, "control: as it was written"


def test_a_git_that_lies_in_the_folder_is_not_run(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "here/git"
    planted.parent.mkdir()
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    monkeypatch.chdir(planted.parent)
    subprocess.run(["git", "--version"], check=True)
    assert (tmp_path / "ran").exists()  # the control: by its name alone
    (tmp_path / "ran").unlink()
    assert read_anchor(location.git_dir) is not None
    assert not (tmp_path / "ran").exists()
