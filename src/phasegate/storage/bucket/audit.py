"""`audit verify --remote`: the copy in a bucket, held against itself and against the store here, if there is one.

The bucket alone is enough: chain, trails and papers are there with their hashes. Nothing is passed over: a page, a
trail or a paper that is missing is as much a problem as one that was changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from hashlib import sha256

from phasegate.core.audit.chain import Head, Link, first_break, origin
from phasegate.core.audit.trail import origin as trail_origin
from phasegate.core.audit.trail import read_lines
from phasegate.core.paths.artifact_path import slug_problem
from phasegate.errors import StateConflict
from phasegate.storage.audit import AuditReport, Findings, check_sealed
from phasegate.storage.bucket.client import Bucket
from phasegate.storage.bucket.copier import CHAIN, PAPERS, chain_log, read_entries, trail_name
from phasegate.storage.bucket.journal import JOURNAL, JournalEnds, JournalStep, feature_of, heads_log, journal_log
from phasegate.storage.chain_heads import Heads
from phasegate.storage.git_anchor import read_anchor
from phasegate.storage.location import Location
from phasegate.storage.reader import Reader, read_store
from phasegate.storage.row_events import row_of
from phasegate.storage.rows import Seal

_TRIES, _PAUSE_S = 3, 0.3


def verify_copy(bucket: Bucket, location: Location | None) -> AuditReport:
    """Check what the bucket holds: of the repository here if it has a store, else of every one.

    Somebody may be copying meanwhile, and a trail comes before its page: so what is wrong is looked at again.
    """
    for number in range(_TRIES):
        report = _verify_once(bucket, location)
        if report.ok:
            break
        if number + 1 < _TRIES:
            time.sleep(_PAUSE_S)
    return report


def _verify_once(bucket: Bucket, location: Location | None) -> AuditReport:
    findings = Findings()
    reader = read_store(location) if location else None
    stores = [reader.store_id] if reader else [name for name in bucket.folders(CHAIN) if not slug_problem(name)]
    entries, trails = check_journals(bucket, findings)
    for store in stores:
        chain = _Chain(bucket, store, findings)
        entries, trails = entries + chain.head.entries, trails + chain.check_contents()
        if reader and location:
            with reader:
                _compare(location, reader, chain, findings)
    if not entries and not findings.problems:
        findings.add(
            "entry 1", f"is missing: nothing of {'this' if reader else 'any'} repository is in {bucket.address}"
        )
    return AuditReport(not findings.problems, entries, trails, tuple(findings.problems), tuple(findings.notes))


class _Chain:
    """The chain of one repository in a bucket, read from its first page to its last."""

    def __init__(self, bucket: Bucket, store: str, findings: Findings) -> None:
        self._bucket, self._findings, self.store = bucket, findings, store
        self.hashes: list[str] = [origin(store)]
        self._seals: dict[str, Seal] = {}
        self._papers: set[str] = set()
        if broken := first_break(origin(store), self._links(), (), ()):
            findings.add_first(f"entry {broken.position}", f"{broken.why} (in the bucket)")

    @property
    def head(self) -> Head:
        return Head(len(self.hashes) - 1, self.hashes[-1], str(self._bucket.address))

    def _links(self) -> Iterator[Link]:
        try:
            for kept in chain_log(self._bucket, self.store).pages():
                page = read_entries(kept)
                self._papers |= {*page.papers}
                for text in page.lacking:
                    self._findings.add(f"page {kept.page.n}", f"was written without {text}")
                for entry in page.entries:
                    row = row_of(entry.feature, entry.kind, entry.payload.encode())
                    if isinstance(row, Seal):
                        self._seals[row.job] = row
                    self.hashes.append(entry.hash)
                    yield entry.link
        except (StateConflict, ValueError) as error:
            self._findings.add(f"store {self.store}", str(error))

    def check_contents(self) -> int:
        """Check every trail against its last seal, every paper against its hash; how many trails there are."""
        for seal in self._seals.values():
            _check_trail(self._bucket, seal, self._findings)
        for paper in sorted(self._papers):
            stored = self._bucket.get(f"{PAPERS}/{paper}")
            if stored is None:
                self._findings.add(f"paper {paper}", "is missing in the bucket")
            elif sha256(stored.data).hexdigest() != paper:
                self._findings.add(f"paper {paper}", "was changed in the bucket")
        return len(self._seals)


def _check_trail(bucket: Bucket, seal: Seal, findings: Findings) -> None:
    key = seal.feature, seal.job
    found = bucket.get(trail_name(*key))
    reading = read_lines(found.data, trail_origin(*key)) if found else None
    if reading and not reading.broken and reading.lines > seal.lines:
        why = "lines were added, or somebody is copying now: then verify again"
        findings.add(f"trail {'/'.join(key)} line {seal.lines + 1}", f"is not covered by the chain: {why}")
    else:
        check_sealed(key, reading, seal, findings)


def check_journals(bucket: Bucket, findings: Findings) -> tuple[int, int]:
    """Check the journals that were kept in the bucket itself, one chain a feature; how many entries and trails."""
    entries, seals, hashes = 0, dict[str, Seal](), dict[str, list[str]]()
    for name in bucket.folders(JOURNAL):
        feature, log = feature_of(name), journal_log(bucket, feature_of(name))
        hashes[feature], seq = [log.start.hash], 0
        try:
            for kept in log.pages():
                step = kept.read(JournalStep)
                if step.first != seq + 1:
                    raise StateConflict(f"event {step.first} follows event {seq}")
                rows = [row_of(feature, kind, payload.encode()) for kind, payload in step.events]
                seals |= {row.job: row for row in rows if isinstance(row, Seal)}
                hashes[feature].append(kept.head.hash)
                seq += len(step.events)
        except (StateConflict, ValueError) as error:
            findings.add(f"journal {name} page {len(hashes[feature])}", str(error))
        entries += seq
    for seal in seals.values():
        _check_trail(bucket, seal, findings)
    _check_heads(bucket, hashes, findings)
    return entries, len(seals)


def _check_heads(bucket: Bucket, hashes: Mapping[str, list[str]], findings: Findings) -> None:
    """Every journal passes through every head that was put down for it."""
    try:
        for kept in heads_log(bucket).pages():
            for feature, (page, digest) in kept.read(JournalEnds).items():
                known = hashes.get(feature, ())
                if page >= len(known) or known[page] != digest:
                    findings.add(f"journal {feature} page {page}", f"is not the one that head {kept.page.n} names")
    except StateConflict as error:
        findings.add("heads", str(error))


def _compare(location: Location, reader: Reader, chain: _Chain, findings: Findings) -> None:
    """The copy is a beginning of what is here, and passes through every head that is kept here."""
    here, there = reader.head(), chain.head
    if reader.hash_at(there.entries) != there.hash:
        what = "is missing" if here.entries < there.entries else "is not the one that was written"
        findings.add(f"entry {min(here.entries + 1, there.entries)}", f"{what}: {there.kept_in} has another history")
    kept, anchor = Heads(location, reader.store_id).read(), read_anchor(location.git_dir)
    for head in (*(kept.confirmed if kept else ()), *([anchor.head] if anchor else ())):
        if head.entries <= there.entries and chain.hashes[head.entries] != head.hash:
            findings.add(f"entry {head.entries}", f"in the bucket is not the one that {head.kept_in} names")
            break
    if here.entries > there.entries:
        waiting = here.entries - there.entries
        findings.note(
            f"{waiting} entries are not in the bucket yet: they go with the next run, or: phasegate audit push"
        )
