"""The files of a project as detection reads them.

All paths, and the texts of those that declare something.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from phasegate.core.text.light_json import parse_json

MAX_MANIFEST_BYTES = 1_000_000

# Files at a project's root that say how it is set up and checked. What a setup could read besides
# is in its cache key. fmt: off
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
# fmt: on
# Only their presence counts: they are long, and nothing in them is asked for.
_PRESENCE_ONLY = frozenset(("uv.lock", "poetry.lock", "pdm.lock", "setup.gradle"))
_REQUIREMENTS_FOLDERS = ("requirements", "requirements.d", "reqs", "deps")


class ProjectFiles(NamedTuple):
    """One root of a repository.

    `texts` has the manifests that could be read; what is not in it holds nothing.
    """

    # Of files, from the root
    paths: Collection[str]
    texts: Mapping[str, str]

    def get_text(self, path: str) -> str:
        if path in self.paths:
            return self.texts.get(path, "")
        return ""

    def load_toml(self, path: str) -> dict[str, object]:
        """The tables of a TOML file; one that cannot be read has none."""
        text = self.get_text(path)
        if not text:
            return {}

        from tomllib import loads

        try:
            return loads(text)
        except (ValueError, RecursionError):
            return {}

    def load_json(self, path: str) -> dict[str, object]:
        """The entries of a JSON file; one that cannot be read has none."""
        try:
            value = parse_json(self.get_text(path))
        except (ValueError, RecursionError, StopIteration):
            return {}

        if isinstance(value, dict):
            return value
        return {}

    def find_first(self, *names: str) -> str:
        """The first of these paths that is there."""
        return next((name for name in names if name in self.paths), "")


def is_manifest(path: str) -> bool:
    """Whether detection asks for the text of a file at this path from a root."""
    folder, _, name = path.rpartition("/")
    if not folder:
        return (name in MANIFESTS and name not in _PRESENCE_ONLY) or is_requirements_file(name)
    if folder in _REQUIREMENTS_FOLDERS:
        return name.endswith((".txt", ".in"))

    return folder == ".github/workflows" and name.endswith((".yml", ".yaml"))


def is_requirements_file(name: str) -> bool:
    """`requirements.txt`, `requirements-dev.txt`, `dev-requirements.txt`, `test_requirements.in`."""
    return "requirements" in name and name.endswith((".txt", ".in"))


def get_nested(tables: object, *keys: str) -> object:
    """The value at a path of keys, None where there is none."""
    for key in keys:
        if isinstance(tables, dict):
            tables = tables.get(key)
        else:
            tables = None

    return tables


def get_table(tables: object, *keys: str) -> dict[str, object]:
    """The table at a path of keys, an empty one where there is none."""
    found = get_nested(tables, *keys)
    if isinstance(found, dict):
        return found
    return {}


def list_strings(value: object) -> list[str]:
    """The strings of a list; anything else has none."""
    if isinstance(value, list):
        return [one for one in value if isinstance(one, str)]
    return []
