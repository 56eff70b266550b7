"""From the plan of a feature to its work packages, and from findings to one more package that mends
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import NamedTuple

import msgspec

from phasegate.core.machine.feature_events import AnyFeatureEvent, PackagesPlanned
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.dependencies import find_plan_problems
from phasegate.core.plan.planning import plan_packages, read_guidance
from phasegate.core.plan.tasks import TaskList, parse_tasks
from phasegate.core.plan.work_package import Deliverables, WorkPackage
from phasegate.core.workflow.phases import TASKS_FILE, PhaseWork
from phasegate.core.workflow.workflows import gate_name
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
from phasegate.errors import ConfigError
from phasegate.prompts.front_matter import read_yaml
from phasegate.prompts.package_reader import load_package
from phasegate.prompts.package_writer import render_package
from phasegate.prompts.profiles import Profile
from phasegate.prompts.shipped_texts import render_note
from phasegate.workspace.commit_log import list_blobs

_MAX_PROBLEMS = 20


class PackagePlanner(NamedTuple):
    """The plan of one feature, on its branch."""

    project: Project
    feature: Feature
    context: StepContext

    @property
    def branch(self) -> FeatureBranch:
        return FeatureBranch(self.project, self.feature.workflow.feature)

    @property
    def _feature_title(self) -> str:
        """The first line of what was asked for: an issue has more."""
        return " ".join(self.feature.description.partition("\n")[0].split())

    def make_packages(self) -> StepResult[AnyFeatureEvent]:
        """Make the packages that the plan asks for; those that are there already stay as they are."""
        known = parse_planned_packages(self.branch.slug, self.context.package_documents)
        if known and self.feature.packages:
            return StepResult((_planned_event(known),))

        texts = self.branch.read_documents(self.branch.list_documents())
        by_hand = {
            name: text
            for name, text in texts.items()
            if name.startswith("tasks/WP") and name.endswith(".md")
        }
        if TASKS_FILE not in texts and by_hand:
            return self._load_documents(
                {name.removeprefix("tasks/").removesuffix(".md"): by_hand[name] for name in by_hand}
            )

        tasks = parse_tasks(texts.get(TASKS_FILE, ""), read_yaml)
        if problems := describe_task_problems(tasks):
            return StepResult((PackagesPlanned({}, problems),))

        packages = self._packages_from_tasks(tasks, texts)
        return self._load_documents(
            self._write_documents(packages, texts)
            if not known
            else self._replan(packages, texts, known)
        )

    def _replan(
        self,
        packages: Iterable[WorkPackage],
        texts: Mapping[str, str],
        existing: Mapping[str, PlannedPackage],
    ) -> dict[str, str]:
        """A plan after another one.

        A package that is asked for the same is the one before; others get new numbers.

        So what is done need not be done again, and no number means two things.
        """
        before = [
            (_comparable_content(one.document, self.branch.slug), name)
            for name, one in existing.items()
        ]
        planned = {one.work_package_id: one for one in packages}
        texts_of = self._render_documents(planned.values(), texts)
        wanted = {
            name: _comparable_content(text, self.branch.slug) for name, text in texts_of.items()
        }
        same = {
            name: next((old for asked, old in before if asked == wanted[name]), "")
            for name in planned
        }
        free = count(1 + max(one.package.sequence for one in existing.values()))
        names = {name: same[name] or f"WP{next(free):02}" for name in planned}
        fresh = [_renumber(one, names) for name, one in planned.items() if not same[name]]
        kept = {names[name]: existing[names[name]].document for name in planned if same[name]}

        return {**kept, **(self._write_documents(fresh, texts) if fresh else {})}

    def add_fix_package(self) -> StepResult[AnyFeatureEvent]:
        """One more package, for what the gate found: it may change what the other packages may."""
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
        if self._is_requested_by_user:
            name = "asked_title"
        else:
            name = "mend_title"

        feature = self.feature
        if self._is_sent_back:
            closing = len(feature.packages)
        else:
            closing = len(feature.remarks)

        if feature.closing:
            number = closing
        else:
            number = feature.workflow.round - 1

        return f"{render_note(name, GATE=self._finding_source)} ({number})"

    @property
    def _finding_source(self) -> str:
        """Whose findings they are."""
        pull = self.feature.pull
        if self._is_sent_back:
            return f"merge into {self.feature.base}"
        if self.feature.closing and pull:
            return f"pull request {pull.number}"

        return gate_name(self.feature.phase.key)

    @property
    def _is_sent_back(self) -> bool:
        """Whether it was not a person at the forge who found something, but the tests of the merged
        tree.
        """
        return self.feature.closing and self.feature.sent_back and not self.feature.unanswered

    @property
    def _is_requested_by_user(self) -> bool:
        """Whether it is a person who wants more, not a gate: only they lead back to the packages."""
        return self.feature.phase.work is PhaseWork.PACKAGES and not self.feature.closing

    def _is_in_feature(self, name: str) -> bool:
        return name in self.feature.packages

    def _make_fix_package(self, packages: Iterable[WorkPackage]) -> WorkPackage:
        others = list(packages)
        number = 1 + max(one.sequence for one in others)
        scope = dict.fromkeys(path for one in others for path in one.file_scope)
        kinds = {
            kind: tuple(
                dict.fromkeys(path for one in others for path in getattr(one.deliverables, kind))
            )
            for kind in ("code", "tests", "documentation")
        }

        findings = "\n\n".join(part for part in (self.feature.findings, self.feature.said) if part)

        return WorkPackage(
            work_package_id=f"WP{number:02}",
            title=self._fix_title,
            feature_slug=self.branch.slug,
            feature_title=self._feature_title,
            file_scope=tuple(scope),
            deliverables=Deliverables(**kinds),
            requirements=tuple(dict.fromkeys(name for one in others for name in one.requirements)),
            mission=render_note(
                "asked" if self._is_requested_by_user else "mend",
                GATE=self._finding_source,
                FINDINGS=findings,
            ),
            profile=others[0].profile,
            checks=others[0].checks,
        )

    def _packages_from_tasks(
        self, tasks: TaskList, texts: Mapping[str, str]
    ) -> tuple[WorkPackage, ...]:
        profile = self._detect_profile()
        return plan_packages(
            tasks.tasks,
            self.branch.slug,
            feature_title=self._feature_title,
            profile=profile.name if profile else "",
            guidance=read_guidance(texts.get("plan.md", "")),
        )

    def _write_documents(
        self, packages: Iterable[WorkPackage], texts: Mapping[str, str]
    ) -> dict[str, str]:
        """The document of each package, on the feature's branch."""
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
        packages = list(packages)
        whole = WorkPackage(
            work_package_id="feature", title="", feature_slug=self.branch.slug, file_scope=()
        )
        plan = build_package_plan(self.branch, whole, self.branch.read_head(), texts)
        plan = msgspec.structs.replace(
            plan,
            created=self.context.started_at,
            package_ids=tuple(package.work_package_id for package in packages),
            timeout_s=int(
                choose_agent(self.project, "implement", self.feature.phase.key).settings.timeout_s
            ),
        )

        return {package.work_package_id: render_package(package, plan) for package in packages}

    def _load_documents(self, documents: Mapping[str, str]) -> StepResult[AnyFeatureEvent]:
        known = [row.id for row in self.context.packages]
        try:
            rows = make_plan_events(self.branch.slug, documents, known, self.project.now())
        except ConfigError as error:
            return StepResult((PackagesPlanned({}, (error.message,)),))

        return StepResult(
            (_planned_event(parse_planned_packages(self.branch.slug, documents)),), tuple(rows)
        )

    def _detect_profile(self) -> Profile | None:
        paths = list_blobs(self.project.repository, self.branch.read_head())
        return choose_profile(self.project, "", (path for path in paths if "/" not in path))


def _comparable_content(document: str, slug: str) -> tuple[WorkPackage, list[str]]:
    """What a package's document asks for, without its number.

    The rest of it tells of the project as it is by then.
    """
    package = load_package(document, "WPnn.md", slug)
    marks = tuple(f"- **{id_}:**" for id_ in package.requirements)
    asked = msgspec.structs.replace(package, work_package_id="", dependencies=())

    return asked, [line for line in document.splitlines() if marks and line.startswith(marks)]


def _renumber(package: WorkPackage, names: Mapping[str, str]) -> WorkPackage:
    waits = tuple(names[name] for name in package.dependencies)
    return msgspec.structs.replace(
        package, work_package_id=names[package.work_package_id], dependencies=waits
    )


def check_plan(branch: FeatureBranch, commit: str) -> tuple[str, ...]:
    """What is wrong with the tasks on a commit, before any agent starts to work on them."""
    named = branch.list_documents(commit)
    if TASKS_FILE in named:
        texts = branch.read_documents({TASKS_FILE: named[TASKS_FILE]})
    else:
        texts = {}

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
    """Why tasks are no plan, in words."""
    if not tasks.tasks and not tasks.findings:
        return (f"{TASKS_FILE} holds no task",)
    return tuple(
        f"{TASKS_FILE}, line {found.line}: {found.message}"
        for found in tasks.findings[:_MAX_PROBLEMS]
    )


def _planned_event(packages: Mapping[str, PlannedPackage]) -> PackagesPlanned:
    return PackagesPlanned({name: tuple(sorted(one.waits_for)) for name, one in packages.items()})
