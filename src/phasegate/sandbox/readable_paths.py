"""Find the paths that a job's command needs to read, and list the secrets it must never read.

Paths are derived from names only: links, folder names, the first line of a script. No settings of
the repository are read.
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

# Paths below a home folder that are never made readable, and are hidden where a folder that
# contains them is.
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


def find_runtime_paths() -> list[str]:
    """Return the paths that the supervisor needs: the Python installation and this package."""
    return [
        os.path.realpath(sys.base_prefix),
        os.path.realpath(sys.base_exec_prefix),
        get_package_folder(),
    ]


def get_package_folder() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def find_interpreter() -> str:
    """Return the base interpreter: that of a virtual environment may be outside the sandbox."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def find_homes() -> list[str]:
    """Return the user's home folders from $HOME and the password database, which can differ."""
    try:
        registered = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        registered = "/"

    homes = [
        os.path.normpath(home)
        for home in (os.environ.get("HOME", ""), registered)
        if home.startswith("/")
    ]
    # On some systems /home is a link.
    homes += [os.path.realpath(home) for home in homes]

    return list(dict.fromkeys(home for home in homes if home != "/"))


def list_secret_paths() -> list[str]:
    return [f"{home}/{name}" for home in find_homes() for name in _SECRET_NAMES]


def find_command_paths(command: tuple[str, ...], path: str, writable: list[str]) -> list[str]:
    """Return the paths that a configured command needs: its program, its file arguments, PATH.

    Writable folders are visible anyway, and a folder that contains one is not made readable. Links
    in them are not followed: an earlier job could have created a link to any file.
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
        """Return the folders that a command needs: PATH, installations, toolchains."""
        files = [word for word in command[1:] if word.startswith("/") and os.path.isfile(word)]
        public_files = [file for file in files if not self._is_secret(os.path.realpath(file))]
        install_folders = [
            self._find_install_folder(step)
            for start in (*command[:1], *public_files)
            for step in self._follow_links(start)
        ]
        paths = [
            *self._find_search_path_folders(path),
            *install_folders,
            *self._find_toolchains(path),
        ]
        return list(dict.fromkeys(paths))

    def _find_search_path_folders(self, path: str) -> Iterator[str]:
        """Yield the folders of PATH, and where their links lead."""
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
        """Return the tool chain folders that programs on PATH use, such as rustup's ~/.rustup."""
        if not any(self._is_in_home(entry) for entry in path.split(":")):
            return []
        folders = [f"{home}/{name}" for home in self._homes for name in TOOLCHAIN_FOLDERS.values()]
        return [folder for folder in folders if os.path.isdir(folder)]

    def _find_install_folder(self, program: str) -> str:
        """Return the folder that a program needs, or the program if that would expose too much."""
        folder = os.path.dirname(program)
        parts = folder.split("/")
        # Node packages load each other from node_modules.
        if "node_modules" in parts:
            modules = "/".join(parts[: parts.index("node_modules") + 1])
            return self._narrow_if_too_wide(modules, program)

        # prefix/bin/program has its libraries in prefix/lib.
        narrow = self._narrow_if_too_wide(folder, program)
        if parts[-1] in _PROGRAM_FOLDERS:
            return self._narrow_if_too_wide(os.path.dirname(folder), narrow)

        return narrow

    def _narrow_if_too_wide(self, folder: str, alternative: str) -> str:
        is_repository = any(os.path.lexists(f"{folder}/{name}") for name in (".git", ".phasegate"))
        if is_repository or self._is_too_wide(os.path.realpath(folder)):
            return alternative
        return folder

    def _is_too_wide(self, folder: str) -> bool:
        """Return True if a folder is secret, shared, or contains a home, a worktree or secrets."""
        if folder in _SHARED_FOLDERS or self._is_secret(folder):
            return True
        return any(path.startswith(f"{folder}/") for path in self._protected_prefixes)

    def _is_secret(self, path: str) -> bool:
        return f"{path}/".startswith(self._secret_prefixes)

    def _is_writable(self, path: str) -> bool:
        return f"{os.path.normpath(path)}/".startswith(self._writable_prefixes)

    def _follow_links(self, program: str) -> list[str]:
        """Return a program, each link on the way to it, and the interpreter in its first line."""
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
    """Return the links in a folder: ~/.local/bin and the like contain mostly links."""
    return [entry.path for entry in os.scandir(folder) if entry.is_symlink()][:_MAX_LINKS]


def _read_interpreter(script: str) -> list[str]:
    try:
        with open(script, "rb") as file:
            first_line = file.read(256).partition(b"\n")[0]
    except OSError:
        return []

    if not first_line.startswith(b"#!"):
        return []
    return [os.fsdecode(word) for word in first_line[2:].split()[:1] if word.startswith(b"/")]
