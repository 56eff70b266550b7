"""What a job must be able to read for its command to work, wherever the command lies, and what it must never read.

Only names are looked at: links, folder names, the first line of a script. No setting of the repository is read.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator

from phasegate.core.agents.harnesses import ROWS
from phasegate.sandbox.environment import TOOLCHAIN_FOLDERS

_PROGRAM_FOLDERS = ("bin", "sbin", "libexec", "shims")
_SHARED_FOLDERS = frozenset(
    ("/", "/tmp", "/var", "/var/tmp", "/dev/shm", "/run", "/home", "/root", "/mnt", "/media", "/srv", "/usr/local")  # noqa: S108
)
_MOST_LINKS, _MOST_STEPS = 300, 20

# Below a home folder: never part of what is found by following names, and covered where a wider folder is shown.
# fmt: off
_SECRETS = (
    ".ssh", ".aws", ".azure", ".config", ".gnupg", ".docker", ".kube", ".password-store", ".mozilla", ".thunderbird",
    ".netrc", ".pgpass", ".pypirc", ".npmrc", ".yarnrc.yml", ".git-credentials", ".gitconfig", ".cargo/credentials",
    ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties",
    ".augment", ".cline", ".factory", ".kimi", ".qoder", ".vibe", ".local/share/kilo",
    ".local/share/keyrings", ".local/state", ".bash_history", ".zsh_history", ".python_history",
    *(name for row in ROWS.values() for name in row.private),
)
# fmt: on


def of_ourselves() -> list[str]:
    """What the warden runs from: the interpreter's own installation, and this package."""
    return [os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix), package_folder()]


def package_folder() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def interpreter() -> str:
    """The interpreter itself: a virtual environment's own one may lie where the cage does not look."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def homes() -> list[str]:
    """The person's home folder, by the environment and by the password file: the two can differ."""
    try:
        registered = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        registered = "/"
    named = [os.path.normpath(home) for home in (os.environ.get("HOME", ""), registered) if home.startswith("/")]
    found = [*named, *(os.path.realpath(home) for home in named)]  # /home is a link on some systems
    return list(dict.fromkeys(home for home in found if home != "/"))


def secrets() -> list[str]:
    return [f"{home}/{name}" for home in homes() for name in _SECRETS]


def of_command(command: tuple[str, ...], path: str, keep_out: list[str]) -> list[str]:
    """The folders and files that a configured command needs: its program, the files it names, and all of PATH.

    `keep_out` are the writable folders: they are shown anyway, and what contains one is too wide to be shown. Links in
    them are not followed: a job that ran there before could have pointed one at any file.
    """
    return _Reach(keep_out).of_command(command, path)


class _Reach:
    def __init__(self, keep_out: list[str]) -> None:
        self._homes = homes()
        self._secrets = [f"{home}/{name}" for home in self._homes for name in _SECRETS]
        self._contained = [f"{path}/" for path in (*keep_out, *self._homes, *self._secrets)]
        self._kept_out = tuple(f"{path}/" for path in keep_out)
        self._secret = tuple(f"{secret}/" for secret in self._secrets)

    def of_command(self, command: tuple[str, ...], path: str) -> list[str]:
        named = [word for word in command[1:] if word.startswith("/") and os.path.isfile(word)]
        harmless = [word for word in named if not self._is_secret(os.path.realpath(word))]
        around = [self._around(step) for start in (*command[:1], *harmless) for step in self._way_to(start)]
        return list(dict.fromkeys([*self._of_search_path(path), *around, *self._toolchains(path)]))

    def _of_search_path(self, path: str) -> Iterator[str]:
        for entry in filter(os.path.isdir, path.split(":")):
            if self._is_kept_out(entry):
                continue
            if not self._shows_too_much(os.path.realpath(entry)):
                yield entry
            yield self._around(f"{entry}/program")
            if self._is_below_a_home(entry):
                yield from (self._around(step) for link in _links_in(entry) for step in self._way_to(link))

    def _toolchains(self, path: str) -> list[str]:
        """Where the programs on PATH look by themselves: those of rustup look into ~/.rustup."""
        if not any(self._is_below_a_home(entry) for entry in path.split(":")):
            return []
        folders = [f"{home}/{name}" for home in self._homes for name in TOOLCHAIN_FOLDERS.values()]
        return [folder for folder in folders if os.path.isdir(folder)]

    def _around(self, program: str) -> str:
        """The folder that a program needs around it, or just the program when that folder would show too much."""
        folder = os.path.dirname(program)
        parts = folder.split("/")
        if "node_modules" in parts:  # packages find each other there
            return self._unless_too_wide("/".join(parts[: parts.index("node_modules") + 1]), program)
        if parts[-1] in _PROGRAM_FOLDERS:  # prefix/bin/program has its libraries in prefix/lib
            return self._unless_too_wide(os.path.dirname(folder), self._unless_too_wide(folder, program))
        return self._unless_too_wide(folder, program)

    def _unless_too_wide(self, folder: str, instead: str) -> str:
        is_repository = any(os.path.lexists(f"{folder}/{name}") for name in (".git", ".phasegate"))
        return instead if is_repository or self._shows_too_much(os.path.realpath(folder)) else folder

    def _shows_too_much(self, folder: str) -> bool:
        """Whether it is secret, or holds a home, a worktree, secrets or other people's files."""
        if folder in _SHARED_FOLDERS or self._is_secret(folder):
            return True
        return any(path.startswith(f"{folder}/") for path in self._contained)

    def _is_secret(self, path: str) -> bool:
        return f"{path}/".startswith(self._secret)

    def _is_kept_out(self, path: str) -> bool:
        return f"{os.path.normpath(path)}/".startswith(self._kept_out)

    def _way_to(self, program: str) -> list[str]:
        """A program, each link on the way to it, and the interpreter that its first line names."""
        steps: list[str] = []
        pending = [program]
        while pending and len(steps) < _MOST_STEPS:
            step = os.path.normpath(pending.pop())
            if step in steps or self._is_kept_out(step) or not os.path.lexists(step):
                continue
            steps.append(step)
            if os.path.islink(step):
                folder, target = os.path.dirname(step), os.readlink(step)
                pending += [os.path.join(folder, target), os.path.join(os.path.realpath(folder), target)]
            else:
                pending.extend(_interpreter_of(step))
        return steps

    def _is_below_a_home(self, folder: str) -> bool:
        return any(folder.startswith(f"{home}/") for home in self._homes)


def _links_in(folder: str) -> list[str]:
    """A person's folder of programs is mostly links to where they are installed."""
    return [entry.path for entry in os.scandir(folder) if entry.is_symlink()][:_MOST_LINKS]


def _interpreter_of(script: str) -> list[str]:
    try:
        with open(script, "rb") as file:
            first_line = file.read(256).partition(b"\n")[0]
    except OSError:
        return []
    words = first_line[2:].split() if first_line.startswith(b"#!") else []
    return [os.fsdecode(word) for word in words[:1] if word.startswith(b"/")]
