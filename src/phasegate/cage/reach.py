"""What a job must be able to read for its command to work, wherever the command lies, and what it must never read.

Only names are looked at: links, folder names, the first line of a script. No setting of the repository is read (L04).
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Iterable, Iterator
from functools import cache

import phasegate
from phasegate.cage.environment import TOOLCHAIN_FOLDERS

_PROGRAM_FOLDERS = ("bin", "sbin", "libexec", "shims")
_MOST_LINKS = 300

# Below a home folder: never part of what is found by following names, and covered where a wider folder is shown.
# fmt: off
_SECRETS = (
    ".ssh", ".aws", ".azure", ".config", ".gnupg", ".docker", ".kube", ".password-store", ".mozilla",
    ".thunderbird", ".netrc", ".pgpass", ".pypirc", ".npmrc", ".yarnrc.yml", ".git-credentials", ".gitconfig",
    ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml",
    ".gradle/gradle.properties", ".local/share/keyrings", ".local/state", ".claude", ".claude.json", ".codex",
    ".gemini", ".qwen", ".bash_history", ".zsh_history", ".python_history",
)
# fmt: on


def of_command(argv: tuple[str, ...], path: str, keep_out: tuple[str, ...]) -> list[str]:
    """The folders and files that a command line needs: its program, the files it names, and all of PATH.

    `keep_out` are the writable folders: they are shown anyway, and what contains one is too wide to be shown.
    """
    named = [argument for argument in argv if os.path.isabs(argument) and os.path.isfile(argument)]
    programs = [found for name in argv[:1] if (found := shutil.which(name, path=path))]
    steps = [step for start in (*programs, *named) for step in _way_to(start)]
    around = [_around(step, keep_out) for step in steps]
    return list(dict.fromkeys([*_of_search_path(path, keep_out), *around, *_toolchains(path)]))


def of_ourselves() -> list[str]:
    """What the warden runs from: the interpreter's own installation, and this package."""
    return [os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix), package_folder()]


def package_folder() -> str:
    return os.path.dirname(os.path.abspath(phasegate.__file__))


def interpreter() -> str:
    """The interpreter itself: a virtual environment's own one may lie where the cage does not look."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def homes() -> tuple[str, ...]:
    """The person's home folder, by the environment and by the password file: the two can differ."""
    try:
        registered = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        registered = "/"
    found = [os.path.realpath(home) for home in (os.environ.get("HOME", ""), registered) if os.path.isabs(home)]
    return tuple(dict.fromkeys(home for home in found if home != "/"))


def secrets() -> list[str]:
    return [os.path.join(home, name) for home in homes() for name in _SECRETS]


def _of_search_path(path: str, keep_out: tuple[str, ...]) -> Iterator[str]:
    for entry in filter(os.path.isdir, path.split(":")):
        yield entry
        yield _around(os.path.join(entry, "program"), keep_out)
        if _below_a_home(entry):
            yield from (_around(step, keep_out) for link in _links_in(entry) for step in _way_to(link))


def _links_in(folder: str) -> list[str]:
    """A person's folder of programs is mostly links to where they are installed."""
    return [entry.path for entry in os.scandir(folder) if entry.is_symlink()][:_MOST_LINKS]


def _toolchains(path: str) -> list[str]:
    """Folders of tool chains that a program on PATH leads to by itself: rustup's programs look for ~/.rustup."""
    entries = path.split(":")
    in_use = [home for home in homes() if any(entry.startswith(f"{home}/") for entry in entries)]
    folders = [os.path.join(home, name) for home in in_use for name in TOOLCHAIN_FOLDERS.values()]
    return [folder for folder in folders if os.path.isdir(folder)]


def _way_to(program: str) -> list[str]:
    """A program, each link on the way to it, and the interpreter that its first line names."""
    steps: list[str] = []
    pending = [program]
    while pending and len(steps) < 20:
        step = pending.pop()
        if step in steps or not os.path.lexists(step):
            continue
        steps.append(step)
        if os.path.islink(step):
            pending.append(os.path.join(os.path.realpath(os.path.dirname(step)), os.readlink(step)))
        else:
            pending.extend(_interpreter_of(step))
    return [os.path.normpath(step) for step in steps]


def _interpreter_of(script: str) -> list[str]:
    try:
        with open(script, "rb") as file:
            first_line = file.read(256).partition(b"\n")[0]
    except OSError:
        return []
    words = first_line[2:].split() if first_line.startswith(b"#!") else []
    return [os.fsdecode(word) for word in words[:1] if word.startswith(b"/")]


def _around(program: str, keep_out: tuple[str, ...]) -> str:
    """The folder that a program needs around it, or just the program when that folder would show too much."""
    folder = os.path.dirname(program)
    parts = folder.split("/")
    if "node_modules" in parts:  # packages find each other there
        return _unless_too_wide("/".join(parts[: parts.index("node_modules") + 1]), program, keep_out)
    if parts[-1] in _PROGRAM_FOLDERS:  # prefix/bin/program has its libraries in prefix/lib
        return _unless_too_wide(os.path.dirname(folder), _unless_too_wide(folder, program, keep_out), keep_out)
    return _unless_too_wide(folder, program, keep_out)


def _unless_too_wide(folder: str, instead: str, keep_out: tuple[str, ...]) -> str:
    return instead if _is_too_wide(os.path.realpath(folder), (*keep_out, *homes())) else folder


def _is_too_wide(folder: str, never_contain: Iterable[str]) -> bool:
    """A folder that holds a home, a worktree, a repository, secrets, or other people's files."""
    if folder in ("/", *_shared_folders()) or any(
        os.path.lexists(os.path.join(folder, name)) for name in (".git", ".phasegate")
    ):
        return True
    if any(f"{inside}/".startswith(f"{folder}/") for inside in never_contain):
        return True
    return any(f"{folder}/".startswith(f"{secret}/") or secret.startswith(f"{folder}/") for secret in secrets())


@cache
def _shared_folders() -> tuple[str, ...]:
    names = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/var", "/home", "/root", "/mnt", "/media", "/srv", "/usr/local")  # noqa: S108
    return tuple(dict.fromkeys(os.path.realpath(name) for name in names))


def _below_a_home(folder: str) -> bool:
    return any(folder.startswith(f"{home}/") for home in homes())
