"""The manifest of harvested work, and what its agents said about it held against what was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phasegate.engine.claims import hold_against
from phasegate.engine.harvesting import write_remarks
from phasegate.engine.job_notes import JobNotes
from phasegate.engine.phase_checks import seconds_of
from phasegate.engine.steps import Claimed, Did, UnitWorker
from phasegate.engine.validation import Checker, describe, failures_of
from phasegate.engine.workplace import Workplace
from phasegate.rules.package_events import PackageHappened, Validated, failure_key
from phasegate.rules.retry import Fault


def validate(
    place: Workplace, round_: int, commit: str, said: Iterable[Claimed], workers: Sequence[UnitWorker]
) -> tuple[Validated, Did[PackageHappened]]:
    """Check a commit of a package, or of an attempt at it: what was found, and all that is to be recorded with it."""
    notes = JobNotes(place.project, workers)
    checker = Checker(place.project, place.package, place.start())
    evidence = checker.check(commit)
    found = hold_against(place, said, checker, evidence)
    paper = place.project.papers.put(describe(evidence).encode(), place.paper_name(round_))
    notes.checks(evidence, commit, paper)
    for job, claims in found.false:
        notes.false_claims(job, claims)
    lacking = tuple(check.name for check in evidence.failures if check.fault is Fault.NO_PROGRAM)
    failures = failures_of(evidence)
    event = Validated(
        commit,
        failures,
        lacking,
        paper,
        write_remarks(place.project, found.remarks, place.paper_name(round_, ".claims")),
        failure_key("\n".join(failures)) if failures else "",
    )
    return event, Did((event,), found.rows, found.remarks, seconds_of(evidence), notes.all)
