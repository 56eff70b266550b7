"""Which kind of project a folder is, by the names at its root, and what it calls itself.

Light: `init` asks.
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
# A file that tells, best first; then files that tell less, asked when no other is there.
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
    """The profile that the files at a root tell; empty where none does."""
    return next(
        (kind for kind, telling in _KIND_MANIFESTS if any(name in names for name in telling)), ""
    )


# Where a project writes its name: the file, and the table and key of a TOML or JSON file.
NAME_SOURCES = {
    "pyproject.toml": "project",
    "package.json": "",
    "Cargo.toml": "package",
    "go.mod": "",
}


def read_project_name(file: str, text: str) -> str:
    """What a project calls itself in one of `NAMED_IN`.

    Empty where a look at the lines does not tell.
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
    if table in lines:
        inside = lines[lines.index(table) + 1 :]
    else:
        inside = []

    for line in inside:
        if line.startswith("["):
            return ""

        key, _, value = line.partition("=")
        if key.strip() == "name":
            return value.split("#")[0].strip().strip("\"'")

    return ""


def _read_json_name(text: str) -> str:
    try:
        about = parse_json(text)
    except (ValueError, RecursionError, StopIteration):
        return ""

    if isinstance(about, dict):
        name = about.get("name")
    else:
        name = None

    if isinstance(name, str):
        return name
    return ""
