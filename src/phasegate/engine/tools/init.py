"""`init`: prepare a repository.

Writes missing files, changes no existing one, and can be repeated. This module stays light: it uses
no third-party package, no pathlib, and starts no program.
"""

from __future__ import annotations

import errno
import os

from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES
from phasegate.core.detection.init_files import (
    RepositoryFacts,
    extract_first_paragraph,
    find_harness_rows,
    list_commands,
    list_conventions,
    render_agents,
    render_config,
    render_project_description,
)
from phasegate.core.detection.project_kind import (
    LANGUAGE_TITLES,
    NAME_SOURCES,
    detect_root_kind,
    read_project_name,
)
from phasegate.core.paths.own_folders import CONFIG_FILE, OWN_FOLDERS
from phasegate.core.text.light_tuple import Light
from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.files import open_folder, read_regular_file
from phasegate.files.durable_write import replace_file_at
from phasegate.files.git_exclude import add_git_excludes
from phasegate.storage.repository_kind import RepositoryInfo, find_repository
from phasegate.storage.trust_record import (
    make_file_line,
    read_accepted_lines,
    write_accepted_lines,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CONFIG_PATH = CONFIG_FILE
# In a hidden folder: `agentd/` at the root is a second package for setuptools
PROJECT_PATH = ".agentd/project.md"
SEED_PROJECT_PATH = "agentd/project.md"
_COMMAND_SOURCES = (
    "package.json",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
    "noxfile.py",
    "Makefile",
)
_GUIDELINES = ("CONTRIBUTING.md", "CONTRIBUTING.rst", "CONTRIBUTING", ".github/CONTRIBUTING.md")
_PROJECT_TEMPLATE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "prompts", "setup", "project.md"
)
# In lower case: any spelling is read
_READMES = ("readme.md", "readme.rst", "readme.txt", "readme")
_MAX_README_CHARS = 20_000
_MAX_MANIFEST_BYTES = 1_000_000
_MAX_FOLDERS = 30


class InitFile(Light):
    """A file below the root, its outcome, and its text if it was written now."""

    path: str
    outcome: str
    text: str = ""


class InitNote(Light):
    """An obstacle to the first run, and the remedy."""

    what: str
    remedy: str


class InitResult(Light):
    """Result of `init`."""

    root: str
    files: tuple[InitFile, ...]
    notes: tuple[InitNote, ...]
    agents: tuple[str, ...]
    profile: str


def prepare_repository(start: str, environ: Mapping[str, str]) -> InitResult:
    """Prepare the repository that contains a folder."""
    repository = find_repository(start)
    facts = _inspect_repository(repository.root, environ)

    try:
        files, agents = _write_missing_files(repository, facts, environ)
    except OSError as error:
        path = repository.root
        if isinstance(error.filename, str):
            path = os.path.relpath(error.filename, repository.root)

        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "free disk space" if is_full else "make the repository's folder writable"
        raise EnvironmentUnavailable(
            f"{path} cannot be written: {error.strerror}", remedy
        ) from error

    return InitResult(
        repository.root,
        files,
        tuple(_collect_notes(repository, agents, facts.programs)),
        agents,
        facts.kind,
    )


def _inspect_repository(root: str, environ: Mapping[str, str]) -> RepositoryFacts:
    """Collect the facts about the repository that `init` needs."""
    with os.scandir(root) as entries:
        is_folder_by_name = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}

    names = frozenset(is_folder_by_name)
    kind = detect_root_kind(names)
    folders = sorted(
        name
        for name, is_folder in is_folder_by_name.items()
        if is_folder and not name.startswith(".")
    )

    return RepositoryFacts(
        _strip_unprintable(_project_name(root, names)),
        _readme_summary(root, names),
        tuple(
            row.program
            for row in INSTALLABLE_HARNESSES.values()
            if _is_on_path(row.program, environ.get("PATH", ""))
        ),
        frozenset(environ),
        kind,
        LANGUAGE_TITLES[kind],
        tuple(_strip_unprintable(name) for name in folders[:_MAX_FOLDERS]),
        list_commands({name: _read_text(f"{root}/{name}") for name in _COMMAND_SOURCES}),
        tuple(map(_strip_unprintable, list_conventions(_read_guidelines(root)))),
    )


def _read_guidelines(root: str) -> str:
    return next(filter(None, (_read_text(f"{root}/{name}") for name in _GUIDELINES)), "")


def _project_name(root: str, names: frozenset[str]) -> str:
    """Return the project's name from its manifest, else the name of its folder."""
    found_names = (
        read_project_name(file, _read_text(f"{root}/{file}"))
        for file in NAME_SOURCES
        if file in names
    )
    return next((name for name in found_names if name), os.path.basename(root))


def _read_text(path: str) -> str:
    """Return the text of a file; empty if it cannot be read, or is a link.

    A link could name any file of the user, and the text is written into a page to commit.
    """
    data = read_regular_file(path, _MAX_MANIFEST_BYTES)
    if data is None:
        return ""

    return data.decode("utf-8", "replace")


def _is_on_path(program: str, path: str) -> bool:
    """Return whether a program is in an absolute folder of PATH.

    Relative folders are ignored: their content may come from the repository.
    """
    candidates = (
        os.path.join(folder, program) for folder in path.split(os.pathsep) if os.path.isabs(folder)
    )
    return any(
        os.path.isfile(candidate) and os.access(candidate, os.X_OK) for candidate in candidates
    )


def _readme_summary(root: str, names: frozenset[str]) -> str:
    name_by_lower = {name.lower(): name for name in sorted(names)}
    readme = next((name_by_lower[name] for name in _READMES if name in name_by_lower), None)
    if readme is None:
        return ""

    text = _read_text(f"{root}/{readme}")[:_MAX_README_CHARS]
    return _strip_unprintable(extract_first_paragraph(text))


def _strip_unprintable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())


def _write_missing_files(
    repository: RepositoryInfo, facts: RepositoryFacts, environ: Mapping[str, str]
) -> tuple[tuple[InitFile, ...], tuple[str, ...]]:
    """Write the missing files. Return all files and the configured agents."""
    agents, project, worktrees = _read_settings(repository, facts, environ)
    if project == PROJECT_PATH and os.path.lexists(f"{repository.root}/{SEED_PROJECT_PATH}"):
        project = SEED_PROJECT_PATH
    config = _write_if_missing(repository.root, CONFIG_PATH, lambda: render_config(facts))
    if config.outcome == "kept" and not agents and facts.programs:
        # Installed since the last time: show what to add, and change nothing
        config = InitFile(CONFIG_PATH, "kept", render_agents(facts))
    with open(_PROJECT_TEMPLATE, encoding="utf-8") as file:
        template = file.read()

    description = _write_if_missing(
        repository.root, project, lambda: render_project_description(template, facts)
    )
    folders = dict.fromkeys((*OWN_FOLDERS, worktrees))
    added = add_git_excludes(repository.git_dir, folders)
    exclude = os.path.relpath(f"{repository.git_dir}/info/exclude", repository.root)

    if description.outcome == "written":
        _accept_description(repository.root, description.path, environ)

    return (config, description, InitFile(exclude, "lines added" if added else "kept")), agents


def _accept_description(root: str, path: str, environ: Mapping[str, str]) -> None:
    """Record that the user accepts the description that was written here.

    The configuration that `init` writes has only settings that need no trust.
    """
    lines = read_accepted_lines(root, environ) | {make_file_line(path)}

    try:
        write_accepted_lines(root, lines, environ)
    except OSError:
        # Without a state directory the user is asked later.
        return


def _read_settings(
    repository: RepositoryInfo, facts: RepositoryFacts, environ: Mapping[str, str]
) -> tuple[tuple[str, ...], str, str]:
    """Return agents and paths of the configuration; an existing one must be valid."""
    if not os.path.lexists(f"{repository.root}/{CONFIG_PATH}"):
        return (
            tuple(row.default_agent for row in find_harness_rows(facts.programs)),
            PROJECT_PATH,
            OWN_FOLDERS[1],
        )

    from pathlib import Path

    from phasegate.config.load import load_config

    config = load_config(Path(repository.root), environ).config

    return tuple(config.agents), config.paths.project_file, config.paths.worktrees


def _write_if_missing(root: str, name: str, make_text: Callable[[], str]) -> InitFile:
    """Write a file atomically, unless it exists."""
    path = f"{root}/{name}"
    if os.path.lexists(path):
        if not os.path.isfile(path):
            raise ConfigError(f"{name} exists and is not a file", "move it, then run init again")
        return InitFile(name, "kept")

    text = make_text()
    parent = os.path.dirname(path)
    if os.path.lexists(parent) and not os.path.isdir(parent):
        raise ConfigError(
            f"{os.path.dirname(name)} exists and is not a folder", "move it, then run init again"
        )

    # Checked before any folder is created: `realpath` resolves the existing part of the path
    real_root = os.path.realpath(root)
    if os.path.commonpath([real_root, os.path.realpath(parent)]) != real_root:
        raise ConfigError(
            f"{os.path.dirname(name)} points outside the repository", "move it, then run init again"
        )

    os.makedirs(parent, exist_ok=True)
    folder = open_folder(os.path.realpath(parent))
    try:
        replace_file_at(folder, os.path.basename(name), text.encode(), 0o644)
    finally:
        os.close(folder)

    return InitFile(name, "written", text)


def _collect_notes(
    repository: RepositoryInfo, agents: tuple[str, ...], programs: tuple[str, ...]
) -> Iterator[InitNote]:
    """Yield the tasks of the user before the first run."""
    if not repository.has_commits:
        yield InitNote(
            "there are no commits yet", "create one before the first run: git add -A && git commit"
        )
    elif repository.branch is None:
        yield InitNote(
            "HEAD is detached: a feature has no branch to start from",
            "choose one: git switch BRANCH",
        )

    if not agents and programs:
        yield InitNote(
            f"{', '.join(programs)}: installed, but {CONFIG_PATH} configures no agent",
            f"add the lines above to {CONFIG_PATH}",
        )
    elif not agents:
        names = ", ".join(row.program for row in INSTALLABLE_HARNESSES.values())
        yield InitNote(
            f"no agent program was found on PATH ({names})",
            f"install one, or configure yours in {CONFIG_PATH}",
        )

    if repository.superproject:
        yield InitNote(
            f"this is a submodule of {repository.superproject}",
            "only the submodule is prepared; run init there for the rest",
        )
