"""Compare a change with the rules of its package: new dependencies and frozen files.

Names of dependencies are read from manifests and lock files of npm, Python, Cargo, Go, Maven,
Gradle and Bundler. A package may add only what its `May add` lists; new names in a lock file are
accepted only together with a permitted dependency, which may need them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from tomllib import loads
from typing import NamedTuple

from phasegate.core.detection.files import get_nested, get_table, is_requirements_file, list_strings
from phasegate.core.paths.scope import LOCK_FILES, Scope
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.text.light_json import parse_json

DEPENDENCY_PREFIX = "dependency:"
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_EDITABLE = re.compile(r"\s*(?:-e|--editable)[\s=]+(\S+)")
_RULE_NAME = re.compile(r"(@?[A-Za-z0-9][\w./-]*)(?:[@<>=~!^\[;].*)?")
_DEPENDENCY_TABLES = re.compile(
    r"(?:.*-)?(?:dependencies|requires)|(?:dev|peer|optional)?D?ependencies|dependency-groups"
)
_LOCK_NAMES = re.compile(
    # poetry, uv, pdm, Cargo; package-lock; pnpm and yarn; go.sum; Pipfile.lock; Gemfile.lock
    r'^name = "([^"]{1,200})"$|"(?:[^"]*/)?node_modules/((?:@[^/"]+/)?[^/"]+)": \{'
    r"|^ {2}'?/?((?:@[^/@'\s]+/)?[^/@'\s:]+)[/@][0-9]|^\"?((?:@[^/@\"\s]+/)?[^@\"\s,#]+)@[^:]*:$"
    r'|^(\S+\.\S+/\S+|\S+\.\S+) v[0-9]|^ {8}"([A-Za-z0-9._-]+)": \{$'
    r"|^ {4}([\w.-]+) \([0-9]",
    re.M,
)


class ChangedFile(NamedTuple):
    """A changed file with its text before and after; empty if it did not exist."""

    path: str
    before: str
    after: str


class RuleViolation(NamedTuple):
    """A violation of a package's rules; `approval` is the scope entry that would allow it."""

    reason: str
    approval: str


def is_dependency_file(path: str) -> bool:
    """Return True if a file declares or locks dependencies."""
    name = path.rpartition("/")[2]
    return name in _READERS or name in LOCK_FILES or is_requirements_file(name)


def find_rule_violations(
    package: WorkPackage,
    changed_paths: Iterable[str],
    files: Iterable[ChangedFile],
    approved: Iterable[str] = (),
) -> tuple[RuleViolation, ...]:
    """Return the changes that the package's dependency rules forbid.

    `files` are the changed dependency files; `approved` are the user's exceptions.
    """
    files = tuple(files)
    exceptions = frozenset(approved)
    return (
        *_find_frozen_changes(package, tuple(changed_paths), files, exceptions),
        *_find_forbidden_dependencies(package, files, exceptions),
    )


def _find_frozen_changes(
    package: WorkPackage,
    changed_paths: tuple[str, ...],
    files: tuple[ChangedFile, ...],
    exceptions: frozenset[str],
) -> Iterator[RuleViolation]:
    """Yield changes of frozen files that no exception permits."""
    by_path = {file.path: file for file in files}
    for entry in package.frozen_files:
        # "package.json root entries": everything but the dependencies
        path, _, rest = entry.strip("`").partition(" ")
        frozen = Scope((path,), lock_files=(), litter=())
        for changed in changed_paths:
            if not frozen.covers(changed) or changed in exceptions:
                continue
            if rest and changed in by_path and _differs_only_in_dependencies(by_path[changed]):
                continue
            reason = f"Frozen file changed (governance violation): {changed}"
            yield RuleViolation(reason, changed)


def _find_forbidden_dependencies(
    package: WorkPackage, files: tuple[ChangedFile, ...], exceptions: frozenset[str]
) -> Iterator[RuleViolation]:
    """Yield added dependencies that the package does not permit."""
    approved = (
        entry.removeprefix(DEPENDENCY_PREFIX)
        for entry in exceptions
        if entry.startswith(DEPENDENCY_PREFIX)
    )
    allowed = _read_rule_names((*package.allowed_dependencies, *approved))
    forbidden = _read_rule_names(package.forbidden_dependencies) - allowed
    added = []
    for file in files:
        after = list_dependencies(file.path, file.after)
        if after is None:
            reason = f"Dependencies cannot be read (governance violation): {file.path}"
            yield RuleViolation(reason, file.path)
            continue

        before = list_dependencies(file.path, file.before) or frozenset()
        added += [(name, file.path) for name in sorted(after - before)]

    # A permitted dependency may bring others, which only the lock file names
    brings_others = any(_matches(name, allowed) for name, path in added if not _is_lock_file(path))

    for name, path in added:
        is_transitive = _is_lock_file(path) and brings_others
        if _matches(name, forbidden) or not (is_transitive or _matches(name, allowed)):
            reason = f"Dependency not permitted (governance violation): {path} adds {name}"
            yield RuleViolation(reason, f"{DEPENDENCY_PREFIX}{name}")


def _is_lock_file(path: str) -> bool:
    return path.rpartition("/")[2] in LOCK_FILES


def _matches(name: str, rules: frozenset[str]) -> bool:
    """Return True if a rule names this dependency; a Go module also by its last part."""
    return name in rules or any(name.endswith(f"/{rule}") for rule in rules if "." in name)


def _read_rule_names(entries: Iterable[str]) -> frozenset[str]:
    """Return the names in a list of rules. A rule in prose names nothing."""
    words = (entry.partition("(")[0].strip(" `*.") for entry in entries)
    found = (_RULE_NAME.fullmatch(word) for word in words)
    return frozenset(_normalize(match[1]) for match in found if match)


def _normalize(name: str) -> str:
    """Return a name in comparable form: PEP 503 for plain names; paths and scopes are kept."""
    if "/" in name:
        return name.lower()
    return re.sub(r"[-_.]+", "-", name).lower()


def list_dependencies(path: str, text: str) -> frozenset[str] | None:
    """Return the dependencies that a manifest or lock file names, or None if it cannot be read."""
    name = path.rpartition("/")[2]
    if not text:
        return frozenset()
    if name in LOCK_FILES:
        found = (next(filter(None, match.groups())) for match in _LOCK_NAMES.finditer(text))
        return frozenset(map(_normalize, found))

    read = _READERS.get(name)
    if read is None and is_requirements_file(name):
        read = _read_requirement_lines
    if read is None:
        return frozenset()

    try:
        return frozenset(_normalize(item) for item in read(text) if item)
    except (ValueError, RuntimeError, StopIteration):
        return None


def _read_package_json(text: str) -> Iterator[str]:
    manifest = parse_json(text)
    for kind in ("dependencies", "devDependencies", "peerDependencies", "optionalDependencies"):
        yield from get_table(manifest, kind)


def _read_requirements(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if found := _REQUIREMENT.match(line):
            yield found[1]


def _read_requirement_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        editable = _EDITABLE.match(line)
        if editable:
            yield editable[1].rpartition("#egg=")[2]
        elif not line.lstrip().startswith(("#", "-")):
            yield from _read_requirements([line])


def _read_pyproject(text: str) -> Iterator[str]:
    """Yield the names of all dependencies in a pyproject.toml."""
    manifest = loads(text)
    lists = [
        get_nested(manifest, "project", "dependencies"),
        get_nested(manifest, "build-system", "requires"),
        get_nested(manifest, "tool", "uv", "dev-dependencies"),
        *get_table(manifest, "project", "optional-dependencies").values(),
        *get_table(manifest, "dependency-groups").values(),
        *get_table(manifest, "tool", "pdm", "dev-dependencies").values(),
    ]
    for one in lists:
        yield from _read_requirements(list_strings(one))

    poetry = get_table(manifest, "tool", "poetry")
    groups = get_table(poetry, "group").values()
    for table in (poetry, *groups):
        for kind in ("dependencies", "dev-dependencies"):
            yield from (name for name in get_table(table, kind) if name != "python")


def _read_pipfile(text: str) -> Iterator[str]:
    manifest = loads(text)
    yield from get_table(manifest, "packages")
    yield from get_table(manifest, "dev-packages")


def _read_setup_file(text: str) -> Iterator[str]:
    """Read `install_requires` and the like of setup.py or setup.cfg, by their form."""
    for block in re.findall(
        r"_requires?\s*=\s*(\[[^\]]*\]|\{[^}]*\}|(?:.*\n)(?:[ \t]+.*\n)*)", text
    ):
        quoted = re.findall(r"[\"']([A-Za-z0-9][^\"']*)[\"'](?!\s*:)", block)
        yield from _read_requirements(quoted or block.splitlines())


def _read_cargo(text: str) -> Iterator[str]:
    manifest = loads(text)
    tables = [manifest, get_table(manifest, "workspace"), *get_table(manifest, "target").values()]
    for table in tables:
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            yield from get_table(table, kind)


def _read_go_mod(text: str) -> Iterator[str]:
    for match in re.finditer(r"^(?:require\s+|\s+)(\S+\.\S+) v[0-9]", text, re.M):
        yield match[1]


def _read_pom(text: str) -> Iterator[str]:
    for block in re.findall(r"<dependency>(.*?)</dependency>", text, re.S):
        yield from re.findall(r"<artifactId>\s*([^<\s]+)", block)


def _read_gemfile(text: str) -> Iterator[str]:
    for match in re.finditer(r"^\s*gem[\s(]+[\"']([\w.-]+)[\"']", text, re.M):
        yield match[1]


def _read_version_catalog(text: str) -> Iterator[str]:
    for library in get_table(loads(text), "libraries").values():
        coordinates = library if isinstance(library, str) else get_nested(library, "module")
        name = str(coordinates or get_nested(library, "name")).split(":")
        yield name[min(1, len(name) - 1)]


def _read_gradle(text: str) -> Iterator[str]:
    for match in re.finditer(r"[\"']([\w.-]+):([\w.-]+)(?::[^\"']*)?[\"']", text):
        yield match[2]


_READERS: Mapping[str, Callable[[str], Iterator[str]]] = {
    "package.json": _read_package_json,
    "pyproject.toml": _read_pyproject,
    "Pipfile": _read_pipfile,
    "setup.py": _read_setup_file,
    "setup.cfg": _read_setup_file,
    "Cargo.toml": _read_cargo,
    "go.mod": _read_go_mod,
    "pom.xml": _read_pom,
    "build.gradle": _read_gradle,
    "build.gradle.kts": _read_gradle,
    "libs.versions.toml": _read_version_catalog,
    "Gemfile": _read_gemfile,
}


def _differs_only_in_dependencies(file: ChangedFile) -> bool:
    parse = parse_json if file.path.endswith(".json") else loads
    try:
        return _without_dependencies(parse(file.before)) == _without_dependencies(parse(file.after))
    except (ValueError, RuntimeError, StopIteration):
        return False


def _without_dependencies(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: _without_dependencies(inner)
            for key, inner in value.items()
            if not _DEPENDENCY_TABLES.fullmatch(str(key))
        }
    return value
