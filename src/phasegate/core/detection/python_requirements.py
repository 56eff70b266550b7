"""Where a Python project declares what its tests need.

Groups, extras, requirements files, tox, nox, hatch, CI.

Each place is a `RequirementSource`: arguments for pip with a reason. Nothing is taken from an
import: a name there need not be the name of a package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phasegate.core.detection.files import (
    ProjectFiles,
    get_nested,
    get_table,
    is_requirements_file,
    list_strings,
)

# Best first. Groups for documentation, types or benchmarks are never what tests need.
_TEST_NAMES = (
    *(
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
    ),
    "development",
)
_FALLBACK_NAMES = ("ci", "all", "complete", "full")
_EXCLUDED_NAMES = re.compile(
    r"docs?|documentation|typing|types?|mypy|lint|bench|benchmark|format|release|publish|build|pre-commit"
)
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_MAX_DEPTH = 10
TEST_RUNNERS = ("pytest", "nose2")


class RequirementSource(NamedTuple):
    """A place that declares requirements.

    What to give to pip, and the requirements that this brings in.
    """

    why: str
    arguments: tuple[str, ...]
    requirements: tuple[str, ...]
    # Of a group or an extra
    name: str = ""
    kind: str = ""

    @property
    def has_test_runner(self) -> bool:
        return any(
            parse_package_name(one) in TEST_RUNNERS or parse_package_name(one).startswith("pytest-")
            for one in self.requirements
        )


def parse_package_name(requirement: str) -> str:
    """The normal form of a requirement's package, empty for options, paths and addresses."""
    found = _NAME.match(requirement)

    if (
        found is None
        or requirement.lstrip().startswith(("-", ".", "/"))
        or "://" in requirement.partition("@")[0]
    ):
        return ""

    return re.sub(r"[-_.]+", "-", found[1]).lower()


def rank_group_name(name: str) -> int:
    """How likely a group of this name is what the tests need; lower is better, -1 is never."""
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
    """Every place that declares a test runner, best first.

    Groups, extras, requirements files, environments, CI.
    """
    found = [source for find in _SOURCE_FINDERS for source in _sort_by_rank([*find(files)])]
    return [source for source in found if source.has_test_runner]


def find_all_sources(files: ProjectFiles) -> list[RequirementSource]:
    """Every place that declares anything, also what only linters need."""
    return [source for find in _SOURCE_FINDERS for source in find(files) if source.arguments]


def _sort_by_rank(found: list[RequirementSource]) -> list[RequirementSource]:
    return sorted(
        (source for source in found if rank_group_name(source.name) >= 0),
        key=lambda source: rank_group_name(source.name),
    )


# --- tables of pyproject.toml


def expand_group(groups: Mapping[str, object], name: str, depth: int = 0) -> list[str]:
    """The requirements of a dependency group, with those that it includes (PEP 735)."""
    plain = _normalize_name(name)
    value = next((value for key, value in groups.items() if _normalize_name(key) == plain), None)
    found: list[str] = []

    for one in value if isinstance(value, list) and depth < _MAX_DEPTH else ():
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict) and isinstance(one.get("include-group"), str):
            found += expand_group(groups, one["include-group"], depth + 1)

    return found


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _find_groups(files: ProjectFiles) -> Iterator[RequirementSource]:
    groups = get_table(files.load_toml("pyproject.toml"), "dependency-groups")
    for name in groups:
        held = tuple(expand_group(groups, name))
        yield RequirementSource(
            why=f"dependency group `{name}`",
            arguments=held,
            requirements=held,
            name=name,
            kind="group",
        )


def _find_extras(files: ProjectFiles) -> Iterator[RequirementSource]:
    extras = get_table(files.load_toml("pyproject.toml"), "project", "optional-dependencies")
    for name, value in extras.items():
        yield RequirementSource(
            why=f"extra `{name}`",
            arguments=(f".[{name}]",),
            requirements=_expand_own_extras(extras, list_strings(value)),
            name=name,
            kind="extra",
        )

    for name, lines in _parse_setup_cfg_extras(files.get_text("setup.cfg")).items():
        yield RequirementSource(
            why=f"extra `{name}` in setup.cfg",
            arguments=(f".[{name}]",),
            requirements=lines,
            name=name,
            kind="extra",
        )

    for name in _parse_setup_py_extras(files.get_text("setup.py")):
        # What it holds is only known once it is built: that it is called `tests` has to do.
        yield RequirementSource(
            why=f"extra `{name}` in setup.py",
            arguments=(f".[{name}]",),
            requirements=("pytest",),
            name=name,
            kind="extra",
        )


def _expand_own_extras(
    extras: Mapping[str, object], lines: list[str], depth: int = 0
) -> tuple[str, ...]:
    """An extra may name others of the same project: `package[test,docs]`."""
    found = list(lines)
    for line in lines if depth < 3 else ():
        for name in re.findall(r"[\w.-]+", (re.search(r"\[([^\]]*)\]", line) or ("", ""))[1]):
            if name in extras and extras[name] != lines:
                found += _expand_own_extras(extras, list_strings(extras[name]), depth + 1)

    return tuple(found)


def _parse_ini(text: str) -> dict[str, dict[str, str]]:
    """Sections of an INI file as people write them; what cannot be read is left out."""
    from configparser import ConfigParser, Error

    parser = ConfigParser(
        interpolation=None, strict=False, allow_no_value=True, comment_prefixes=("#", ";")
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their letters
    try:
        parser.read_string(text)
    except (Error, ValueError):
        return {}

    return {
        name: {key: value or "" for key, value in parser.items(name)} for name in parser.sections()
    }


def read_ini_section(text: str, *names: str) -> dict[str, str]:
    """The first of these sections that a text has."""
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
    """Groups of poetry as requirements, for where its lock cannot be used."""
    poetry = get_nested(files.load_toml("pyproject.toml"), "tool", "poetry")
    tables = {
        name: get_nested(value, "dependencies")
        for name, value in _list_dependencies(get_nested(poetry, "group"))
    }
    tables["dev"] = tables.get("dev") or get_nested(poetry, "dev-dependencies")

    for name, declared in tables.items():
        held = tuple(
            _convert_poetry_requirement(key, value) for key, value in _list_dependencies(declared)
        )
        if held:
            yield RequirementSource(
                why=f"poetry group `{name}`",
                arguments=held,
                requirements=held,
                name=name,
                kind="poetry",
            )


def _list_dependencies(table: object) -> list[tuple[str, object]]:
    if isinstance(table, dict):
        return [(key, value) for key, value in table.items() if key != "python"]
    return []


def _convert_poetry_requirement(name: str, value: object) -> str:
    """`^1.2` and `~1.2` have no equal for pip.

    The lower bound is kept, and the next major version is left out.
    """
    if isinstance(value, dict):
        version = get_nested(value, "version")
    else:
        version = value

    extras = ",".join(list_strings(get_nested(value, "extras")))
    named = f"{name}[{extras}]" if extras else name
    if not isinstance(version, str) or version in ("*", ""):
        return named

    if found := re.fullmatch(r"\^(\d+)(\.[\d.]+)?", version):
        if found[1] != "0":
            upper = f"<{int(found[1]) + 1}"
        else:
            upper = ""

        return f"{named}>={found[1]}{found[2] or ''}{',' + upper if upper else ''}"

    if found := re.fullmatch(r"~(\d[\d.]*)", version):
        return f"{named}>={found[1]}"

    return f"{named}{version if version[0] in '<>=!~' else '==' + version}"


def _find_tool_groups(files: ProjectFiles) -> Iterator[RequirementSource]:
    tables = files.load_toml("pyproject.toml")
    for name, value in _list_dependencies(get_nested(tables, "tool", "pdm", "dev-dependencies")):
        held = tuple(line for line in list_strings(value) if not line.startswith("-e"))
        yield RequirementSource(
            why=f"pdm group `{name}`", arguments=held, requirements=held, name=name, kind="pdm"
        )

    for tool in ("uv", "rye"):
        held = tuple(list_strings(get_nested(tables, "tool", tool, "dev-dependencies")))
        yield RequirementSource(
            why=f"dev-dependencies of {tool}",
            arguments=held,
            requirements=held,
            name="dev",
            kind=tool,
        )

    environments = {
        **dict(_list_dependencies(get_nested(tables, "tool", "hatch", "envs"))),
        **dict(_list_dependencies(get_nested(files.load_toml("hatch.toml"), "envs"))),
    }
    for name, value in environments.items():
        yield _read_hatch_environment(name, value, tables)


def _read_hatch_environment(
    name: str, value: object, tables: Mapping[str, object]
) -> RequirementSource:
    held = [
        *list_strings(get_nested(value, "dependencies")),
        *list_strings(get_nested(value, "extra-dependencies")),
    ]
    extras = list_strings(get_nested(value, "features"))
    arguments = [*held, *([f".[{','.join(extras)}]"] if extras else [])]
    groups = get_table(tables, "dependency-groups")
    for group in list_strings(get_nested(value, "dependency-groups")):
        arguments += expand_group(groups, group)

    # Hatch brings it along there
    brought = (*arguments, *(["pytest"] if name == "hatch-test" else []))
    return RequirementSource(
        why=f"hatch environment `{name}`",
        arguments=tuple(brought),
        requirements=brought,
        name={"default": "dev", "hatch-test": "test"}.get(name, name),
        kind="hatch",
    )


# --- requirements files


def _find_requirements_files(files: ProjectFiles) -> Iterator[RequirementSource]:
    for path in sorted(path for path in files.texts if is_requirements_path(path)):
        held = tuple(read_requirement_lines(files, path))
        if held:
            yield RequirementSource(
                why=path,
                arguments=("-r", path),
                requirements=held,
                name=_guess_requirements_purpose(path),
                kind="requirements",
            )


def is_requirements_path(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return is_requirements_file(name) or (
        bool(folder) and not folder.startswith(".") and name.endswith((".txt", ".in"))
    )


def _guess_requirements_purpose(path: str) -> str:
    """What a requirements file is for, by its name.

    `dev` for `requirements/dev.txt` and `dev-requirements.txt`.
    """
    name = path.rpartition("/")[2].rpartition(".")[0]
    words = [word for word in re.split(r"[-_.]", name) if word and word != "requirements"]
    # `x.txt` is made from `x.in`, with versions
    compiled = 0 if path.endswith(".txt") else 1
    if words:
        return "-".join(words)
    if not compiled:
        return "ci"

    return "full"


def read_requirement_lines(files: ProjectFiles, path: str, depth: int = 0) -> list[str]:
    """The requirements of a file and of those that it names with `-r`."""
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
    """What `[testenv]` asks for."""

    dependencies: tuple[str, ...]
    extras: tuple[str, ...]
    groups: tuple[str, ...]
    commands: tuple[str, ...]


def read_tox_environments(files: ProjectFiles) -> dict[str, ToxEnvironment]:
    """The environments of tox.ini, setup.cfg, tox.toml or pyproject.toml.

    `testenv` is the one that others extend.
    """
    tables = files.load_toml("tox.toml") or get_nested(
        files.load_toml("pyproject.toml"), "tool", "tox"
    )
    legacy = get_nested(tables, "legacy_tox_ini")
    if isinstance(legacy, str):
        text = legacy
    else:
        text = files.get_text("tox.ini")

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
    return ToxEnvironment(
        tuple(
            _strip_tox_factor(line)
            for line in _split_significant_lines(section.get("deps", ""))
            if "{" not in line
        ),
        tuple(
            one
            for line in _split_significant_lines(section.get("extras", ""))
            for one in re.split(r"[\s,]+", _strip_tox_factor(line))
        ),
        tuple(
            _strip_tox_factor(line)
            for line in _split_significant_lines(section.get("dependency_groups", ""))
        ),
        tuple(_split_significant_lines(section.get("commands", ""))),
    )


def _strip_tox_factor(line: str) -> str:
    """`py311,cov: coverage` is asked for by some environments only.

    What it names is known to fit the project.
    """
    found = re.match(r"[\w.,!{}-]+:\s+(\S.*)", line)
    if found:
        return found[1]
    return line


def _parse_toml_environment(table: Mapping[str, object]) -> ToxEnvironment:
    commands = table.get("commands")
    if isinstance(commands, list):
        lines = [" ".join(list_strings(one)) for one in commands]
    else:
        lines = []

    return ToxEnvironment(
        tuple(list_strings(table.get("deps"))),
        tuple(list_strings(table.get("extras"))),
        tuple(list_strings(table.get("dependency_groups"))),
        tuple(lines),
    )


def _find_tox_requirements(files: ProjectFiles) -> Iterator[RequirementSource]:
    groups = get_table(files.load_toml("pyproject.toml"), "dependency-groups")
    environments = read_tox_environments(files)
    common = environments.get("testenv", ToxEnvironment((), (), (), ()))

    for name, own in environments.items():
        grouped = [
            one for group in own.groups or common.groups for one in (expand_group(groups, group))
        ]
        held = [*(own.dependencies or common.dependencies), *grouped]
        extras = own.extras or common.extras
        arguments = [part for line in held for part in _split_arguments(line)]
        arguments += [f".[{','.join(extras)}]"] if extras else []
        brought = [one for line in held for one in _follow_requirements_file(files, line)]
        brought += ["pytest"] if extras and any("test" in extra for extra in extras) else []
        label = {"testenv": "test"}.get(name, name)
        yield RequirementSource(
            why=f"tox environment `{name}`",
            arguments=tuple(arguments),
            requirements=tuple(brought),
            name=label,
            kind="tox",
        )


def _split_arguments(line: str) -> list[str]:
    found = re.match(r"(-r|-c|--requirement|--constraint)[ =]?\s*(\S+)", line)
    if found:
        return [found[1], found[2]]
    return [line]


def _follow_requirements_file(files: ProjectFiles, line: str) -> list[str]:
    found = re.match(r"(?:-r|--requirement)[ =]?\s*(\S+)", line)
    if found:
        return read_requirement_lines(files, _join_path("", found[1]))
    return [line]


_SESSION = re.compile(r"def (\w*test\w*|unit)\(session\b.*?(?=\n@|\ndef |\Z)", re.S)
_INSTALL = re.compile(r"session\.install\(((?:[^()]|\([^()]*\))*)\)", re.S)


def _find_nox_requirements(files: ProjectFiles) -> Iterator[RequirementSource]:
    """The texts that test sessions of nox give to `session.install`."""
    for session in _SESSION.finditer(files.get_text("noxfile.py")):
        arguments = [
            text
            for call in _INSTALL.findall(session[0])
            for text in re.findall(r"""['"]([^'"]+)['"]""", call)
        ]
        kept = [one for one in arguments if not one.startswith("--") and "{" not in one]

        if kept:
            pairs = [one for one in kept if one not in ("-e", "-r")]
            brought = [
                line for one in pairs for line in (read_requirement_lines(files, one) or [one])
            ]
            yield RequirementSource(
                why=f"nox session `{session[1]}`",
                arguments=tuple(kept),
                requirements=tuple(brought),
                name="test",
                kind="nox",
            )


# --- what CI installs

_CI_INSTALL = re.compile(r"\bpip3? install ([^\n|&;]+)")


def _find_ci_requirements(files: ProjectFiles) -> Iterator[RequirementSource]:
    for path in sorted(path for path in files.texts if path.startswith(".github/workflows/")):
        for line in _CI_INSTALL.findall(files.get_text(path)):
            words = [word.strip("'\"") for word in line.split()]
            if any(word.startswith("$") or "{{" in word or "://" in word for word in words):
                continue

            kept = [word for word in words if word not in ("-U", "--upgrade", "-q", "pip")]
            brought = [
                one
                for word in kept
                for one in (read_requirement_lines(files, _join_path("", word)) or [word])
            ]
            yield RequirementSource(
                why=f"`pip install {line.strip()}` in {path}",
                arguments=tuple(kept),
                requirements=tuple(brought),
                name="test",
                kind="ci",
            )


def _find_tests_require(files: ProjectFiles) -> Iterator[RequirementSource]:
    found = re.search(r"tests_require\s*=\s*\[([^\]]*)\]", files.get_text("setup.py"))
    if found:
        held = tuple(re.findall(r"""['"]([^'"]+)['"]""", found[1]))
    else:
        held = ()

    held += tuple(
        _split_significant_lines(
            read_ini_section(files.get_text("setup.cfg"), "options").get("tests_require", "")
        )
    )
    if held:
        yield RequirementSource(
            why="tests_require",
            arguments=held,
            requirements=held,
            name="test",
            kind="tests_require",
        )


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
    """One word as the shell reads it back."""
    if word and _SHELL_SAFE_CHARACTERS.issuperset(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
