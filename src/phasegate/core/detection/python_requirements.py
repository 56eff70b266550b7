"""Where a Python project declares what its tests need: groups, extras, requirements files, tox, nox, hatch, CI.

Each place is a `RequirementSource`: arguments for pip with a reason. Nothing is taken from an import: a name there need
not be the name of a package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from phasegate.core.detection.files import ProjectFiles, entry, is_requirements, table, texts_in

# Best first. Groups for documentation, types or benchmarks are never what tests need.
_TEST_NAMES = (
    *("test", "tests", "testing", "unit", "unittest", "pytest", "tests-all", "test-all", "dev", "develop"),
    "development",
)
_LAST_NAMES = ("ci", "all", "complete", "full")
_NEVER = re.compile(
    r"docs?|documentation|typing|types?|mypy|lint|bench|benchmark|format|release|publish|build|pre-commit"
)
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_MOST_DEPTH = 10
RUNNERS = ("pytest", "nose2")


class RequirementSource(NamedTuple):
    """A place that declares requirements: what to give to pip, and the requirements that this brings in."""

    why: str
    arguments: tuple[str, ...]
    requirements: tuple[str, ...]
    name: str = ""  # of a group or an extra
    kind: str = ""

    @property
    def has_runner(self) -> bool:
        return any(package_name(one) in RUNNERS or package_name(one).startswith("pytest-") for one in self.requirements)


def package_name(requirement: str) -> str:
    """The normal form of a requirement's package, empty for options, paths and addresses."""
    found = _NAME.match(requirement)
    if found is None or requirement.lstrip().startswith(("-", ".", "/")) or "://" in requirement.partition("@")[0]:
        return ""
    return re.sub(r"[-_.]+", "-", found[1]).lower()


def rank(name: str) -> int:
    """How likely a group of this name is what the tests need; lower is better, -1 is never."""
    plain = name.lower().replace("_", "-")
    if plain in _TEST_NAMES:
        return _TEST_NAMES.index(plain)
    if plain in _LAST_NAMES:
        return 80 + _LAST_NAMES.index(plain)
    if "test" in plain:
        return 40
    return -1 if _NEVER.search(plain) else 60


def sources(files: ProjectFiles) -> list[RequirementSource]:
    """Every place that declares a test runner, best first: groups, extras, requirements files, environments, CI."""
    found = [source for find in _PLACES for source in _ranked([*find(files)])]
    return [source for source in found if source.has_runner]


def all_sources(files: ProjectFiles) -> list[RequirementSource]:
    """Every place that declares anything, also what only linters need."""
    return [source for find in _PLACES for source in find(files) if source.arguments]


def _ranked(found: list[RequirementSource]) -> list[RequirementSource]:
    return sorted((source for source in found if rank(source.name) >= 0), key=lambda source: rank(source.name))


# --- tables of pyproject.toml


def expanded_group(groups: Mapping[str, object], name: str, depth: int = 0) -> list[str]:
    """The requirements of a dependency group, with those that it includes (PEP 735)."""
    plain = _plain(name)
    value = next((value for key, value in groups.items() if _plain(key) == plain), None)
    found: list[str] = []
    for one in value if isinstance(value, list) and depth < _MOST_DEPTH else ():
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict) and isinstance(one.get("include-group"), str):
            found += expanded_group(groups, one["include-group"], depth + 1)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _groups(files: ProjectFiles) -> Iterator[RequirementSource]:
    groups = table(files.toml("pyproject.toml"), "dependency-groups")
    for name in groups:
        held = tuple(expanded_group(groups, name))
        yield RequirementSource(f"dependency group `{name}`", held, held, name, "group")


def _extras(files: ProjectFiles) -> Iterator[RequirementSource]:
    extras = table(files.toml("pyproject.toml"), "project", "optional-dependencies")
    for name, value in extras.items():
        yield RequirementSource(
            f"extra `{name}`", (f".[{name}]",), _with_own_extras(extras, texts_in(value)), name, "extra"
        )
    for name, lines in _setup_cfg_extras(files.text("setup.cfg")).items():
        yield RequirementSource(f"extra `{name}` in setup.cfg", (f".[{name}]",), lines, name, "extra")
    for name in _setup_py_extras(files.text("setup.py")):
        # What it holds is only known once it is built: that it is called `tests` has to do.
        yield RequirementSource(f"extra `{name}` in setup.py", (f".[{name}]",), ("pytest",), name, "extra")


def _with_own_extras(extras: Mapping[str, object], lines: list[str], depth: int = 0) -> tuple[str, ...]:
    """An extra may name others of the same project: `package[test,docs]`."""
    found = list(lines)
    for line in lines if depth < 3 else ():
        for name in re.findall(r"[\w.-]+", (re.search(r"\[([^\]]*)\]", line) or ("", ""))[1]):
            if name in extras and extras[name] != lines:
                found += _with_own_extras(extras, texts_in(extras[name]), depth + 1)
    return tuple(found)


def _ini_sections(text: str) -> dict[str, dict[str, str]]:
    """Sections of an INI file as people write them; what cannot be read is left out."""
    from configparser import ConfigParser, Error

    parser = ConfigParser(interpolation=None, strict=False, allow_no_value=True, comment_prefixes=("#", ";"))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their letters
    try:
        parser.read_string(text)
    except (Error, ValueError):
        return {}
    return {name: {key: value or "" for key, value in parser.items(name)} for name in parser.sections()}


def ini_section(text: str, *names: str) -> dict[str, str]:
    """The first of these sections that a text has."""
    if not any(f"[{name}]" in text for name in names):
        return {}
    sections = _ini_sections(text)
    return next((sections[name] for name in names if name in sections), {})


def _setup_cfg_extras(text: str) -> dict[str, tuple[str, ...]]:
    section = ini_section(text, "options.extras_require")
    return {name: tuple(_lines(value)) for name, value in section.items()}


_EXTRA_KEY = re.compile(r"""['"](test|tests|testing|dev|develop|all)['"]\s*[:\]]""")


def _setup_py_extras(text: str) -> list[str]:
    return [*dict.fromkeys(_EXTRA_KEY.findall(text))] if "extras_require" in text else []


def _poetry_groups(files: ProjectFiles) -> Iterator[RequirementSource]:
    """Groups of poetry as requirements, for where its lock cannot be used."""
    poetry = entry(files.toml("pyproject.toml"), "tool", "poetry")
    tables = {name: entry(value, "dependencies") for name, value in _items(entry(poetry, "group"))}
    tables["dev"] = tables.get("dev") or entry(poetry, "dev-dependencies")
    for name, declared in tables.items():
        held = tuple(_from_poetry(key, value) for key, value in _items(declared))
        if held:
            yield RequirementSource(f"poetry group `{name}`", held, held, name, "poetry")


def _items(table: object) -> list[tuple[str, object]]:
    return [(key, value) for key, value in table.items() if key != "python"] if isinstance(table, dict) else []


def _from_poetry(name: str, value: object) -> str:
    """`^1.2` and `~1.2` have no equal for pip: the lower bound is kept, and the next major version is left out."""
    version = entry(value, "version") if isinstance(value, dict) else value
    extras = ",".join(texts_in(entry(value, "extras")))
    named = f"{name}[{extras}]" if extras else name
    if not isinstance(version, str) or version in ("*", ""):
        return named
    if found := re.fullmatch(r"\^(\d+)(\.[\d.]+)?", version):
        upper = f"<{int(found[1]) + 1}" if found[1] != "0" else ""
        return f"{named}>={found[1]}{found[2] or ''}{',' + upper if upper else ''}"
    if found := re.fullmatch(r"~(\d[\d.]*)", version):
        return f"{named}>={found[1]}"
    return f"{named}{version if version[0] in '<>=!~' else '==' + version}"


def _tool_tables(files: ProjectFiles) -> Iterator[RequirementSource]:
    tables = files.toml("pyproject.toml")
    for name, value in _items(entry(tables, "tool", "pdm", "dev-dependencies")):
        held = tuple(line for line in texts_in(value) if not line.startswith("-e"))
        yield RequirementSource(f"pdm group `{name}`", held, held, name, "pdm")
    for tool in ("uv", "rye"):
        held = tuple(texts_in(entry(tables, "tool", tool, "dev-dependencies")))
        yield RequirementSource(f"dev-dependencies of {tool}", held, held, "dev", tool)
    environments = {
        **dict(_items(entry(tables, "tool", "hatch", "envs"))),
        **dict(_items(entry(files.toml("hatch.toml"), "envs"))),
    }
    for name, value in environments.items():
        yield _hatch_environment(name, value, tables)


def _hatch_environment(name: str, value: object, tables: Mapping[str, object]) -> RequirementSource:
    held = [*texts_in(entry(value, "dependencies")), *texts_in(entry(value, "extra-dependencies"))]
    extras = texts_in(entry(value, "features"))
    arguments = [*held, *([f".[{','.join(extras)}]"] if extras else [])]
    groups = table(tables, "dependency-groups")
    for group in texts_in(entry(value, "dependency-groups")):
        arguments += expanded_group(groups, group)
    brought = (*arguments, *(["pytest"] if name == "hatch-test" else []))  # hatch brings it along there
    return RequirementSource(
        f"hatch environment `{name}`",
        tuple(brought),
        brought,
        {"default": "dev", "hatch-test": "test"}.get(name, name),
        "hatch",
    )


# --- requirements files


def _requirements_files(files: ProjectFiles) -> Iterator[RequirementSource]:
    for path in sorted(path for path in files.texts if is_requirements_path(path)):
        held = tuple(requirement_lines(files, path))
        if held:
            yield RequirementSource(path, ("-r", path), held, _stem(path), "requirements")


def is_requirements_path(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return is_requirements(name) or (bool(folder) and not folder.startswith(".") and name.endswith((".txt", ".in")))


def _stem(path: str) -> str:
    """What a requirements file is for, by its name: `dev` for `requirements/dev.txt` and `dev-requirements.txt`."""
    name = path.rpartition("/")[2].rpartition(".")[0]
    words = [word for word in re.split(r"[-_.]", name) if word and word != "requirements"]
    compiled = 0 if path.endswith(".txt") else 1  # `x.txt` is made from `x.in`, with versions
    return "-".join(words) if words else ("ci" if not compiled else "full")


def requirement_lines(files: ProjectFiles, path: str, depth: int = 0) -> list[str]:
    """The requirements of a file and of those that it names with `-r`."""
    found: list[str] = []
    folder = path.rpartition("/")[0]
    for line in _lines(files.text(path)):
        included = re.match(r"(?:-r|--requirement)[ =]?\s*(\S+)", line)
        if included and depth < _MOST_DEPTH:
            found += requirement_lines(files, _joined(folder, included[1]), depth + 1)
        elif not line.startswith("-"):
            found.append(line)
    return found


def _joined(folder: str, name: str) -> str:
    parts = folder.split("/") if folder else []
    for part in name.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _lines(text: str) -> list[str]:
    bare = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in bare if line]


# --- environments of tox and nox


class ToxEnvironment(NamedTuple):
    """What `[testenv]` asks for."""

    dependencies: tuple[str, ...]
    extras: tuple[str, ...]
    groups: tuple[str, ...]
    commands: tuple[str, ...]


def tox_environments(files: ProjectFiles) -> dict[str, ToxEnvironment]:
    """The environments of tox.ini, setup.cfg, tox.toml or pyproject.toml; `testenv` is the one that others extend."""
    tables = files.toml("tox.toml") or entry(files.toml("pyproject.toml"), "tool", "tox")
    legacy = entry(tables, "legacy_tox_ini")
    text = legacy if isinstance(legacy, str) else files.text("tox.ini")
    if "[testenv" in text:
        sections = _ini_sections(text)
        return {
            name.partition(":")[2] or "testenv": _from_ini(section)
            for name, section in sections.items()
            if name == "testenv" or name.startswith("testenv:")
        }
    named = {"testenv": entry(tables, "env_run_base"), **dict(_items(entry(tables, "env")))}
    return {name: _from_tables(value) for name, value in named.items() if isinstance(value, dict)}


def _from_ini(section: Mapping[str, str]) -> ToxEnvironment:
    return ToxEnvironment(
        tuple(_without_factor(line) for line in _lines(section.get("deps", "")) if "{" not in line),
        tuple(one for line in _lines(section.get("extras", "")) for one in re.split(r"[\s,]+", _without_factor(line))),
        tuple(_without_factor(line) for line in _lines(section.get("dependency_groups", ""))),
        tuple(_lines(section.get("commands", ""))),
    )


def _without_factor(line: str) -> str:
    """`py311,cov: coverage` is asked for by some environments only: what it names is known to fit the project."""
    found = re.match(r"[\w.,!{}-]+:\s+(\S.*)", line)
    return found[1] if found else line


def _from_tables(table: Mapping[str, object]) -> ToxEnvironment:
    commands = table.get("commands")
    lines = [" ".join(texts_in(one)) for one in commands] if isinstance(commands, list) else []
    return ToxEnvironment(
        tuple(texts_in(table.get("deps"))),
        tuple(texts_in(table.get("extras"))),
        tuple(texts_in(table.get("dependency_groups"))),
        tuple(lines),
    )


def _tox(files: ProjectFiles) -> Iterator[RequirementSource]:
    groups = table(files.toml("pyproject.toml"), "dependency-groups")
    environments = tox_environments(files)
    common = environments.get("testenv", ToxEnvironment((), (), (), ()))
    for name, own in environments.items():
        grouped = [one for group in own.groups or common.groups for one in (expanded_group(groups, group))]
        held = [*(own.dependencies or common.dependencies), *grouped]
        extras = own.extras or common.extras
        arguments = [part for line in held for part in _as_arguments(line)]
        arguments += [f".[{','.join(extras)}]"] if extras else []
        brought = [one for line in held for one in _followed(files, line)]
        brought += ["pytest"] if extras and any("test" in extra for extra in extras) else []
        label = {"testenv": "test"}.get(name, name)
        yield RequirementSource(f"tox environment `{name}`", tuple(arguments), tuple(brought), label, "tox")


def _as_arguments(line: str) -> list[str]:
    found = re.match(r"(-r|-c|--requirement|--constraint)[ =]?\s*(\S+)", line)
    return [found[1], found[2]] if found else [line]


def _followed(files: ProjectFiles, line: str) -> list[str]:
    found = re.match(r"(?:-r|--requirement)[ =]?\s*(\S+)", line)
    return requirement_lines(files, _joined("", found[1])) if found else [line]


_SESSION = re.compile(r"def (\w*test\w*|unit)\(session\b.*?(?=\n@|\ndef |\Z)", re.S)
_INSTALL = re.compile(r"session\.install\(((?:[^()]|\([^()]*\))*)\)", re.S)


def _nox(files: ProjectFiles) -> Iterator[RequirementSource]:
    """The texts that test sessions of nox give to `session.install`."""
    for session in _SESSION.finditer(files.text("noxfile.py")):
        arguments = [
            text for call in _INSTALL.findall(session[0]) for text in re.findall(r"""['"]([^'"]+)['"]""", call)
        ]
        kept = [one for one in arguments if not one.startswith("--") and "{" not in one]
        if kept:
            pairs = [one for one in kept if one not in ("-e", "-r")]
            brought = [line for one in pairs for line in (requirement_lines(files, one) or [one])]
            yield RequirementSource(f"nox session `{session[1]}`", tuple(kept), tuple(brought), "test", "nox")


# --- what CI installs

_CI_INSTALL = re.compile(r"\bpip3? install ([^\n|&;]+)")


def _ci(files: ProjectFiles) -> Iterator[RequirementSource]:
    for path in sorted(path for path in files.texts if path.startswith(".github/workflows/")):
        for line in _CI_INSTALL.findall(files.text(path)):
            words = [word.strip("'\"") for word in line.split()]
            if any(word.startswith("$") or "{{" in word or "://" in word for word in words):
                continue
            kept = [word for word in words if word not in ("-U", "--upgrade", "-q", "pip")]
            brought = [one for word in kept for one in (requirement_lines(files, _joined("", word)) or [word])]
            yield RequirementSource(
                f"`pip install {line.strip()}` in {path}", tuple(kept), tuple(brought), "test", "ci"
            )


def _tests_require(files: ProjectFiles) -> Iterator[RequirementSource]:
    found = re.search(r"tests_require\s*=\s*\[([^\]]*)\]", files.text("setup.py"))
    held = tuple(re.findall(r"""['"]([^'"]+)['"]""", found[1])) if found else ()
    held += tuple(_lines(ini_section(files.text("setup.cfg"), "options").get("tests_require", "")))
    if held:
        yield RequirementSource("tests_require", held, held, "test", "tests_require")


_PLACES = (_groups, _extras, _poetry_groups, _tool_tables, _tox, _requirements_files, _nox, _tests_require, _ci)


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")


def quoted(word: str) -> str:
    """One word as the shell reads it back."""
    if word and _PLAIN.issuperset(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
