"""How a Python project is set up and checked: candidates in order, each with its reason.

Locks come first, then what the project declares for its tests. A candidate after which no test is
collected has failed, and the next is tried: that is decided where commands can be run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from phasegate.core.detection.files import ProjectFiles, get_nested, get_table, list_strings
from phasegate.core.detection.model import (
    DetectedProject,
    FoundCommand,
    MachineInfo,
    SetupCandidate,
)
from phasegate.core.detection.python_requirements import (
    RequirementSource,
    expand_group,
    find_all_sources,
    find_test_sources,
    parse_package_name,
    quote_word,
    rank_group_name,
    read_ini_section,
    read_requirement_lines,
)
from phasegate.core.detection.python_tests import (
    build_test_command,
    find_pytest_plugins,
    uses_unittest,
)
from phasegate.core.detection.python_tools import PythonTool, find_python_tools
from phasegate.core.text.versions import is_version_allowed

PYTHON_MANIFESTS = (
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "requirements.txt",
    "Pipfile",
    "tox.ini",
)
_TOOLS_FOLDER = ".phasegate-tools"
_EXTENSION_MODULES = re.compile(r"ext_modules|Extension\(|cythonize|cffi_modules|RustExtension")
_COMPILING_BACKENDS = ("maturin", "scikit_build", "mesonpy", "setuptools_rust")


class _PythonProject(NamedTuple):
    """What every candidate is put together from."""

    files: ProjectFiles
    machine: MachineInfo
    python: str
    is_installable: bool
    compiles_sources: bool
    extra_tools: tuple[PythonTool, ...]
    test_command: FoundCommand
    is_unittest: bool


def detect_python(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """What is known about a Python project; None if it is none."""
    if not files.find_first(*PYTHON_MANIFESTS):
        return None

    everything = find_all_sources(files)
    beside = find_python_tools(files, everything)
    kit = _PythonProject(
        files=files,
        machine=machine,
        python=_choose_interpreter(files, machine),
        is_installable=_is_installable(files),
        compiles_sources=_has_compiled_sources(files),
        extra_tools=tuple(beside),
        test_command=build_test_command(files, everything),
        is_unittest=uses_unittest(files, everything),
    )

    commands = {"test": kit.test_command}
    for tool in beside:
        commands.setdefault(tool.purpose, FoundCommand(tool.command, tool.configured_in))

    declared = {parse_package_name(one) for source in everything for one in source.requirements}
    if declared & {"coverage", "pytest-cov"} or files.find_first(".coveragerc"):
        measured = "python3 -m coverage run -m pytest && python3 -m coverage xml"
        commands["coverage"] = FoundCommand(measured, "coverage is configured")

    setups = _remove_duplicates(
        [
            *_propose_no_setup(kit, everything),
            *_propose_from_locks(kit),
            *_propose_from_declared(kit),
            *_propose_default(kit),
        ]
    )

    notes = (*_report_missing_python(files, machine), *(tool.note for tool in beside if tool.note))

    return DetectedProject(
        profile="python",
        name=_find_project_name(files),
        setups=tuple(setups),
        commands=commands,
        notes=notes,
    )


def _remove_duplicates(candidates: Iterable[SetupCandidate]) -> list[SetupCandidate]:
    by_run: dict[str, SetupCandidate] = {}
    for candidate in candidates:
        by_run.setdefault(candidate.command, candidate)
    return [*by_run.values()]


def _find_project_name(files: ProjectFiles) -> str:
    tables = files.load_toml("pyproject.toml")
    found = (
        get_nested(tables, "project", "name")
        or get_nested(tables, "tool", "poetry", "name")
        or read_ini_section(files.get_text("setup.cfg"), "metadata").get("name")
    )
    if isinstance(found, str):
        return found

    written = re.search(r"""\bname\s*=\s*['"]([\w.-]+)['"]""", files.get_text("setup.py"))
    if written:
        return written[1]

    return ""


# --- interpreter and build


def _choose_interpreter(files: ProjectFiles, machine: MachineInfo) -> str:
    """The command of an interpreter that the project asks for.

    `.python-version`, then `requires-python`.
    """
    named = files.get_text(".python-version").strip().split(".")
    if len(named) >= 2 and (wanted := f"python{named[0]}.{named[1]}") in machine.pythons:
        return wanted

    asked = find_required_python(files)
    fitting = [
        name for name, version in machine.pythons.items() if is_version_allowed(asked, version)
    ]
    if "python3" in fitting or not fitting:
        return "python3"

    return fitting[0]


def _report_missing_python(files: ProjectFiles, machine: MachineInfo) -> list[str]:
    asked = find_required_python(files)
    if not machine.pythons or any(
        is_version_allowed(asked, version) for version in machine.pythons.values()
    ):
        return []
    return [f"it asks for Python {asked}, and there is none on the PATH: install one"]


def find_required_python(files: ProjectFiles) -> str:
    tables = files.load_toml("pyproject.toml")
    found = get_nested(tables, "project", "requires-python") or get_nested(
        tables, "tool", "poetry", "dependencies", "python"
    )
    cfg = read_ini_section(files.get_text("setup.cfg"), "options").get("python_requires", "")
    written = re.search(r"""python_requires\s*=\s*['"]([^'"]+)['"]""", files.get_text("setup.py"))
    if isinstance(found, str):
        return found

    return cfg or (written[1] if written else "")


def _is_installable(files: ProjectFiles) -> bool:
    tables = files.load_toml("pyproject.toml")
    is_package = (
        get_nested(tables, "tool", "uv", "package") is not False
        and get_nested(tables, "tool", "poetry", "package-mode") is not False
    )
    declared = (
        "build-system" in tables
        or "project" in tables
        or get_nested(tables, "tool", "poetry", "name") is not None
    )
    return bool(files.find_first("setup.py")) or (is_package and declared)


def _has_compiled_sources(files: ProjectFiles) -> bool:
    backend = get_nested(files.load_toml("pyproject.toml"), "build-system", "build-backend")
    return (isinstance(backend, str) and backend.startswith(_COMPILING_BACKENDS)) or bool(
        _EXTENSION_MODULES.search(files.get_text("setup.py"))
    )


# --- candidates


def _propose_no_setup(
    kit: _PythonProject, all_sources: list[RequirementSource]
) -> Iterator[SetupCandidate]:
    """A project that declares no requirement needs no setup.

    Its tests run with the Python that is there.
    """
    if (
        all_sources
        or _has_own_requirements(kit.files)
        or kit.compiles_sources
        or kit.python != "python3"
    ):
        return

    if kit.files.find_first("setup.py", "Pipfile", "uv.lock", "poetry.lock", "pdm.lock"):
        return

    yield SetupCandidate("", "it declares no dependencies", _build_source_test_command(kit))


def _has_own_requirements(files: ProjectFiles) -> bool:
    tables = files.load_toml("pyproject.toml")
    dynamic = list_strings(get_nested(tables, "project", "dynamic"))
    poetry = get_nested(tables, "tool", "poetry", "dependencies")
    return bool(
        get_nested(tables, "project", "dependencies")
        or {"dependencies", "optional-dependencies"} & {*dynamic}
        or (isinstance(poetry, dict) and {*poetry} - {"python"})
        or read_ini_section(files.get_text("setup.cfg"), "options").get("install_requires")
        or read_requirement_lines(files, "requirements.txt")
    )


def _build_source_test_command(kit: _PythonProject) -> str:
    """The test command for a project that is not installed: its sources are found in src/."""
    has_src = any(path.startswith("src/") for path in kit.files.paths)
    if has_src:
        return f"PYTHONPATH=src {kit.test_command.command}"
    return kit.test_command.command


def _propose_from_locks(kit: _PythonProject) -> Iterator[SetupCandidate]:
    if kit.files.find_first("uv.lock"):
        yield _propose_uv_sync(kit)
    if kit.files.find_first("poetry.lock"):
        command = f"env POETRY_VIRTUALENVS_IN_PROJECT=1 {{}} install -q -n{_build_poetry_options(kit.files)}"
        yield _propose_with_tool(kit, "poetry", command, "poetry.lock")
    if kit.files.find_first("pdm.lock"):
        yield _propose_with_tool(kit, "pdm", "{} install -q --frozen-lockfile -G :all", "pdm.lock")

    locked = _read_pipfile_lock(kit.files)
    if locked:
        yield _propose_pip_install(
            kit, RequirementSource(why="Pipfile.lock", arguments=locked, requirements=locked)
        )


def _propose_uv_sync(kit: _PythonProject) -> SetupCandidate:
    """The versions of uv.lock, with the group or the extra that holds the test runner."""
    found = [source for source in find_test_sources(kit.files) if source.kind in ("group", "extra")]
    options = "".join(
        f" --{source.kind} {quote_word(source.name)}"
        for source in found[:1]
        if source.name != "dev"
    )
    command = f"{{}} sync -q --frozen --python {kit.python}{options}"
    reason = f"uv.lock{', ' + found[0].why if found else ''}"

    return _propose_with_tool(kit, "uv", command, reason)


def _build_poetry_options(files: ProjectFiles) -> str:
    tables = files.load_toml("pyproject.toml")
    names = [
        name for name in get_table(tables, "tool", "poetry", "group") if rank_group_name(name) >= 0
    ]
    extras = get_nested(tables, "tool", "poetry", "extras") or get_nested(
        tables, "project", "optional-dependencies"
    )
    return (f" --with {','.join(names)}" if names else "") + (" --all-extras" if extras else "")


def _propose_with_tool(kit: _PythonProject, tool: str, command: str, why: str) -> SetupCandidate:
    """A lock is read by the program that wrote it; where that is not there, it is installed aside."""
    if kit.machine.has_program(tool):
        return _make_candidate(kit, command.format(tool), why)

    place = f"{_TOOLS_FOLDER}/{tool}"
    got = f"{kit.python} -m venv {place} && {place}/bin/python -m pip install -q {tool}"
    run = f"{got} && {command.format(f'{place}/bin/{tool}')}"

    return _make_candidate(kit, run, f"{why}; {tool} is not on the PATH and is installed aside")


def _read_pipfile_lock(files: ProjectFiles) -> tuple[str, ...]:
    """The versions of a Pipfile.lock as requirements.

    What has no version, such as a path, is left out.
    """
    found: dict[str, str] = {}

    for section in ("default", "develop"):
        packages = files.load_json("Pipfile.lock").get(section)
        for name, about in packages.items() if isinstance(packages, dict) else ():
            version = get_nested(about, "version")
            markers = get_nested(about, "markers")
            if isinstance(version, str):
                found[name] = (
                    f"{name}{version}{f' ; {markers}' if isinstance(markers, str) else ''}"
                )

    return tuple(found.values())


def _propose_from_declared(kit: _PythonProject) -> Iterator[SetupCandidate]:
    found = find_test_sources(kit.files)
    yield from (_propose_pip_install(kit, source) for source in found)
    groups = get_nested(kit.files.load_toml("pyproject.toml"), "dependency-groups")

    # Together: an extra for what the tests import, and a group for the runner
    if len(found) > 1:
        yield _propose_pip_install(kit, _combine_sources(found))
    elif isinstance(groups, dict) and not found:
        held = tuple(
            one
            for name in groups
            if rank_group_name(name) >= 0
            for one in expand_group(groups, name)
        )

        yield _propose_pip_install(
            kit,
            RequirementSource(
                why="all dependency groups for tests",
                arguments=(*held, "pytest"),
                requirements=held,
            ),
        )


def _combine_sources(found: list[RequirementSource]) -> RequirementSource:
    kinds: dict[str, RequirementSource] = {}
    for source in found:
        if source.kind != "ci":
            kinds.setdefault(source.kind, source)

    arguments = tuple(one for source in kinds.values() for one in source.arguments)
    held = tuple(one for source in kinds.values() for one in source.requirements)

    return RequirementSource(
        why=" and ".join(source.why for source in kinds.values()),
        arguments=arguments,
        requirements=held,
    )


def _propose_default(kit: _PythonProject) -> Iterator[SetupCandidate]:
    """Nothing says what the tests need.

    The project itself, the runner, and the plugins that its settings name.
    """
    plugins = find_pytest_plugins(kit.files)
    own = (
        ("-r", "requirements.txt") if read_requirement_lines(kit.files, "requirements.txt") else ()
    )
    runner = () if kit.is_unittest else ("pytest", *plugins)
    if plugins and runner:
        named = f" with {', '.join(plugins)}, which its settings of pytest need"
    else:
        named = ""

    what = "unittest" if kit.is_unittest else "pytest"
    yield _propose_pip_install(
        kit,
        RequirementSource(
            why=f"no test requirements are declared; {what}{named}",
            arguments=(*own, *runner),
            requirements=runner,
        ),
    )


def _propose_pip_install(kit: _PythonProject, source: RequirementSource) -> SetupCandidate:
    """A virtual environment with the project in it, for editing, and with what a source names."""
    arguments: list[str] = []
    words = [word for word in source.arguments if word not in ("-e", "--editable")]
    if kit.is_installable and not any(_is_own_project(word) for word in words):
        arguments += ["-e", "."]

    for word in words:
        arguments += ["-e", word] if _is_own_project(word) else [word]

    line = _join_arguments(arguments)
    if not line:
        return _make_candidate(kit, "", source.why)

    if kit.machine.has_program("uv"):
        made = f"uv venv -q --python {kit.python} .venv && uv pip install -q --python .venv/bin/python {line}"
    else:
        made = f"{kit.python} -m venv .venv && .venv/bin/python -m pip install -q {line}"

    return _make_candidate(kit, made, source.why, source.requirements)


def _is_own_project(word: str) -> bool:
    return word == "." or word.startswith(".[")


def _join_arguments(arguments: list[str]) -> str:
    """The arguments in quotes, each requirement once."""
    shown: list[str] = []
    pending = ""

    for word in arguments:
        if word in ("-e", "-r", "-c"):
            pending = f"{word} "
        else:
            one = f"{pending}{quote_word(word)}"
            pending = ""
            if one not in shown:
                shown.append(one)

    return " ".join(shown)


def _make_candidate(
    kit: _PythonProject, run: str, why: str, brought: Iterable[str] = ()
) -> SetupCandidate:
    """A setup with what linters and type checkers need beside it.

    That one cannot be had must not stop the tests.
    """
    there = {parse_package_name(one) for one in brought}
    wanted = [
        tool.requirement
        for tool in kit.extra_tools
        if parse_package_name(tool.requirement) not in there
    ]
    if run and wanted:
        words = " ".join(quote_word(one) for one in dict.fromkeys(wanted))
        install = _build_extra_install_command(kit, run)
        run = f"{run} && ({install} {words} || echo 'not installed: '{words})"

    if kit.is_installable:
        test = ""
    else:
        test = _build_source_test_command(kit)

    return SetupCandidate(run, why, test, kit.compiles_sources)


def _build_extra_install_command(kit: _PythonProject, run: str) -> str:
    """What adds a package to the environment that a setup made.

    One that uv made has no pip of its own.
    """
    if f"{_TOOLS_FOLDER}/uv/" in run:
        return f"{_TOOLS_FOLDER}/uv/bin/uv pip install -q --python .venv/bin/python"
    if kit.machine.has_program("uv"):
        return "uv pip install -q --python .venv/bin/python"
    return ".venv/bin/python -m pip install -q"
