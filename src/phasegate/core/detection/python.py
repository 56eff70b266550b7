"""How a Python project is set up and checked: candidates in order, each with its reason.

Locks come first, then what the project declares for its tests. A candidate after which no test is collected has failed,
and the next is tried: that is decided where commands can be run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from phasegate.core.detection.files import ProjectFiles, entry, table, texts_in
from phasegate.core.detection.model import Detected, FoundCommand, Machine, SetupCandidate
from phasegate.core.detection.python_requirements import (
    RequirementSource,
    all_sources,
    expanded_group,
    ini_section,
    package_name,
    quoted,
    rank,
    requirement_lines,
    sources,
)
from phasegate.core.detection.python_tests import command_of_tests, plugins_of, runs_unittest
from phasegate.core.detection.python_tools import Tool, tools_beside
from phasegate.core.text.versions import allows

DETECTED_BY = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile", "tox.ini")
_TOOLS = ".phasegate-tools"
_COMPILED = re.compile(r"ext_modules|Extension\(|cythonize|cffi_modules|RustExtension")
_COMPILING_BACKENDS = ("maturin", "scikit_build", "mesonpy", "setuptools_rust")


class _Kit(NamedTuple):
    """What every candidate is put together from."""

    files: ProjectFiles
    machine: Machine
    python: str
    is_installable: bool
    builds: bool
    beside: tuple[Tool, ...]
    test: FoundCommand
    is_unittest: bool


def detect_python(files: ProjectFiles, machine: Machine) -> Detected | None:
    """What is known about a Python project; None if it is none."""
    if not files.has(*DETECTED_BY):
        return None
    everything = all_sources(files)
    beside = tools_beside(files, everything)
    kit = _Kit(
        files,
        machine,
        _interpreter(files, machine),
        _is_installable(files),
        _builds(files),
        tuple(beside),
        command_of_tests(files, everything),
        runs_unittest(files, everything),
    )
    commands = {"test": kit.test}
    for tool in beside:
        commands.setdefault(tool.purpose, FoundCommand(tool.run, tool.configured_in))
    declared = {package_name(one) for source in everything for one in source.requirements}
    if declared & {"coverage", "pytest-cov"} or files.has(".coveragerc"):
        measured = "python3 -m coverage run -m pytest && python3 -m coverage xml"
        commands["coverage"] = FoundCommand(measured, "coverage is configured")
    setups = _distinct([*_nothing(kit, everything), *_locks(kit), *_declared(kit), *_undeclared(kit)])
    notes = (*_missing_python(files, machine), *(tool.note for tool in beside if tool.note))
    return Detected("python", _name(files), tuple(setups), commands, notes)


def _distinct(candidates: Iterable[SetupCandidate]) -> list[SetupCandidate]:
    by_run: dict[str, SetupCandidate] = {}
    for candidate in candidates:
        by_run.setdefault(candidate.run, candidate)
    return [*by_run.values()]


def _name(files: ProjectFiles) -> str:
    tables = files.toml("pyproject.toml")
    found = (
        entry(tables, "project", "name")
        or entry(tables, "tool", "poetry", "name")
        or ini_section(files.text("setup.cfg"), "metadata").get("name")
    )
    if isinstance(found, str):
        return found
    written = re.search(r"""\bname\s*=\s*['"]([\w.-]+)['"]""", files.text("setup.py"))
    return written[1] if written else ""


# --- interpreter and build


def _interpreter(files: ProjectFiles, machine: Machine) -> str:
    """The command of an interpreter that the project asks for: `.python-version`, then `requires-python`."""
    named = files.text(".python-version").strip().split(".")
    if len(named) >= 2 and (wanted := f"python{named[0]}.{named[1]}") in machine.pythons:
        return wanted
    asked = required_python(files)
    fitting = [name for name, version in machine.pythons.items() if allows(asked, version)]
    return "python3" if "python3" in fitting or not fitting else fitting[0]


def _missing_python(files: ProjectFiles, machine: Machine) -> list[str]:
    asked = required_python(files)
    if not machine.pythons or any(allows(asked, version) for version in machine.pythons.values()):
        return []
    return [f"it asks for Python {asked}, and there is none on the PATH: install one"]


def required_python(files: ProjectFiles) -> str:
    tables = files.toml("pyproject.toml")
    found = entry(tables, "project", "requires-python") or entry(tables, "tool", "poetry", "dependencies", "python")
    cfg = ini_section(files.text("setup.cfg"), "options").get("python_requires", "")
    written = re.search(r"""python_requires\s*=\s*['"]([^'"]+)['"]""", files.text("setup.py"))
    return found if isinstance(found, str) else cfg or (written[1] if written else "")


def _is_installable(files: ProjectFiles) -> bool:
    tables = files.toml("pyproject.toml")
    is_package = (
        entry(tables, "tool", "uv", "package") is not False
        and entry(tables, "tool", "poetry", "package-mode") is not False
    )
    declared = "build-system" in tables or "project" in tables or entry(tables, "tool", "poetry", "name") is not None
    return bool(files.has("setup.py")) or (is_package and declared)


def _builds(files: ProjectFiles) -> bool:
    backend = entry(files.toml("pyproject.toml"), "build-system", "build-backend")
    return (isinstance(backend, str) and backend.startswith(_COMPILING_BACKENDS)) or bool(
        _COMPILED.search(files.text("setup.py"))
    )


# --- candidates


def _nothing(kit: _Kit, everything: list[RequirementSource]) -> Iterator[SetupCandidate]:
    """A project that declares no requirement needs no setup: its tests run with the Python that is there."""
    if everything or _own_requirements(kit.files) or kit.builds or kit.python != "python3":
        return
    if kit.files.has("setup.py", "Pipfile", "uv.lock", "poetry.lock", "pdm.lock"):
        return
    yield SetupCandidate("", "it declares no dependencies", _from_sources(kit))


def _own_requirements(files: ProjectFiles) -> bool:
    tables = files.toml("pyproject.toml")
    dynamic = texts_in(entry(tables, "project", "dynamic"))
    poetry = entry(tables, "tool", "poetry", "dependencies")
    return bool(
        entry(tables, "project", "dependencies")
        or {"dependencies", "optional-dependencies"} & {*dynamic}
        or (isinstance(poetry, dict) and {*poetry} - {"python"})
        or ini_section(files.text("setup.cfg"), "options").get("install_requires")
        or requirement_lines(files, "requirements.txt")
    )


def _from_sources(kit: _Kit) -> str:
    """The test command for a project that is not installed: its sources are found in src/."""
    has_src = any(path.startswith("src/") for path in kit.files.paths)
    return f"PYTHONPATH=src {kit.test.run}" if has_src else kit.test.run


def _locks(kit: _Kit) -> Iterator[SetupCandidate]:
    if kit.files.has("uv.lock"):
        yield _uv_sync(kit)
    if kit.files.has("poetry.lock"):
        command = f"env POETRY_VIRTUALENVS_IN_PROJECT=1 {{}} install -q -n{_poetry_options(kit.files)}"
        yield _by_tool(kit, "poetry", command, "poetry.lock")
    if kit.files.has("pdm.lock"):
        yield _by_tool(kit, "pdm", "{} install -q --frozen-lockfile -G :all", "pdm.lock")
    locked = _pipfile_lock(kit.files)
    if locked:
        yield _pip(kit, RequirementSource("Pipfile.lock", locked, locked))


def _uv_sync(kit: _Kit) -> SetupCandidate:
    """The versions of uv.lock, with the group or the extra that holds the test runner."""
    found = [source for source in sources(kit.files) if source.kind in ("group", "extra")]
    options = "".join(f" --{source.kind} {quoted(source.name)}" for source in found[:1] if source.name != "dev")
    command = f"{{}} sync -q --frozen --python {kit.python}{options}"
    reason = f"uv.lock{', ' + found[0].why if found else ''}"
    return _by_tool(kit, "uv", command, reason)


def _poetry_options(files: ProjectFiles) -> str:
    tables = files.toml("pyproject.toml")
    names = [name for name in table(tables, "tool", "poetry", "group") if rank(name) >= 0]
    extras = entry(tables, "tool", "poetry", "extras") or entry(tables, "project", "optional-dependencies")
    return (f" --with {','.join(names)}" if names else "") + (" --all-extras" if extras else "")


def _by_tool(kit: _Kit, tool: str, command: str, why: str) -> SetupCandidate:
    """A lock is read by the program that wrote it; where that is not there, it is installed aside."""
    if kit.machine.has(tool):
        return _candidate(kit, command.format(tool), why)
    place = f"{_TOOLS}/{tool}"
    got = f"{kit.python} -m venv {place} && {place}/bin/python -m pip install -q {tool}"
    run = f"{got} && {command.format(f'{place}/bin/{tool}')}"
    return _candidate(kit, run, f"{why}; {tool} is not on the PATH and is installed aside")


def _pipfile_lock(files: ProjectFiles) -> tuple[str, ...]:
    """The versions of a Pipfile.lock as requirements; what has no version, such as a path, is left out."""
    found: dict[str, str] = {}
    for section in ("default", "develop"):
        packages = files.json("Pipfile.lock").get(section)
        for name, about in packages.items() if isinstance(packages, dict) else ():
            version, markers = entry(about, "version"), entry(about, "markers")
            if isinstance(version, str):
                found[name] = f"{name}{version}{f' ; {markers}' if isinstance(markers, str) else ''}"
    return tuple(found.values())


def _declared(kit: _Kit) -> Iterator[SetupCandidate]:
    found = sources(kit.files)
    yield from (_pip(kit, source) for source in found)
    groups = entry(kit.files.toml("pyproject.toml"), "dependency-groups")
    if len(found) > 1:  # together: an extra for what the tests import, and a group for the runner
        yield _pip(kit, _together(found))
    elif isinstance(groups, dict) and not found:
        held = tuple(one for name in groups if rank(name) >= 0 for one in expanded_group(groups, name))
        yield _pip(kit, RequirementSource("all dependency groups for tests", (*held, "pytest"), held))


def _together(found: list[RequirementSource]) -> RequirementSource:
    kinds: dict[str, RequirementSource] = {}
    for source in found:
        if source.kind != "ci":
            kinds.setdefault(source.kind, source)
    arguments = tuple(one for source in kinds.values() for one in source.arguments)
    held = tuple(one for source in kinds.values() for one in source.requirements)
    return RequirementSource(" and ".join(source.why for source in kinds.values()), arguments, held)


def _undeclared(kit: _Kit) -> Iterator[SetupCandidate]:
    """Nothing says what the tests need: the project itself, the runner, and the plugins that its settings name."""
    plugins = plugins_of(kit.files)
    own = ("-r", "requirements.txt") if requirement_lines(kit.files, "requirements.txt") else ()
    runner = () if kit.is_unittest else ("pytest", *plugins)
    named = f" with {', '.join(plugins)}, which its settings of pytest need" if plugins and runner else ""
    what = "unittest" if kit.is_unittest else "pytest"
    yield _pip(kit, RequirementSource(f"no test requirements are declared; {what}{named}", (*own, *runner), runner))


def _pip(kit: _Kit, source: RequirementSource) -> SetupCandidate:
    """A virtual environment with the project in it, for editing, and with what a source names."""
    arguments: list[str] = []
    words = [word for word in source.arguments if word not in ("-e", "--editable")]
    if kit.is_installable and not any(_is_project(word) for word in words):
        arguments += ["-e", "."]
    for word in words:
        arguments += ["-e", word] if _is_project(word) else [word]
    line = _joined(arguments)
    if not line:
        return _candidate(kit, "", source.why)
    if kit.machine.has("uv"):
        made = f"uv venv -q --python {kit.python} .venv && uv pip install -q --python .venv/bin/python {line}"
    else:
        made = f"{kit.python} -m venv .venv && .venv/bin/python -m pip install -q {line}"
    return _candidate(kit, made, source.why, source.requirements)


def _is_project(word: str) -> bool:
    return word == "." or word.startswith(".[")


def _joined(arguments: list[str]) -> str:
    """The arguments in quotes, each requirement once."""
    shown: list[str] = []
    pending = ""
    for word in arguments:
        if word in ("-e", "-r", "-c"):
            pending = f"{word} "
        else:
            one = f"{pending}{quoted(word)}"
            pending = ""
            if one not in shown:
                shown.append(one)
    return " ".join(shown)


def _candidate(kit: _Kit, run: str, why: str, brought: Iterable[str] = ()) -> SetupCandidate:
    """A setup with what linters and type checkers need beside it: that one cannot be had must not stop the tests."""
    there = {package_name(one) for one in brought}
    wanted = [tool.requirement for tool in kit.beside if package_name(tool.requirement) not in there]
    if run and wanted:
        words = " ".join(quoted(one) for one in dict.fromkeys(wanted))
        install = _install_beside(kit, run)
        run = f"{run} && ({install} {words} || echo 'not installed: '{words})"
    test = "" if kit.is_installable else _from_sources(kit)
    return SetupCandidate(run, why, test, kit.builds)


def _install_beside(kit: _Kit, run: str) -> str:
    """What adds a package to the environment that a setup made: one that uv made has no pip of its own."""
    if f"{_TOOLS}/uv/" in run:
        return f"{_TOOLS}/uv/bin/uv pip install -q --python .venv/bin/python"
    if kit.machine.has("uv"):
        return "uv pip install -q --python .venv/bin/python"
    return ".venv/bin/python -m pip install -q"
