"""`audit verify`: hold the journal, its tables and every trail against each other and against the heads outside.

Nothing is passed over: a head that is missing is as much a problem as one that does not fit.
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

from phasegate.core.audit.chain import Link, first_break, origin
from phasegate.core.audit.trail import Reading, hash_of_line, read_lines
from phasegate.core.audit.trail import origin as trail_origin
from phasegate.core.text.visible import visible
from phasegate.errors import StateConflict
from phasegate.storage.chain_heads import Heads, Kept
from phasegate.storage.git_anchor import REF, Anchor, read_anchor
from phasegate.storage.location import Location
from phasegate.storage.lock import repository_lock
from phasegate.storage.reader import Reader, read_store
from phasegate.storage.row_events import row_of
from phasegate.storage.rows import Gate, Job, Package, Row, Seal, WorkflowRow
from phasegate.storage.trail_files import Key, read_trail, trail_files
from phasegate.storage.trail_log import OpenTrail, log_files, read_log


class AuditProblem(msgspec.Struct, frozen=True):
    """Something that is not as it was written: where, and why."""

    where: str
    why: str


class Findings:
    """Problems and notes, in the order in which they are to be read."""

    def __init__(self) -> None:
        self.problems: list[AuditProblem] = []
        self.notes: list[str] = []

    def add(self, where: str, why: str) -> None:
        self.problems.append(AuditProblem(where, why))

    def add_first(self, where: str, why: str) -> None:
        self.problems.insert(0, AuditProblem(where, why))

    def note(self, text: str) -> None:
        self.notes.append(text)


class _SeenTrails(NamedTuple):
    """What there was before the journal was read: files of trails, what is none, and the open trails in the logs."""

    files: dict[Key, Reading]
    strangers: tuple[Path, ...]
    open_trails: dict[Key, OpenTrail]


def look_at_trails(location: Location, outside: Path) -> _SeenTrails:
    """What the files of trails hold, and then which trails are open.

    In this order, and before the journal is read: so a file that no log holds has its seal in the journal already,
    even while others write.
    """
    files, strangers = {}, []
    for folder, folders, names in os.walk(location.trails):
        here = Path(folder)
        for path in (here / name for name in names + (folders if here != location.trails else [])):
            if here.parent == location.trails and path.suffix == ".jsonl" and stat.S_ISREG(path.lstat().st_mode):
                key = here.name, path.stem
                files[key] = read_lines(read_trail(path), trail_origin(*key))
            else:
                strangers.append(path)
    open_trails = [trail for path in log_files(outside) for trail in read_log(path)]
    return _SeenTrails(files, tuple(strangers), {(trail.feature, trail.job): trail for trail in open_trails})


def check_trails(
    location: Location, seen: _SeenTrails, seals: Mapping[Key, Seal], ended: AbstractSet[Key], findings: Findings
) -> None:
    """Check every trail that was seen, and every one that the journal or a log knows. `ended` are jobs."""
    for path in seen.strangers:
        findings.add(visible(str(path.relative_to(location.folder))), "is not a trail")
    for key in sorted(seen.files.keys() | seals.keys() | seen.open_trails.keys()):
        _check(key, seen.files.get(key), seals.get(key), seen.open_trails.get(key), findings)
    for key in sorted(ended - seals.keys() - seen.open_trails.keys()):
        findings.note(f"job {'/'.join(key)} has no trail: its process died too early, or the log outside was lost")


def _check(key: Key, file: Reading | None, seal: Seal | None, open_: OpenTrail | None, findings: Findings) -> None:
    """A trail that was closed, and perhaps opened again, is as its seal says; or as it is exported for the next one."""
    if open_ and (broken := read_lines(open_.content, trail_origin(*key)).broken):
        findings.add(_name(key, broken.position), f"{broken.why}, in the log outside")
    elif file and open_ and _is_exported(file, open_, seal):
        return
    elif seal:
        check_sealed(key, file, seal, findings)
    elif file and open_:
        line = file.broken.position if file.broken else min(file.lines, len(open_.lines)) + 1
        findings.add(_name(key, line), "was not written here: the log outside holds the trail")
    elif file:
        findings.add(_name(key, 1), "was added: neither the journal nor the log outside has such a trail")


def _is_exported(file: Reading, open_: OpenTrail, seal: Seal | None) -> bool:
    """Whether a file holds the first lines of an open trail, and at least those that were sealed."""
    if file.broken or file.torn_bytes or not (seal.lines if seal else 0) <= file.lines <= len(open_.lines):
        return False
    return not file.lines or hash_of_line(open_.lines[file.lines - 1]) == file.hash


def _name(key: Key, line: int) -> str:
    return f"trail {visible('/'.join(key))} line {line}"


def check_sealed(key: Key, file: Reading | None, seal: Seal, findings: Findings) -> None:
    """A closed trail is exactly as its seal says."""
    if not seal.witnessed:
        findings.note(f"trail {'/'.join(key)} was closed after its log outside was lost; until then it is unwitnessed")
    if file is None:
        findings.add(_name(key, 1), f"is missing: the journal says that there are {seal.lines} lines")
    elif file.broken:
        findings.add(_name(key, file.broken.position), file.broken.why)
    elif file.lines < seal.lines:
        findings.add(_name(key, file.lines + 1), f"is missing: the journal says that there are {seal.lines} lines")
    elif file.lines > seal.lines or file.torn_bytes:
        findings.add(_name(key, seal.lines + 1), "was added after the trail was closed")
    elif file.hash != seal.hash:
        findings.add(_name(key, seal.lines), "is not the one that was written: its hash differs from the journal")


Rows = dict[tuple[str, ...], Row]
_TRIES = 3


class AuditReport(msgspec.Struct, frozen=True):
    """What was checked, what is wrong (the first bad entry first), and what a reader should know."""

    ok: bool
    entries: int
    trails: int
    problems: tuple[AuditProblem, ...]
    notes: tuple[str, ...]


def verify(location: Location) -> AuditReport:
    """Check all that was recorded. It may be written to meanwhile.

    A trail that is opened and closed again between the look at its file and the look at the journal seems changed: so
    what is wrong while others wrote is looked at again.
    """
    for _ in range(_TRIES):
        report, undisturbed = _verify_once(location)
        if report.ok or undisturbed:
            break
    return report


def _verify_once(location: Location) -> tuple[AuditReport, bool]:
    """What was found, and whether nothing was recorded meanwhile."""
    findings = Findings()
    try:
        reader = read_store(location)
        if reader is None:
            return _check_absence(location, findings), True
        with reader:
            before = reader.head().entries
            report = _check_store(location, reader, findings)
            return report, report.entries == before
    except StateConflict as error:
        findings.add("store", error.message)
        return _report(findings, 0, 0), True


def _report(findings: Findings, entries: int, trails: int) -> AuditReport:
    return AuditReport(not findings.problems, entries, trails, tuple(findings.problems), tuple(findings.notes))


def _check_absence(location: Location, findings: Findings) -> AuditReport:
    """Without a store: either nothing was ever recorded, or it is gone."""
    anchor = read_anchor(location.git_dir)
    kept = Heads(location, anchor.store).read() if anchor else None
    recorded = max([anchor.count if anchor else 0, *(head.entries for head in (kept.confirmed if kept else ()))])
    if recorded or trail_files(location):
        findings.add("entry 1", f"is missing: the store {location.store} is gone; {recorded} entries were recorded")
    else:
        findings.note("nothing has been recorded in this repository yet")
    return _report(findings, 0, 0)


def _check_store(location: Location, reader: Reader, findings: Findings) -> AuditReport:
    heads = Heads(location, reader.store_id)
    seen = look_at_trails(location, heads.folder)
    with _journal_lock(location):
        head = reader.hold_still()
        kept = heads.read()
        anchor = read_anchor(location.git_dir)
    rows = _check_chain(reader, kept, anchor, findings)
    _check_heads(heads, kept, anchor, reader.store_id, findings)
    _check_rows(reader, rows, findings)
    for defect in reader.defects():
        findings.add("store", defect)
    seals = {(row.feature, row.job): row for row in rows.values() if isinstance(row, Seal)}
    ended = {(row.feature, row.id) for row in rows.values() if isinstance(row, Job) and row.ended}
    check_trails(location, seen, seals, ended, findings)
    return _report(findings, head.entries, len(seen.files.keys() | seen.open_trails.keys()))


def _journal_lock(location: Location) -> AbstractContextManager[None]:
    return repository_lock(location.locks, "journal") if location.locks.is_dir() else nullcontext()


def _check_chain(reader: Reader, kept: Kept | None, anchor: Anchor | None, findings: Findings) -> Rows:
    """Check the chain from its origin to its end; the rows that the journal sets."""
    rows: Rows = {}
    links = _collecting(reader.links(), rows, findings)
    heads = [*(kept.confirmed if kept else ()), *([anchor.head] if anchor else ())]
    broken = first_break(origin(reader.store_id), links, heads, kept.ends if kept else ())
    for _ in links:
        pass  # the rows behind a break are wanted too
    if broken:
        findings.add_first(f"entry {broken.position}", broken.why)
    return rows


def _collecting(links: Iterator[Link], rows: Rows, findings: Findings) -> Iterator[Link]:
    for link in links:
        position, feature, _, _, kind, payload = link.entry
        try:
            row = row_of(feature, kind, payload)
        except ValueError:
            findings.add(f"entry {position}", f"carries no row of its kind, {kind}")
            row = None
        if row is not None:
            rows[_key(row)] = row
        if kind == "audit.adopted":
            lost = payload.decode("utf-8", "replace")
            findings.note(f"entry {position}: heads were missing and begun anew here: {lost}")
        yield link


def _key(row: Row) -> tuple[str, ...]:
    match row:
        case Package():
            return "package", row.feature, row.id
        case Job():
            return "job", row.id
        case Seal():
            return "seal", row.job
        case WorkflowRow():
            return "workflow", row.feature
        case Gate():
            return "gate", row.feature, str(row.number)


def _check_heads(heads: Heads, kept: Kept | None, anchor: Anchor | None, store_id: str, findings: Findings) -> None:
    if kept is None:
        findings.add("heads", f"cannot be checked against {heads.path}: there are no heads of this repository")
    if anchor is None:
        findings.add("heads", f"cannot be checked against {REF}: there is no such ref")
    elif anchor.store != store_id:
        findings.add("store", f"belongs to another repository: {REF} names store {anchor.store}, this is {store_id}")
    elif kept and kept.anchored and kept.anchored.entries > anchor.count:
        findings.add("heads", f"{REF} was moved back from entry {kept.anchored.entries} to entry {anchor.count}")


def _check_rows(reader: Reader, rows: Rows, findings: Findings) -> None:
    """The tables say what the journal says."""
    found: list[Row] = [*reader.all_rows(Package), *reader.all_rows(Job), *reader.all_rows(Seal)]
    found += [*reader.all_rows(WorkflowRow), *reader.all_rows(Gate)]
    stored = {_key(row): row for row in found}
    for key in sorted(rows.keys() | stored.keys()):
        if rows.get(key) != stored.get(key):
            findings.add(" ".join(key), "its row in the store is not what the journal says")
