"""Linters and type checkers of a Python project.

Which are configured, and which version the project asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from phasegate.core.detection.files import ProjectFiles, get_nested
from phasegate.core.detection.python_requirements import (
    RequirementSource,
    parse_package_name,
    read_ini_section,
)

# What a setup made is not the project's: an `exclude` of its own replaces the linter's defaults.
_EXCLUDED_FOLDERS = ".venv,.phasegate-tools"
_HOOK_REPOSITORIES = {
    "ruff": "ruff-pre-commit",
    "mypy": "mirrors-mypy",
    "flake8": "pycqa/flake8",
    "pyright": "pyright-python",
}


class PythonTool(NamedTuple):
    """A tool that the project configures.

    `requirement` is what is installed beside the setup to have it.
    """

    purpose: str
    command: str
    configured_in: str
    requirement: str
    note: str = ""


def find_python_tools(
    files: ProjectFiles, all_sources: list[RequirementSource]
) -> list[PythonTool]:
    """The first linter and the first type checker that are configured, in the version that the
    project names.
    """
    found: dict[str, PythonTool] = {}

    for name, purpose, run, where in _find_configured_tools(files):
        if purpose not in found:
            requirement, note = _find_tool_requirement(files, all_sources, name)
            found[purpose] = PythonTool(
                purpose=purpose,
                command=run,
                configured_in=where,
                requirement=requirement,
                note=note,
            )

    return [*found.values()]


def _find_configured_tools(files: ProjectFiles) -> Iterator[tuple[str, str, str, str]]:
    tables = files.load_toml("pyproject.toml")
    if where := files.find_first("ruff.toml", ".ruff.toml") or (
        "[tool.ruff]" if get_nested(tables, "tool", "ruff") else ""
    ):
        yield "ruff", "lint", f"ruff check . --extend-exclude {_EXCLUDED_FOLDERS}", where

    if where := _find_flake8_config(files):
        yield "flake8", "lint", f"python3 -m flake8 --extend-exclude={_EXCLUDED_FOLDERS}", where

    options = get_nested(tables, "tool", "mypy")
    if isinstance(options, dict) and options:
        yield "mypy", "typecheck", _build_mypy_command(files, options), "[tool.mypy]"

    for name in ("mypy.ini", ".mypy.ini"):
        if files.find_first(name):
            yield (
                "mypy",
                "typecheck",
                _build_mypy_command(files, read_ini_section(files.get_text(name), "mypy")),
                name,
            )

    if section := read_ini_section(files.get_text("setup.cfg"), "mypy"):
        yield "mypy", "typecheck", _build_mypy_command(files, section), "setup.cfg"

    if where := files.find_first("pyrightconfig.json") or (
        "[tool.pyright]" if get_nested(tables, "tool", "pyright") else ""
    ):
        yield "pyright", "typecheck", "pyright", where


def _find_flake8_config(files: ProjectFiles) -> str:
    if files.find_first(".flake8"):
        return ".flake8"
    return next(
        (name for name in ("setup.cfg", "tox.ini") if "[flake8]" in files.get_text(name)), ""
    )


def _build_mypy_command(files: ProjectFiles, options: object) -> str:
    """Its own choice of files.

    Else the package's sources, since tests of the same name in two folders stop it.
    """
    if any(get_nested(options, key) for key in ("files", "packages", "modules")):
        return "mypy"
    if any(path.startswith("src/") and path.endswith(".py") for path in files.paths):
        return "mypy src"

    packages = sorted(
        path.partition("/")[0]
        for path in files.paths
        if re.fullmatch(r"[A-Za-z_]\w*/__init__\.py", path)
    )
    own = [
        name for name in packages if name not in ("tests", "test", "testing", "docs", "examples")
    ]
    if len(own) == 1:
        return f"mypy {own[0]}"

    return "mypy ."


def _find_tool_requirement(
    files: ProjectFiles, all_sources: list[RequirementSource], name: str
) -> tuple[str, str]:
    """What to install to have a tool, and what to say about it."""
    declared = [
        (one, source)
        for source in all_sources
        for one in source.requirements
        if parse_package_name(one) == name
    ]

    if declared:
        # The one that names a version
        line, source = max(declared, key=lambda found: len(found[0]))
        return (
            line,
            ""
            if source.has_test_runner
            else f"{name} is declared by {source.why}, and installed beside",
        )

    version = parse_hook_version(
        files.get_text(".pre-commit-config.yaml"), _HOOK_REPOSITORIES[name]
    )
    if version:
        return (
            f"{name}=={version}",
            f"{name} {version} is installed beside: .pre-commit-config.yaml names this version",
        )

    return (
        name,
        f"{name} is installed beside in its newest version: it is configured, and declared nowhere",
    )


def parse_hook_version(text: str, repository: str) -> str:
    """The version of a hook's repository in .pre-commit-config.yaml.

    A commit id tells it in `# frozen: v1.2`.
    """
    found = re.search(
        rf"repo:\s*\S*{re.escape(repository)}\S*[^\n]*\n(?:\s*#[^\n]*\n)*\s*rev:\s*([^\n]+)", text
    )
    if found:
        version = re.search(r"frozen:\s*v?(\d[\w.]*)|^['\"]?v?(\d+\.[\w.]+)['\"]?", found[1])
    else:
        version = None

    if version:
        return version[1] or version[2]

    return ""
