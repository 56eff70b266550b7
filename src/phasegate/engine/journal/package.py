"""Work packages in the journal: loaded from a feature's folder, and each one's events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.core.machine.package_events import (
    AnyPackageEvent,
    PackageLimits,
    PackagePrepared,
)
from phasegate.core.machine.package_machine import apply_package_event, fold_package_events
from phasegate.core.machine.package_state import PackageRun, PackageStep
from phasegate.core.plan.dependencies import compute_dependencies, find_plan_problems
from phasegate.core.plan.task_status import encode_task_statuses
from phasegate.core.plan.work_package import PackageState, WorkPackage, is_safe_slug
from phasegate.core.workflow.phases import PhaseWork, get_phase
from phasegate.engine.journal.entries import (
    PACKAGE_STEP,
    PLAN_LOADED,
    encode_package_step,
    encode_plan,
    read_package_step,
    read_plan,
)
from phasegate.engine.journal.unit_journal import DueStep, Transition
from phasegate.engine.project.ports import RecordReader, RunRecord
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, StateConflict
from phasegate.prompts.feature_folder import read_document_text
from phasegate.prompts.package_reader import load_package
from phasegate.storage.row_events import package_changed_event
from phasegate.storage.rows import NewEvent, PackageRow, RecordedEvent

MAX_PACKAGES_LISTED = 20


class PlannedPackage(NamedTuple):
    """A package of a feature, as it was loaded."""

    package: WorkPackage
    document: str
    waits_for: frozenset[str]


def load_plan(project: Project, record: RunRecord, folder: Path) -> list[WorkPackage]:
    """Put the packages of a feature's folder on record. What has begun keeps its state."""
    slug = folder.resolve().name
    if not is_safe_slug(slug):
        raise ConfigError(f"{slug!r} is not a feature folder", "name it like 001-user-login")

    paths = sorted((folder / "tasks").glob("WP*.md"))
    if not paths:
        raise ConfigError(
            f"{folder / 'tasks'} holds no WPnn.md",
            "write one a package, see `phasegate spec check`",
        )

    load_documents(project, record, slug, {path.stem: read_document_text(path) for path in paths})
    return [one.package for one in read_planned_packages(record, slug).values()]


def load_documents(
    project: Project, record: RunRecord, slug: str, documents: Mapping[str, str]
) -> None:
    """Put the packages of a feature on record, each given as the text of its WPnn.md.

    What is no plan is refused.
    """
    known = [row.id for row in record.packages(slug)]
    record.append_unconditionally(
        slug, project.now(), make_plan_events(slug, documents, known, project.now())
    )


def make_plan_events(
    slug: str, documents: Mapping[str, str], known_ids: Collection[str], ts: str
) -> list[NewEvent]:
    """The record of a plan, with a row for each package that is not known yet.

    What is no plan is refused.
    """
    packages = [load_package(text, f"{name}.md", slug) for name, text in documents.items()]
    names = [*documents]
    for at, problem in find_plan_problems(packages):
        raise ConfigError(
            f"{names[at]}.md: {problem.key} {problem.message}", "fix the plan, then load it again"
        )

    texts = {
        package.work_package_id: documents[name]
        for name, package in zip(names, packages, strict=True)
    }
    fresh = (package for package in packages if package.work_package_id not in known_ids)
    rows = [
        PackageRow(
            feature=slug,
            id=one.work_package_id,
            title=one.title,
            state=PackageState.PLANNED,
            since=ts,
            tasks=encode_task_statuses(one.tasks, {}),
        )
        for one in fresh
    ]

    return [encode_plan(texts), *map(package_changed_event, rows)]


def read_planned_packages(reader: RecordReader, slug: str) -> dict[str, PlannedPackage]:
    """The packages of a feature, by id."""
    loaded = [event for event in reader.events(slug) if event.kind == PLAN_LOADED]
    if not loaded:
        return {}
    return parse_planned_packages(slug, read_plan(loaded[-1].payload))


def parse_planned_packages(slug: str, documents: Mapping[str, str]) -> dict[str, PlannedPackage]:
    """The packages of these documents, by id."""
    packages = [load_package(text, f"{name}.md", slug) for name, text in documents.items()]
    waits_for = compute_dependencies(packages)
    return {
        p.work_package_id: PlannedPackage(
            p, documents[p.work_package_id], waits_for[p.work_package_id]
        )
        for p in packages
    }


def find_package(reader: RecordReader, package_id: str, feature: str | None) -> PlannedPackage:
    """The package of that id; the feature must be named when several have one."""
    if feature:
        features = [feature]
    else:
        features = reader.features()

    found = [
        every[package_id]
        for slug in features
        if slug and package_id in (every := read_planned_packages(reader, slug))
    ]
    if len(found) == 1:
        return found[0]

    if found:
        slugs = ", ".join(one.package.feature_slug for one in found)
        raise ConfigError(
            f"several features have a {package_id}", f"choose one with --feature: {slugs}"
        )

    known = [
        f"{slug} {name}"
        for slug in reader.features()
        if slug
        for name in read_planned_packages(reader, slug)
    ]

    if known:
        hint = f"there are: {', '.join(known[:MAX_PACKAGES_LISTED])}"
    else:
        hint = "load a plan: phasegate plan load kitty-specs/NNN-name"

    where = f" in {feature}" if feature else ""
    raise ConfigError(f"there is no package {package_id}{where}", hint)


def read_start_commits(reader: RecordReader, slug: str) -> dict[str, str]:
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
        self.slug = package.feature_slug
        self.work = package.work_package_id
        self._title = package.title
        self._tasks = package.tasks
        self._limits = limits
        self._phase = phase

    def read_event(self, recorded: RecordedEvent) -> AnyPackageEvent | None:
        if recorded.kind != PACKAGE_STEP:
            return None
        package, event = read_package_step(recorded.payload)
        if package == self.work:
            return event
        return None

    def encode_event(self, event: AnyPackageEvent) -> NewEvent:
        return encode_package_step(self.work, event)

    def fold(self, events: Iterable[AnyPackageEvent]) -> PackageRun:
        return fold_package_events(events, self._limits)

    def apply(self, state: PackageRun | None, event: AnyPackageEvent) -> PackageRun:
        return apply_package_event(state or PackageRun(limits=self._limits), event)

    def make_rows(
        self, transitions: Sequence[Transition[PackageRun, AnyPackageEvent]], ts: str
    ) -> Iterator[NewEvent]:
        if transitions and _row_fields(transitions[0].before) != _row_fields(transitions[-1].after):
            yield package_changed_event(self._make_row(transitions[-1].after, ts))

    def find_due_step(self, state: PackageRun) -> DueStep | None:
        if state.step is PackageStep.STOP:
            return None
        return DueStep(self._phase, state.step, state.round)

    def _make_row(self, run: PackageRun, ts: str) -> PackageRow:
        is_blocked = run.state is PackageState.BLOCKED
        if is_blocked:
            reason, remediation = (run.blocker.reason, run.blocker.remediation)
        else:
            reason, remediation = ("", "")

        tasks = encode_task_statuses(self._tasks, dict(run.tasks))
        return PackageRow(
            feature=self.slug,
            id=self.work,
            title=self._title,
            state=run.state,
            round=run.round,
            reason=reason,
            remediation=remediation,
            since=ts,
            tasks=tasks,
        )


def _row_fields(run: PackageRun | None) -> tuple[object, ...]:
    if run:
        return (run.state, run.round, run.blocker.reason, run.blocker.remediation, run.tasks)
    return ()


def refuse_if_not_ready(reader: RecordReader, planned: PlannedPackage) -> None:
    """A package starts when all that it waits for is DONE."""
    states = {row.id: row.state for row in reader.packages(planned.package.feature_slug)}
    missing = sorted(name for name in planned.waits_for if states.get(name) != PackageState.DONE)

    if missing:
        waits = ", ".join(f"{name} ({states.get(name, 'unknown')})" for name in missing)
        raise StateConflict(
            f"{planned.package.work_package_id} waits for {waits}", "dispatch those first"
        )


def find_package_phase(reader: RecordReader, feature: str) -> str:
    """The phase that a feature's packages are carried out in.

    Without a workflow, that of the shipped ones.
    """
    phases = next((row.phases.split() for row in reader.workflows() if row.feature == feature), [])
    return next(
        (key for key in phases if get_phase(key).work is PhaseWork.PACKAGES), "06-implementation"
    )


class PackageReport(NamedTuple):
    """Where a package stands when the dispatcher stops."""

    package: str
    feature: str
    state: PackageState
    round: int
    branch: str
    commit: str
    reason: str
    remediation: str
    # Of the pull request that there is; what an agent says of one is a claim
    pr_url: str = ""

    @property
    def accepted(self) -> bool:
        return self.state is PackageState.DONE
