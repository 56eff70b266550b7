"""What a job must be able to read for its command to work, wherever the command lies, and what it
must never read.

Only names are looked at: links, folder names, the first line of a script. No setting of the
repository is read.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator

from phasegate.core.agents.harnesses import HARNESSES
from phasegate.sandbox.environment import TOOLCHAIN_FOLDERS

_PROGRAM_FOLDERS = ("bin", "sbin", "libexec", "shims")
_SHARED_FOLDERS = frozenset(
    (
        "/",
        "/tmp",  # noqa: S108
        "/var",
        "/var/tmp",  # noqa: S108
        "/dev/shm",  # noqa: S108
        "/run",
        "/home",
        "/root",
        "/mnt",
        "/media",
        "/srv",
        "/usr/local",
    )
)
_MAX_LINKS = 300
_MAX_STEPS = 20

# Below a home folder: never part of what is found by following names, and covered where a wider
# folder is shown. fmt: off
_SECRET_NAMES = (
    ".ssh",
    ".aws",
    ".azure",
    ".config",
    ".gnupg",
    ".docker",
    ".kube",
    ".password-store",
    ".mozilla",
    ".thunderbird",
    ".netrc",
    ".pgpass",
    ".pypirc",
    ".npmrc",
    ".yarnrc.yml",
    ".git-credentials",
    ".gitconfig",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".augment",
    ".cline",
    ".factory",
    ".kimi",
    ".qoder",
    ".vibe",
    ".local/share/kilo",
    ".local/share/keyrings",
    ".local/state",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    *(name for row in HARNESSES.values() for name in row.private_paths),
)
# fmt: on


def find_runtime_paths() -> list[str]:
    """What the warden runs from: the interpreter's own installation, and this package."""
    return [
        os.path.realpath(sys.base_prefix),
        os.path.realpath(sys.base_exec_prefix),
        get_package_folder(),
    ]


def get_package_folder() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def find_interpreter() -> str:
    """The interpreter itself: a virtual environment's own one may lie where the cage does not look."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def find_homes() -> list[str]:
    """The person's home folder, by the environment and by the password file: the two can differ."""
    try:
        registered = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        registered = "/"

    named = [
        os.path.normpath(home)
        for home in (os.environ.get("HOME", ""), registered)
        if home.startswith("/")
    ]
    # /home is a link on some systems
    found = [*named, *(os.path.realpath(home) for home in named)]

    return list(dict.fromkeys(home for home in found if home != "/"))


def list_secret_paths() -> list[str]:
    return [f"{home}/{name}" for home in find_homes() for name in _SECRET_NAMES]


def find_command_paths(command: tuple[str, ...], path: str, writable: list[str]) -> list[str]:
    """The folders and files that a configured command needs.

    Its program, the files it names, and all of PATH.

    `keep_out` are the writable folders: they are shown anyway, and what contains one is too wide to
    be shown. Links in them are not followed: a job that ran there before could have pointed one at
    any file.
    """
    return _PathFinder(writable).find_paths(command, path)


class _PathFinder:
    def __init__(self, writable: list[str]) -> None:
        self._homes = find_homes()
        self._secret_paths = [f"{home}/{name}" for home in self._homes for name in _SECRET_NAMES]
        self._protected_prefixes = [
            f"{path}/" for path in (*writable, *self._homes, *self._secret_paths)
        ]
        self._writable_prefixes = tuple(f"{path}/" for path in writable)
        self._secret_prefixes = tuple(f"{secret}/" for secret in self._secret_paths)

    def find_paths(self, command: tuple[str, ...], path: str) -> list[str]:
        named = [word for word in command[1:] if word.startswith("/") and os.path.isfile(word)]
        harmless = [word for word in named if not self._is_secret(os.path.realpath(word))]
        around = [
            self._find_install_folder(step)
            for start in (*command[:1], *harmless)
            for step in self._follow_links(start)
        ]
        return list(
            dict.fromkeys(
                [*self._find_search_path_folders(path), *around, *self._find_toolchains(path)]
            )
        )

    def _find_search_path_folders(self, path: str) -> Iterator[str]:
        for entry in filter(os.path.isdir, path.split(":")):
            if self._is_writable(entry):
                continue
            if not self._is_too_wide(os.path.realpath(entry)):
                yield entry

            yield self._find_install_folder(f"{entry}/program")
            if self._is_in_home(entry):
                yield from (
                    self._find_install_folder(step)
                    for link in _list_links(entry)
                    for step in self._follow_links(link)
                )

    def _find_toolchains(self, path: str) -> list[str]:
        """Where the programs on PATH look by themselves: those of rustup look into ~/.rustup."""
        if not any(self._is_in_home(entry) for entry in path.split(":")):
            return []
        folders = [f"{home}/{name}" for home in self._homes for name in TOOLCHAIN_FOLDERS.values()]
        return [folder for folder in folders if os.path.isdir(folder)]

    def _find_install_folder(self, program: str) -> str:
        """The folder that a program needs around it, or just the program when that folder would
        show too much.
        """
        folder = os.path.dirname(program)
        parts = folder.split("/")
        # Packages find each other there
        if "node_modules" in parts:
            return self._narrow_if_too_wide(
                "/".join(parts[: parts.index("node_modules") + 1]), program
            )

        # Prefix/bin/program has its libraries in prefix/lib
        if parts[-1] in _PROGRAM_FOLDERS:
            return self._narrow_if_too_wide(
                os.path.dirname(folder), self._narrow_if_too_wide(folder, program)
            )

        return self._narrow_if_too_wide(folder, program)

    def _narrow_if_too_wide(self, folder: str, instead: str) -> str:
        is_repository = any(os.path.lexists(f"{folder}/{name}") for name in (".git", ".phasegate"))
        if is_repository or self._is_too_wide(os.path.realpath(folder)):
            return instead
        return folder

    def _is_too_wide(self, folder: str) -> bool:
        """Whether it is secret, or holds a home, a worktree, secrets or other people's files."""
        if folder in _SHARED_FOLDERS or self._is_secret(folder):
            return True
        return any(path.startswith(f"{folder}/") for path in self._protected_prefixes)

    def _is_secret(self, path: str) -> bool:
        return f"{path}/".startswith(self._secret_prefixes)

    def _is_writable(self, path: str) -> bool:
        return f"{os.path.normpath(path)}/".startswith(self._writable_prefixes)

    def _follow_links(self, program: str) -> list[str]:
        """A program, each link on the way to it, and the interpreter that its first line names."""
        steps: list[str] = []
        pending = [program]

        while pending and len(steps) < _MAX_STEPS:
            step = os.path.normpath(pending.pop())
            if step in steps or self._is_writable(step) or not os.path.lexists(step):
                continue

            steps.append(step)
            if os.path.islink(step):
                folder = os.path.dirname(step)
                target = os.readlink(step)
                pending += [
                    os.path.join(folder, target),
                    os.path.join(os.path.realpath(folder), target),
                ]
            else:
                pending.extend(_read_interpreter(step))

        return steps

    def _is_in_home(self, folder: str) -> bool:
        return any(folder.startswith(f"{home}/") for home in self._homes)


def _list_links(folder: str) -> list[str]:
    """A person's folder of programs is mostly links to where they are installed."""
    return [entry.path for entry in os.scandir(folder) if entry.is_symlink()][:_MAX_LINKS]


def _read_interpreter(script: str) -> list[str]:
    try:
        with open(script, "rb") as file:
            first_line = file.read(256).partition(b"\n")[0]
    except OSError:
        return []

    if first_line.startswith(b"#!"):
        words = first_line[2:].split()
    else:
        words = []

    return [os.fsdecode(word) for word in words[:1] if word.startswith(b"/")]
