"""Trace each requirement to its packages, commits and tests, and report missing ones."""

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
    """A package with its commits, and the texts of its tests by path."""

    package: WorkPackage
    commits: tuple[Commit, ...]
    tests: Mapping[str, str]


class CommitLink(msgspec.Struct, frozen=True):
    id: str
    subject: str
    package: str
    # The message contains the requirement id
    names_it: bool = False


class TestLink(msgspec.Struct, frozen=True):
    # pytest must not collect this class
    __test__ = False

    path: str
    package: str
    # The text of the test contains the requirement id
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
        """The steps for which nothing was found."""
        found = (self.packages, self.commits, self.tests)
        return tuple(step for step, there in zip(TRACE_STEPS, found, strict=True) if not there)


def trace_requirements(
    requirements: Sequence[Requirement], works: Sequence[PackageTraceData]
) -> tuple[RequirementTrace, ...]:
    """Trace each requirement.

    Commits that name a requirement count for it. A requirement that no commit of its package names
    has those without an id, or else all commits of the package. Tests that name ids count for
    these; those that name none count for all requirements of their package.
    """
    find_ids = _build_id_finder([requirement.id for requirement in requirements])
    commits = [
        (work.package, commit, find_ids(commit.message))
        for work in works
        for commit in work.commits
    ]
    tests = [
        (work.package, path, find_ids(text)) for work in works for path, text in work.tests.items()
    ]

    return tuple(
        _trace_requirement(requirement, works, commits, tests) for requirement in requirements
    )


def _trace_requirement(
    requirement: Requirement,
    works: Sequence[PackageTraceData],
    commits: Sequence[tuple[WorkPackage, Commit, frozenset[str]]],
    tests: Iterable[tuple[WorkPackage, str, frozenset[str]]],
) -> RequirementTrace:
    """Link a requirement to its packages, commits and tests."""
    id_ = requirement.id
    return RequirementTrace(
        id=id_,
        text=requirement.text,
        priority=requirement.priority.value if requirement.priority else None,
        packages=tuple(
            work.package.work_package_id for work in works if id_ in work.package.requirements
        ),
        commits=_link_commits(id_, commits),
        tests=tuple(
            TestLink(path, package.work_package_id, id_ in ids)
            for package, path, ids in tests
            if id_ in (ids or package.requirements)
        ),
    )


def _link_commits(
    id_: str, commits: Sequence[tuple[WorkPackage, Commit, frozenset[str]]]
) -> tuple[CommitLink, ...]:
    named = [entry for entry in commits if id_ in entry[2]]
    in_package = [entry for entry in commits if id_ in entry[0].requirements]
    without_id = [entry for entry in in_package if not entry[2]]

    return tuple(
        CommitLink(commit.id, commit.subject, package.work_package_id, id_ in ids)
        for package, commit, ids in named or without_id or in_package
    )


def _build_id_finder(ids: Sequence[str]) -> Callable[[str], frozenset[str]]:
    """Return a function that finds the known ids in a text, as whole words."""
    words = "|".join(re.escape(id_) for id_ in sorted(ids, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])")
    return lambda text: frozenset(pattern.findall(text)) if ids else frozenset()


def render_trace(traced: Sequence[RequirementTrace]) -> Iterator[str]:
    """Yield the report: every requirement with its packages, commits and tests, then the gaps."""
    for trace in traced:
        yield f"{trace.id}  {trace.text}".rstrip()
        yield f"  packages  {', '.join(trace.packages) or '-'}"
        yield from _list_lines(
            "commits", [f"{commit.id[:10]} {commit.subject}" for commit in trace.commits]
        )
        yield from _list_lines(
            "tests",
            [f"{test.path}{' (names it)' if test.names_it else ''}" for test in trace.tests],
        )
        if trace.missing:
            yield f"  MISSING   {', '.join(trace.missing)}"

    yield summarize_trace(traced)


def _list_lines(title: str, items: Sequence[str]) -> Iterator[str]:
    for position, item in enumerate(items or ["-"]):
        yield f"  {title if position == 0 else '':<8}  {item}"


def summarize_trace(traced: Sequence[RequirementTrace]) -> str:
    """Return the number of requirements, and how many lack a package, a commit or a test."""
    if not traced:
        return "no requirements"
    gaps = []
    for step in TRACE_STEPS:
        count = sum(step in trace.missing for trace in traced)
        if count:
            gaps.append(f"{count} without {step}")

    summary = ", ".join(gaps) or "each has a package, a commit and a test"
    return f"{len(traced)} requirements: {summary}"
