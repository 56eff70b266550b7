"""Project files as input of detection: all paths, and the texts of manifests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from phasegate.core.text.light_json import parse_json

MAX_MANIFEST_BYTES = 1_000_000

# Files at the root of a project that determine setup and checks. Other files that a setup could
# read are in its cache key.
MANIFESTS = frozenset(
    (
        "pyproject.toml",
        "setup.cfg",
        "setup.py",
        "tox.ini",
        "tox.toml",
        "noxfile.py",
        "pytest.ini",
        ".pytest.ini",
        "mypy.ini",
        ".mypy.ini",
        "ruff.toml",
        ".ruff.toml",
        ".flake8",
        "hatch.toml",
        "Pipfile",
        "Pipfile.lock",
        "poetry.lock",
        "uv.lock",
        "pdm.lock",
        ".python-version",
        ".pre-commit-config.yaml",
        "package.json",
        "pnpm-workspace.yaml",
        "pnpm-lock.yaml",
        "yarn.lock",
        ".npmrc",
        ".yarnrc.yml",
        ".nvmrc",
        "tsconfig.json",
        "go.mod",
        "go.work",
        "Cargo.toml",
        "pom.xml",
        "settings.gradle",
        "settings.gradle.kts",
        "build.gradle",
        "CMakeLists.txt",
        "configure.ac",
        "Makefile",
        "makefile",
        "GNUmakefile",
        "justfile",
        "Justfile",
        "Taskfile.yml",
        "Taskfile.yaml",
        ".gitmodules",
    )
)
# Only their presence matters: they are long, and their content is not used.
_PRESENCE_ONLY = frozenset(("uv.lock", "poetry.lock", "pdm.lock", "setup.gradle"))
_REQUIREMENTS_FOLDERS = ("requirements", "requirements.d", "reqs", "deps")


class ProjectFiles(NamedTuple):
    """The files of one root of a repository.

    `texts` has the manifests that could be read; any other file counts as empty.
    """

    # Paths of all files, relative to the root
    paths: Collection[str]
    texts: Mapping[str, str]

    def get_text(self, path: str) -> str:
        """Return the text of a file; empty if it is absent or unreadable."""
        if path in self.paths:
            return self.texts.get(path, "")
        return ""

    def load_toml(self, path: str) -> dict[str, object]:
        """Parse a TOML file; empty if it cannot be read."""
        text = self.get_text(path)
        if not text:
            return {}

        from tomllib import loads

        try:
            return loads(text)
        except (ValueError, RecursionError):
            return {}

    def load_json(self, path: str) -> dict[str, object]:
        """Parse a JSON object; empty if it cannot be read."""
        try:
            value = parse_json(self.get_text(path))
        except (ValueError, RecursionError, StopIteration):
            return {}

        if isinstance(value, dict):
            return value
        return {}

    def find_first(self, *names: str) -> str:
        """Return the first of these paths that exists."""
        return next((name for name in names if name in self.paths), "")


def is_manifest(path: str) -> bool:
    """Return True if detection needs the text of the file at this path, relative to a root."""
    folder, _, name = path.rpartition("/")
    if not folder:
        return (name in MANIFESTS and name not in _PRESENCE_ONLY) or is_requirements_file(name)
    if folder in _REQUIREMENTS_FOLDERS:
        return name.endswith((".txt", ".in"))

    return folder == ".github/workflows" and name.endswith((".yml", ".yaml"))


def is_requirements_file(name: str) -> bool:
    """Match `requirements.txt`, `dev-requirements.txt`, `test_requirements.in` and the like."""
    return "requirements" in name and name.endswith((".txt", ".in"))


def get_nested(tables: object, *keys: str) -> object:
    """Return the value at a path of keys, None if there is none."""
    for key in keys:
        if not isinstance(tables, dict):
            return None
        tables = tables.get(key)

    return tables


def get_table(tables: object, *keys: str) -> dict[str, object]:
    """Return the table at a path of keys; an empty table if there is none."""
    table = get_nested(tables, *keys)
    if isinstance(table, dict):
        return table
    return {}


def list_strings(value: object) -> list[str]:
    """Return the strings of a list; empty for any other value."""
    if isinstance(value, list):
        return [item for item in value if isinstance(item, str)]
    return []
