"""Work packages in the journal: loaded from a feature's folder, and each one's events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.core.machine.package_events import (
    PackageHappened,
    PackageLimits,
    PackagePrepared,
)
from phasegate.core.machine.package_machine import PackageStep, Run, apply, fold
from phasegate.core.plan.dependencies import needs, plan_problems
from phasegate.core.plan.task_status import as_line
from phasegate.core.plan.work_package import State, WorkPackage, slug_is_safe
from phasegate.core.workflow.phases import Work, phase_of
from phasegate.engine.journal.entries import (
    PACKAGE_STEP,
    PLAN_LOADED,
    loaded_plan,
    package_step,
    read_package_step,
    read_plan,
)
from phasegate.engine.journal.unit_journal import Due, Transition
from phasegate.engine.project.ports import RecordReader, RunRecord
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, StateConflict
from phasegate.prompts.feature_folder import read_text
from phasegate.prompts.package_reader import load
from phasegate.storage.row_events import package_changed
from phasegate.storage.rows import Event, Package, Recorded

MOST_LISTED = 20


class PlannedPackage(NamedTuple):
    """A package of a feature, as it was loaded."""

    package: WorkPackage
    document: str
    waits_for: frozenset[str]


def load_plan(project: Project, record: RunRecord, folder: Path) -> list[WorkPackage]:
    """Put the packages of a feature's folder on record. What has begun keeps its state."""
    slug = folder.resolve().name
    if not slug_is_safe(slug):
        raise ConfigError(f"{slug!r} is not a feature folder", "name it like 001-user-login")
    paths = sorted((folder / "tasks").glob("WP*.md"))
    if not paths:
        raise ConfigError(f"{folder / 'tasks'} holds no WPnn.md", "write one a package, see `phasegate spec check`")
    load_documents(project, record, slug, {path.stem: read_text(path) for path in paths})
    return [one.package for one in planned(record, slug).values()]


def load_documents(project: Project, record: RunRecord, slug: str, documents: Mapping[str, str]) -> None:
    """Put the packages of a feature on record, each given as the text of its WPnn.md. What is no plan is refused."""
    known = [row.id for row in record.packages(slug)]
    record.append_now(slug, project.now(), plan_loaded(slug, documents, known, project.now()))


def plan_loaded(slug: str, documents: Mapping[str, str], known: Collection[str], ts: str) -> list[Event]:
    """The record of a plan, with a row for each package that is not known yet. What is no plan is refused."""
    packages = [load(text, f"{name}.md", slug) for name, text in documents.items()]
    names = [*documents]
    for at, problem in plan_problems(packages):
        raise ConfigError(f"{names[at]}.md: {problem.key} {problem.message}", "fix the plan, then load it again")
    texts = {package.work_package_id: documents[name] for name, package in zip(names, packages, strict=True)}
    fresh = (package for package in packages if package.work_package_id not in known)
    rows = [
        Package(slug, one.work_package_id, one.title, State.PLANNED, since=ts, tasks=as_line(one.tasks, {}))
        for one in fresh
    ]
    return [loaded_plan(texts), *map(package_changed, rows)]


def planned(reader: RecordReader, slug: str) -> dict[str, PlannedPackage]:
    """The packages of a feature, by id."""
    loaded = [event for event in reader.events(slug) if event.kind == PLAN_LOADED]
    if not loaded:
        return {}
    return planned_in(slug, read_plan(loaded[-1].payload))


def planned_in(slug: str, documents: Mapping[str, str]) -> dict[str, PlannedPackage]:
    """The packages of these documents, by id."""
    packages = [load(text, f"{name}.md", slug) for name, text in documents.items()]
    waits_for = needs(packages)
    return {
        p.work_package_id: PlannedPackage(p, documents[p.work_package_id], waits_for[p.work_package_id])
        for p in packages
    }


def find_package(reader: RecordReader, wanted: str, feature: str | None) -> PlannedPackage:
    """The package of that id; the feature must be named when several have one."""
    features = [feature] if feature else reader.features()
    found = [every[wanted] for slug in features if slug and wanted in (every := planned(reader, slug))]
    if len(found) == 1:
        return found[0]
    if found:
        slugs = ", ".join(one.package.feature_slug for one in found)
        raise ConfigError(f"several features have a {wanted}", f"choose one with --feature: {slugs}")
    known = [f"{slug} {name}" for slug in reader.features() if slug for name in planned(reader, slug)]
    hint = (
        f"there are: {', '.join(known[:MOST_LISTED])}"
        if known
        else "load a plan: phasegate plan load kitty-specs/NNN-name"
    )
    where = f" in {feature}" if feature else ""
    raise ConfigError(f"there is no package {wanted}{where}", hint)


def beginnings(reader: RecordReader, slug: str) -> dict[str, str]:
    """The commit from which each package of a feature was begun, by package."""
    found: dict[str, str] = {}
    for recorded in reader.events(slug):
        if recorded.kind == PACKAGE_STEP:
            package, event = read_package_step(recorded.payload)
            if isinstance(event, PackagePrepared):
                found.setdefault(package, event.base)
    return found


class PackageUnit:
    """A package, for its journal."""

    def __init__(self, package: WorkPackage, limits: PackageLimits, phase: str) -> None:
        self.slug, self.work = package.feature_slug, package.work_package_id
        self._title, self._tasks, self._limits, self._phase = package.title, package.tasks, limits, phase

    def read(self, recorded: Recorded) -> PackageHappened | None:
        if recorded.kind != PACKAGE_STEP:
            return None
        package, event = read_package_step(recorded.payload)
        return event if package == self.work else None

    def write(self, event: PackageHappened) -> Event:
        return package_step(self.work, event)

    def fold(self, events: Iterable[PackageHappened]) -> Run:
        return fold(events, self._limits)

    def apply(self, state: Run | None, event: PackageHappened) -> Run:
        return apply(state or Run(limits=self._limits), event)

    def rows(self, taken: Sequence[Transition[Run, PackageHappened]], ts: str) -> Iterator[Event]:
        if taken and _shown(taken[0].before) != _shown(taken[-1].after):
            yield package_changed(self._row(taken[-1].after, ts))

    def due(self, state: Run) -> Due | None:
        return None if state.step is PackageStep.STOP else Due(self._phase, state.step, state.round)

    def _row(self, run: Run, ts: str) -> Package:
        is_blocked = run.state is State.BLOCKED
        reason, remediation = (run.reason, run.remediation) if is_blocked else ("", "")
        tasks = as_line(self._tasks, dict(run.tasks))
        return Package(self.slug, self.work, self._title, run.state, run.round, reason, remediation, ts, tasks)


def _shown(run: Run | None) -> tuple[object, ...]:
    return (run.state, run.round, run.reason, run.remediation, run.tasks) if run else ()


def refuse_unready(reader: RecordReader, one: PlannedPackage) -> None:
    """A package starts when all that it waits for is DONE."""
    states = {row.id: row.state for row in reader.packages(one.package.feature_slug)}
    missing = sorted(name for name in one.waits_for if states.get(name) != State.DONE)
    if missing:
        waits = ", ".join(f"{name} ({states.get(name, 'unknown')})" for name in missing)
        raise StateConflict(f"{one.package.work_package_id} waits for {waits}", "dispatch those first")


def phase_of_packages(reader: RecordReader, feature: str) -> str:
    """The phase that a feature's packages are carried out in; without a workflow, that of the shipped ones."""
    phases = next((row.phases.split() for row in reader.workflows() if row.feature == feature), [])
    return next((key for key in phases if phase_of(key).work is Work.PACKAGES), "06-implementation")


class PackageReport(NamedTuple):
    """Where a package stands when the dispatcher stops."""

    package: str
    feature: str
    state: State
    round: int
    branch: str
    commit: str
    reason: str
    remediation: str
    pr_url: str = ""  # of the pull request that there is; what an agent says of one is a claim

    @property
    def accepted(self) -> bool:
        return self.state is State.DONE
