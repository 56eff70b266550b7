"""From the plan of a feature to its work packages, and from findings to one more package that mends them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import NamedTuple

import msgspec

from phasegate.core.machine.feature_events import Happened, Planned
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.dependencies import plan_problems
from phasegate.core.plan.planning import plan_packages, read_guidance
from phasegate.core.plan.tasks import TaskList, parse
from phasegate.core.plan.work_package import Deliverables, WorkPackage
from phasegate.core.workflow.phases import TASKS, Work
from phasegate.core.workflow.workflows import gate_name
from phasegate.engine.checks.manifest import profile_of
from phasegate.engine.jobs.step import Did, Known
from phasegate.engine.journal.package import PlannedPackage, plan_loaded, planned_in
from phasegate.engine.project.agents import member_for
from phasegate.engine.project.feature_branch import Branch
from phasegate.engine.project.project import Project
from phasegate.engine.steps.package_document import plan_around
from phasegate.errors import ConfigError
from phasegate.prompts.front_matter import read_yaml
from phasegate.prompts.package_reader import load
from phasegate.prompts.package_writer import write
from phasegate.prompts.profiles import Profile
from phasegate.prompts.shipped_texts import note
from phasegate.workspace.commit_log import blobs_of

_MOST_PROBLEMS = 20


class Plans(NamedTuple):
    """The plan of one feature, on its branch."""

    project: Project
    feature: Feature
    known: Known

    @property
    def branch(self) -> Branch:
        return Branch(self.project, self.feature.workflow.feature)

    @property
    def _feature_title(self) -> str:
        """The first line of what was asked for: an issue has more."""
        return " ".join(self.feature.description.partition("\n")[0].split())

    def make(self) -> Did[Happened]:
        """Make the packages that the plan asks for; those that are there already stay as they are."""
        known = planned_in(self.branch.slug, self.known.documents)
        if known and self.feature.packages:
            return Did((_as_event(known),))
        texts = self.branch.read(self.branch.documents())
        by_hand = {name: text for name, text in texts.items() if name.startswith("tasks/WP") and name.endswith(".md")}
        if TASKS not in texts and by_hand:
            return self._loaded({name.removeprefix("tasks/").removesuffix(".md"): by_hand[name] for name in by_hand})
        tasks = parse(texts.get(TASKS, ""), read_yaml)
        if problems := task_problems(tasks):
            return Did((Planned({}, problems),))
        packages = self._packages(tasks, texts)
        return self._loaded(self._written(packages, texts) if not known else self._again(packages, texts, known))

    def _again(
        self, packages: Iterable[WorkPackage], texts: Mapping[str, str], known: Mapping[str, PlannedPackage]
    ) -> dict[str, str]:
        """A plan after another one. A package that is asked for the same is the one before; others get new numbers.

        So what is done need not be done again, and no number means two things.
        """
        before = [(_asked_for(one.document, self.branch.slug), name) for name, one in known.items()]
        planned = {one.work_package_id: one for one in packages}
        texts_of = self._texts(planned.values(), texts)
        wanted = {name: _asked_for(text, self.branch.slug) for name, text in texts_of.items()}
        same = {name: next((old for asked, old in before if asked == wanted[name]), "") for name in planned}
        free = count(1 + max(one.package.sequence for one in known.values()))
        names = {name: same[name] or f"WP{next(free):02}" for name in planned}
        fresh = [_renamed(one, names) for name, one in planned.items() if not same[name]]
        kept = {names[name]: known[names[name]].document for name in planned if same[name]}
        return {**kept, **(self._written(fresh, texts) if fresh else {})}

    def mend(self) -> Did[Happened]:
        """One more package, for what the gate found: it may change what the other packages may."""
        known = planned_in(self.branch.slug, self.known.documents)
        waiting = [
            name for name, one in known.items() if one.package.title == self._mend_title and not self._is_known(name)
        ]
        if waiting:
            return Did((_as_event(known),))
        package = self._mending([one.package for one in known.values()])
        texts = self.branch.read(self.branch.documents())
        documents = {name: one.document for name, one in known.items() if self._is_known(name)}
        return self._loaded({**documents, **self._written([package], texts)})

    @property
    def _mend_title(self) -> str:
        name = "asked_title" if self._is_asked_for else "mend_title"
        feature = self.feature
        closing = len(feature.packages) if self._is_sent_back else len(feature.remarks)
        number = closing if feature.closing else feature.workflow.round - 1
        return f"{note(name, GATE=self._judge)} ({number})"

    @property
    def _judge(self) -> str:
        """Whose findings they are."""
        pull = self.feature.pull
        if self._is_sent_back:
            return f"merge into {self.feature.base}"
        return f"pull request {pull.number}" if self.feature.closing and pull else gate_name(self.feature.phase.key)

    @property
    def _is_sent_back(self) -> bool:
        """Whether it was not a person at the forge who found something, but the tests of the merged tree."""
        return self.feature.closing and self.feature.sent_back and not self.feature.unanswered

    @property
    def _is_asked_for(self) -> bool:
        """Whether it is a person who wants more, not a gate: only they lead back to the packages."""
        return self.feature.phase.work is Work.PACKAGES and not self.feature.closing

    def _is_known(self, name: str) -> bool:
        return name in self.feature.packages

    def _mending(self, packages: Iterable[WorkPackage]) -> WorkPackage:
        others = list(packages)
        number = 1 + max(one.sequence for one in others)
        scope = dict.fromkeys(path for one in others for path in one.file_scope)
        kinds = {
            kind: tuple(dict.fromkeys(path for one in others for path in getattr(one.deliverables, kind)))
            for kind in ("code", "tests", "documentation")
        }
        findings = "\n\n".join(part for part in (self.feature.findings, self.feature.said) if part)
        return WorkPackage(
            work_package_id=f"WP{number:02}",
            title=self._mend_title,
            feature_slug=self.branch.slug,
            feature_title=self._feature_title,
            file_scope=tuple(scope),
            deliverables=Deliverables(**kinds),
            requirements=tuple(dict.fromkeys(name for one in others for name in one.requirements)),
            mission=note("asked" if self._is_asked_for else "mend", GATE=self._judge, FINDINGS=findings),
            profile=others[0].profile,
            checks=others[0].checks,
        )

    def _packages(self, tasks: TaskList, texts: Mapping[str, str]) -> tuple[WorkPackage, ...]:
        profile = self._profile()
        return plan_packages(
            tasks.tasks,
            self.branch.slug,
            feature_title=self._feature_title,
            profile=profile.name if profile else "",
            guidance=read_guidance(texts.get("plan.md", "")),
        )

    def _written(self, packages: Iterable[WorkPackage], texts: Mapping[str, str]) -> dict[str, str]:
        """The document of each package, on the feature's branch."""
        documents = self._texts(packages, texts)
        files = {f"{self.branch.folder}/tasks/{name}.md": text.encode() for name, text in documents.items()}
        self.branch.put(files, f"{self.feature.phase.key}: work packages {', '.join(documents)}\n")
        return documents

    def _texts(self, packages: Iterable[WorkPackage], texts: Mapping[str, str]) -> dict[str, str]:
        packages = list(packages)
        whole = WorkPackage(work_package_id="feature", title="", feature_slug=self.branch.slug, file_scope=())
        plan = plan_around(self.branch, whole, self.branch.head(), texts)
        plan = msgspec.structs.replace(
            plan,
            created=self.known.begun,
            package_ids=tuple(package.work_package_id for package in packages),
            timeout_s=int(member_for(self.project, "implement", self.feature.phase.key).settings.timeout_s),
        )
        return {package.work_package_id: write(package, plan) for package in packages}

    def _loaded(self, documents: Mapping[str, str]) -> Did[Happened]:
        known = [row.id for row in self.known.packages]
        try:
            rows = plan_loaded(self.branch.slug, documents, known, self.project.now())
        except ConfigError as error:
            return Did((Planned({}, (error.message,)),))
        return Did((_as_event(planned_in(self.branch.slug, documents)),), tuple(rows))

    def _profile(self) -> Profile | None:
        paths = blobs_of(self.project.repository, self.branch.head())
        return profile_of(self.project, "", (path for path in paths if "/" not in path))


def _asked_for(document: str, slug: str) -> tuple[WorkPackage, list[str]]:
    """What a package's document asks for, without its number: the rest of it tells of the project as it is by then."""
    package = load(document, "WPnn.md", slug)
    marks = tuple(f"- **{id_}:**" for id_ in package.requirements)
    asked = msgspec.structs.replace(package, work_package_id="", dependencies=())
    return asked, [line for line in document.splitlines() if marks and line.startswith(marks)]


def _renamed(package: WorkPackage, names: Mapping[str, str]) -> WorkPackage:
    waits = tuple(names[name] for name in package.dependencies)
    return msgspec.structs.replace(package, work_package_id=names[package.work_package_id], dependencies=waits)


def plan_findings(branch: Branch, commit: str) -> tuple[str, ...]:
    """What is wrong with the tasks on a commit, before any agent starts to work on them."""
    named = branch.documents(commit)
    texts = branch.read({TASKS: named[TASKS]}) if TASKS in named else {}
    if TASKS not in texts:
        return (f"{TASKS} is missing",)
    tasks = parse(texts[TASKS], read_yaml)
    if problems := task_problems(tasks):
        return problems
    packages = plan_packages(tasks.tasks, branch.slug)
    return tuple(f"{TASKS}: {problem.key} {problem.message}" for _, problem in plan_problems(packages))


def task_problems(tasks: TaskList) -> tuple[str, ...]:
    """Why tasks are no plan, in words."""
    if not tasks.tasks and not tasks.findings:
        return (f"{TASKS} holds no task",)
    return tuple(f"{TASKS}, line {found.line}: {found.message}" for found in tasks.findings[:_MOST_PROBLEMS])


def _as_event(packages: Mapping[str, PlannedPackage]) -> Planned:
    return Planned({name: tuple(sorted(one.waits_for)) for name, one in packages.items()})
