"""A work package: its front matter, its states, and the checks of its fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, TypeVar

import msgspec

from phasegate.core.paths.glob import is_pattern
from phasegate.core.paths.own_folders import OWN_FOLDERS
from phasegate.core.paths.repo_path import find_path_problem
from phasegate.core.paths.scope import LITTER_PATTERNS, Scope
from phasegate.core.text.finding import quote_text

MAX_AGENTS = 16
# The shipped language profiles, in the order in which they are tried on a repository
PROFILES = ("rust", "go", "typescript", "python")
CHECK_COMMANDS = ("setup", "build", "test", "lint", "typecheck", "coverage")
T = TypeVar("T")

_PACKAGE_ID = re.compile(r"WP(0[1-9]|[1-9][0-9]{1,3})")
_SLUG = re.compile(r"[0-9]{3,6}(-[a-z0-9]+)+")
_REQUIREMENT_ID = re.compile(r"[A-Z]{1,12}(-[A-Z0-9]{1,24}){0,6}-[0-9]{1,6}")
_TASK_ID = re.compile(r"[1-4]\.[1-9][0-9]{0,3}")
_PROFILE = re.compile(r"[a-z][a-z0-9-]{0,40}")


class Deliverables(msgspec.Struct, frozen=True):
    """The files that must exist in the end, by kind."""

    code: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    documentation: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """All files, in the order in which they are split among agents."""
        return (*self.code, *self.tests, *self.documentation)


class PackageChecks(msgspec.Struct, frozen=True):
    """Commands that override the profile's commands.

    None keeps the profile's command, an empty one disables it.
    """

    setup: str | None = None
    build: str | None = None
    test: str | None = None
    lint: str | None = None
    typecheck: str | None = None
    coverage: str | None = None
    coverage_min: float | None = None


class WorkPackage(msgspec.Struct, frozen=True, kw_only=True):
    """The front matter of a `WPnn.md`.

    The fields after `allowed_dependencies` are our own, and optional in a document.
    """

    work_package_id: str
    title: str
    feature_slug: str
    file_scope: tuple[str, ...]
    dependencies: tuple[str, ...] = ()
    deliverables: Deliverables = Deliverables()
    requirements: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    profile: str = ""
    checks: PackageChecks = PackageChecks()
    num_agents: int = 1
    allowed_dependencies: tuple[str, ...] = ()
    mission: str = ""
    feature_title: str = ""
    # Descriptions of deliverables, by path
    descriptions: Mapping[str, str] = msgspec.field(default_factory=dict)
    architecture_rules: tuple[str, ...] = ()
    quality_rules: tuple[str, ...] = ()
    forbidden_dependencies: tuple[str, ...] = ()
    frozen_files: tuple[str, ...] = ()
    executable_files: tuple[str, ...] = ()
    # Deliverables that count as delivered even if the work does not change them
    may_stay_unchanged: tuple[str, ...] = ()

    @property
    def sequence(self) -> int:
        """The number in the id."""
        return int(self.work_package_id[2:])

    @property
    def branch(self) -> str:
        """The branch of the package."""
        return f"feat/{self.feature_slug}-{self.work_package_id}"

    @property
    def worktree(self) -> str:
        """The folder of its checkout."""
        return f".worktrees/{self.feature_slug}-{self.work_package_id}"

    def build_scope(
        self,
        exceptions: Sequence[str] = (),
        litter: Sequence[str] = LITTER_PATTERNS,
        own_folders: Sequence[str] = OWN_FOLDERS,
        protected: Sequence[str] = (),
    ) -> Scope:
        """Return the scope of the package; its own document in the checkout is ignored."""
        return Scope(
            self.file_scope,
            executable=self.executable_files,
            exceptions=exceptions,
            set_aside=(f"{self.work_package_id}.md",),
            litter=litter,
            own_folders=own_folders,
            protected=protected,
        )


class PackageState(StrEnum):
    """State of a package."""

    PLANNED = "PLANNED"
    DOING = "DOING"
    FOR_REVIEW = "FOR_REVIEW"
    DONE = "DONE"
    BLOCKED = "BLOCKED"
    # A changed plan has other packages for its tasks
    REPLACED = "REPLACED"


def split_evenly(items: Sequence[T], parts: int) -> tuple[tuple[T, ...], ...]:
    """Split items into contiguous parts of nearly equal size, larger ones first.

    With more parts than items, the last ones are empty.
    """
    size, larger = divmod(len(items), parts)
    starts = [number * size + min(number, larger) for number in range(parts + 1)]
    return tuple(tuple(items[start:end]) for start, end in pairwise(starts))


class PackageProblem(NamedTuple):
    """A problem with a field; `value` is the list item concerned."""

    key: str
    message: str
    value: str | None = None


def shorten_slug(slug: str) -> str:
    """Return the number of a feature, which `--feature` takes; the slug itself if it has none."""
    number = slug.partition("-")[0]
    if number.isdecimal():
        return number
    return slug


def is_safe_slug(slug: str) -> bool:
    """Return whether a feature's name is safe as a folder and in a branch name: `NNN-words`."""
    return _SLUG.fullmatch(slug) is not None and len(slug) <= 100


def is_package_id(text: str) -> bool:
    """Return whether a text is an id such as WP01."""
    return _PACKAGE_ID.fullmatch(text) is not None


def is_requirement_id(text: str) -> bool:
    """Return whether a text is an id such as FR-AUTH-001."""
    return _REQUIREMENT_ID.fullmatch(text) is not None


def find_package_problems(package: WorkPackage) -> Iterator[PackageProblem]:
    """Yield everything that makes a package invalid by itself."""
    yield from _name_problems(package)
    yield from _list_problems(package)
    yield from _scope_problems(package)
    yield from _text_problems(package)
    if not 1 <= package.num_agents <= MAX_AGENTS:
        yield PackageProblem("num_agents", f"must be 1 to {MAX_AGENTS}")

    minimum = package.checks.coverage_min
    if minimum is not None and not (0 <= minimum <= 100 and round(minimum, 2) == minimum):
        yield PackageProblem(
            "checks.coverage_min", "must be a percentage from 0 to 100 with at most two decimals"
        )


def _name_problems(package: WorkPackage) -> Iterator[PackageProblem]:
    """Yield invalid ids, slugs and profile names of a package."""
    if not _PACKAGE_ID.fullmatch(package.work_package_id):
        yield PackageProblem(
            "work_package_id",
            f"must be WP01, WP02 and so on, not {quote_text(package.work_package_id)}",
        )

    if not is_safe_slug(package.feature_slug):
        yield PackageProblem(
            "feature_slug", f"must be like 001-user-login, not {quote_text(package.feature_slug)}"
        )

    if package.profile and not _PROFILE.fullmatch(package.profile):
        yield PackageProblem(
            "profile", f"must be the name of a language profile, not {quote_text(package.profile)}"
        )

    if package.work_package_id in package.dependencies:
        yield PackageProblem("dependencies", "names the package itself", package.work_package_id)


def _list_problems(package: WorkPackage) -> Iterator[PackageProblem]:
    """Check that each value of a list has the right form, and that none is repeated."""
    patterns = {"dependencies": _PACKAGE_ID, "requirements": _REQUIREMENT_ID, "tasks": _TASK_ID}

    for key, pattern in patterns.items():
        values: tuple[str, ...] = getattr(package, key)
        yield from (
            PackageProblem(key, f"holds {quote_text(value)}, which is not a valid id", value)
            for value in values
            if not pattern.fullmatch(value)
        )

    for key in (
        *patterns,
        "file_scope",
        "allowed_dependencies",
        "forbidden_dependencies",
        "executable_files",
    ):
        yield from _repetition_problems(key, getattr(package, key))

    yield from _repetition_problems("deliverables", package.deliverables.all)


def _repetition_problems(key: str, values: Sequence[str]) -> Iterator[PackageProblem]:
    previous: set[str] = set()
    for value in values:
        if value in previous:
            yield PackageProblem(key, f"holds {quote_text(value)} twice", value)
        previous.add(value)


def find_scope_entry_problem(entry: str) -> str | None:
    """Return why a scope entry could reach outside of the worktree or is meaningless; else None."""
    if entry.startswith("!"):
        return "is an exclusion; list what may change instead"
    return find_path_problem(entry.removesuffix("/"))


def _scope_problems(package: WorkPackage) -> Iterator[PackageProblem]:
    """Yield file scope entries and deliverables that are invalid or inconsistent."""
    if not package.file_scope:
        yield PackageProblem("file_scope", "is missing or empty: the package could change nothing")

    for entry in package.file_scope:
        if problem := find_scope_entry_problem(entry):
            yield PackageProblem("file_scope", f"holds {quote_text(entry)}, which {problem}", entry)

    scope = package.build_scope()
    for kind in ("code", "tests", "documentation"):
        for path in getattr(package.deliverables, kind):
            if problem := _deliverable_problem(path, scope):
                yield PackageProblem(
                    f"deliverables.{kind}", f"holds {quote_text(path)}, which {problem}", path
                )

    for path in package.executable_files:
        if find_path_problem(path) or not scope.covers(path):
            yield PackageProblem(
                "executable_files",
                f"holds {quote_text(path)}, which is not in the file scope",
                path,
            )

    yield from _undelivered_problems(package)


def _undelivered_problems(package: WorkPackage) -> Iterator[PackageProblem]:
    delivered = set(package.deliverables.all)
    for path in package.may_stay_unchanged:
        if path not in delivered:
            message = f"holds {quote_text(path)}, which is not a deliverable"
            yield PackageProblem("may_stay_unchanged", message, path)

    for path in package.descriptions.keys() - delivered:
        yield PackageProblem(
            "descriptions", f"describes {quote_text(path)}, which is not a deliverable"
        )


def _deliverable_problem(path: str, scope: Scope) -> str | None:
    if problem := find_path_problem(path):
        return problem
    if is_pattern(path) and ("*" in path or "?" in path):
        return "is a pattern; a deliverable is one file"
    if not scope.covers(path):
        return "is not in the file scope"
    if scope.is_litter(path):
        return "is a tool leftover, which is never collected"

    return None


def _text_problems(package: WorkPackage) -> Iterator[PackageProblem]:
    """Check that texts are single printable lines; only the mission may have several."""
    if not package.title.strip():
        yield PackageProblem("title", "is missing")

    commands = {f"checks.{name}": getattr(package.checks, name) or "" for name in CHECK_COMMANDS}
    texts = {"title": package.title, "feature_title": package.feature_title, **commands}
    yield from (
        PackageProblem(key, "must be one line of printable text")
        for key, text in texts.items()
        if not _is_printable_line(text)
    )

    for key in (
        "architecture_rules",
        "quality_rules",
        "allowed_dependencies",
        "forbidden_dependencies",
        "frozen_files",
    ):
        values: tuple[str, ...] = getattr(package, key)
        if not all(_is_printable_line(value) and value.strip() for value in values):
            yield PackageProblem(key, "must hold lines of printable text, none of them empty")

    if not all(_is_printable_line(text) for text in package.descriptions.values()):
        yield PackageProblem("descriptions", "must be one line of printable text each")
    if not all(_is_printable_line(line) for line in package.mission.split("\n")):
        yield PackageProblem("mission", "must be printable text")


def _is_printable_line(text: str) -> bool:
    """Return whether a text has no control characters, no line end and no lone surrogates."""
    return text.isprintable() or not any(
        c < " " or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\udfff" for c in text
    )
