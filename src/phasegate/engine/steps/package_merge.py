"""A package's work into its feature's branch: merged on paper, checked as merged, then the ref moves."""

from __future__ import annotations

from collections.abc import Sequence

from phasegate.core.machine.package_events import PackageHappened, PackageMerged, PackageNotMerged
from phasegate.engine.checks.manifest import Checker, describe, failures_of
from phasegate.engine.jobs.step import Did, UnitWorker
from phasegate.engine.jobs.trail_notes import JobNotes
from phasegate.engine.steps.harvest import named
from phasegate.engine.steps.workplace import Workplace
from phasegate.errors import StateConflict
from phasegate.prompts.shipped_texts import note
from phasegate.workspace.merge import AlreadyMerged, Conflict, Prepared, prepare_merge

MOST_TRIES = 20


def merge(place: Workplace, workers: Sequence[UnitWorker]) -> Did[PackageHappened]:
    """Merge a package's work into its feature's branch, by compare and swap."""
    notes = JobNotes(place.project, workers)
    for _ in range(MOST_TRIES):
        if (done := _try_to_merge(place, notes)) is not None:
            return Did((done,), trail=notes.all)
    raise StateConflict(f"feat/{place.package.feature_slug} keeps moving", "dispatch again")


def prepare(place: Workplace, notes: JobNotes) -> Prepared | PackageMerged | PackageNotMerged:
    """A package merged with its feature's branch on paper, and checked so."""
    package, repository, target = place.package, place.project.repository, f"feat/{place.package.feature_slug}"
    made = prepare_merge(repository, package.branch, target, _message(place), place.signature())
    if isinstance(made, AlreadyMerged):
        return PackageMerged(made.commit)
    if isinstance(made, Conflict):
        for index in range(place.count):
            place.renew(index)
        return PackageNotMerged(note("conflict", TARGET=target, REASON=f"conflicts in {named(made.paths)}"))
    if made.expected != place.start():
        # Measured from where the branch is now: what others merged meanwhile is not this package's to answer for.
        evidence = Checker(place.project, package, made.expected).check(made.commit)
        notes.checks(evidence, made.commit, place.project.papers.put(describe(evidence).encode()))
        if not evidence.passed:
            return PackageNotMerged("\n".join(failures_of(evidence)))
    return made


def _message(place: Workplace) -> str:
    return f"{place.package.work_package_id}: merge into feat/{place.package.feature_slug}\n"


def _try_to_merge(place: Workplace, notes: JobNotes) -> PackageMerged | PackageNotMerged | None:
    """None if the ref has moved in the meantime."""
    made = prepare(place, notes)
    if not isinstance(made, Prepared):
        return made
    if not place.project.refs.move(made.target, made.expected, made.commit):
        return None
    notes.merged(made.commit, _message(place))
    return PackageMerged(made.commit)
