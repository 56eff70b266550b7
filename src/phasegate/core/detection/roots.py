"""The roots of a repository, each folder that is set up and tested by itself, and what kind of
project each is.

A workspace is one root, whatever packages it has. A nested folder is one only if it has tests and
no workspace above it claims it: fixtures, examples and web pages have manifests too (one public
repository has 1137 of package.json).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator

from phasegate.core.detection.files import ProjectFiles, get_nested, list_strings
from phasegate.core.detection.model import DetectedProject, MachineInfo
from phasegate.core.detection.node import detect_node
from phasegate.core.detection.other_languages import (
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
_ROOT_MANIFESTS = frozenset(
    (
        *("Cargo.toml", "go.mod", "package.json", "pyproject.toml", "setup.py", "pom.xml"),
        *("build.gradle", "build.gradle.kts"),
    )
)
_NON_PROJECT_FOLDERS = re.compile(
    r"(?:^|/)(?:node_modules|vendor|third_party|testdata|fixtures|__fixtures__|examples?|templates?|e2e|tests?|__tests__"
    r"|docs?|website|bench(?:marks?)?|build|dist|[._][^/]*)(?:/|$)"
)
_TEST_PATHS = {
    "go": re.compile(r"_test\.go$"),
    "java": re.compile(r"(?:^|/)src/test/"),
}


def find_candidate_roots(paths: Iterable[str]) -> tuple[str, ...]:
    """The repository itself, and each folder with a manifest of its own."""
    folders = {
        path.rpartition("/")[0] for path in paths if path.rpartition("/")[2] in _ROOT_MANIFESTS
    }
    return (
        "",
        *sorted(folder for folder in folders if folder and not _NON_PROJECT_FOLDERS.search(folder))[
            :MAX_ROOTS
        ],
    )


def select_root_files(files: ProjectFiles, root: str, others: Collection[str] = ()) -> ProjectFiles:
    """The files of one root, by their paths from there, without those of other roots inside it."""
    head = f"{root}/" if root else ""
    inside = tuple(f"{other}/" for other in others if other != root and other.startswith(head))
    own = [path for path in files.paths if path.startswith(head) and not path.startswith(inside)]
    texts = {path[len(head) :]: files.texts[path] for path in own if path in files.texts}
    return ProjectFiles(frozenset(path[len(head) :] for path in own), texts)


def find_project_roots(files: ProjectFiles, named_roots: Collection[str] = ()) -> tuple[str, ...]:
    """The roots of a repository, its own first if it is one.

    Those that a person named are always among them.
    """
    candidates = find_candidate_roots(files.paths)
    claimed = {root: _read_workspace_members(select_root_files(files, root)) for root in candidates}
    free = [root for root in candidates[1:] if not _is_workspace_member(root, claimed)]
    tested = {root for root in free if _has_tests(select_root_files(files, root, free))} | {
        *named_roots
    }
    nested = sorted(
        root for root in tested if root and any(path.startswith(f"{root}/") for path in files.paths)
    )
    own = select_root_files(files, "", nested)
    is_own = (
        not nested or "" in named_roots or (detect_root_kind(own.paths) != "" and _has_tests(own))
    )

    return (*([""] if is_own else []), *nested)


def find_touched_roots(roots: Collection[str], scope: Collection[str]) -> tuple[str, ...]:
    """The roots that work within a scope can change.

    All of them where it can be anywhere, or in none.
    """
    found = {root for entry_ in scope for root in _find_reachable_roots(roots, entry_)}
    return tuple(root for root in roots if root in found) or tuple(roots)


def _find_reachable_roots(roots: Collection[str], pattern: str) -> Iterator[str]:
    """Nested roots that a pattern can reach.

    The repository's own where it can reach outside of them.
    """
    nested = [root for root in roots if root]
    yield from (root for root in nested if may_overlap(pattern, f"{root}/**"))
    if not any(compile_pattern(f"/{root}").match(pattern.lstrip("/")) for root in nested):
        yield ""


def _has_tests(files: ProjectFiles) -> bool:
    kind = detect_root_kind(files.paths)
    if kind == "python":
        return any(is_test_file(path) for path in files.paths)
    if (named := _TEST_PATHS.get(kind)) is not None:
        return any(named.search(path) for path in files.paths)

    found = detect_project(files, MachineInfo())
    return found is not None and "test" in found.commands


def _is_workspace_member(root: str, members_by_root: dict[str, list[str]]) -> bool:
    """Whether a workspace above a folder has it as a member."""
    for above, patterns in members_by_root.items():
        head = f"{above}/" if above else ""
        if above == root or not root.startswith(head):
            continue

        path = root[len(head) :]
        wanted = any(
            compile_pattern(f"/{one}").match(path) for one in patterns if not one.startswith("!")
        )
        if wanted and not any(
            compile_pattern(f"/{one[1:]}").match(path) for one in patterns if one.startswith("!")
        ):
            return True

    return False


def _read_workspace_members(files: ProjectFiles) -> list[str]:
    """The patterns by which a workspace names its members."""
    workspaces = files.load_json("package.json").get("workspaces")
    found = list_strings(workspaces) + list_strings(get_nested(workspaces, "packages"))
    pnpm = files.get_text("pnpm-workspace.yaml").partition("packages:")[2]
    found += re.findall(
        r"^\s*-\s*['\"]?([^'\"\n#]+?)['\"]?\s*$", re.split(r"^\S", pnpm, flags=re.M)[0], re.M
    )
    found += list_strings(get_nested(files.load_toml("Cargo.toml"), "workspace", "members"))
    found += list_strings(
        get_nested(files.load_toml("pyproject.toml"), "tool", "uv", "workspace", "members")
    )
    found += re.findall(r"^\s*(?:use\s+)?(\./?[\w./-]*)\s*$", files.get_text("go.work"), re.M)
    found += re.findall(r"<module>\s*([^<\s]+)\s*</module>", files.get_text("pom.xml"))
    gradle = files.get_text("settings.gradle") or files.get_text("settings.gradle.kts")
    included = re.findall(
        r"['\"]:?([\w:.-]+)['\"]", " ".join(re.findall(r"^\s*include\b(.*)$", gradle, re.M))
    )
    found += [name.replace(":", "/") for name in included]

    return [one.removeprefix("./").strip("/") for one in found if one.removeprefix("./").strip("/")]


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
    """What is known about a project.

    `kind` is the profile that a person named, whatever the files tell.
    """
    found = _DETECTORS[detect_root_kind(files.paths) if kind is None else kind](files, machine)
    if found is None or "test" in found.commands:
        return found

    offered = detect_targets(files, machine)
    if offered is None:
        return found

    commands = {**offered.commands, **found.commands}
    return DetectedProject(
        profile=found.profile,
        name=found.name,
        setups=found.setups,
        commands=commands,
        notes=found.notes,
        root=found.root,
    )
