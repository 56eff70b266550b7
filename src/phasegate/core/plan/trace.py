"""From each requirement to its packages, commits and tests, and what is missing on the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from phasegate.core.plan.commits import Commit
from phasegate.core.plan.requirements import Requirement
from phasegate.core.plan.work_package import WorkPackage

TRACE_STEPS = ("package", "commit", "test")


class PackageTraceData(NamedTuple):
    """A package and what there is of its work: its commits, and the texts of its tests, by path."""

    package: WorkPackage
    commits: tuple[Commit, ...]
    tests: Mapping[str, str]


class CommitLink(msgspec.Struct, frozen=True):
    id: str
    subject: str
    package: str


class TestLink(msgspec.Struct, frozen=True):
    # Not a test of ours
    __test__ = False

    path: str
    package: str
    # The test says the requirement's id
    names_it: bool


class RequirementTrace(msgspec.Struct, frozen=True):
    """A requirement, and everything that was found for it."""

    id: str
    text: str
    priority: str | None
    packages: tuple[str, ...]
    commits: tuple[CommitLink, ...]
    tests: tuple[TestLink, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """The steps for which there is nothing."""
        found = (self.packages, self.commits, self.tests)
        return tuple(step for step, there in zip(TRACE_STEPS, found, strict=True) if not there)


def trace_requirements(
    requirements: Sequence[Requirement], works: Sequence[PackageTraceData]
) -> tuple[RequirementTrace, ...]:
    """Follow each requirement.

    What names ids counts for those; what names none, for all that its package serves.
    """
    named = _build_id_finder([requirement.id for requirement in requirements])
    commits = [
        (work.package, commit, named(commit.message)) for work in works for commit in work.commits
    ]
    tests = [
        (work.package, path, named(text)) for work in works for path, text in work.tests.items()
    ]

    return tuple(
        _trace_requirement(requirement, works, commits, tests) for requirement in requirements
    )


def _trace_requirement(
    requirement: Requirement,
    works: Sequence[PackageTraceData],
    commits: Iterable[tuple[WorkPackage, Commit, frozenset[str]]],
    tests: Iterable[tuple[WorkPackage, str, frozenset[str]]],
) -> RequirementTrace:
    id_ = requirement.id
    return RequirementTrace(
        id=id_,
        text=requirement.text,
        priority=requirement.priority.value if requirement.priority else None,
        packages=tuple(
            work.package.work_package_id for work in works if id_ in work.package.requirements
        ),
        commits=tuple(
            CommitLink(commit.id, commit.subject, package.work_package_id)
            for package, commit, ids in commits
            if id_ in (ids or package.requirements)
        ),
        tests=tuple(
            TestLink(path, package.work_package_id, id_ in ids)
            for package, path, ids in tests
            if id_ in (ids or package.requirements)
        ),
    )


def _build_id_finder(ids: Sequence[str]) -> Callable[[str], frozenset[str]]:
    """Finds the known ids in a text, each as a whole."""
    words = "|".join(re.escape(id_) for id_ in sorted(ids, key=len, reverse=True))
    form = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])")
    return lambda text: frozenset(form.findall(text)) if ids else frozenset()


def render_trace(traced: Sequence[RequirementTrace]) -> Iterator[str]:
    """The report for people: every requirement with what was found, then what is missing in all."""
    for one in traced:
        yield f"{one.id}  {one.text}".rstrip()
        yield f"  packages  {', '.join(one.packages) or '-'}"
        yield from _list_lines(
            "commits", [f"{commit.id[:10]} {commit.subject}" for commit in one.commits]
        )
        yield from _list_lines(
            "tests", [f"{test.path}{' (names it)' if test.names_it else ''}" for test in one.tests]
        )
        if one.missing:
            yield f"  MISSING   {', '.join(one.missing)}"

    yield summarize_trace(traced)


def _list_lines(title: str, items: Sequence[str]) -> Iterator[str]:
    for position, item in enumerate(items or ["-"]):
        yield f"  {title if position == 0 else '':<8}  {item}"


def summarize_trace(traced: Sequence[RequirementTrace]) -> str:
    """How many requirements there are, and how many lack what."""
    if not traced:
        return "no requirements"
    gaps = [f"{sum(step in one.missing for one in traced)} without {step}" for step in TRACE_STEPS]
    found = [gap for gap in gaps if not gap.startswith("0 ")]
    return f"{len(traced)} requirements: {', '.join(found) or 'each has a package, a commit and a test'}"
