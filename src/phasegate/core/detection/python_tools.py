"""Detect the configured linter and type checker of a Python project, and their versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from phasegate.core.detection.declared_checks import DeclaredCheck
from phasegate.core.detection.files import ProjectFiles, get_nested
from phasegate.core.detection.python_requirements import (
    RequirementSource,
    parse_package_name,
    read_ini_section,
)

# Folders that a setup creates; an `exclude` of the project replaces the defaults of the linter.
_EXCLUDED_FOLDERS = ".venv,.phasegate-tools"
_HOOK_REPOSITORIES = {
    "ruff": "ruff-pre-commit",
    "mypy": "mirrors-mypy",
    "flake8": "pycqa/flake8",
    "pyright": "pyright-python",
    "black": "black",
    "isort": "isort",
    "pylint": "pylint",
    "codespell": "codespell",
}
# Tools that CI, tox, nox or pre-commit may run: purpose, and the option that keeps files unchanged
_DECLARED_TOOLS = {
    "ruff check": ("lint", "--no-fix"),
    "ruff format": ("lint", "--check"),
    "black": ("lint", "--check"),
    "isort": ("lint", "--check-only"),
    "flake8": ("lint", ""),
    "pylint": ("lint", ""),
    "codespell": ("lint", ""),
    "mypy": ("typecheck", ""),
    "pyright": ("typecheck", ""),
}
# Options that leave out the folders of a setup, for a tool that checks the whole tree
_EXCLUDE_OPTIONS = {
    "ruff check": ("--extend-exclude", _EXCLUDED_FOLDERS),
    "ruff format": ("--exclude", _EXCLUDED_FOLDERS),
    "black": ("--extend-exclude", r"'/(\.venv|\.phasegate-tools)/'"),
    "isort": ("--skip", ".venv", "--skip", ".phasegate-tools"),
    "flake8": (f"--extend-exclude={_EXCLUDED_FOLDERS}",),
    "codespell": ("--skip", _EXCLUDED_FOLDERS),
}
_WRITE_OPTIONS = ("--fix", "--unsafe-fixes", "--diff", "-w", "--write-changes", "--in-place")
_NON_SOURCE_PACKAGES = ("tests", "test", "testing", "docs", "examples")


class PythonTool(NamedTuple):
    """A tool that the project configures.

    `requirement` is installed in addition to the setup.
    """

    purpose: str
    command: str
    configured_in: str
    requirement: str
    note: str = ""


def find_python_tools(
    files: ProjectFiles,
    all_sources: list[RequirementSource],
    declared: Iterable[DeclaredCheck] = (),
) -> list[PythonTool]:
    """Return the linters, formatters and type checkers, in the versions the project requires.

    These are the first configured linter and type checker, and all that the project itself runs.
    """
    found: dict[str, PythonTool] = {}
    purposes: set[str] = set()

    for name, purpose, run, where in _find_configured_tools(files):
        if purpose not in purposes:
            purposes.add(purpose)
            found[_tool_key(run)] = _make_tool(files, all_sources, name, purpose, run, where)

    for check in declared:
        key = _tool_key(check.line)
        if key not in _DECLARED_TOOLS:
            continue

        command = _build_check_command(key, check)
        if key not in found:
            purpose = _DECLARED_TOOLS[key][0]
            found[key] = _make_tool(files, all_sources, check.tool, purpose, command, check.where)
        elif key == "mypy" and command != "mypy" and check.where != "pre-commit":
            # The target that the project declares replaces our guess. pre-commit declares none: it
            # passes the changed files.
            found[key] = found[key]._replace(command=command, configured_in=check.where)

    return [*found.values()]


def _tool_key(line: str) -> str:
    """Return the name of a tool with its subcommand: `ruff` alone means `ruff check`."""
    words = line.replace("python3 -m ", "").split()
    if words[0] == "ruff":
        return "ruff format" if "format" in words[:2] else "ruff check"
    return words[0]


def _build_check_command(key: str, check: DeclaredCheck) -> str:
    """Return a declared command in a form that changes no file."""
    option = _DECLARED_TOOLS[key][1]
    words = [word for word in check.line.split() if word not in _WRITE_OPTIONS]
    if key == "ruff check" and words[1:2] != ["check"]:
        words.insert(1, "check")
    if option and option not in words and not (option == "--check-only" and "--check" in words):
        words.insert(len(key.split()), option)

    targets = [word for word in words[len(key.split()) :] if not word.startswith("-")]
    if option and not targets:
        words.append(".")
    if targets in ([], ["."]):
        words += _EXCLUDE_OPTIONS.get(key, ())
    return " ".join(words)


def _make_tool(
    files: ProjectFiles,
    all_sources: list[RequirementSource],
    name: str,
    purpose: str,
    command: str,
    where: str,
) -> PythonTool:
    """Create a tool with the requirement that installs it."""
    requirement, note = _find_tool_requirement(files, all_sources, name)
    return PythonTool(
        purpose=purpose, command=command, configured_in=where, requirement=requirement, note=note
    )


def _find_configured_tools(files: ProjectFiles) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, purpose, command and source of each configured tool."""
    tables = files.load_toml("pyproject.toml")
    where = files.find_first("ruff.toml", ".ruff.toml")
    if not where and get_nested(tables, "tool", "ruff"):
        where = "[tool.ruff]"
    if where:
        yield "ruff", "lint", f"ruff check . --no-fix --extend-exclude {_EXCLUDED_FOLDERS}", where

    if where := _find_flake8_config(files):
        yield "flake8", "lint", f"python3 -m flake8 --extend-exclude={_EXCLUDED_FOLDERS}", where

    options = get_nested(tables, "tool", "mypy")
    if isinstance(options, dict) and options:
        yield "mypy", "typecheck", _build_mypy_command(files, options), "[tool.mypy]"

    for name in ("mypy.ini", ".mypy.ini"):
        if files.find_first(name):
            section = read_ini_section(files.get_text(name), "mypy")
            yield "mypy", "typecheck", _build_mypy_command(files, section), name

    if section := read_ini_section(files.get_text("setup.cfg"), "mypy"):
        yield "mypy", "typecheck", _build_mypy_command(files, section), "setup.cfg"

    where = files.find_first("pyrightconfig.json")
    if not where and get_nested(tables, "tool", "pyright"):
        where = "[tool.pyright]"
    if where:
        yield "pyright", "typecheck", "pyright", where


def _find_flake8_config(files: ProjectFiles) -> str:
    if files.find_first(".flake8"):
        return ".flake8"
    return next(
        (name for name in ("setup.cfg", "tox.ini") if "[flake8]" in files.get_text(name)), ""
    )


def _build_mypy_command(files: ProjectFiles, options: object) -> str:
    """Return the command for mypy, with the files that its settings select.

    Without such settings only the sources are checked, because mypy stops at two test modules of
    the same name.
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
    sources = [name for name in packages if name not in _NON_SOURCE_PACKAGES]
    if len(sources) == 1:
        return f"mypy {sources[0]}"

    return "mypy ."


def _find_tool_requirement(
    files: ProjectFiles, all_sources: list[RequirementSource], name: str
) -> tuple[str, str]:
    """Return the requirement that installs a tool, and a note about it."""
    declared = [
        (requirement, source)
        for source in all_sources
        for requirement in source.requirements
        if parse_package_name(requirement) == name
    ]

    if declared:
        # The longest requirement is the one with a version
        requirement, source = max(declared, key=lambda pair: len(pair[0]))
        if source.has_test_runner:
            return requirement, ""
        return requirement, f"{name} is declared by {source.why}, and is added"

    version = parse_hook_version(
        files.get_text(".pre-commit-config.yaml"), _HOOK_REPOSITORIES.get(name, name)
    )
    if version:
        return (
            f"{name}=={version}",
            f"{name} {version} is added: .pre-commit-config.yaml names this version",
        )

    return (
        name,
        f"the newest {name} is added: it is configured, but not declared",
    )


def parse_hook_version(text: str, repository: str) -> str:
    """Return the version of a hook in .pre-commit-config.yaml.

    For a commit id it is in a comment, as in `# frozen: v1.2`.
    """
    revision = re.search(
        rf"repo:\s*\S*{re.escape(repository)}\S*[^\n]*\n(?:\s*#[^\n]*\n)*\s*rev:\s*([^\n]+)", text
    )
    if not revision:
        return ""

    version = re.search(r"frozen:\s*v?(\d[\w.]*)|^['\"]?v?(\d+\.[\w.]+)['\"]?", revision[1])
    if version:
        return version[1] or version[2]

    return ""
