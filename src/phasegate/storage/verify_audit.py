"""Verify the audit data: compare the journal, its tables, every trail and the chain heads.

A missing chain head is a problem, just like one that does not match.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.core.audit.chain import ChainLink, chain_origin_hash, find_first_break
from phasegate.core.audit.trail import TrailScan, extract_line_hash, scan_trail
from phasegate.core.audit.trail import trail_origin_hash as trail_origin
from phasegate.core.text.visible import escape_unprintable
from phasegate.errors import StateConflict
from phasegate.storage.chain_heads import ChainHeadsFile, RecordedHeads
from phasegate.storage.git_anchor import ANCHOR_REF, Anchor, read_anchor
from phasegate.storage.location import Location
from phasegate.storage.lock import named_lock
from phasegate.storage.reader import StoreReader, open_store_reader
from phasegate.storage.row_events import decode_row
from phasegate.storage.rows import GateRow, JobRow, PackageRow, Row, TrailSeal, WorkflowRow
from phasegate.storage.trail_files import TrailKey, list_trail_files, read_trail
from phasegate.storage.trail_log import OpenTrail, list_log_files, read_open_trails


class AuditProblem(msgspec.Struct, frozen=True):
    """A difference between the stored and the expected data: where it is, and why it is wrong."""

    where: str
    why: str


class Findings:
    """Collects problems and notes in the order in which they are found."""

    def __init__(self) -> None:
        self.problems: list[AuditProblem] = []
        self.notes: list[str] = []

    def add_problem(self, where: str, why: str) -> None:
        self.problems.append(AuditProblem(where, why))

    def add_first_problem(self, where: str, why: str) -> None:
        self.problems.insert(0, AuditProblem(where, why))

    def add_note(self, text: str) -> None:
        self.notes.append(text)


class _TrailInventory(NamedTuple):
    """The trail files, other files and open trails, as found before the journal is read."""

    files: dict[TrailKey, TrailScan]
    unexpected_paths: tuple[Path, ...]
    open_trails: dict[TrailKey, OpenTrail]


def scan_trails(location: Location, log_folder: Path) -> _TrailInventory:
    """Read the trail files, then the logs of open trails.

    The order matters, and the journal must be read afterwards: then the journal has the seal of
    every file that is in no log, even while other processes write.
    """
    files = {}
    foreign_files = []

    for folder, folders, names in os.walk(location.trails_folder):
        here = Path(folder)
        for path in (
            here / name for name in names + (folders if here != location.trails_folder else [])
        ):
            if (
                here.parent == location.trails_folder
                and path.suffix == ".jsonl"
                and stat.S_ISREG(path.lstat().st_mode)
            ):
                key = here.name, path.stem
                files[key] = scan_trail(read_trail(path), trail_origin(*key))
            else:
                foreign_files.append(path)

    open_trails = [trail for path in list_log_files(log_folder) for trail in read_open_trails(path)]
    return _TrailInventory(
        files, tuple(foreign_files), {(trail.feature, trail.job): trail for trail in open_trails}
    )


def check_trails(
    location: Location,
    inventory: _TrailInventory,
    seals: Mapping[TrailKey, TrailSeal],
    ended_jobs: AbstractSet[TrailKey],
    findings: Findings,
) -> None:
    """Check every trail that was found, and every trail that the journal or a log mentions.

    `ended_jobs` are the jobs whose end is recorded in the journal.
    """
    for path in inventory.unexpected_paths:
        findings.add_problem(
            escape_unprintable(str(path.relative_to(location.data_folder))), "is not a trail"
        )

    for key in sorted(inventory.files.keys() | seals.keys() | inventory.open_trails.keys()):
        _check_trail(
            key, inventory.files.get(key), seals.get(key), inventory.open_trails.get(key), findings
        )

    for key in sorted(ended_jobs - seals.keys() - inventory.open_trails.keys()):
        findings.add_note(
            f"job {'/'.join(key)} has no trail: its process died too early, or the external log was"
            " lost"
        )


def _check_trail(
    key: TrailKey,
    file: TrailScan | None,
    seal: TrailSeal | None,
    open_trail: OpenTrail | None,
    findings: Findings,
) -> None:
    """Check that a trail file matches its seal, or is an export of a trail that is still open.

    A closed trail may have been reopened since it was sealed.
    """
    if open_trail and (broken := scan_trail(open_trail.content, trail_origin(*key)).broken):
        findings.add_problem(
            _format_trail_line(key, broken.position), f"{broken.why}, in the external log"
        )
    elif file and open_trail and _is_export_of_open_trail(file, open_trail, seal):
        return
    elif seal:
        check_sealed_trail(key, file, seal, findings)
    elif file and open_trail:
        if file.broken:
            line = file.broken.position
        else:
            line = min(file.lines, len(open_trail.lines)) + 1

        findings.add_problem(
            _format_trail_line(key, line),
            "was not written by Phasegate: it differs from the external log",
        )
    elif file:
        findings.add_problem(
            _format_trail_line(key, 1),
            "was added: neither the journal nor the external log has such a trail",
        )


def _is_export_of_open_trail(
    file: TrailScan, open_trail: OpenTrail, seal: TrailSeal | None
) -> bool:
    """Return True if a file contains the first lines of an open trail, and at least the sealed
    ones.
    """
    if (
        file.broken
        or file.partial_bytes
        or not (seal.lines if seal else 0) <= file.lines <= len(open_trail.lines)
    ):
        return False

    return not file.lines or extract_line_hash(open_trail.lines[file.lines - 1]) == file.hash


def _format_trail_line(key: TrailKey, line: int) -> str:
    return f"trail {escape_unprintable('/'.join(key))} line {line}"


def check_sealed_trail(
    key: TrailKey, file: TrailScan | None, seal: TrailSeal, findings: Findings
) -> None:
    """Check that a closed trail matches its seal exactly."""
    if not seal.witnessed:
        findings.add_note(
            f"trail {'/'.join(key)} was closed after its external log was lost; before that, it is"
            " unwitnessed"
        )

    if file is None:
        findings.add_problem(
            _format_trail_line(key, 1),
            f"is missing: the journal says that there are {seal.lines} lines",
        )
    elif file.broken:
        findings.add_problem(_format_trail_line(key, file.broken.position), file.broken.why)
    elif file.lines < seal.lines:
        findings.add_problem(
            _format_trail_line(key, file.lines + 1),
            f"is missing: the journal says that there are {seal.lines} lines",
        )
    elif file.lines > seal.lines or file.partial_bytes:
        findings.add_problem(
            _format_trail_line(key, seal.lines + 1), "was added after the trail was closed"
        )
    elif file.hash != seal.hash:
        findings.add_problem(
            _format_trail_line(key, seal.lines),
            "is not the one that was written: its hash differs from the journal",
        )


RowsByKey = dict[tuple[str, ...], Row]
_MAX_ATTEMPTS = 3


class AuditReport(msgspec.Struct, frozen=True):
    """The result of a verification: the checked parts, the problems (the first bad entry first),
    and notes.
    """

    ok: bool
    entries: int
    trails: int
    problems: tuple[AuditProblem, ...]
    notes: tuple[str, ...]


def verify_audit(location: Location) -> AuditReport:
    """Verify everything that was recorded, while other processes may write.

    A trail that is reopened and closed between reading its file and reading the journal looks
    changed. Therefore the verification is repeated if it finds problems and something was recorded
    during it.
    """
    for _ in range(_MAX_ATTEMPTS):
        report, undisturbed = _verify_once(location)
        if report.ok or undisturbed:
            break

    return report


def _verify_once(location: Location) -> tuple[AuditReport, bool]:
    """Run one verification.

    Return the report, and True if nothing was recorded in the meantime.
    """
    findings = Findings()

    try:
        reader = open_store_reader(location)
        if reader is None:
            return _check_missing_store(location, findings), True

        with reader:
            before = reader.chain_head().entries
            report = _check_store(location, reader, findings)
            return report, report.entries == before
    except StateConflict as error:
        findings.add_problem("store", error.message)
        return make_report(findings, 0, 0), True


def make_report(findings: Findings, entries: int, trails: int) -> AuditReport:
    """Return the report of a verification."""
    return AuditReport(
        ok=not findings.problems,
        entries=entries,
        trails=trails,
        problems=tuple(findings.problems),
        notes=tuple(findings.notes),
    )


def _check_missing_store(location: Location, findings: Findings) -> AuditReport:
    """Check a repository that has no store.

    Either nothing was ever recorded, or the store was removed.
    """
    anchor = read_anchor(location.git_dir)
    if anchor:
        kept = ChainHeadsFile(location, anchor.store).read()
    else:
        kept = None

    recorded = max(
        [
            anchor.count if anchor else 0,
            *(head.entries for head in (kept.confirmed if kept else ())),
        ]
    )

    if recorded or list_trail_files(location):
        findings.add_problem(
            "entry 1",
            f"is missing: the store {location.store_path} is gone; {recorded} entries were"
            " recorded",
        )
    else:
        findings.add_note("nothing has been recorded in this repository yet")

    return make_report(findings, 0, 0)


def _check_store(location: Location, reader: StoreReader, findings: Findings) -> AuditReport:
    """Verify the journal, its rows, the chain heads and all trails."""
    heads = ChainHeadsFile(location, reader.store_id)
    seen = scan_trails(location, heads.folder)
    with _journal_lock(location):
        head = reader.begin_snapshot()
        kept = heads.read()
        anchor = read_anchor(location.git_dir)

    rows = _check_chain(reader, kept, anchor, findings)
    _check_heads(heads, kept, anchor, reader.store_id, findings)
    _check_rows(reader, rows, findings)
    for defect in reader.integrity_errors():
        findings.add_problem("store", defect)

    seals = {(row.feature, row.job): row for row in rows.values() if isinstance(row, TrailSeal)}
    ended = {
        (row.feature, row.id) for row in rows.values() if isinstance(row, JobRow) and row.ended
    }
    check_trails(location, seen, seals, ended, findings)

    return make_report(findings, head.entries, len(seen.files.keys() | seen.open_trails.keys()))


def _journal_lock(location: Location) -> AbstractContextManager[None]:
    if location.locks_folder.is_dir():
        return named_lock(location.locks_folder, "journal")
    return nullcontext()


def _check_chain(
    reader: StoreReader,
    recorded_heads: RecordedHeads | None,
    anchor: Anchor | None,
    findings: Findings,
) -> RowsByKey:
    """Check the chain from its first entry to its last.

    Return the rows that the tables should have according to the journal.
    """
    rows: RowsByKey = {}
    # Fills `rows` as a side effect while it is consumed
    links = _collect_rows(reader.chain_links(), rows, findings)
    heads = [
        *(recorded_heads.confirmed if recorded_heads else ()),
        *([anchor.head] if anchor else ()),
    ]
    broken = find_first_break(
        chain_origin_hash(reader.store_id),
        links,
        heads,
        recorded_heads.possible_ends if recorded_heads else (),
    )

    for _ in links:
        # Also collect the rows after a broken entry
        pass

    if broken:
        findings.add_first_problem(f"entry {broken.position}", broken.why)

    return rows


def _collect_rows(
    links: Iterator[ChainLink], rows: RowsByKey, findings: Findings
) -> Iterator[ChainLink]:
    """Yield the links, and collect the last row of each key."""
    for link in links:
        position, feature, _, _, kind, payload = link.entry
        try:
            row = decode_row(feature, kind, payload)
        except ValueError:
            findings.add_problem(f"entry {position}", f"does not contain a valid {kind} row")
            row = None

        if row is not None:
            rows[_row_key(row)] = row
        if kind == "audit.adopted":
            lost = payload.decode("utf-8", "replace")
            findings.add_note(
                f"entry {position}: chain heads were missing and were recreated here: {lost}"
            )

        yield link


def _row_key(row: Row) -> tuple[str, ...]:
    """Return the key under which the store keeps a row."""
    match row:
        case PackageRow():
            return "package", row.feature, row.id
        case JobRow():
            return "job", row.id
        case TrailSeal():
            return "seal", row.job
        case WorkflowRow():
            return "workflow", row.feature
        case GateRow():
            return "gate", row.feature, str(row.number)


def _check_heads(
    heads: ChainHeadsFile,
    recorded_heads: RecordedHeads | None,
    anchor: Anchor | None,
    store_id: str,
    findings: Findings,
) -> None:
    """Compare the chain heads with the anchor in git."""
    if recorded_heads is None:
        findings.add_problem(
            "heads",
            f"cannot be checked against {heads.path}: it has no chain heads of this repository",
        )

    if anchor is None:
        findings.add_problem(
            "heads", f"cannot be checked against {ANCHOR_REF}: there is no such ref"
        )
    elif anchor.store != store_id:
        findings.add_problem(
            "store",
            f"belongs to another repository: {ANCHOR_REF} names store {anchor.store}, this is"
            f" {store_id}",
        )
    elif (
        recorded_heads
        and recorded_heads.anchored
        and recorded_heads.anchored.entries > anchor.count
    ):
        findings.add_problem(
            "heads",
            f"{ANCHOR_REF} was moved back from entry {recorded_heads.anchored.entries} to entry"
            f" {anchor.count}",
        )


def _check_rows(reader: StoreReader, rows: RowsByKey, findings: Findings) -> None:
    """Check that the tables match the journal."""
    found: list[Row] = [
        *reader.all_rows(PackageRow),
        *reader.all_rows(JobRow),
        *reader.all_rows(TrailSeal),
    ]
    found += [*reader.all_rows(WorkflowRow), *reader.all_rows(GateRow)]
    stored = {_row_key(row): row for row in found}
    for key in sorted(rows.keys() | stored.keys()):
        if rows.get(key) != stored.get(key):
            findings.add_problem(" ".join(key), "its row in the store differs from the journal")
