"""Linters and type checkers of a Python project: which are configured, and which version the project asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from phasegate.core.detection.files import ProjectFiles, entry
from phasegate.core.detection.python_requirements import RequirementSource, ini_section, package_name

# What a setup made is not the project's: an `exclude` of its own replaces the linter's defaults.
_OURS = ".venv,.phasegate-tools"
_HOOKS = {"ruff": "ruff-pre-commit", "mypy": "mirrors-mypy", "flake8": "pycqa/flake8", "pyright": "pyright-python"}


class Tool(NamedTuple):
    """A tool that the project configures. `requirement` is what is installed beside the setup to have it."""

    purpose: str
    run: str
    configured_in: str
    requirement: str
    note: str = ""


def tools_beside(files: ProjectFiles, everything: list[RequirementSource]) -> list[Tool]:
    """The first linter and the first type checker that are configured, in the version that the project names."""
    found: dict[str, Tool] = {}
    for name, purpose, run, where in _configured(files):
        if purpose not in found:
            requirement, note = _requirement(files, everything, name)
            found[purpose] = Tool(purpose, run, where, requirement, note)
    return [*found.values()]


def _configured(files: ProjectFiles) -> Iterator[tuple[str, str, str, str]]:
    tables = files.toml("pyproject.toml")
    if where := files.has("ruff.toml", ".ruff.toml") or ("[tool.ruff]" if entry(tables, "tool", "ruff") else ""):
        yield "ruff", "lint", f"ruff check . --extend-exclude {_OURS}", where
    if where := _flake8(files):
        yield "flake8", "lint", f"python3 -m flake8 --extend-exclude={_OURS}", where
    options = entry(tables, "tool", "mypy")
    if isinstance(options, dict) and options:
        yield "mypy", "typecheck", _mypy(files, options), "[tool.mypy]"
    for name in ("mypy.ini", ".mypy.ini"):
        if files.has(name):
            yield "mypy", "typecheck", _mypy(files, ini_section(files.text(name), "mypy")), name
    if section := ini_section(files.text("setup.cfg"), "mypy"):
        yield "mypy", "typecheck", _mypy(files, section), "setup.cfg"
    if where := files.has("pyrightconfig.json") or ("[tool.pyright]" if entry(tables, "tool", "pyright") else ""):
        yield "pyright", "typecheck", "pyright", where


def _flake8(files: ProjectFiles) -> str:
    if files.has(".flake8"):
        return ".flake8"
    return next((name for name in ("setup.cfg", "tox.ini") if "[flake8]" in files.text(name)), "")


def _mypy(files: ProjectFiles, options: object) -> str:
    """Its own choice of files; else the package's sources, since tests of the same name in two folders stop it."""
    if any(entry(options, key) for key in ("files", "packages", "modules")):
        return "mypy"
    if any(path.startswith("src/") and path.endswith(".py") for path in files.paths):
        return "mypy src"
    packages = sorted(
        path.partition("/")[0] for path in files.paths if re.fullmatch(r"[A-Za-z_]\w*/__init__\.py", path)
    )
    own = [name for name in packages if name not in ("tests", "test", "testing", "docs", "examples")]
    return f"mypy {own[0]}" if len(own) == 1 else "mypy ."


def _requirement(files: ProjectFiles, everything: list[RequirementSource], name: str) -> tuple[str, str]:
    """What to install to have a tool, and what to say about it."""
    declared = [(one, source) for source in everything for one in source.requirements if package_name(one) == name]
    if declared:
        line, source = max(declared, key=lambda found: len(found[0]))  # the one that names a version
        return line, "" if source.has_runner else f"{name} is declared by {source.why}, and installed beside"
    version = hook_version(files.text(".pre-commit-config.yaml"), _HOOKS[name])
    if version:
        return f"{name}=={version}", f"{name} {version} is installed beside: .pre-commit-config.yaml names this version"
    return name, f"{name} is installed beside in its newest version: it is configured, and declared nowhere"


def hook_version(text: str, repository: str) -> str:
    """The version of a hook's repository in .pre-commit-config.yaml; a commit id tells it in `# frozen: v1.2`."""
    found = re.search(rf"repo:\s*\S*{re.escape(repository)}\S*[^\n]*\n(?:\s*#[^\n]*\n)*\s*rev:\s*([^\n]+)", text)
    version = re.search(r"frozen:\s*v?(\d[\w.]*)|^['\"]?v?(\d+\.[\w.]+)['\"]?", found[1]) if found else None
    return (version[1] or version[2]) if version else ""
