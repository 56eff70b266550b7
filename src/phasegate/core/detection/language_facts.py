"""What a project's own files say for the language section of a package.

Its layout, its pinned versions, a part of it.

Whatever cannot be read is left out; the profile's own words stand there then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from phasegate.core.detection.files import ProjectFiles, get_nested, get_table, is_requirements_file

MAX_LISTED = 16
_GO_REQUIRE = re.compile(
    r"^(?:require[ \t]+|[ \t]+)([\w./~-]+)[ \t]+(v[\w.+-]+)(?![^\n]*// indirect)", re.M
)
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][\w.-]*(?:\[[\w, .-]*\])?[ \t]*(?:[=<>~!]=?[^;#\\\s]*(?:,[ \t]*[^;#\\\s]+)*)?"
)
_SCRIPT_EXTENSIONS = (".ts", ".tsx", ".js", ".jsx", ".mjs")


class LanguageFacts(NamedTuple):
    """Each is empty where nothing was found."""

    layout: str = ""
    # Dependencies with their versions
    pinned: str = ""
    # What a command for a part of the project names
    package: str = ""


def collect_language_facts(profile: str, files: ProjectFiles) -> LanguageFacts:
    """The facts of a project of this profile."""
    readers = {
        "rust": _collect_rust_facts,
        "python": _collect_python_facts,
        "typescript": _collect_node_facts,
        "go": _collect_go_facts,
    }

    if profile in readers:
        return readers[profile](files)
    return LanguageFacts()


def _collect_rust_facts(files: ProjectFiles) -> LanguageFacts:
    cargo = files.load_toml("Cargo.toml")
    patterns = _list_strings(get_nested(cargo, "workspace", "members"))
    homes = sorted(
        path.removesuffix("/Cargo.toml") for path in files.paths if path.endswith("/Cargo.toml")
    )
    crates = [
        home
        for home in homes
        if any(fnmatchcase(home, pattern.rstrip("/")) for pattern in patterns)
    ]
    kinds = {True: "Binary crate", False: "Library crate"}
    about = {home: kinds[f"{home}/src/main.rs" in files.paths] for home in crates}
    shared = get_table(cargo, "workspace", "dependencies") or get_table(cargo, "dependencies")
    own = get_nested(cargo, "package", "name")
    if crates:
        package = crates[0].rpartition("/")[2]
    else:
        package = own if isinstance(own, str) else ""

    return LanguageFacts(
        _render_tree(about),
        _join_names(f"`{name}` v{number}" for name, number in _iter_versions(shared)),
        package,
    )


def _collect_python_facts(files: ProjectFiles) -> LanguageFacts:
    homes = {
        path.removesuffix("/__init__.py") for path in files.paths if path.endswith("/__init__.py")
    }
    top = [home for home in homes if home.removeprefix("src/").count("/") == 0 and home != "src"]
    about = {home: "Tests" if home in ("tests", "test") else "Package" for home in top}
    folders = {path.partition("/")[0] for path in files.paths if "/" in path}
    about |= {home: "Tests" for home in ("tests", "test") if home in folders}
    modules = [path for path in files.paths if "/" not in path and path.endswith(".py")]
    about |= {path: "Tests" if path.startswith("test_") else "Module" for path in sorted(modules)}
    declared = _list_strings(
        get_nested(files.load_toml("pyproject.toml"), "project", "dependencies")
    )
    listed = (
        path for path in sorted(files.paths) if "/" not in path and is_requirements_file(path)
    )
    lines = [*declared, *(line for path in listed for line in files.get_text(path).splitlines())]
    found = (match[0] for line in lines if (match := _REQUIREMENT.match(line.strip())))
    package = next((f"{home}/" for home in ("tests", "test") if home in about), "")

    return LanguageFacts(
        _render_tree(about), _join_names(f"`{name.replace(' ', '')}`" for name in found), package
    )


def _collect_node_facts(files: ProjectFiles) -> LanguageFacts:
    about = files.load_json("package.json")
    spaces = about.get("workspaces")
    patterns = _list_strings(spaces.get("packages") if isinstance(spaces, dict) else spaces)
    homes = sorted(
        path.removesuffix("/package.json") for path in files.paths if path.endswith("/package.json")
    )
    found = {
        home: "Package"
        for home in homes
        if any(fnmatchcase(home, one.removeprefix("./")) for one in patterns)
    }
    sources = {
        path.partition("/")[0]
        for path in files.paths
        if "/" in path and path.endswith(_SCRIPT_EXTENSIONS)
    }
    found = found or {name: "Tests" if "test" in name else "Source" for name in sorted(sources)}
    declared = {**get_table(about, "dependencies"), **get_table(about, "devDependencies")}

    return LanguageFacts(
        _render_tree(found),
        _join_names(f"`{name}` {number}" for name, number in _iter_versions(declared)),
    )


def _collect_go_facts(files: ProjectFiles) -> LanguageFacts:
    homes = {
        path.rpartition("/")[0] for path in files.paths if path.endswith(".go") and "/" in path
    }
    about = {
        home: "Binary" if f"{home}/main.go" in files.paths else "Package" for home in sorted(homes)
    }
    pinned = _join_names(
        f"`{name}` {number}" for name, number in _GO_REQUIRE.findall(files.get_text("go.mod"))
    )
    return LanguageFacts(_render_tree(about), pinned, f"./{next(iter(about))}/..." if about else "")


def _list_strings(value: object) -> list[str]:
    if isinstance(value, list):
        return [one for one in value if isinstance(one, str)]
    return []


def _iter_versions(dependencies: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Those that have a version: as a text, or as the `version` of a table."""
    for name, value in dependencies.items():
        if isinstance(value, dict):
            number = value.get("version")
        else:
            number = value

        if isinstance(number, str) and number:
            yield name, number


def _join_names(found: Iterable[str]) -> str:
    names = [*dict.fromkeys(found)]
    if len(names) > MAX_LISTED:
        more = [f"and {len(names) - MAX_LISTED} more"]
    else:
        more = []
    return ", ".join([*names[:MAX_LISTED], *more])


def _render_tree(about: Mapping[str, str]) -> str:
    """Folders and files with what they are; those of one folder stand below it."""
    lines: list[str] = []
    paths = sorted(about, key=lambda path: (path.rpartition("/")[0], path))[:MAX_LISTED]
    homes = ["", *(path.rpartition("/")[0] for path in paths), ""]

    for (before, home, after), path in zip(
        zip(homes, homes[1:], homes[2:], strict=False), paths, strict=True
    ):
        if home and home != before:
            lines.append(f"{home}/")

        name = path.rpartition("/")[2]
        if not home:
            branch = ""
        else:
            branch = "├── " if home == after else "└── "

        lines.append(f"{branch}{name if name.endswith('.py') else f'{name}/'} ← {about[path]}")

    hidden = len(about) - MAX_LISTED
    return "\n".join([*lines, f"... and {hidden} more"] if hidden > 0 else lines)
