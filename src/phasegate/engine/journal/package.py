"""Load work packages from a feature's folder, and keep the journal of each one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.core.display.status import ENDED_STAGE_NAMES
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
    SCOPE_ALLOWED,
    ScopeException,
    encode_package_step,
    encode_plan,
    read_package_step,
    read_plan,
)
from phasegate.engine.journal.unit_journal import DueStep, Transition
from phasegate.engine.project.ports import RecordReader, RunRecord
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, StateConflict
from phasegate.files.block_reader import reject_path_outside
from phasegate.prompts.feature_folder import UnreadableDocument, read_document_text
from phasegate.prompts.package_reader import load_package
from phasegate.storage.row_events import package_changed_event
from phasegate.storage.rows import NewEvent, PackageRow, RecordedEvent
from phasegate.typed import read_json

MAX_PACKAGES_LISTED = 20


class PlannedPackage(NamedTuple):
    """A loaded package of a feature."""

    package: WorkPackage
    document: str
    waits_for: frozenset[str]


def load_plan(project: Project, record: RunRecord, folder: Path) -> list[WorkPackage]:
    """Record the packages of a feature's folder. Packages that have started keep their state."""
    slug = folder.resolve().name
    if not is_safe_slug(slug):
        raise ConfigError(f"{slug!r} is not a feature folder", "name it like 001-user-login")

    paths = sorted((folder / "tasks").glob("WP*.md"))
    if not paths:
        raise ConfigError(
            f"{folder / 'tasks'} contains no WPnn.md",
            "write one per package, see `phasegate spec check`",
        )

    documents = {path.stem: _read_document(project, path) for path in paths}
    load_documents(project, record, slug, documents)
    return [one.package for one in read_planned_packages(record, slug).values()]


def _read_document(project: Project, path: Path) -> str:
    reject_path_outside(project.root, path)
    try:
        return read_document_text(path)
    except UnreadableDocument as error:
        raise ConfigError(f"{path} {error}", "replace it with a UTF-8 text file") from error


def load_documents(
    project: Project, record: RunRecord, slug: str, documents: Mapping[str, str]
) -> None:
    """Record the packages of a feature from the texts of their WPnn.md; refuse an invalid plan."""
    known = [row.id for row in record.packages(slug)]
    record.append_unconditionally(
        slug, project.now(), make_plan_events(slug, documents, known, project.now())
    )


def make_plan_events(
    slug: str, documents: Mapping[str, str], known_ids: Collection[str], ts: str
) -> list[NewEvent]:
    """Make the events of a plan, with a row for every new package; refuse an invalid plan."""
    packages = [load_package(text, f"{name}.md", slug) for name, text in documents.items()]
    names = [*documents]
    for index, problem in find_plan_problems(packages):
        raise ConfigError(
            f"{names[index]}.md: {problem.key} {problem.message}",
            "fix the plan, then load it again",
        )

    texts = {
        package.work_package_id: documents[name]
        for name, package in zip(names, packages, strict=True)
    }
    rows = [
        PackageRow(
            feature=slug,
            id=package.work_package_id,
            title=package.title,
            state=PackageState.PLANNED,
            since=ts,
            tasks=encode_task_statuses(package.tasks, {}),
        )
        for package in packages
        if package.work_package_id not in known_ids
    ]

    return [encode_plan(texts), *map(package_changed_event, rows)]


def read_planned_packages(reader: RecordReader, slug: str) -> dict[str, PlannedPackage]:
    """Return the packages of the last loaded plan, by id."""
    loaded = [event for event in reader.events(slug) if event.kind == PLAN_LOADED]
    if not loaded:
        return {}
    return parse_planned_packages(slug, read_plan(loaded[-1].payload))


def parse_planned_packages(slug: str, documents: Mapping[str, str]) -> dict[str, PlannedPackage]:
    """Parse package documents; return the packages by id."""
    packages = [load_package(text, f"{name}.md", slug) for name, text in documents.items()]
    waits_for = compute_dependencies(packages)
    return {
        package.work_package_id: PlannedPackage(
            package, documents[package.work_package_id], waits_for[package.work_package_id]
        )
        for package in packages
    }


def find_package(reader: RecordReader, package_id: str, feature: str | None) -> PlannedPackage:
    """Return the package with an id.

    `feature` is required if several features have a package with this id. Those whose workflow
    has ended do not count while there is another.
    """
    if feature:
        features = [feature]
    else:
        features = reader.features()

    plans = [read_planned_packages(reader, slug) for slug in features if slug]
    matches = [plan[package_id] for plan in plans if package_id in plan]
    if len(matches) > 1:
        ended = {row.feature for row in reader.workflows() if row.stage in ENDED_STAGE_NAMES}
        open_ = [planned for planned in matches if planned.package.feature_slug not in ended]
        matches = open_ or matches
    if len(matches) == 1:
        return matches[0]

    if matches:
        slugs = ", ".join(planned.package.feature_slug for planned in matches)
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
        hint = f"available: {', '.join(known[:MAX_PACKAGES_LISTED])}"
    else:
        hint = "load a plan: phasegate plan load kitty-specs/NNN-name"

    where = f" in {feature}" if feature else ""
    raise ConfigError(f"there is no package {package_id}{where}", hint)


def read_start_commits(reader: RecordReader, slug: str) -> dict[str, str]:
    """Return the start commit of every package of a feature."""
    start_commits: dict[str, str] = {}

    for recorded in reader.events(slug):
        if recorded.kind == PACKAGE_STEP:
            package, event = read_package_step(recorded.payload)
            if isinstance(event, PackagePrepared):
                start_commits.setdefault(package, event.base)

    return start_commits


class PackageUnit:
    """A package as a unit of work."""

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
        """Create the row that the views read for a package."""
        is_blocked = run.state is PackageState.BLOCKED
        return PackageRow(
            feature=self.slug,
            id=self.work,
            title=self._title,
            state=run.state,
            round=run.round,
            reason=run.blocker.reason if is_blocked else "",
            remediation=name_package(run.blocker.remediation, self.work) if is_blocked else "",
            since=ts,
            tasks=encode_task_statuses(self._tasks, dict(run.tasks)),
        )


def name_package(remedy: str, package: str) -> str:
    """Return a remedy with the name of its package, so that its commands can be pasted."""
    return remedy.replace("WPnn", package)


def _row_fields(run: PackageRun | None) -> tuple[object, ...]:
    if run:
        return (run.state, run.round, run.blocker.reason, run.blocker.remediation, run.tasks)
    return ()


def refuse_if_not_ready(reader: RecordReader, planned: PlannedPackage) -> None:
    """Refuse to start a package before its dependencies are DONE."""
    states = {row.id: row.state for row in reader.packages(planned.package.feature_slug)}
    missing = sorted(name for name in planned.waits_for if states.get(name) != PackageState.DONE)

    if missing:
        waits = ", ".join(f"{name} ({states.get(name, 'unknown')})" for name in missing)
        raise StateConflict(
            f"{planned.package.work_package_id} depends on {waits}", "dispatch those first"
        )


def was_path_allowed(reader: RecordReader, slug: str, package: str) -> bool:
    """Return True if the user has allowed a path since the last step of a package."""
    allowed = False
    for event in reader.events(slug):
        if event.kind == PACKAGE_STEP and read_package_step(event.payload)[0] == package:
            allowed = False
        elif event.kind == SCOPE_ALLOWED:
            exception = read_json(event.payload, ScopeException)
            allowed = allowed or exception.package == package

    return allowed


def find_package_phase(reader: RecordReader, feature: str) -> str:
    """Return the phase in which a feature's packages run; the default phase without a workflow."""
    phases = next((row.phases.split() for row in reader.workflows() if row.feature == feature), [])
    return next(
        (key for key in phases if get_phase(key).work is PhaseWork.PACKAGES), "06-implementation"
    )


class PackageReport(NamedTuple):
    """The state of a package when the dispatcher stops."""

    package: str
    feature: str
    state: PackageState
    round: int
    branch: str
    commit: str
    reason: str
    remediation: str
    # URL of the pull request that Phasegate created; a URL from an agent is only a claim
    pr_url: str = ""

    @property
    def accepted(self) -> bool:
        return self.state is PackageState.DONE
