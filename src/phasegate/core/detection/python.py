"""Detect the setup and check commands of a Python project, as candidates with reasons.

Lock files come first, then declared test requirements. A candidate after which no test is collected
has failed. The caller, which can run commands, then tries the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from phasegate.core.detection.declared_checks import describe_unasked, find_declared_checks
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
_COVERAGE_COMMAND = "python3 -m coverage run -m pytest && python3 -m coverage xml"
_EXTENSION_MODULES = re.compile(r"ext_modules|Extension\(|cythonize|cffi_modules|RustExtension")
_COMPILING_BACKENDS = ("maturin", "scikit_build", "mesonpy", "setuptools_rust")


class _PythonProject(NamedTuple):
    """Everything that setup candidates are built from."""

    files: ProjectFiles
    machine: MachineInfo
    python: str
    is_installable: bool
    compiles_sources: bool
    extra_tools: tuple[PythonTool, ...]
    test_command: FoundCommand
    is_unittest: bool


def detect_python(files: ProjectFiles, machine: MachineInfo) -> DetectedProject | None:
    """Detect a Python project, or return None if the files are not a Python project."""
    if not files.find_first(*PYTHON_MANIFESTS):
        return None

    sources = find_all_sources(files)
    declared_checks = find_declared_checks(files)
    tools = find_python_tools(files, sources, declared_checks)
    project = _PythonProject(
        files=files,
        machine=machine,
        python=_choose_interpreter(files, machine),
        is_installable=_is_installable(files),
        compiles_sources=_has_compiled_sources(files),
        extra_tools=tuple(tools),
        test_command=build_test_command(files, sources),
        is_unittest=uses_unittest(files, sources),
    )

    commands = {"test": project.test_command}
    for tool in tools:
        before = commands.get(tool.purpose)
        if before is None:
            commands[tool.purpose] = FoundCommand(tool.command, tool.configured_in)
        else:
            commands[tool.purpose] = FoundCommand(
                f"{before.command} && {tool.command}", f"{before.why}, {tool.configured_in}"
            )

    declared = {
        parse_package_name(requirement) for source in sources for requirement in source.requirements
    }
    if declared & {"coverage", "pytest-cov"} or files.find_first(".coveragerc"):
        commands["coverage"] = FoundCommand(_COVERAGE_COMMAND, "coverage is configured")

    setups = _remove_duplicates(
        [
            *_propose_no_setup(project, sources),
            *_propose_from_locks(project),
            *_propose_from_declared(project),
            *_propose_default(project),
        ]
    )

    asked = [*(found.command for found in commands.values()), "pytest unittest coverage"]
    notes = dict.fromkeys(
        [
            *_report_missing_python(files, machine),
            *(tool.note for tool in tools if tool.note),
            *describe_unasked(declared_checks, asked),
        ]
    )

    return DetectedProject(
        profile="python",
        name=_find_project_name(files),
        setups=tuple(setups),
        commands=commands,
        notes=tuple(notes),
    )


def _remove_duplicates(candidates: Iterable[SetupCandidate]) -> list[SetupCandidate]:
    by_command: dict[str, SetupCandidate] = {}
    for candidate in candidates:
        by_command.setdefault(candidate.command, candidate)
    return [*by_command.values()]


def _find_project_name(files: ProjectFiles) -> str:
    """Return the project's name from its metadata; empty if there is none."""
    tables = files.load_toml("pyproject.toml")
    name = (
        get_nested(tables, "project", "name")
        or get_nested(tables, "tool", "poetry", "name")
        or read_ini_section(files.get_text("setup.cfg"), "metadata").get("name")
    )
    if isinstance(name, str):
        return name

    match = re.search(r"""\bname\s*=\s*['"]([\w.-]+)['"]""", files.get_text("setup.py"))
    return match[1] if match else ""


# --- interpreter and build


def _choose_interpreter(files: ProjectFiles, machine: MachineInfo) -> str:
    """Return an interpreter that the project allows.

    `.python-version` is tried first, then `requires-python`.
    """
    pinned = files.get_text(".python-version").strip().split(".")
    command = f"python{'.'.join(pinned[:2])}"
    if len(pinned) >= 2 and command in machine.pythons:
        return command

    required = find_required_python(files)
    allowed = [
        name for name, version in machine.pythons.items() if is_version_allowed(required, version)
    ]
    if "python3" in allowed or not allowed:
        return "python3"

    return allowed[0]


def _report_missing_python(files: ProjectFiles, machine: MachineInfo) -> list[str]:
    required = find_required_python(files)
    versions = machine.pythons.values()
    if not versions or any(is_version_allowed(required, version) for version in versions):
        return []
    return [f"it requires Python {required}, which is not on the PATH: install it"]


def find_required_python(files: ProjectFiles) -> str:
    """Return the range of Python versions that the project requires; empty if it has none."""
    tables = files.load_toml("pyproject.toml")
    declared = get_nested(tables, "project", "requires-python")
    declared = declared or get_nested(tables, "tool", "poetry", "dependencies", "python")
    if isinstance(declared, str):
        return declared

    options = read_ini_section(files.get_text("setup.cfg"), "options")
    if options.get("python_requires"):
        return options["python_requires"]

    match = re.search(r"""python_requires\s*=\s*['"]([^'"]+)['"]""", files.get_text("setup.py"))
    return match[1] if match else ""


def _is_installable(files: ProjectFiles) -> bool:
    """Return whether the project can be installed as a package."""
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
    project: _PythonProject, all_sources: list[RequirementSource]
) -> Iterator[SetupCandidate]:
    """Propose no setup for a project without requirements.

    Its tests run with the installed Python.
    """
    if (
        all_sources
        or _has_own_requirements(project.files)
        or project.compiles_sources
        or project.python != "python3"
    ):
        return

    if project.files.find_first("setup.py", "Pipfile", "uv.lock", "poetry.lock", "pdm.lock"):
        return

    yield SetupCandidate("", "it declares no dependencies", _build_source_test_command(project))


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


def _build_source_test_command(project: _PythonProject) -> str:
    """Return the test command for a project that is not installed, with src/ on the path."""
    has_src = any(path.startswith("src/") for path in project.files.paths)
    if has_src:
        return f"PYTHONPATH=src {project.test_command.command}"
    return project.test_command.command


def _propose_from_locks(project: _PythonProject) -> Iterator[SetupCandidate]:
    """Yield a setup for each lock file."""
    if project.files.find_first("uv.lock"):
        yield _propose_uv_sync(project)
    if project.files.find_first("poetry.lock"):
        options = _build_poetry_options(project.files)
        command = f"env POETRY_VIRTUALENVS_IN_PROJECT=1 {{}} install -q -n{options}"
        yield _propose_with_tool(project, "poetry", command, "poetry.lock")
    if project.files.find_first("pdm.lock"):
        yield _propose_with_tool(
            project, "pdm", "{} install -q --frozen-lockfile -G :all", "pdm.lock"
        )

    locked = _read_pipfile_lock(project.files)
    if locked:
        yield _propose_pip_install(
            project, RequirementSource(why="Pipfile.lock", arguments=locked, requirements=locked)
        )


def _propose_uv_sync(project: _PythonProject) -> SetupCandidate:
    """Propose the versions of uv.lock, with the group or extra that has the test runner."""
    sources = find_test_sources(project.files)
    source = next((source for source in sources if source.kind in ("group", "extra")), None)
    command = f"{{}} sync -q --frozen --python {project.python}"
    reason = "uv.lock"
    if source:
        reason += f", {source.why}"
        # uv installs the group `dev` by default
        if source.name != "dev":
            command += f" --{source.kind} {quote_word(source.name)}"

    return _propose_with_tool(project, "uv", command, reason)


def _build_poetry_options(files: ProjectFiles) -> str:
    """Return the options that install test groups and all extras."""
    tables = files.load_toml("pyproject.toml")
    names = [
        name for name in get_table(tables, "tool", "poetry", "group") if rank_group_name(name) >= 0
    ]
    extras = get_nested(tables, "tool", "poetry", "extras") or get_nested(
        tables, "project", "optional-dependencies"
    )
    options = f" --with {','.join(names)}" if names else ""
    if extras:
        options += " --all-extras"
    return options


def _propose_with_tool(
    project: _PythonProject, tool: str, command: str, why: str
) -> SetupCandidate:
    """Propose a setup from a lock file, with the program that wrote it.

    The program is installed if necessary.
    """
    if project.machine.has_program(tool):
        return _make_candidate(project, command.format(tool), why)

    folder = f"{_TOOLS_FOLDER}/{tool}"
    install = f"{project.python} -m venv {folder} && {folder}/bin/python -m pip install -q {tool}"
    run = f"{install} && {command.format(f'{folder}/bin/{tool}')}"

    note = f"{tool} is not on the PATH and is installed into {_TOOLS_FOLDER}"
    return _make_candidate(project, run, f"{why}; {note}")


def _read_pipfile_lock(files: ProjectFiles) -> tuple[str, ...]:
    """Return the versions of a Pipfile.lock as requirements.

    Entries without a version, such as paths, are left out.
    """
    lock = files.load_json("Pipfile.lock")
    requirements: dict[str, str] = {}

    for section in ("default", "develop"):
        for name, package in get_table(lock, section).items():
            version = get_nested(package, "version")
            markers = get_nested(package, "markers")
            if isinstance(version, str):
                condition = f" ; {markers}" if isinstance(markers, str) else ""
                requirements[name] = f"{name}{version}{condition}"

    return tuple(requirements.values())


def _propose_from_declared(project: _PythonProject) -> Iterator[SetupCandidate]:
    """Yield setups from declared requirements, the combined one last."""
    sources = find_test_sources(project.files)
    yield from (_propose_pip_install(project, source) for source in sources)
    groups = get_nested(project.files.load_toml("pyproject.toml"), "dependency-groups")

    # An extra may have what the tests import, and a group the test runner
    if len(sources) > 1:
        yield _propose_pip_install(project, _combine_sources(sources))
    elif isinstance(groups, dict) and not sources:
        requirements: list[str] = []
        for name in groups:
            if rank_group_name(name) >= 0:
                requirements += expand_group(groups, name)

        yield _propose_pip_install(
            project,
            RequirementSource(
                why="all dependency groups for tests",
                arguments=(*requirements, "pytest"),
                requirements=tuple(requirements),
            ),
        )


def _combine_sources(sources: list[RequirementSource]) -> RequirementSource:
    """Combine the best source of each kind."""
    by_kind: dict[str, RequirementSource] = {}
    for source in sources:
        if source.kind != "ci":
            by_kind.setdefault(source.kind, source)

    arguments: list[str] = []
    requirements: list[str] = []
    for source in by_kind.values():
        arguments += source.arguments
        requirements += source.requirements

    return RequirementSource(
        why=" and ".join(source.why for source in by_kind.values()),
        arguments=tuple(arguments),
        requirements=tuple(requirements),
    )


def _propose_default(project: _PythonProject) -> Iterator[SetupCandidate]:
    """Propose a setup for a project that declares no test requirements.

    It has the project, the test runner, and the plugins that its settings need.
    """
    requirements: tuple[str, ...] = ()
    reason = "no test requirements are declared; unittest"
    if not project.is_unittest:
        plugins = find_pytest_plugins(project.files)
        requirements = ("pytest", *plugins)
        reason = "no test requirements are declared; pytest"
        if plugins:
            reason += f" with {', '.join(plugins)}, which its settings of pytest need"

    arguments = requirements
    if read_requirement_lines(project.files, "requirements.txt"):
        arguments = ("-r", "requirements.txt", *requirements)

    yield _propose_pip_install(
        project, RequirementSource(why=reason, arguments=arguments, requirements=requirements)
    )


def _propose_pip_install(project: _PythonProject, source: RequirementSource) -> SetupCandidate:
    """Propose a virtual environment with the editable project and the requirements of a source."""
    arguments: list[str] = []
    words = [word for word in source.arguments if word not in ("-e", "--editable")]
    if project.is_installable and not any(_is_own_project(word) for word in words):
        arguments += ["-e", "."]

    for word in words:
        arguments += ["-e", word] if _is_own_project(word) else [word]

    line = _join_arguments(arguments)
    if not line:
        return _make_candidate(project, "", source.why)

    if project.machine.has_program("uv"):
        create = f"uv venv -q --python {project.python} .venv"
        install = f"uv pip install -q --python .venv/bin/python {line}"
    else:
        create = f"{project.python} -m venv .venv"
        install = f".venv/bin/python -m pip install -q {line}"

    return _make_candidate(project, f"{create} && {install}", source.why, source.requirements)


def _is_own_project(word: str) -> bool:
    return word == "." or word.startswith(".[")


def _join_arguments(arguments: list[str]) -> str:
    """Join quoted arguments, each requirement once."""
    # As keys, which are unique and ordered
    quoted: dict[str, None] = {}
    option = ""

    for word in arguments:
        if word in ("-e", "-r", "-c"):
            option = f"{word} "
        else:
            quoted[f"{option}{quote_word(word)}"] = None
            option = ""

    return " ".join(quoted)


def _make_candidate(
    project: _PythonProject, run: str, why: str, requirements: Iterable[str] = ()
) -> SetupCandidate:
    """Build a candidate that also installs linters and type checkers.

    One that is not available must not stop the tests.
    """
    installed = {parse_package_name(requirement) for requirement in requirements}
    missing = [
        tool.requirement
        for tool in project.extra_tools
        if parse_package_name(tool.requirement) not in installed
    ]
    if run and missing:
        words = _join_arguments(missing)
        install = _build_extra_install_command(project, run)
        run = f"{run} && ({install} {words} || echo 'not installed: '{words})"

    test = "" if project.is_installable else _build_source_test_command(project)
    return SetupCandidate(run, why, test, project.compiles_sources)


def _build_extra_install_command(project: _PythonProject, run: str) -> str:
    """Return the command that adds a package to the environment of a setup.

    An environment of uv has no pip.
    """
    if f"{_TOOLS_FOLDER}/uv/" in run:
        return f"{_TOOLS_FOLDER}/uv/bin/uv pip install -q --python .venv/bin/python"
    if project.machine.has_program("uv"):
        return "uv pip install -q --python .venv/bin/python"
    return ".venv/bin/python -m pip install -q"
