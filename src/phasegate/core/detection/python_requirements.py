"""Find where a Python project declares its test requirements.

It reads groups, extras, requirements files, tox, nox, hatch and CI. Each place is a
`RequirementSource`: arguments for pip with a reason. Imports are not used: a module name need not
be the name of a package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from phasegate.core.detection.files import (
    ProjectFiles,
    get_nested,
    get_table,
    is_requirements_file,
    list_strings,
)

# Names of groups for tests, best first
_TEST_NAMES = (
    "test",
    "tests",
    "testing",
    "unit",
    "unittest",
    "pytest",
    "tests-all",
    "test-all",
    "dev",
    "develop",
    "development",
)
_FALLBACK_NAMES = ("ci", "all", "complete", "full")
# Groups that tests never need
_EXCLUDED_NAMES = re.compile(
    r"docs?|documentation|typing|types?|mypy|lint|bench|benchmark|format|release|publish|build"
    r"|pre-commit"
)
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_MAX_DEPTH = 10
TEST_RUNNERS = ("pytest", "nose2")


class RequirementSource(NamedTuple):
    """A place that declares requirements.

    It has the arguments for pip, and the requirements that they install.
    """

    why: str
    arguments: tuple[str, ...]
    requirements: tuple[str, ...]
    # Name of the group or extra
    name: str = ""
    kind: str = ""

    @property
    def has_test_runner(self) -> bool:
        names = [parse_package_name(requirement) for requirement in self.requirements]
        return any(name in TEST_RUNNERS or name.startswith("pytest-") for name in names)


def _make_group(why: str, requirements: Iterable[str], name: str, kind: str) -> RequirementSource:
    """Return a source whose requirements are also the arguments for pip."""
    lines = tuple(requirements)
    return RequirementSource(why=why, arguments=lines, requirements=lines, name=name, kind=kind)


def _make_extra(name: str, requirements: tuple[str, ...], where: str = "") -> RequirementSource:
    return RequirementSource(
        why=f"extra `{name}`{where}",
        arguments=(f".[{name}]",),
        requirements=requirements,
        name=name,
        kind="extra",
    )


def parse_package_name(requirement: str) -> str:
    """Return the normalized package name of a requirement; empty for options, paths and URLs."""
    match = _NAME.match(requirement)

    if (
        match is None
        or requirement.lstrip().startswith(("-", ".", "/"))
        or "://" in requirement.partition("@")[0]
    ):
        return ""

    return _normalize_name(match[1])


def rank_group_name(name: str) -> int:
    """Rank how likely a group has the test requirements; lower is better, -1 is never."""
    plain = name.lower().replace("_", "-")
    if plain in _TEST_NAMES:
        return _TEST_NAMES.index(plain)
    if plain in _FALLBACK_NAMES:
        return 80 + _FALLBACK_NAMES.index(plain)
    if "test" in plain:
        return 40
    if _EXCLUDED_NAMES.search(plain):
        return -1

    return 60


def find_test_sources(files: ProjectFiles) -> list[RequirementSource]:
    """Return every place that declares a test runner, best first.

    The order is groups, extras, requirements files, environments, CI.
    """
    sources = [source for find in _SOURCE_FINDERS for source in _sort_by_rank([*find(files)])]
    return [source for source in sources if source.has_test_runner]


def find_all_sources(files: ProjectFiles) -> list[RequirementSource]:
    """Return every place that declares requirements, including those of linters."""
    return [source for find in _SOURCE_FINDERS for source in find(files) if source.arguments]


def _sort_by_rank(found: list[RequirementSource]) -> list[RequirementSource]:
    return sorted(
        (source for source in found if rank_group_name(source.name) >= 0),
        key=lambda source: rank_group_name(source.name),
    )


# --- tables of pyproject.toml


def expand_group(groups: Mapping[str, object], name: str, depth: int = 0) -> list[str]:
    """Return the requirements of a dependency group, with the groups that it includes (PEP 735)."""
    plain = _normalize_name(name)
    value = next((value for key, value in groups.items() if _normalize_name(key) == plain), None)
    requirements: list[str] = []
    if not isinstance(value, list) or depth >= _MAX_DEPTH:
        return requirements

    for entry in value:
        if isinstance(entry, str):
            requirements.append(entry)
        elif isinstance(entry, dict) and isinstance(entry.get("include-group"), str):
            requirements += expand_group(groups, entry["include-group"], depth + 1)

    return requirements


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _find_groups(files: ProjectFiles) -> Iterator[RequirementSource]:
    groups = get_table(files.load_toml("pyproject.toml"), "dependency-groups")
    for name in groups:
        yield _make_group(f"dependency group `{name}`", expand_group(groups, name), name, "group")


def _find_extras(files: ProjectFiles) -> Iterator[RequirementSource]:
    extras = get_table(files.load_toml("pyproject.toml"), "project", "optional-dependencies")
    for name, value in extras.items():
        yield _make_extra(name, _expand_own_extras(extras, list_strings(value)))

    for name, lines in _parse_setup_cfg_extras(files.get_text("setup.cfg")).items():
        yield _make_extra(name, lines, " in setup.cfg")

    for name in _parse_setup_py_extras(files.get_text("setup.py")):
        # Its content is known only once it is built; the name must suffice.
        yield _make_extra(name, ("pytest",), " in setup.py")


def _expand_own_extras(
    extras: Mapping[str, object], lines: list[str], depth: int = 0
) -> tuple[str, ...]:
    """Add the requirements of other extras of the same project: `package[test,docs]`."""
    requirements = list(lines)
    if depth >= 3:
        return tuple(requirements)

    for line in lines:
        bracket = re.search(r"\[([^\]]*)\]", line)
        for name in re.findall(r"[\w.-]+", bracket[1] if bracket else ""):
            if name in extras and extras[name] != lines:
                requirements += _expand_own_extras(extras, list_strings(extras[name]), depth + 1)

    return tuple(requirements)


def _parse_ini(text: str) -> dict[str, dict[str, str]]:
    """Parse the sections of an INI file; empty if it cannot be parsed."""
    from configparser import ConfigParser, Error

    parser = ConfigParser(
        interpolation=None, strict=False, allow_no_value=True, comment_prefixes=("#", ";")
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keep the case
    try:
        parser.read_string(text)
    except (Error, ValueError):
        return {}

    return {
        name: {key: value or "" for key, value in parser.items(name)} for name in parser.sections()
    }


def read_ini_section(text: str, *names: str) -> dict[str, str]:
    """Return the first of these sections that a text has."""
    if not any(f"[{name}]" in text for name in names):
        return {}
    sections = _parse_ini(text)
    return next((sections[name] for name in names if name in sections), {})


def _parse_setup_cfg_extras(text: str) -> dict[str, tuple[str, ...]]:
    section = read_ini_section(text, "options.extras_require")
    return {name: tuple(_split_significant_lines(value)) for name, value in section.items()}


_EXTRA_KEY = re.compile(r"""['"](test|tests|testing|dev|develop|all)['"]\s*[:\]]""")


def _parse_setup_py_extras(text: str) -> list[str]:
    if "extras_require" in text:
        return [*dict.fromkeys(_EXTRA_KEY.findall(text))]
    return []


def _find_poetry_groups(files: ProjectFiles) -> Iterator[RequirementSource]:
    """Yield the groups of poetry, for projects whose lock file cannot be used."""
    poetry = get_nested(files.load_toml("pyproject.toml"), "tool", "poetry")
    tables = {
        name: get_nested(value, "dependencies")
        for name, value in _list_dependencies(get_nested(poetry, "group"))
    }
    tables["dev"] = tables.get("dev") or get_nested(poetry, "dev-dependencies")

    for name, declared in tables.items():
        requirements = [
            _convert_poetry_requirement(key, value) for key, value in _list_dependencies(declared)
        ]
        if requirements:
            yield _make_group(f"poetry group `{name}`", requirements, name, "poetry")


def _list_dependencies(table: object) -> list[tuple[str, object]]:
    if isinstance(table, dict):
        return [(key, value) for key, value in table.items() if key != "python"]
    return []


def _convert_poetry_requirement(name: str, value: object) -> str:
    """Convert a requirement of poetry for pip.

    pip has no `^1.2` and `~1.2`: the lower bound is kept, and `^` excludes the next major version.
    """
    version = get_nested(value, "version") if isinstance(value, dict) else value
    extras = ",".join(list_strings(get_nested(value, "extras")))
    if extras:
        name = f"{name}[{extras}]"
    if not isinstance(version, str) or version in ("*", ""):
        return name

    if match := re.fullmatch(r"\^(\d+)(\.[\d.]+)?", version):
        lower = f"{name}>={match[1]}{match[2] or ''}"
        if match[1] == "0":
            return lower
        return f"{lower},<{int(match[1]) + 1}"

    if match := re.fullmatch(r"~(\d[\d.]*)", version):
        return f"{name}>={match[1]}"
    if version[0] in "<>=!~":
        return f"{name}{version}"

    return f"{name}=={version}"


def _find_tool_groups(files: ProjectFiles) -> Iterator[RequirementSource]:
    """Yield the requirement groups of pdm, uv, rye and hatch."""
    tables = files.load_toml("pyproject.toml")
    for name, value in _list_dependencies(get_nested(tables, "tool", "pdm", "dev-dependencies")):
        requirements = [line for line in list_strings(value) if not line.startswith("-e")]
        yield _make_group(f"pdm group `{name}`", requirements, name, "pdm")

    for tool in ("uv", "rye"):
        requirements = list_strings(get_nested(tables, "tool", tool, "dev-dependencies"))
        yield _make_group(f"dev-dependencies of {tool}", requirements, "dev", tool)

    environments = {
        **dict(_list_dependencies(get_nested(tables, "tool", "hatch", "envs"))),
        **dict(_list_dependencies(get_nested(files.load_toml("hatch.toml"), "envs"))),
    }
    for name, value in environments.items():
        yield _read_hatch_environment(name, value, tables)


def _read_hatch_environment(
    name: str, value: object, tables: Mapping[str, object]
) -> RequirementSource:
    """Return the requirements of a hatch environment."""
    requirements = [
        *list_strings(get_nested(value, "dependencies")),
        *list_strings(get_nested(value, "extra-dependencies")),
    ]
    if extras := list_strings(get_nested(value, "features")):
        requirements.append(f".[{','.join(extras)}]")

    groups = get_table(tables, "dependency-groups")
    for group in list_strings(get_nested(value, "dependency-groups")):
        requirements += expand_group(groups, group)

    if name == "hatch-test":
        # Hatch adds the test runner to this environment
        requirements.append("pytest")

    group = {"default": "dev", "hatch-test": "test"}.get(name, name)
    return _make_group(f"hatch environment `{name}`", requirements, group, "hatch")


# --- requirements files


def _find_requirements_files(files: ProjectFiles) -> Iterator[RequirementSource]:
    for path in sorted(path for path in files.texts if is_requirements_path(path)):
        requirements = tuple(read_requirement_lines(files, path))
        if requirements:
            yield RequirementSource(
                why=path,
                arguments=("-r", path),
                requirements=requirements,
                name=_guess_requirements_purpose(path),
                kind="requirements",
            )


def is_requirements_path(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return is_requirements_file(name) or (
        bool(folder) and not folder.startswith(".") and name.endswith((".txt", ".in"))
    )


def _guess_requirements_purpose(path: str) -> str:
    """Guess the purpose of a requirements file by its name.

    It is `dev` for `requirements/dev.txt` and `dev-requirements.txt`.
    """
    name = path.rpartition("/")[2].rpartition(".")[0]
    words = [word for word in re.split(r"[-_.]", name) if word and word != "requirements"]
    if words:
        return "-".join(words)

    # `x.txt` is compiled from `x.in`, with versions, and preferred
    return "ci" if path.endswith(".txt") else "full"


def read_requirement_lines(files: ProjectFiles, path: str, depth: int = 0) -> list[str]:
    """Return the requirements of a file, and of the files that it includes with `-r`."""
    found: list[str] = []
    folder = path.rpartition("/")[0]

    for line in _split_significant_lines(files.get_text(path)):
        included = re.match(r"(?:-r|--requirement)[ =]?\s*(\S+)", line)
        if included and depth < _MAX_DEPTH:
            found += read_requirement_lines(files, _join_path(folder, included[1]), depth + 1)
        elif not line.startswith("-"):
            found.append(line)

    return found


def _join_path(folder: str, name: str) -> str:
    parts = folder.split("/") if folder else []
    for part in name.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)

    return "/".join(parts)


def _split_significant_lines(text: str) -> list[str]:
    bare = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in bare if line]


# --- environments of tox and nox


class ToxEnvironment(NamedTuple):
    """The requirements and commands of a tox environment."""

    dependencies: tuple[str, ...]
    extras: tuple[str, ...]
    groups: tuple[str, ...]
    commands: tuple[str, ...]


def read_tox_environments(files: ProjectFiles) -> dict[str, ToxEnvironment]:
    """Read the environments of tox.ini, setup.cfg, tox.toml or pyproject.toml.

    `testenv` is the base of the others.
    """
    tables = files.load_toml("tox.toml") or get_nested(
        files.load_toml("pyproject.toml"), "tool", "tox"
    )
    legacy = get_nested(tables, "legacy_tox_ini")
    text = legacy if isinstance(legacy, str) else files.get_text("tox.ini")

    if "[testenv" in text:
        sections = _parse_ini(text)
        return {
            name.partition(":")[2] or "testenv": _parse_ini_environment(section)
            for name, section in sections.items()
            if name == "testenv" or name.startswith("testenv:")
        }

    named = {
        "testenv": get_nested(tables, "env_run_base"),
        **dict(_list_dependencies(get_nested(tables, "env"))),
    }
    return {
        name: _parse_toml_environment(value)
        for name, value in named.items()
        if isinstance(value, dict)
    }


def _parse_ini_environment(section: Mapping[str, str]) -> ToxEnvironment:
    """Parse a tox environment from its section in an INI file."""
    dependencies = _split_significant_lines(section.get("deps", ""))
    extras = _split_significant_lines(section.get("extras", ""))
    groups = _split_significant_lines(section.get("dependency_groups", ""))
    return ToxEnvironment(
        dependencies=tuple(_strip_tox_factor(line) for line in dependencies if "{" not in line),
        extras=tuple(
            extra for line in extras for extra in re.split(r"[\s,]+", _strip_tox_factor(line))
        ),
        groups=tuple(_strip_tox_factor(line) for line in groups),
        commands=tuple(
            _split_significant_lines(re.sub(r"\\\n\s*", " ", section.get("commands", "")))
        ),
    )


def _strip_tox_factor(line: str) -> str:
    """Remove the condition of a line such as `py311,cov: coverage`.

    Only some environments need it, but it is known to fit the project.
    """
    match = re.match(r"[\w.,!{}-]+:\s+(\S.*)", line)
    return match[1] if match else line


def _parse_toml_environment(table: Mapping[str, object]) -> ToxEnvironment:
    commands = table.get("commands")
    if not isinstance(commands, list):
        commands = []

    return ToxEnvironment(
        dependencies=tuple(list_strings(table.get("deps"))),
        extras=tuple(list_strings(table.get("extras"))),
        groups=tuple(list_strings(table.get("dependency_groups"))),
        commands=tuple(" ".join(list_strings(command)) for command in commands),
    )


def _find_tox_requirements(files: ProjectFiles) -> Iterator[RequirementSource]:
    """Yield the requirements of each tox environment."""
    groups = get_table(files.load_toml("pyproject.toml"), "dependency-groups")
    environments = read_tox_environments(files)
    common = environments.get("testenv", ToxEnvironment((), (), (), ()))

    for name, environment in environments.items():
        lines = [*(environment.dependencies or common.dependencies)]
        for group in environment.groups or common.groups:
            lines += expand_group(groups, group)

        arguments: list[str] = []
        requirements: list[str] = []
        for line in lines:
            arguments += _split_arguments(line)
            requirements += _follow_requirements_file(files, line)

        extras = environment.extras or common.extras
        if extras:
            arguments.append(f".[{','.join(extras)}]")
        if any("test" in extra for extra in extras):
            requirements.append("pytest")

        yield RequirementSource(
            why=f"tox environment `{name}`",
            arguments=tuple(arguments),
            requirements=tuple(requirements),
            name="test" if name == "testenv" else name,
            kind="tox",
        )


def _split_arguments(line: str) -> list[str]:
    match = re.match(r"(-r|-c|--requirement|--constraint)[ =]?\s*(\S+)", line)
    if match:
        return [match[1], match[2]]
    return [line]


def _follow_requirements_file(files: ProjectFiles, line: str) -> list[str]:
    match = re.match(r"(?:-r|--requirement)[ =]?\s*(\S+)", line)
    if match:
        return read_requirement_lines(files, _join_path("", match[1]))
    return [line]


_SESSION = re.compile(r"def (\w*test\w*|unit)\(session\b.*?(?=\n@|\ndef |\Z)", re.S)
_INSTALL = re.compile(r"session\.install\(((?:[^()]|\([^()]*\))*)\)", re.S)


def _find_nox_requirements(files: ProjectFiles) -> Iterator[RequirementSource]:
    """Yield the arguments of `session.install` in test sessions of nox."""
    for session in _SESSION.finditer(files.get_text("noxfile.py")):
        calls = " ".join(_INSTALL.findall(session[0]))
        words = re.findall(r"""['"]([^'"]+)['"]""", calls)
        arguments = [word for word in words if not word.startswith("--") and "{" not in word]

        if arguments:
            requirements: list[str] = []
            for word in arguments:
                if word not in ("-e", "-r"):
                    requirements += read_requirement_lines(files, word) or [word]

            yield RequirementSource(
                why=f"nox session `{session[1]}`",
                arguments=tuple(arguments),
                requirements=tuple(requirements),
                name="test",
                kind="nox",
            )


# --- commands of CI

_CI_INSTALL = re.compile(r"\bpip3? install ([^\n|&;]+)")


def _find_ci_requirements(files: ProjectFiles) -> Iterator[RequirementSource]:
    """Yield the requirements of `pip install` lines in GitHub workflows."""
    for path in sorted(path for path in files.texts if path.startswith(".github/workflows/")):
        for line in _CI_INSTALL.findall(files.get_text(path)):
            words = [word.strip("'\"") for word in line.split()]
            if any(word.startswith("$") or "{{" in word or "://" in word for word in words):
                continue

            arguments = [word for word in words if word not in ("-U", "--upgrade", "-q", "pip")]
            requirements: list[str] = []
            for word in arguments:
                requirements += read_requirement_lines(files, _join_path("", word)) or [word]

            yield RequirementSource(
                why=f"`pip install {line.strip()}` in {path}",
                arguments=tuple(arguments),
                requirements=tuple(requirements),
                name="test",
                kind="ci",
            )


def _find_tests_require(files: ProjectFiles) -> Iterator[RequirementSource]:
    match = re.search(r"tests_require\s*=\s*\[([^\]]*)\]", files.get_text("setup.py"))
    requirements = re.findall(r"""['"]([^'"]+)['"]""", match[1] if match else "")
    options = read_ini_section(files.get_text("setup.cfg"), "options")
    requirements += _split_significant_lines(options.get("tests_require", ""))
    if requirements:
        yield _make_group("tests_require", requirements, "test", "tests_require")


_SOURCE_FINDERS = (
    _find_groups,
    _find_extras,
    _find_poetry_groups,
    _find_tool_groups,
    _find_tox_requirements,
    _find_requirements_files,
    _find_nox_requirements,
    _find_tests_require,
    _find_ci_requirements,
)


_SHELL_SAFE_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_"
)


def quote_word(word: str) -> str:
    """Quote one word for the shell."""
    if word and _SHELL_SAFE_CHARACTERS.issuperset(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
