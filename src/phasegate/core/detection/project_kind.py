"""Detect the kind of a project by the files at its root, and read its name.

This module imports little, because `init` must start fast.
"""

from __future__ import annotations

from phasegate.core.text.light_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

LANGUAGE_TITLES = {
    "rust": "Rust",
    "go": "Go",
    "typescript": "TypeScript",
    "python": "Python",
    "java": "Java",
    "c": "C and C++",
    "": "",
}
# Files that identify a kind, most specific first; the last row is used if nothing else matches.
_KIND_MANIFESTS = (
    ("rust", ("Cargo.toml",)),
    ("go", ("go.work", "go.mod")),
    ("typescript", ("tsconfig.json",)),
    ("python", ("pyproject.toml", "setup.py")),
    ("typescript", ("package.json",)),
    (
        "java",
        ("pom.xml", "settings.gradle", "settings.gradle.kts", "build.gradle", "build.gradle.kts"),
    ),
    ("c", ("CMakeLists.txt", "configure.ac", "configure")),
    ("python", ("requirements.txt", "setup.cfg", "Pipfile", "tox.ini")),
)


def detect_root_kind(names: Collection[str]) -> str:
    """Return the profile that the files at a root indicate; empty if none does."""
    return next(
        (kind for kind, manifests in _KIND_MANIFESTS if any(name in names for name in manifests)),
        "",
    )


# Files that contain the name of a project, with the table of the `name` key in a TOML file
NAME_SOURCES = {
    "pyproject.toml": "project",
    "package.json": "",
    "Cargo.toml": "package",
    "go.mod": "",
}


def read_project_name(file: str, text: str) -> str:
    """Read the name of a project from one of the files in NAME_SOURCES.

    The result is empty if a simple scan of the lines does not find it.
    """
    if file == "package.json":
        return _read_json_name(text)

    lines = [line.strip() for line in text.splitlines()]
    if file == "go.mod":
        return next(
            (line.removeprefix("module ").strip() for line in lines if line.startswith("module ")),
            "",
        )

    table = f"[{NAME_SOURCES[file]}]"
    if table not in lines:
        return ""

    for line in lines[lines.index(table) + 1 :]:
        if line.startswith("["):
            return ""

        key, _, value = line.partition("=")
        if key.strip() == "name":
            return value.split("#")[0].strip().strip("\"'")

    return ""


def _read_json_name(text: str) -> str:
    try:
        manifest = parse_json(text)
    except (ValueError, RecursionError, StopIteration):
        return ""

    name = manifest.get("name") if isinstance(manifest, dict) else None
    return name if isinstance(name, str) else ""
