"""Find the roots of a repository: folders that are set up and tested by themselves.

A workspace is one root, whatever packages it has. A nested folder is a root only if it has tests
and is not a member of a workspace above it: fixtures, examples and web pages have manifests too
(one public repository has 1137 package.json files).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator

from phasegate.core.detection.files import ProjectFiles, get_nested, list_strings
from phasegate.core.detection.model import DetectedProject, MachineInfo
from phasegate.core.detection.node import detect_node
from phasegate.core.detection.other_languages import (
    GO_USE,
    detect_c,
    detect_go,
    detect_java,
    detect_rust,
    detect_targets,
)
from phasegate.core.detection.project_kind import detect_root_kind
from phasegate.core.detection.python import detect_python
from phasegate.core.detection.python_tests import is_test_file
from phasegate.core.paths.glob import compile_pattern, may_overlap

MAX_ROOTS = 200
_ROOT_MANIFESTS = (
    "Cargo.toml",
    "go.mod",
    "package.json",
    "pyproject.toml",
    "setup.py",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
)
_NON_PROJECT_FOLDERS = re.compile(
    r"(?:^|/)(?:node_modules|vendor|third_party|testdata|fixtures|__fixtures__|examples?"
    r"|templates?|e2e|tests?|__tests__|docs?|website|bench(?:marks?)?|build|dist|[._][^/]*)(?:/|$)"
)
_TEST_PATHS = {
    "go": re.compile(r"_test\.go$"),
    "java": re.compile(r"(?:^|/)src/test/"),
}

# Members of a workspace in the files of package managers
_NEXT_YAML_KEY = re.compile(r"^\S", re.M)
_YAML_ITEM = re.compile(r"^\s*-\s*['\"]?([^'\"\n#]+?)['\"]?\s*$", re.M)
_MAVEN_MODULE = re.compile(r"<module>\s*([^<\s]+)\s*</module>")
_GRADLE_INCLUDE = re.compile(r"^\s*include\b(.*)$", re.M)
_GRADLE_NAME = re.compile(r"['\"]:?([\w:.-]+)['\"]")


def find_candidate_roots(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the repository itself, and each folder with its own manifest."""
    folders = set()
    for path in paths:
        folder, _, name = path.rpartition("/")
        if name in _ROOT_MANIFESTS and folder and not _NON_PROJECT_FOLDERS.search(folder):
            folders.add(folder)

    return ("", *sorted(folders)[:MAX_ROOTS])


def select_root_files(files: ProjectFiles, root: str, others: Collection[str] = ()) -> ProjectFiles:
    """Return the files of one root by relative path, without other roots inside it."""
    prefix = f"{root}/" if root else ""
    excluded = tuple(f"{other}/" for other in others if other != root and other.startswith(prefix))
    paths = {
        path.removeprefix(prefix): path
        for path in files.paths
        if path.startswith(prefix) and not path.startswith(excluded)
    }
    texts = {name: files.texts[path] for name, path in paths.items() if path in files.texts}
    return ProjectFiles(frozenset(paths), texts)


def find_project_roots(files: ProjectFiles, named_roots: Collection[str] = ()) -> tuple[str, ...]:
    """Return the roots of a repository, the repository itself first if it is one.

    Roots that the user named are always included.
    """
    candidates = find_candidate_roots(files.paths)
    members = {root: _read_workspace_members(select_root_files(files, root)) for root in candidates}
    free = [root for root in candidates[1:] if not _is_workspace_member(root, members)]
    roots = {root for root in free if _has_tests(select_root_files(files, root, free))}
    roots.update(root for root in named_roots if root and _has_files(files, root))

    top = select_root_files(files, "", roots)
    is_tested = detect_root_kind(top.paths) != "" and _has_tests(top)
    if not roots or "" in named_roots or is_tested:
        roots.add("")

    return tuple(sorted(roots))


def _has_files(files: ProjectFiles, root: str) -> bool:
    return any(path.startswith(f"{root}/") for path in files.paths)


def find_touched_roots(roots: Collection[str], scope: Collection[str]) -> tuple[str, ...]:
    """Return the roots that work within a scope can change.

    All are returned if none matches.
    """
    touched = {root for pattern in scope for root in _find_reachable_roots(roots, pattern)}
    return tuple(root for root in roots if root in touched) or tuple(roots)


def _find_reachable_roots(roots: Collection[str], pattern: str) -> Iterator[str]:
    """Yield nested roots that a pattern can reach.

    The repository itself is included if the pattern can match outside of them.
    """
    nested = [root for root in roots if root]
    yield from (root for root in nested if may_overlap(pattern, f"{root}/**"))
    if not any(compile_pattern(f"/{root}").match(pattern.lstrip("/")) for root in nested):
        yield ""


def _has_tests(files: ProjectFiles) -> bool:
    kind = detect_root_kind(files.paths)
    if kind == "python":
        return any(is_test_file(path) for path in files.paths)
    if kind in _TEST_PATHS:
        return any(_TEST_PATHS[kind].search(path) for path in files.paths)

    project = detect_project(files, MachineInfo())
    return project is not None and "test" in project.commands


def _is_workspace_member(root: str, members_by_root: dict[str, list[str]]) -> bool:
    """Return True if a workspace above a folder has it as a member."""
    for above, patterns in members_by_root.items():
        prefix = f"{above}/" if above else ""
        if above == root or not root.startswith(prefix):
            continue

        path = root.removeprefix(prefix)
        included = [pattern for pattern in patterns if not pattern.startswith("!")]
        excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
        if _matches_any(included, path) and not _matches_any(excluded, path):
            return True

    return False


def _matches_any(patterns: Iterable[str], path: str) -> bool:
    return any(compile_pattern(f"/{pattern}").match(path) for pattern in patterns)


def _read_workspace_members(files: ProjectFiles) -> list[str]:
    """Read the patterns of the members of a workspace."""
    workspaces = files.load_json("package.json").get("workspaces")
    members = list_strings(workspaces) + list_strings(get_nested(workspaces, "packages"))

    pnpm = files.get_text("pnpm-workspace.yaml").partition("packages:")[2]
    members += _YAML_ITEM.findall(_NEXT_YAML_KEY.split(pnpm)[0])

    cargo = files.load_toml("Cargo.toml")
    members += list_strings(get_nested(cargo, "workspace", "members"))

    pyproject = files.load_toml("pyproject.toml")
    members += list_strings(get_nested(pyproject, "tool", "uv", "workspace", "members"))

    members += GO_USE.findall(files.get_text("go.work"))
    members += _MAVEN_MODULE.findall(files.get_text("pom.xml"))

    gradle = files.get_text("settings.gradle") or files.get_text("settings.gradle.kts")
    for line in _GRADLE_INCLUDE.findall(gradle):
        members += [name.replace(":", "/") for name in _GRADLE_NAME.findall(line)]

    bare = [member.removeprefix("./").strip("/") for member in members]
    return [member for member in bare if member]


_DETECTORS: dict[str, Callable[[ProjectFiles, MachineInfo], DetectedProject | None]] = {
    "rust": detect_rust,
    "go": detect_go,
    "typescript": detect_node,
    "python": detect_python,
    "java": detect_java,
    "c": detect_c,
    "": detect_targets,
}


def detect_project(
    files: ProjectFiles, machine: MachineInfo, kind: str | None = None
) -> DetectedProject | None:
    """Detect one project.

    `kind` is a profile that the user named, which overrides the files.
    """
    if kind is None:
        kind = detect_root_kind(files.paths)

    project = _DETECTORS[kind](files, machine)
    if project is None or "test" in project.commands:
        return project

    targets = detect_targets(files, machine)
    if targets is None:
        return project

    return project._replace(commands={**targets.commands, **project.commands})
