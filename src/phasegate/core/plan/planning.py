"""Group the tasks of a plan into work packages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from phasegate.core.paths.repo_path import list_path_and_parents
from phasegate.core.plan.dependencies import compute_waves, find_cycles
from phasegate.core.plan.tasks import Task
from phasegate.core.plan.work_package import Deliverables, WorkPackage, is_requirement_id
from phasegate.core.text.markdown_lines import collapse_whitespace, iter_markdown_lines

TASKS_PER_PACKAGE = 6
_TEST_FOLDERS = frozenset(("test", "tests", "__tests__", "spec", "testdata"))
_TEST_NAME = re.compile(
    r"test_.*|conftest\.py|.*[._-](?:test|spec|tests)(?:-d)?\.[^.]+|.*Tests?\.[^.]+|.*\.feature"
)
# "Delete `a.py` and the file b.py", "Move a.py to c.py": a removed file is in the scope, but is not
# a deliverable.
_REMOVAL_VERB = re.compile(r"\b(?:delet|remov|mov|renam)(?:e|es|ing)\b", re.I)
_FILLERS = frozenset(
    (
        "the",
        "a",
        "an",
        "and",
        "old",
        "unused",
        "obsolete",
        "file",
        "files",
        "module",
        "test",
        "both",
    )
)
# A row of the plan's table of files: path, new or changed, responsibility
_FILE_ROW = re.compile(r"^\|\s*`?([^|`\s]+)`?\s*\|[^|\n]*\|\s*([^|\n]*[^|\s])\s*\|\s*$", re.M)
_DOCUMENT = re.compile(r".*\.(?:md|mdx|rst|adoc|txt)|CHANGELOG|README|LICENSE")


class Guidance(msgspec.Struct, frozen=True):
    """Rules of a plan that apply to all packages."""

    architecture_rules: tuple[str, ...] = ()
    allowed_dependencies: tuple[str, ...] = ()
    forbidden_dependencies: tuple[str, ...] = ()
    frozen_files: tuple[str, ...] = ()
    descriptions: Mapping[str, str] = msgspec.field(default_factory=dict)


def plan_packages(
    tasks: Sequence[Task],
    feature_slug: str,
    *,
    feature_title: str = "",
    profile: str = "",
    guidance: Guidance | None = None,
    tasks_per_package: int = TASKS_PER_PACKAGE,
    max_packages: int | None = None,
) -> tuple[WorkPackage, ...]:
    """Group valid tasks into packages, numbered in an order in which they can be done.

    Tasks that share a file, or that wait for each other through such tasks, are one package. A
    chain in which each task waits only for the one before is joined while it stays small. With
    `max_packages`, the packages above that number are joined to the last one.
    """
    groups = _TaskGroups(tasks)
    groups.join_cycles()
    groups.join_chains(tasks_per_package)
    if max_packages is not None:
        groups.join_surplus(max_packages)
    needs = groups.dependencies()
    members = groups.members()
    order = [group for wave in compute_waves(needs) for group in wave]
    ids = {group: f"WP{number:02}" for number, group in enumerate(order, 1)}
    common = WorkPackage(
        work_package_id="",
        title="",
        feature_slug=feature_slug,
        feature_title=feature_title,
        file_scope=(),
        profile=profile,
        **msgspec.structs.asdict(guidance or Guidance()),
    )

    return tuple(
        _build_package(
            ids[group], members[group], sorted(ids[other] for other in needs[group]), common
        )
        for group in order
    )


class _TaskGroups:
    """Groups of tasks (a union-find), each identified by the id of its first task."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self._position = {task.id: position for position, task in enumerate(tasks)}
        self._leader = {task.id: task.id for task in tasks}
        owner: dict[str, str] = {}
        for task in tasks:
            for path in task.files:
                self._join(owner.setdefault(path, task.id), task.id)

        for path, id_ in owner.items():
            for folder in list_path_and_parents(path)[1:]:
                self._join(owner.get(folder, id_), id_)

    def _find_group(self, id_: str) -> str:
        while self._leader[id_] != id_:
            self._leader[id_] = self._leader[self._leader[id_]]
            id_ = self._leader[id_]
        return id_

    def _join(self, one: str, other: str) -> None:
        first, second = sorted(
            (self._find_group(one), self._find_group(other)), key=self._position.__getitem__
        )
        self._leader[second] = first

    def members(self) -> dict[str, list[Task]]:
        """Return the tasks of each group."""
        members: dict[str, list[Task]] = {}
        for task in self._tasks:
            members.setdefault(self._find_group(task.id), []).append(task)
        return members

    def dependencies(self) -> dict[str, set[str]]:
        """Return which group waits for which."""
        return {
            group: {self._find_group(other) for task in tasks for other in task.depends} - {group}
            for group, tasks in self.members().items()
        }

    def join_cycles(self) -> None:
        """Join groups that wait for each other in a cycle."""
        while cycles := find_cycles(self.dependencies()):
            for cycle in cycles:
                for group in cycle[1:]:
                    self._join(cycle[0], group)

    def join_surplus(self, max_groups: int) -> None:
        """Join the groups after the first `max_groups`, in the order of work."""
        order = [group for wave in compute_waves(self.dependencies()) for group in wave]
        for group in order[max_groups:]:
            self._join(order[max_groups - 1], group)
        self.join_cycles()

    def join_chains(self, max_tasks: int) -> None:
        """Join a group to its only dependency, if no other group depends on that one."""
        needs = self.dependencies()
        waiting = Counter(other for others in needs.values() for other in others)
        size = Counter({group: len(tasks) for group, tasks in self.members().items()})

        for group, others in needs.items():
            previous = next(iter(others), group)
            is_chain = len(others) == waiting[previous] == 1
            joined_size = size[self._find_group(previous)] + size[self._find_group(group)]
            if is_chain and joined_size <= max_tasks:
                self._join(previous, group)
                size[self._find_group(group)] = joined_size


def _build_package(
    id_: str, tasks: Sequence[Task], dependencies: Iterable[str], common: WorkPackage
) -> WorkPackage:
    """Build a package from its tasks; `common` has the fields that all share."""
    paths = tuple(dict.fromkeys(path for task in tasks for path in task.files))
    removed = find_removed_files(tasks)
    kinds = {path: classify_file(path) for path in paths if path not in removed}
    requirements = dict.fromkeys(
        ref for task in tasks for ref in task.spec if is_requirement_id(ref)
    )

    return msgspec.structs.replace(
        common,
        work_package_id=id_,
        title="; ".join(task.title for task in tasks),
        file_scope=paths,
        dependencies=tuple(dependencies),
        deliverables=Deliverables(
            **{
                kind: tuple(path for path in kinds if kinds[path] == kind)
                for kind in _DELIVERABLE_KINDS
            }
        ),
        requirements=tuple(requirements),
        may_stay_unchanged=_find_optional_changes(tasks, kinds),
        tasks=tuple(task.id for task in tasks),
        mission="\n".join(task.do or task.title for task in tasks),
        descriptions={
            path: text
            for path, text in _describe_files(tasks, common.descriptions).items()
            if path in kinds
        },
    )


def _find_optional_changes(tasks: Sequence[Task], deliverables: Iterable[str]) -> tuple[str, ...]:
    """Return the deliverables that every task with this file permits to stay unchanged."""
    return tuple(
        path
        for path in deliverables
        if all(path in task.unchanged for task in tasks if path in task.files)
    )


_DELIVERABLE_KINDS = ("code", "tests", "documentation")


def find_removed_files(tasks: Sequence[Task]) -> frozenset[str]:
    """Return the files that must not exist once all tasks are done.

    These are the files that are deleted, moved or renamed by the last task that mentions them.
    """
    removed: set[str] = set()
    for task in tasks:
        removed = (removed - set(task.files)) | _find_removed_by_task(task)

    return frozenset(removed)


def _find_removed_by_task(task: Task) -> set[str]:
    """Return the files that follow a removal verb in the text of a task."""
    path_by_name = {name: path for path in task.files for name in (path, path.rpartition("/")[2])}
    removed: set[str] = set()

    for text in (task.title, task.do):
        for verb in _REMOVAL_VERB.finditer(text):
            for word in text[verb.end() :].split():
                name = word.lstrip("`'\"*(").rstrip("`'\"*,;:.)")
                if name in path_by_name:
                    removed.add(path_by_name[name])
                elif name.lower() not in _FILLERS:
                    break

    return removed


def _describe_files(tasks: Sequence[Task], by_plan: Mapping[str, str]) -> Mapping[str, str]:
    """Return each file's purpose: from the plan, else the title of its first task.

    The title beside every file of a task would say nothing about any of them.
    """
    titles = {task.files[0]: task.title for task in reversed(tasks) if task.files}
    paths = dict.fromkeys(path for task in tasks for path in task.files)
    described = {path: by_plan.get(path) or titles.get(path, "") for path in paths}
    return {path: text for path, text in described.items() if text}


def classify_file(path: str) -> str:
    """Return "tests", "documentation" or "code", by the path and name of a file."""
    *folders, name = path.split("/")
    if not _TEST_FOLDERS.isdisjoint(folders) or _TEST_NAME.fullmatch(name):
        return "tests"
    if _DOCUMENT.fullmatch(name) or folders[:1] == ["docs"]:
        return "documentation"

    return "code"


_DEPENDENCY_LISTS = ("may add", "may not add", "may not change")


def read_guidance(plan: str) -> Guidance:
    """Read the architecture rules and permitted dependencies from a plan.md.

    They are lists under the headings "Architecture rules" and "Dependencies".
    """
    rules: list[str] = []
    lists: dict[str, tuple[str, ...]] = {}

    for heading, item in _list_items(plan):
        label, _, value = item.partition(":")
        key = collapse_whitespace(label.replace("*", "")).lower()

        if heading == "architecture rules":
            rules.append(item)
        elif heading == "dependencies" and key in _DEPENDENCY_LISTS:
            names = (
                collapse_whitespace(name.replace("*", "").replace("`", ""))
                for name in value.split(",")
            )
            lists[key] = tuple(
                name for name in names if name and name.lower().rstrip(".") != "none"
            )

    return Guidance(
        architecture_rules=tuple(rules),
        allowed_dependencies=lists.get("may add", ()),
        forbidden_dependencies=lists.get("may not add", ()),
        frozen_files=lists.get("may not change", ()),
        descriptions={row[1]: row[2] for row in _FILE_ROW.finditer(plan)},
    )


def add_guidance(package: WorkPackage, guidance: Guidance) -> WorkPackage:
    """Return a package that uses the plan's rules where it defines none itself."""
    own = package.allowed_dependencies + package.forbidden_dependencies + package.frozen_files
    source: WorkPackage | Guidance = package if own else guidance
    return msgspec.structs.replace(
        package,
        architecture_rules=package.architecture_rules or guidance.architecture_rules,
        allowed_dependencies=source.allowed_dependencies,
        forbidden_dependencies=source.forbidden_dependencies,
        frozen_files=source.frozen_files,
    )


def _list_items(document: str) -> Iterator[tuple[str, str]]:
    """Yield the list items of a document, each with the heading above it in lower case."""
    heading = ""

    for line in iter_markdown_lines(document):
        if line.fence_info is not None:
            continue

        text = re.sub(r"<!--.*?-->", "", line.text).strip()
        if text.startswith("#"):
            heading = text.lstrip("#").strip().lower()
        elif text[:2] in ("- ", "* ") and (item := text[2:].removeprefix("[ ]").strip()):
            yield heading, item
