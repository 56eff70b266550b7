"""Verify the copy in a bucket (`audit verify --remote`).

The copy is checked by itself and, if there is a local store, against that store. The bucket alone
is enough: it has the chain, trails and documents with their hashes. A missing page, trail or
document is a problem, just like a changed one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from phasegate.core.audit.chain import ChainHead, ChainLink, find_first_break
from phasegate.core.audit.trail import scan_trail
from phasegate.core.audit.trail import trail_origin_hash as trail_origin
from phasegate.core.paths.artifact_path import find_slug_problem
from phasegate.errors import StateConflict
from phasegate.storage.bucket.client import Bucket
from phasegate.storage.bucket.copier import (
    CHAIN_FOLDER,
    DOCUMENTS_FOLDER,
    chain_log,
    trail_object_path,
)
from phasegate.storage.bucket.journal import (
    JOURNAL_FOLDER,
    JournalEnds,
    LastReadPages,
    feature_from_folder,
    heads_log,
    journal_log,
)
from phasegate.storage.bucket.numbered_log import NumberedLog, decode_entries
from phasegate.storage.chain_heads import ChainHeadsFile
from phasegate.storage.git_anchor import read_anchor
from phasegate.storage.location import Location
from phasegate.storage.reader import StoreReader, open_store_reader
from phasegate.storage.row_events import decode_row
from phasegate.storage.rows import TrailSeal
from phasegate.storage.verify_audit import AuditReport, Findings, check_sealed_trail, make_report

_MAX_ATTEMPTS = 3
_RETRY_DELAY_S = 0.3


def verify_bucket(
    bucket: Bucket,
    location: Location | None,
    fleet_buckets: Sequence[Bucket] | None = None,
    seen: LastReadPages | None = None,
) -> AuditReport:
    """Verify the records in a bucket.

    If the repository has a store, only its own record is verified, otherwise all records. A failed
    check is repeated, because another process may be copying, and a trail is written before its
    page.

    `fleet_buckets` have the records of fleets, by default `bucket` itself. `seen` is what this
    machine has read from the only one of them: a bucket that was restored from an older copy lacks
    some of it.
    """
    for number in range(_MAX_ATTEMPTS):
        report = _verify_once(
            bucket, location, (bucket,) if fleet_buckets is None else fleet_buckets, seen
        )
        if report.ok:
            break
        if number + 1 < _MAX_ATTEMPTS:
            time.sleep(_RETRY_DELAY_S)

    return report


def _verify_once(
    bucket: Bucket,
    location: Location | None,
    fleet_buckets: Sequence[Bucket],
    seen: LastReadPages | None,
) -> AuditReport:
    """Verify chain, journals and trails of the bucket; return the report."""
    findings = Findings()
    reader = open_store_reader(location) if location else None
    if reader:
        stores = [reader.store_id]
    else:
        stores = [name for name in bucket.list_folders(CHAIN_FOLDER) if not find_slug_problem(name)]

    chains = list[_BucketChain]()
    for fleet_bucket in fleet_buckets:
        chains += _verify_journals(fleet_bucket, findings, seen)

    for store in stores:
        chain = _BucketChain(bucket, chain_log(bucket, store), findings)
        chains.append(chain)
        if reader and location:
            with reader:
                _compare_with_local_store(location, reader, chain, findings)

    trails = sum(chain.check_contents() for chain in chains)
    entries = sum(chain.head.entries for chain in chains)
    if not entries and not findings.problems:
        findings.add_problem(
            "entry 1",
            f"is missing: nothing of {'this' if reader else 'any'} repository is in"
            f" {bucket.address}",
        )

    return make_report(findings, entries, trails)


def _verify_journals(
    bucket: Bucket, findings: Findings, seen: LastReadPages | None
) -> Iterator[_BucketChain]:
    """Verify the journals of a fleet against the heads and the ends seen before."""
    journals = {}
    for folder in bucket.list_folders(JOURNAL_FOLDER):
        feature = feature_from_folder(folder)
        log = journal_log(bucket, feature)
        journals[feature] = _BucketChain(bucket, log, findings, f"journal {folder} ")

    heads = _check_heads(bucket, journals, findings)
    if seen is not None:
        pages = {name: tuple(chain.page_hashes) for name, chain in journals.items()}
        for place in find_lost_pages(seen, heads, pages):
            findings.add_problem(
                place,
                f"was seen here before, but {bucket.address} no longer has it: the bucket was "
                "restored from an older copy, or rewritten",
            )

    yield from journals.values()


def find_lost_pages(
    seen: LastReadPages, heads: Sequence[str], journals: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield the places of the pages that were seen before and are not there any more.

    `heads` and the values of `journals` are the hashes of all pages, by number from 0.
    """
    ends = {"heads": seen.heads, **{f"journal {name}": end for name, end in seen.journals.items()}}
    present = {"heads": heads, **{f"journal {name}": pages for name, pages in journals.items()}}

    for place, (number, digest) in sorted(ends.items()):
        pages = present.get(place, ())
        if number and (number >= len(pages) or pages[number] != digest):
            yield f"{place} page {number}"


class _BucketChain:
    """A chain in a bucket, of a repository or of a feature, read from its first page to its last.

    `label` comes before the places of its problems.
    """

    def __init__(
        self, bucket: Bucket, log: NumberedLog, findings: Findings, label: str = ""
    ) -> None:
        self._bucket = bucket
        self._log = log
        self._findings = findings
        self._label = label
        self.hashes = [log.origin_head.hash]
        self.page_hashes = [log.origin_head.hash]
        self._seals: dict[str, TrailSeal] = {}
        self._document_hashes: set[str] = set()
        if broken := find_first_break(log.origin_head.hash, self._links(), (), ()):
            findings.add_first_problem(
                f"{label}entry {broken.position}", f"{broken.why} (in the bucket)"
            )

    @property
    def head(self) -> ChainHead:
        return ChainHead(len(self.hashes) - 1, self.hashes[-1], str(self._bucket.address))

    def _links(self) -> Iterator[ChainLink]:
        """Yield the links of all pages, and collect problems, seals and documents."""
        try:
            for kept in self._log.pages_after():
                page = decode_entries(kept)
                self.page_hashes.append(kept.head.hash)
                self._document_hashes |= {*page.documents}
                for text in page.lacking:
                    self._add_problem(kept.page.n, f"is incomplete: {text}")

                for entry in page.entries:
                    row = decode_row(entry.feature, entry.kind, entry.payload.encode())
                    if isinstance(row, TrailSeal):
                        self._seals[row.job] = row

                    self.hashes.append(entry.hash)
                    yield entry.link
        except (StateConflict, ValueError) as error:
            self._add_problem(len(self.page_hashes), str(error))

    def _add_problem(self, page: int, why: str) -> None:
        self._findings.add_problem(f"{self._label}page {page}", why)

    def check_contents(self) -> int:
        """Check every trail against its last seal, and every document against its hash.

        Return the number of trails.
        """
        for seal in self._seals.values():
            _check_trail(self._bucket, seal, self._findings)

        for digest in sorted(self._document_hashes):
            stored = self._bucket.get(f"{DOCUMENTS_FOLDER}/{digest}")
            if stored is None:
                self._findings.add_problem(f"document {digest}", "is missing in the bucket")
            elif sha256(stored.data).hexdigest() != digest:
                self._findings.add_problem(f"document {digest}", "was changed in the bucket")

        return len(self._seals)


def _check_trail(bucket: Bucket, seal: TrailSeal, findings: Findings) -> None:
    """Compare a trail of the bucket with its seal."""
    key = seal.feature, seal.job
    found = bucket.get(trail_object_path(*key))
    if found:
        reading = scan_trail(found.data, trail_origin(*key))
    else:
        reading = None

    if reading and not reading.broken and reading.lines > seal.lines:
        why = "lines were added; or a copy is in progress, then verify again later"
        findings.add_problem(
            f"trail {'/'.join(key)} line {seal.lines + 1}", f"is not covered by the chain: {why}"
        )
    else:
        check_sealed_trail(key, reading, seal, findings)


def _check_heads(
    bucket: Bucket, journals: Mapping[str, _BucketChain], findings: Findings
) -> list[str]:
    """Check that every journal contains every chain head that was written for it.

    Return the hashes of the heads, by number.
    """
    log = heads_log(bucket)
    hashes = [log.origin_head.hash]
    try:
        for kept in log.pages_after():
            hashes.append(kept.head.hash)
            for feature, (page, digest) in kept.decode_body(JournalEnds).items():
                known = journals[feature].page_hashes if feature in journals else ()
                if page >= len(known) or known[page] != digest:
                    findings.add_problem(
                        f"journal {feature} page {page}",
                        f"is not the one that head {kept.page.n} names",
                    )
    except StateConflict as error:
        findings.add_problem("heads", str(error))

    return hashes


def _compare_with_local_store(
    location: Location, reader: StoreReader, chain: _BucketChain, findings: Findings
) -> None:
    """Check that the copy is a prefix of the local chain, and contains every local chain head."""
    here = reader.chain_head()
    there = chain.head

    if reader.chain_hash_at(there.entries) != there.hash:
        if here.entries < there.entries:
            what = "is missing"
        else:
            what = "is not the one that was written"

        findings.add_problem(
            f"entry {min(here.entries + 1, there.entries)}",
            f"{what}: {there.kept_in} has a different history",
        )

    kept = ChainHeadsFile(location, reader.store_id).read()
    anchor = read_anchor(location.git_dir)

    for head in (*(kept.confirmed if kept else ()), *([anchor.head] if anchor else ())):
        if head.entries <= there.entries and chain.hashes[head.entries] != head.hash:
            findings.add_problem(
                f"entry {head.entries}", f"in the bucket is not the one that {head.kept_in} names"
            )
            break

    if here.entries > there.entries:
        waiting = here.entries - there.entries
        findings.add_note(
            f"{waiting} entries are not in the bucket yet: the next run copies them, or: phasegate"
            " audit push"
        )
