"""`init`: prepares a repository. Writes what is missing, changes nothing that is there, and can be repeated.

Everything here is light: no third-party package, no pathlib, no program is started.
"""

from __future__ import annotations

import errno
import os

from phasegate.core.agents.harnesses import KNOWN
from phasegate.core.detection.init_files import SeenRepository, config_text, first_paragraph, project_text, rows_of
from phasegate.core.detection.project_kind import NAMED_IN, TITLES, kind_of_root, own_name
from phasegate.core.paths.own_folders import CONFIG_FILE, OWN_FOLDERS
from phasegate.core.text.light_tuple import Light
from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.files import open_folder
from phasegate.files.durable_write import replace_at
from phasegate.files.git_exclude import keep_out_of_git
from phasegate.storage.repository_kind import Ground, find_ground

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CONFIG, PROJECT = CONFIG_FILE, "agentd/project.md"
_TEMPLATE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "prompts", "setup", "project.md")
_LARGEST_README_BYTES = 20_000
_LARGEST_MANIFEST_BYTES = 1_000_000
_MOST_FOLDERS = 30


class Made(Light):
    """A file below the root, what became of it, and its text if it was written now."""

    path: str
    outcome: str
    text: str = ""


class Note(Light):
    """What stands in the way of the first run, and what to do about it."""

    what: str
    remedy: str


class Setup(Light):
    """What `init` did."""

    root: str
    files: tuple[Made, ...]
    notes: tuple[Note, ...]
    agents: tuple[str, ...]
    profile: str


def prepare(start: str, environ: Mapping[str, str]) -> Setup:
    """Prepare the repository around a folder."""
    ground = find_ground(start)
    seen = _look(ground.root, environ)
    try:
        files, agents = _write_what_is_missing(ground, seen, environ)
    except OSError as error:
        where = os.path.relpath(error.filename, ground.root) if isinstance(error.filename, str) else ground.root
        remedy = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make the repository's folder writable"
        raise EnvironmentUnavailable(f"{where} cannot be written: {error.strerror}", remedy) from error
    return Setup(ground.root, files, tuple(_notes(ground, agents)), agents, seen.kind)


def _look(root: str, environ: Mapping[str, str]) -> SeenRepository:
    with os.scandir(root) as entries:
        found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    names = frozenset(found)
    kind = kind_of_root(names)
    folders = sorted(name for name, is_folder in found.items() if is_folder and not name.startswith("."))
    return SeenRepository(
        _printable(_name(root, names)),
        _about(root, names),
        tuple(row.program for row in KNOWN.values() if _is_on_path(row.program, environ.get("PATH", ""))),
        frozenset(environ),
        kind,
        TITLES[kind],
        tuple(_printable(name) for name in folders[:_MOST_FOLDERS]),
    )


def _name(root: str, names: frozenset[str]) -> str:
    """What the project calls itself, else its folder's name."""
    told = (own_name(file, _text(f"{root}/{file}")) for file in NAMED_IN if file in names)
    return next((name for name in told if name), os.path.basename(root))


def _text(path: str) -> str:
    """The text of a file; one that cannot be read holds nothing."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST_MANIFEST_BYTES:
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _is_on_path(program: str, path: str) -> bool:
    """Whether a program is there to be started. It is not: what stands in a relative folder may be anybody's."""
    places = (os.path.join(folder, program) for folder in path.split(os.pathsep) if os.path.isabs(folder))
    return any(os.path.isfile(place) and os.access(place, os.X_OK) for place in places)


def _about(root: str, names: frozenset[str]) -> str:
    readme = next((name for name in ("README.md", "README.rst", "README.txt", "README") if name in names), None)
    if readme is None or not os.path.isfile(f"{root}/{readme}"):
        return ""
    with open(f"{root}/{readme}", "rb") as file:
        return _printable(first_paragraph(file.read(_LARGEST_README_BYTES).decode("utf-8", "replace")))


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())


def _write_what_is_missing(
    ground: Ground, seen: SeenRepository, environ: Mapping[str, str]
) -> tuple[tuple[Made, ...], tuple[str, ...]]:
    """The files, and the agents that are configured now."""
    agents, project, worktrees = _settings(ground, seen, environ)
    config = _made(ground.root, CONFIG, lambda: config_text(seen))
    with open(_TEMPLATE, encoding="utf-8") as file:
        template = file.read()
    described = _made(ground.root, project, lambda: project_text(template, seen))
    folders = dict.fromkeys((*OWN_FOLDERS, worktrees))
    added = keep_out_of_git(ground.git_dir, folders)
    exclude = os.path.relpath(f"{ground.git_dir}/info/exclude", ground.root)
    return (config, described, Made(exclude, "lines added" if added else "kept")), agents


def _settings(ground: Ground, seen: SeenRepository, environ: Mapping[str, str]) -> tuple[tuple[str, ...], str, str]:
    """Agents and paths as they are configured; a configuration that is there must be sound."""
    if not os.path.lexists(f"{ground.root}/{CONFIG}"):
        return tuple(row.agent for row in rows_of(seen.programs)), PROJECT, OWN_FOLDERS[1]
    from pathlib import Path

    from phasegate.config import load

    config = load(Path(ground.root), environ).config
    return tuple(config.agents), config.paths.project, config.paths.worktrees


def _made(root: str, name: str, make_text: Callable[[], str]) -> Made:
    """Write a file at once, unless there is one."""
    path = f"{root}/{name}"
    if os.path.lexists(path):
        if not os.path.isfile(path):
            raise ConfigError(f"{name} is there, and is not a file", "move it away, then repeat")
        return Made(name, "kept")
    text = make_text()
    parent = os.path.dirname(path)
    if os.path.lexists(parent) and not os.path.isdir(parent):
        raise ConfigError(f"{os.path.dirname(name)} is there, and is not a folder", "move it away, then repeat")
    os.makedirs(parent, exist_ok=True)
    if not os.path.realpath(parent).startswith(os.path.realpath(root)):
        raise ConfigError(f"{os.path.dirname(name)} leads out of the repository", "move it away, then repeat")
    folder = open_folder(os.path.realpath(parent))
    try:
        replace_at(folder, os.path.basename(name), text.encode(), 0o644)
    finally:
        os.close(folder)
    return Made(name, "written", text)


def _notes(ground: Ground, agents: tuple[str, ...]) -> Iterator[Note]:
    if not ground.has_commits:
        yield Note("there are no commits yet", "make the first one before a run: git add -A && git commit")
    elif ground.branch is None:
        yield Note("HEAD is detached: a feature has no branch to start from", "choose one: git switch BRANCH")
    if not agents:
        names = ", ".join(row.program for row in KNOWN.values())
        yield Note(f"no agent program was found on PATH ({names})", f"install one, or name yours in {CONFIG}")
    if ground.around:
        yield Note(f"this is a submodule of {ground.around}", "only the submodule is prepared; for the rest go there")
