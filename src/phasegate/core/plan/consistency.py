"""Check the documents of a feature against each other: does every name that is used exist?"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec

from phasegate.core.paths.repo_path import find_path_problem
from phasegate.core.plan.dependencies import find_plan_problems
from phasegate.core.plan.package_fields import ParsedPackage
from phasegate.core.plan.requirements import Spec
from phasegate.core.plan.tasks import TaskList
from phasegate.core.plan.work_package import PROFILES, WorkPackage, is_requirement_id
from phasegate.core.text.finding import LocatedFinding, locate_findings, quote_text, suggest_closest
from phasegate.core.text.markdown_lines import iter_markdown_lines

SPEC_FILE = "spec.md"
TASKS_FILE = "tasks.md"


class FeatureDocuments(NamedTuple):
    """The parsed documents of a feature.

    `headings` are the anchors of the documents that tasks refer to; None: the document is missing.
    """

    slug: str
    spec: Spec | None
    tasks: TaskList | None
    packages: Mapping[str, ParsedPackage]
    headings: Mapping[str, frozenset[str] | None]


class ConsistencyReport(msgspec.Struct, frozen=True):
    """Result of a check. Notes are informational and violate no rule."""

    findings: tuple[LocatedFinding, ...]
    notes: tuple[LocatedFinding, ...]
    requirements: int
    tasks: int
    packages: int


def check_documents(feature: FeatureDocuments) -> ConsistencyReport:
    """Check each document by itself and all of them together."""
    if feature.spec:
        requirements = feature.spec.requirements
    else:
        requirements = ()

    return ConsistencyReport(
        findings=tuple(sorted((*_document_findings(feature), *_cross_findings(feature)))),
        notes=tuple(_notes(feature)),
        requirements=len(requirements),
        tasks=len(feature.tasks.tasks) if feature.tasks else 0,
        packages=len(feature.packages),
    )


def _document_findings(feature: FeatureDocuments) -> Iterator[LocatedFinding]:
    if feature.spec:
        yield from locate_findings(SPEC_FILE, feature.spec.findings)
    if feature.tasks and not _is_spec_kitty_tasks(feature.tasks, feature):
        yield from locate_findings(TASKS_FILE, feature.tasks.findings)
    for path, reading in feature.packages.items():
        yield from locate_findings(path, reading.findings)


def _is_spec_kitty_tasks(tasks: TaskList, feature: FeatureDocuments) -> bool:
    """Return whether tasks.md was written by spec-kitty, without any ids of Phasegate.

    The package documents of spec-kitty are enough to work from.
    """
    return not tasks.tasks and bool(feature.packages)


def _notes(feature: FeatureDocuments) -> Iterator[LocatedFinding]:
    """Yield notes on documents that are missing or in another format."""
    if feature.spec is None:
        yield LocatedFinding(SPEC_FILE, 0, "no-spec", "is missing: requirement ids are not checked")
    elif not feature.spec.annotated:
        ids = len(feature.spec.requirements)
        yield LocatedFinding(
            SPEC_FILE,
            1,
            "unannotated",
            f"no annotations: {ids} requirement ids were taken from headings and lists",
        )

    if feature.tasks and _is_spec_kitty_tasks(feature.tasks, feature):
        yield LocatedFinding(
            TASKS_FILE,
            0,
            "no-tasks",
            "contains no task with an id such as 1.1: task ids are not checked",
        )


def _cross_findings(feature: FeatureDocuments) -> Iterator[LocatedFinding]:
    """Yield findings that concern several documents of a feature."""
    if feature.spec:
        known = frozenset(requirement.id for requirement in feature.spec.requirements)
    else:
        known = None

    yield from _reference_findings(feature, known)

    valid = [
        (path, reading.package) for path, reading in feature.packages.items() if reading.package
    ]
    for path, package in valid:
        for code, key, message in _package_problems(feature, path, package, known):
            yield LocatedFinding(path, feature.packages[path].key_lines.get(key, 1), code, message)

    for index, problem in find_plan_problems([package for _, package in valid]):
        path = valid[index][0]
        line = feature.packages[path].key_lines.get(problem.key, 1)
        yield LocatedFinding(path, line, "plan", f"{problem.key} {problem.message}")

    yield from _coverage_findings(feature, [package for _, package in valid])


def _reference_findings(
    feature: FeatureDocuments, known: Collection[str] | None
) -> Iterator[LocatedFinding]:
    """Yield the references of tasks that do not exist."""
    if not feature.tasks:
        return

    for task in feature.tasks.tasks:
        for reference in task.spec:
            if message := _reference_problem(reference, known, feature.headings):
                yield LocatedFinding(
                    TASKS_FILE,
                    feature.tasks.lines[task.id],
                    "unknown-reference",
                    f"task {task.id} {message}",
                )


def _reference_problem(
    reference: str, known: Collection[str] | None, headings: Mapping[str, frozenset[str] | None]
) -> str | None:
    """Return why a reference of a task is invalid, or None if it is valid."""
    if is_requirement_id(reference):
        return _unknown_requirement_problem(reference, known)

    document, _, heading = reference.partition("#")
    if not document.endswith(".md") or find_path_problem(document):
        return (
            f"names {quote_text(reference)}, "
            "which is neither a requirement id nor a document of the feature"
        )

    anchors = headings.get(document)
    if anchors is None:
        return f"names {quote_text(document)}, which does not exist"
    if heading and to_anchor(heading) not in anchors:
        return f"names {quote_text(reference)}, but {document} has no such heading"

    return None


def _unknown_requirement_problem(id_: str, known: Collection[str] | None) -> str | None:
    """Return the problem with a requirement id that the specification does not define."""
    if known is None or id_ in known:
        return None
    return f"names {id_}, which is not in {SPEC_FILE}{suggest_closest(id_, known)}"


def _package_problems(
    feature: FeatureDocuments, path: str, package: WorkPackage, known: Collection[str] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield code, key and message of each name in a package that contradicts another document."""
    name = path.rpartition("/")[2]
    id_ = package.work_package_id
    if name != f"{id_}.md" and not name.startswith(f"{id_}-"):
        yield "wrong-name", "work_package_id", f"the file is not named {id_}.md"
    if feature.slug and package.feature_slug != feature.slug:
        message = f"feature_slug is {package.feature_slug}, but the folder is {feature.slug}"
        yield "wrong-slug", "feature_slug", message

    if package.profile and package.profile not in PROFILES:
        hint = suggest_closest(package.profile, PROFILES)
        yield (
            "unknown-profile",
            "profile",
            f"there is no language profile {quote_text(package.profile)}{hint}",
        )

    for requirement in package.requirements:
        if problem := _unknown_requirement_problem(requirement, known):
            yield "unknown-requirement", "requirements", problem

    if feature.tasks and feature.tasks.tasks:
        for task in package.tasks:
            if task not in feature.tasks.lines:
                yield "unknown-task", "tasks", f"names task {task}, which is not in {TASKS_FILE}"


def _coverage_findings(
    feature: FeatureDocuments, packages: Collection[WorkPackage]
) -> Iterator[LocatedFinding]:
    """Yield requirements that no package or task covers; only once there is a plan."""
    if feature.spec is None:
        return

    if feature.packages:
        covered = {id_ for package in packages for id_ in package.requirements}
        kind = "work package"
    elif feature.tasks:
        covered = {reference for task in feature.tasks.tasks for reference in task.spec}
        kind = "task"
    else:
        return

    for requirement in feature.spec.requirements:
        if requirement.id not in covered:
            yield LocatedFinding(
                SPEC_FILE,
                requirement.line,
                "uncovered",
                f"{requirement.id} is covered by no {kind}",
            )


_PUNCTUATION = re.compile(r"[^\w\- ]")
_HEADING = re.compile(r" {0,3}#{1,6}\s+(.*)")


def to_anchor(heading: str) -> str:
    """Convert a heading to the anchor that links use."""
    return _PUNCTUATION.sub("", heading.strip().lower()).replace(" ", "-")


def extract_anchors(text: str) -> frozenset[str]:
    """Return the anchors of a document's headings."""
    prose = (line.text for line in iter_markdown_lines(text) if line.fence_info is None)
    return frozenset(to_anchor(found[1]) for line in prose if (found := _HEADING.match(line)))
