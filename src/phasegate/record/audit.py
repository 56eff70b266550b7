"""`audit verify`: hold the journal, its tables and every trail against each other and against the heads outside.

Nothing is passed over: a head that is missing is as much a problem as one that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import msgspec

from phasegate.errors import StateConflict
from phasegate.record.audit_trails import Findings, Problem, check_trails, look_at_trails
from phasegate.record.git_anchor import REF, Anchor, read_anchor
from phasegate.record.heads import Heads, Kept
from phasegate.record.location import Location
from phasegate.record.lock import repository_lock
from phasegate.record.reader import Reader, read_store
from phasegate.record.row_events import row_of
from phasegate.record.rows import Gate, Job, Package, Row, Seal, Workflow
from phasegate.record.trail_files import trail_files
from phasegate.rules.chain import Link, first_break, origin

Rows = dict[tuple[str, ...], Row]
_TRIES = 3


class Report(msgspec.Struct, frozen=True):
    """What was checked, what is wrong (the first bad entry first), and what a reader should know."""

    ok: bool
    entries: int
    trails: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def verify(location: Location) -> Report:
    """Check all that was recorded. It may be written to meanwhile.

    A trail that is opened and closed again between the look at its file and the look at the journal seems changed: so
    what is wrong while others wrote is looked at again.
    """
    for _ in range(_TRIES):
        report, undisturbed = _verify_once(location)
        if report.ok or undisturbed:
            break
    return report


def _verify_once(location: Location) -> tuple[Report, bool]:
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


def _report(findings: Findings, entries: int, trails: int) -> Report:
    return Report(not findings.problems, entries, trails, tuple(findings.problems), tuple(findings.notes))


def _check_absence(location: Location, findings: Findings) -> Report:
    """Without a store: either nothing was ever recorded, or it is gone."""
    anchor = read_anchor(location.git_dir)
    kept = Heads(location, anchor.store).read() if anchor else None
    recorded = max([anchor.count if anchor else 0, *(head.entries for head in (kept.confirmed if kept else ()))])
    if recorded or trail_files(location):
        findings.add("entry 1", f"is missing: the store {location.store} is gone; {recorded} entries were recorded")
    else:
        findings.note("nothing has been recorded in this repository yet")
    return _report(findings, 0, 0)


def _check_store(location: Location, reader: Reader, findings: Findings) -> Report:
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
        case Workflow():
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
    found += [*reader.all_rows(Workflow), *reader.all_rows(Gate)]
    stored = {_key(row): row for row in found}
    for key in sorted(rows.keys() | stored.keys()):
        if rows.get(key) != stored.get(key):
            findings.add(" ".join(key), "its row in the store is not what the journal says")
