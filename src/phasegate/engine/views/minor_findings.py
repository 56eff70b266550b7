"""List the minor findings of reviews that passed: no round fixes them."""

from __future__ import annotations

from collections.abc import Iterator

from phasegate.core.answer.prose import find_minor_findings
from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.machine.feature_events import JobEnded
from phasegate.core.machine.package_events import Reviewed
from phasegate.engine.journal.entries import (
    FEATURE_STEP,
    PACKAGE_STEP,
    read_feature_step,
    read_package_step,
)
from phasegate.engine.project.ports import RecordReader

MAX_LISTED = 20


def list_minor_findings(record: RecordReader, slug: str) -> tuple[str, ...]:
    """Return the minor findings of the passed reviews of a feature, each on one line."""
    found = [*dict.fromkeys(_find_all(record, slug))]
    if len(found) > MAX_LISTED:
        found[MAX_LISTED:] = [f"and {len(found) - MAX_LISTED} more"]
    return tuple(found)


def _find_all(record: RecordReader, slug: str) -> Iterator[str]:
    """Yield the minor findings of all reviews that passed."""
    for recorded in record.events(slug):
        # Most events are not verdicts, and decoding is slow
        if b'"PASS"' not in recorded.payload:
            continue

        if recorded.kind == PACKAGE_STEP:
            package, event = read_package_step(recorded.payload)
            if isinstance(event, Reviewed) and event.verdict is Verdict.PASS:
                yield from (f"{package}: {text}" for text in find_minor_findings(event.findings))
        elif recorded.kind == FEATURE_STEP:
            ended = read_feature_step(recorded.payload)
            if isinstance(ended, JobEnded) and ended.verdict is Verdict.PASS:
                yield from find_minor_findings(ended.text)
