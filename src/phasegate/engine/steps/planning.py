"""Derive work packages from a feature's plan, and a fix package from findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, count
from typing import NamedTuple

from msgspec.structs import replace

from phasegate.core.machine.feature_events import AnyFeatureEvent, PackagesPlanned
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.consistency import SPEC_FILE
from phasegate.core.plan.dependencies import find_plan_problems
from phasegate.core.plan.planning import plan_packages, read_guidance
from phasegate.core.plan.tasks import TaskList, parse_tasks
from phasegate.core.plan.work_package import Deliverables, PackageState, WorkPackage
from phasegate.core.workflow.phases import TASKS_FILE, PhaseWork
from phasegate.core.workflow.workflow_phases import gate_name
from phasegate.engine.checks.manifest import choose_profile
from phasegate.engine.jobs.step import StepContext, StepResult
from phasegate.engine.journal.package import (
    PlannedPackage,
    make_plan_events,
    parse_planned_packages,
)
from phasegate.engine.project.agents import choose_agent
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.engine.steps.package_document import build_package_plan
from phasegate.engine.steps.spec_update import stamp_specification
from phasegate.errors import ConfigError
from phasegate.prompts.front_matter import read_yaml
from phasegate.prompts.package_reader import load_package
from phasegate.prompts.package_writer import render_package
from phasegate.prompts.profiles import Profile
from phasegate.prompts.shipped_texts import render_note
from phasegate.storage.row_events import package_changed_event
from phasegate.workspace.repository.commit_log import list_blobs, list_changed_paths
from phasegate.workspace.repository.repository import resolve_commit

_MAX_PROBLEMS = 20


class PackagePlanner(NamedTuple):
    """Planner of one feature's packages, on the feature's branch."""

    project: Project
    feature: Feature
    context: StepContext

    @property
    def branch(self) -> FeatureBranch:
        return FeatureBranch(self.project, self.feature.workflow.feature)

    @property
    def _feature_title(self) -> str:
        """Return the first line of the description; the text of an issue has more."""
        return " ".join(self.feature.description.partition("\n")[0].split())

    def make_packages(self) -> StepResult[AnyFeatureEvent]:
        """Create the packages of the plan; existing packages stay unchanged."""
        known = parse_planned_packages(self.branch.slug, self.context.package_documents)
        if known and self.feature.packages:
            return StepResult((_planned_event(known),))

        texts = self._stamp_changes(self.branch.read_documents(self.branch.list_documents()))
        # Packages that the user wrote, instead of a list of tasks
        written = {
            name.removeprefix("tasks/").removesuffix(".md"): text
            for name, text in texts.items()
            if name.startswith("tasks/WP") and name.endswith(".md")
        }
        if TASKS_FILE not in texts and written:
            return self._load_documents(written)

        tasks = parse_tasks(texts.get(TASKS_FILE, ""), read_yaml)
        if problems := describe_task_problems(tasks):
            return StepResult((PackagesPlanned({}, problems),))

        packages = self._packages_from_tasks(tasks, texts)
        if known:
            return self._load_documents(self._replan(packages, texts, known))
        return self._load_documents(self._write_documents(packages, texts))

    def _stamp_changes(self, texts: dict[str, str]) -> dict[str, str]:
        """Record in the specification which texts its changes of requirements start from."""
        stamped = stamp_specification(self.branch, texts.get(SPEC_FILE, ""))
        if stamped == texts.get(SPEC_FILE, ""):
            return texts

        self.branch.commit_files(
            {f"{self.branch.folder}/{SPEC_FILE}": stamped.encode()},
            f"{self.feature.phase.key}: what the changes of requirements start from\n",
        )
        return {**texts, SPEC_FILE: stamped}

    def _replan(
        self,
        packages: Iterable[WorkPackage],
        texts: Mapping[str, str],
        existing: Mapping[str, PlannedPackage],
    ) -> dict[str, str]:
        """Return the package documents of a changed plan.

        A package with the same content keeps its number and its result, so finished work is not
        repeated. Other packages get new numbers, so that no number ever has two meanings.
        """
        slug = self.branch.slug
        old_contents = [
            (_comparable_content(old.document, slug), name) for name, old in existing.items()
        ]
        planned = {package.work_package_id: package for package in packages}
        next_number = count(1 + max(old.package.sequence for old in existing.values()))

        # The name of every planned package: the one of an equal old package, or a new one.
        names = {}
        kept = {}
        amended = set()
        for name, document in self._render_documents(planned.values(), texts).items():
            content = _comparable_content(document, slug)
            same = next((old_name for old, old_name in old_contents if old == content), "")
            names[name] = same or f"WP{next(next_number):02}"
            if same:
                kept[same] = existing[same].document
            elif any(old[0] == content[0] for old, _ in old_contents):
                amended.add(names[name])

        renumbered = [_renumber(one, names) for one in planned.values()]
        # A kept package waits for what replaces its dependency
        new = [
            one
            for one in renumbered
            if one.work_package_id not in kept
            or {*one.dependencies} != {*existing[one.work_package_id].package.dependencies}
        ]
        # The text of a requirement decides which of the existing files change
        new = [_allow_unchanged(one) if one.work_package_id in amended else one for one in new]
        return {**kept, **(self._write_documents(new, texts) if new else {})}

    def add_fix_package(self) -> StepResult[AnyFeatureEvent]:
        """Add a package that fixes the gate's findings, with the joint scope of all packages."""
        known = parse_planned_packages(self.branch.slug, self.context.package_documents)
        waiting = [
            name
            for name, one in known.items()
            if one.package.title == self._fix_title and not self._is_in_feature(name)
        ]
        if waiting:
            return StepResult((_planned_event(known),))

        package = self._make_fix_package([one.package for one in known.values()])
        texts = self.branch.read_documents(self.branch.list_documents())
        documents = {name: one.document for name, one in known.items() if self._is_in_feature(name)}

        return self._load_documents({**documents, **self._write_documents([package], texts)})

    @property
    def _fix_title(self) -> str:
        feature = self.feature
        note = "asked_title" if self._is_requested_by_user else "fix_title"
        if not feature.closing:
            number = feature.workflow.round - 1
        elif self._is_sent_back:
            number = len(feature.packages)
        else:
            number = len(feature.remarks)

        return f"{render_note(note, GATE=self._finding_source)} ({number})"

    @property
    def _finding_source(self) -> str:
        """Return the source of the findings: a gate, a pull request or the merge."""
        pull = self.feature.pull
        if self._is_sent_back:
            return f"merge into {self.feature.base}"
        if self.feature.closing and pull:
            return f"pull request {pull.number}"

        return gate_name(self.feature.phase.key)

    @property
    def _is_sent_back(self) -> bool:
        """Return whether the findings come from the checks of the merged tree."""
        return self.feature.closing and self.feature.sent_back and not self.feature.unanswered

    @property
    def _is_requested_by_user(self) -> bool:
        """Return whether the user requested more work: only a user returns a feature to its
        packages.
        """
        return self.feature.phase.work is PhaseWork.PACKAGES and not self.feature.closing

    def _is_in_feature(self, name: str) -> bool:
        return name in self.feature.packages

    def _make_fix_package(self, packages: Iterable[WorkPackage]) -> WorkPackage:
        """Return a package that fixes the findings; it may change whatever the others may.

        Profile and checks come from the first package: packages planned from tasks share them.
        Files that every package freezes stay frozen.
        """
        others = list(packages)
        number = 1 + max(one.sequence for one in others)
        kinds = {
            kind: _join_lists(getattr(one.deliverables, kind) for one in others)
            for kind in ("code", "tests", "documentation")
        }

        findings = "\n\n".join(
            part for part in (self.feature.findings, self.feature.user_notes) if part
        )

        return WorkPackage(
            work_package_id=f"WP{number:02}",
            title=self._fix_title,
            feature_slug=self.branch.slug,
            feature_title=self._feature_title,
            file_scope=_join_lists(
                (*(one.file_scope for one in others), self._list_new_base_files())
            ),
            deliverables=Deliverables(**kinds),
            # The findings decide which of them change
            may_stay_unchanged=tuple(path for paths in kinds.values() for path in paths),
            requirements=_join_lists(one.requirements for one in others),
            mission=render_note(
                "asked" if self._is_requested_by_user else "fix",
                GATE=self._finding_source,
                FINDINGS=findings,
            ),
            profile=others[0].profile,
            checks=others[0].checks,
            allowed_dependencies=_join_lists(one.allowed_dependencies for one in others),
            forbidden_dependencies=_join_lists(one.forbidden_dependencies for one in others),
            frozen_files=tuple(
                path
                for path in others[0].frozen_files
                if all(path in one.frozen_files for one in others)
            ),
        )

    def _list_new_base_files(self) -> tuple[str, ...]:
        """Return the files added to the base since the feature started, after a failed merge.

        The fix may need them: the feature's branch has been merged with them.
        """
        repository = self.project.repository
        head = self.branch.read_head()
        base = resolve_commit(repository, f"{head}^2")
        if not self._is_sent_back or base is None:
            return ()
        return tuple(list_changed_paths(repository, f"{head}^1", base))

    def _packages_from_tasks(
        self, tasks: TaskList, texts: Mapping[str, str]
    ) -> tuple[WorkPackage, ...]:
        """Plan packages from the tasks of the feature."""
        profile = self._detect_profile()
        return plan_packages(
            tasks.tasks,
            self.branch.slug,
            feature_title=self._feature_title,
            profile=profile.name if profile else "",
            guidance=read_guidance(texts.get("plan.md", "")),
            max_packages=self.project.config.run.packages,
        )

    def _write_documents(
        self, packages: Iterable[WorkPackage], texts: Mapping[str, str]
    ) -> dict[str, str]:
        """Commit the document of each package to the feature's branch."""
        documents = self._render_documents(packages, texts)
        files = {
            f"{self.branch.folder}/tasks/{name}.md": text.encode()
            for name, text in documents.items()
        }
        self.branch.commit_files(
            files, f"{self.feature.phase.key}: work packages {', '.join(documents)}\n"
        )

        return documents

    def _render_documents(
        self, packages: Iterable[WorkPackage], texts: Mapping[str, str]
    ) -> dict[str, str]:
        """Render the document of each package, by id."""
        packages = list(packages)
        whole = WorkPackage(
            work_package_id="feature", title="", feature_slug=self.branch.slug, file_scope=()
        )
        plan = build_package_plan(
            self.branch, whole, self.feature.base, self.branch.read_head(), texts
        )
        plan = replace(
            plan,
            created=self.context.started_at,
            timeout_s=int(
                choose_agent(self.project, "implement", self.feature.phase.key).settings.timeout_s
            ),
        )

        return {package.work_package_id: render_package(package, plan) for package in packages}

    def _load_documents(self, documents: Mapping[str, str]) -> StepResult[AnyFeatureEvent]:
        """Record the packages of these documents, and replace those that have no document."""
        now = self.project.now()
        current = [row for row in self.context.packages if row.state != PackageState.REPLACED]
        try:
            rows = make_plan_events(self.branch.slug, documents, [row.id for row in current], now)
        except ConfigError as error:
            return StepResult((PackagesPlanned({}, (error.message,)),))

        rows += [
            package_changed_event(
                row._replace(state=PackageState.REPLACED, reason="", remediation="", since=now)
            )
            for row in current
            if row.id not in documents
        ]
        return StepResult(
            (_planned_event(parse_planned_packages(self.branch.slug, documents)),), tuple(rows)
        )

    def _detect_profile(self) -> Profile | None:
        paths = list_blobs(self.project.repository, self.branch.read_head())
        return choose_profile(self.project, "", (path for path in paths if "/" not in path))


def _join_lists(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(lists)))


def _comparable_content(document: str, slug: str) -> tuple[WorkPackage, list[str]]:
    """Return the part of a package's document that defines its work, without its number.

    The rest of the document describes the project, which changes between plans.
    """
    package = load_package(document, "WPnn.md", slug)
    prefixes = tuple(f"- **{id_}:**" for id_ in package.requirements)
    content = replace(package, work_package_id="", dependencies=(), may_stay_unchanged=())

    return content, [
        line for line in document.splitlines() if prefixes and line.startswith(prefixes)
    ]


def _allow_unchanged(package: WorkPackage) -> WorkPackage:
    """Return a copy of the package in which every deliverable may stay unchanged."""
    kinds = package.deliverables
    paths = (*kinds.code, *kinds.tests, *kinds.documentation)
    return replace(package, may_stay_unchanged=paths)


def _renumber(package: WorkPackage, names: Mapping[str, str]) -> WorkPackage:
    dependencies = tuple(names[name] for name in package.dependencies)
    return replace(
        package, work_package_id=names[package.work_package_id], dependencies=dependencies
    )


def check_plan(branch: FeatureBranch, commit: str) -> tuple[str, ...]:
    """Return the problems of the tasks on a commit, before an agent starts to work on them."""
    blob = branch.list_documents(commit).get(TASKS_FILE)
    texts = branch.read_documents({TASKS_FILE: blob}) if blob else {}
    if TASKS_FILE not in texts:
        return (f"{TASKS_FILE} is missing",)

    tasks = parse_tasks(texts[TASKS_FILE], read_yaml)
    if problems := describe_task_problems(tasks):
        return problems

    packages = plan_packages(tasks.tasks, branch.slug)
    return tuple(
        f"{TASKS_FILE}: {problem.key} {problem.message}"
        for _, problem in find_plan_problems(packages)
    )


def describe_task_problems(tasks: TaskList) -> tuple[str, ...]:
    """Describe why a list of tasks is not a valid plan."""
    if not tasks.tasks and not tasks.findings:
        return (f"{TASKS_FILE} has no tasks",)
    return tuple(
        f"{TASKS_FILE}, line {finding.line}: {finding.message}"
        for finding in tasks.findings[:_MAX_PROBLEMS]
    )


def _planned_event(packages: Mapping[str, PlannedPackage]) -> PackagesPlanned:
    return PackagesPlanned({name: tuple(sorted(one.waits_for)) for name, one in packages.items()})
