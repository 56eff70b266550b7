"""Collect facts for the language section of a work package from a project's own files.

These are its layout, its pinned versions, and the name of a part of it. A fact that cannot be read
is left empty; the text of the language profile is used instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from phasegate.core.detection.files import (
    ProjectFiles,
    get_nested,
    get_table,
    is_requirements_file,
    list_strings,
)

MAX_LISTED = 16
_GO_REQUIRE = re.compile(
    r"^(?:require[ \t]+|[ \t]+)([\w./~-]+)[ \t]+(v[\w.+-]+)(?![^\n]*// indirect)", re.M
)
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][\w.-]*(?:\[[\w, .-]*\])?[ \t]*(?:[=<>~!]=?[^;#\\\s]*(?:,[ \t]*[^;#\\\s]+)*)?"
)
_SCRIPT_EXTENSIONS = (".ts", ".tsx", ".js", ".jsx", ".mjs")
_TEST_FOLDERS = ("tests", "test")


class LanguageFacts(NamedTuple):
    """Facts about a project; each is empty if nothing was found."""

    layout: str = ""
    # Dependencies with their versions
    pinned: str = ""
    # Argument of a command that runs on a part of the project
    package: str = ""


def collect_language_facts(profile: str, files: ProjectFiles) -> LanguageFacts:
    """Collect the facts of a project of this profile."""
    collectors = {
        "rust": _collect_rust_facts,
        "python": _collect_python_facts,
        "typescript": _collect_node_facts,
        "go": _collect_go_facts,
    }

    if profile in collectors:
        return collectors[profile](files)
    return LanguageFacts()


def _collect_rust_facts(files: ProjectFiles) -> LanguageFacts:
    """Collect crates and dependencies of a Rust project."""
    cargo = files.load_toml("Cargo.toml")
    patterns = [
        pattern.rstrip("/") for pattern in list_strings(get_nested(cargo, "workspace", "members"))
    ]
    crates = _find_members(files, "Cargo.toml", patterns)
    titles = {
        crate: "Binary crate" if f"{crate}/src/main.rs" in files.paths else "Library crate"
        for crate in crates
    }

    package = get_nested(cargo, "package", "name")
    if crates:
        package = crates[0].rpartition("/")[2]

    shared = get_table(cargo, "workspace", "dependencies")
    dependencies = shared or get_table(cargo, "dependencies")
    return LanguageFacts(
        layout=_render_tree(titles),
        pinned=_join_names(
            f"`{name}` v{version}" for name, version in _iter_versions(dependencies)
        ),
        package=package if isinstance(package, str) else "",
    )


def _find_members(files: ProjectFiles, manifest: str, patterns: Iterable[str]) -> list[str]:
    """Return the folders with a manifest that a pattern of the workspace matches."""
    folders = sorted(
        path.removesuffix(f"/{manifest}") for path in files.paths if path.endswith(f"/{manifest}")
    )
    return [
        folder for folder in folders if any(fnmatchcase(folder, pattern) for pattern in patterns)
    ]


def _collect_python_facts(files: ProjectFiles) -> LanguageFacts:
    """Collect packages, test folders and requirements of a Python project."""
    titles: dict[str, str] = {}

    for path in files.paths:
        folder, _, name = path.rpartition("/")
        if path.partition("/")[0] in _TEST_FOLDERS and folder:
            titles[path.partition("/")[0]] = "Tests"
        if name == "__init__.py" and "/" not in folder.removeprefix("src/") and folder != "src":
            titles.setdefault(folder, "Package")
        elif not folder and name.endswith(".py"):
            titles[path] = "Tests" if name.startswith("test_") else "Module"

    package = next((f"{folder}/" for folder in _TEST_FOLDERS if folder in titles), "")
    requirements = (
        match[0].replace(" ", "")
        for line in _iter_requirement_lines(files)
        if (match := _REQUIREMENT.match(line.strip()))
    )
    return LanguageFacts(
        layout=_render_tree(titles),
        pinned=_join_names(f"`{requirement}`" for requirement in requirements),
        package=package,
    )


def _iter_requirement_lines(files: ProjectFiles) -> Iterator[str]:
    project = files.load_toml("pyproject.toml")
    yield from list_strings(get_nested(project, "project", "dependencies"))
    for path in sorted(files.paths):
        if "/" not in path and is_requirements_file(path):
            yield from files.get_text(path).splitlines()


def _collect_node_facts(files: ProjectFiles) -> LanguageFacts:
    """Collect packages or source folders, and dependencies, of a Node project."""
    manifest = files.load_json("package.json")
    workspaces = manifest.get("workspaces")
    if isinstance(workspaces, dict):
        workspaces = workspaces.get("packages")

    patterns = [pattern.removeprefix("./") for pattern in list_strings(workspaces)]
    titles = dict.fromkeys(_find_members(files, "package.json", patterns), "Package")
    if not titles:
        sources = [path for path in files.paths if path.endswith(_SCRIPT_EXTENSIONS)]
        folders = {path.partition("/")[0] for path in sources if "/" in path}
        titles = {name: "Tests" if "test" in name else "Source" for name in sorted(folders)}

    declared = {**get_table(manifest, "dependencies"), **get_table(manifest, "devDependencies")}
    return LanguageFacts(
        layout=_render_tree(titles),
        pinned=_join_names(f"`{name}` {version}" for name, version in _iter_versions(declared)),
    )


def _collect_go_facts(files: ProjectFiles) -> LanguageFacts:
    """Collect packages and required modules of a Go project."""
    sources = [path for path in files.paths if path.endswith(".go")]
    folders = {path.rpartition("/")[0] for path in sources if "/" in path}
    titles = {
        folder: "Binary" if f"{folder}/main.go" in files.paths else "Package"
        for folder in sorted(folders)
    }
    modules = _GO_REQUIRE.findall(files.get_text("go.mod"))
    return LanguageFacts(
        layout=_render_tree(titles),
        pinned=_join_names(f"`{name}` {version}" for name, version in modules),
        package=f"./{next(iter(titles))}/..." if titles else "",
    )


def _iter_versions(dependencies: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield dependencies with a version: as a text, or as the `version` of a table."""
    for name, value in dependencies.items():
        version = value.get("version") if isinstance(value, dict) else value
        if isinstance(version, str) and version:
            yield name, version


def _join_names(names: Iterable[str]) -> str:
    unique = [*dict.fromkeys(names)]
    listed = unique[:MAX_LISTED]
    if len(unique) > MAX_LISTED:
        listed.append(f"and {len(unique) - MAX_LISTED} more")
    return ", ".join(listed)


def _render_tree(titles: Mapping[str, str]) -> str:
    """Render folders and files with their titles, grouped by their parent folder."""
    entries = sorted((path.rpartition("/")[0], path) for path in titles)[:MAX_LISTED]
    lines: list[str] = []
    last_parent = ""

    for index, (parent, path) in enumerate(entries):
        if parent and parent != last_parent:
            lines.append(f"{parent}/")

        last_parent = parent
        name = path.rpartition("/")[2]
        if not name.endswith(".py"):
            name += "/"

        branch = ""
        if parent:
            is_last = entries[index + 1 : index + 2] == [] or entries[index + 1][0] != parent
            branch = "└── " if is_last else "├── "

        lines.append(f"{branch}{name} ← {titles[path]}")

    hidden = len(titles) - MAX_LISTED
    if hidden > 0:
        lines.append(f"... and {hidden} more")

    return "\n".join(lines)
