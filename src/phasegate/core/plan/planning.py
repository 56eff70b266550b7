"""Work packages made from the tasks of a plan.

What must be done together, and what can be done side by side.
"""

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
_TEST_NAME = re.compile(r"test_.*|conftest\.py|.*[._-](?:test|spec|tests)\.[^.]+|.*Tests?\.[^.]+")
# "Delete `a.py` and the file b.py", "Move a.py to c.py": what is gone afterwards is scope, but
# nothing to be delivered.
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
_DOCUMENT = re.compile(r".*\.(?:md|mdx|rst|adoc|txt)|CHANGELOG|README|LICENSE")


class Guidance(msgspec.Struct, frozen=True):
    """What a plan says to all packages."""

    architecture_rules: tuple[str, ...] = ()
    allowed_dependencies: tuple[str, ...] = ()
    forbidden_dependencies: tuple[str, ...] = ()


def plan_packages(
    tasks: Sequence[Task],
    feature_slug: str,
    *,
    feature_title: str = "",
    profile: str = "",
    guidance: Guidance | None = None,
    tasks_per_package: int = TASKS_PER_PACKAGE,
) -> tuple[WorkPackage, ...]:
    """Packages for sound tasks, numbered in an order in which they can be done.

    Tasks that share a file, or wait for each other through others that do, are one package; a chain
    in which each waits only for the one before is joined while it stays small.
    """
    groups = _TaskGroups(tasks)
    groups.join_cycles()
    groups.join_chains(tasks_per_package)
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
        _build_package(ids[g], members[g], sorted(ids[other] for other in needs[g]), common)
        for g in order
    )


class _TaskGroups:
    """Tasks in groups, each known by the id of its first task."""

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
        found: dict[str, list[Task]] = {}
        for task in self._tasks:
            found.setdefault(self._find_group(task.id), []).append(task)
        return found

    def dependencies(self) -> dict[str, set[str]]:
        """Which group waits for which."""
        return {
            group: {self._find_group(other) for task in tasks for other in task.depends} - {group}
            for group, tasks in self.members().items()
        }

    def join_cycles(self) -> None:
        while cycles := find_cycles(self.dependencies()):
            for cycle in cycles:
                for group in cycle[1:]:
                    self._join(cycle[0], group)

    def join_chains(self, max_tasks: int) -> None:
        """Join a group to the only one that it waits for, if nothing else waits for that one."""
        needs = self.dependencies()
        waiting = Counter(other for others in needs.values() for other in others)
        size = Counter({group: len(tasks) for group, tasks in self.members().items()})

        for group, others in needs.items():
            before = next(iter(others), group)
            one = self._find_group(before)
            two = self._find_group(group)
            if len(others) == waiting[before] == 1 and size[one] + size[two] <= max_tasks:
                self._join(before, group)
                size[self._find_group(group)] = size[one] + size[two]


def _build_package(
    id_: str, tasks: Sequence[Task], dependencies: Iterable[str], common: WorkPackage
) -> WorkPackage:
    paths = tuple(dict.fromkeys(path for task in tasks for path in task.files))
    gone = find_removed_files(tasks)
    kinds = {path: classify_file(path) for path in paths if path not in gone}
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
            **{kind: tuple(p for p in kinds if kinds[p] == kind) for kind in _DELIVERABLE_KINDS}
        ),
        requirements=tuple(requirements),
        tasks=tuple(task.id for task in tasks),
        mission="\n".join(task.do or task.title for task in tasks),
        descriptions={
            path: text for path, text in _describe_files(tasks).items() if path not in gone
        },
    )


_DELIVERABLE_KINDS = ("code", "tests", "documentation")


def find_removed_files(tasks: Sequence[Task]) -> frozenset[str]:
    """The files that are to be gone in the end.

    Those that the last task about them says to delete, move or rename.
    """
    gone: set[str] = set()
    for task in tasks:
        removed = _find_removed_by_task(task)
        gone = (gone - set(task.files)) | removed

    return frozenset(gone)


def _find_removed_by_task(task: Task) -> set[str]:
    """The task's files that stand right behind a word for removing, one or several."""
    known = {name: path for path in task.files for name in (path, path.rpartition("/")[2])}
    found: set[str] = set()

    for text in (task.title, task.do):
        for verb in _REMOVAL_VERB.finditer(text):
            for word in text[verb.end() :].split():
                name = word.lstrip("`'\"*(").rstrip("`'\"*,;:.)")
                if name in known:
                    found.add(known[name])
                elif name.lower() not in _FILLERS:
                    break

    return found


def _describe_files(tasks: Sequence[Task]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for task in tasks:
        for path in task.files:
            found.setdefault(path, task.title)
    return found


def classify_file(path: str) -> str:
    """Whether a file is code, a test or documentation, by its place and name."""
    *folders, name = path.split("/")
    if not _TEST_FOLDERS.isdisjoint(folders) or _TEST_NAME.fullmatch(name):
        return "tests"
    if _DOCUMENT.fullmatch(name) or folders[:1] == ["docs"]:
        return "documentation"

    return "code"


def read_guidance(plan: str) -> Guidance:
    """The architecture rules and permitted dependencies that a plan.md lists under those headings."""
    rules: list[str] = []
    lists: dict[str, tuple[str, ...]] = {}

    for heading, item in _list_items(plan):
        label, _, value = item.partition(":")
        key = collapse_whitespace(label.replace("*", "")).lower()

        if heading == "architecture rules":
            rules.append(item)
        elif heading == "dependencies" and key in ("may add", "may not add"):
            names = (
                collapse_whitespace(name.replace("*", "").replace("`", ""))
                for name in value.split(",")
            )
            lists[key] = tuple(
                name for name in names if name and name.lower().rstrip(".") != "none"
            )

    return Guidance(tuple(rules), lists.get("may add", ()), lists.get("may not add", ()))


def _list_items(document: str) -> Iterator[tuple[str, str]]:
    """The list items of a document, each with the heading above it, in lower case."""
    heading = ""

    for line in iter_markdown_lines(document):
        if line.fence_info is not None:
            continue

        text = re.sub(r"<!--.*?-->", "", line.text).strip()
        if text.startswith("#"):
            heading = text.lstrip("#").strip().lower()
        elif text[:2] in ("- ", "* ") and (item := text[2:].removeprefix("[ ]").strip()):
            yield heading, item
