"""Build bubblewrap's arguments: the file system that a sandboxed job can see.

The file system starts empty. System programs and settings, the files that the job's command needs
and the paths that the caller lists are mounted read-only. The worktree and the job's own folders
are mounted writable. Everything else is absent: home folders, sockets of the machine's services,
other worktrees, the repository.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.sandbox import readable_paths
from phasegate.sandbox.environment import filter_search_path

_SYSTEM_FOLDERS = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/gnu",
)
# Programs count the processors there.
_HARDWARE_FOLDERS = ("/sys/devices/system",)
_LINKED_SETTINGS = (
    "resolv.conf",
    "hosts",
    "localtime",
    "ssl/certs",
    "ssl/cert.pem",
    "ssl/ca-bundle.pem",
    "pki/tls/certs",
)
_SHARED_MEMORY_BYTES = "1073741824"
# The kernel's number for a user without rights.
_NOBODY = "65534"
# Programs that read their system settings only from files of root: inside, they own theirs as root.
# Outside of the namespace they are the user all the same.
_ROOT_INSIDE = frozenset({"gemini"})


class _MountKind(Enum):
    READ = "--ro-bind"
    WRITE = "--bind"
    HIDE = "hide"


class SandboxFolders(NamedTuple):
    """The folders that the caller passes for a job, as absolute paths."""

    writable: tuple[Path, ...]
    readable: tuple[Path, ...]
    hidden: tuple[Path, ...]
    tmp: Path


class Bubblewrap(NamedTuple):
    """The installed bubblewrap; its help text lists the options that this version supports."""

    program: str
    help_text: str

    def has_option(self, option: str) -> bool:
        return f"{option} " in self.help_text


@cache
def find_bubblewrap() -> Bubblewrap | None:
    """Find the installed bubblewrap and its supported options, or return None if there is none."""
    if sys.platform != "linux":
        return None

    # The filter removes relative entries: a `bwrap` in the repository must not be found.
    search_path = filter_search_path(os.environ.get("PATH", ""))
    program = shutil.which("bwrap", path=search_path)
    if program is None:
        return None

    help_run = subprocess.run(
        [program, "--help"], capture_output=True, check=False, timeout=10, env={}
    )
    return Bubblewrap(program, (help_run.stdout + help_run.stderr).decode("utf-8", "replace"))


def build_arguments(
    isolate_network: bool, command: tuple[str, ...], path: str, folders: SandboxFolders
) -> list[str]:
    """Build the command line prefix that runs a program in the sandbox.

    `isolate_network`: give it its own network namespace.
    """
    tool = find_bubblewrap()
    if tool is None:
        raise EnvironmentUnavailable(
            "bubblewrap is not installed", "install it: apt-get install bubblewrap"
        )

    mounts = _plan_mounts(command, path, folders)
    return [
        tool.program,
        *_build_namespace_arguments(tool, isolate_network, Path(command[0]).name),
        *_build_mount_arguments(tool, mounts, folders.tmp),
        "--",
    ]


def _build_namespace_arguments(tool: Bubblewrap, isolate_network: bool, program: str) -> list[str]:
    """Return the options that isolate namespaces and change the user."""
    arguments = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    if isolate_network:
        arguments.append("--unshare-net")

    # Many programs refuse to work as root, or trust root too much.
    if program in _ROOT_INSIDE:
        arguments += ["--uid", "0", "--gid", "0"]
    elif os.geteuid() == 0:
        arguments += ["--uid", _NOBODY, "--gid", _NOBODY]

    # Without this option seccomp still refuses new user namespaces: the two are independent.
    if tool.has_option("--disable-userns"):
        arguments.append("--disable-userns")

    return [
        *arguments,
        "--cap-drop",
        "ALL",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
    ]


def _build_mount_arguments(tool: Bubblewrap, mounts: dict[str, _MountKind], tmp: Path) -> list[str]:
    """Return the options that mount paths read-only, writable or hidden."""
    size = []
    if tool.has_option("--size"):
        size = ["--size", _SHARED_MEMORY_BYTES]

    # A folder is mounted before the paths inside it.
    ordered = sorted(mounts, key=lambda path: path.split("/"))
    binds = [argument for path in ordered for argument in _build_bind_arguments(path, mounts[path])]
    hidden_folders = [
        path for path in ordered if mounts[path] is _MountKind.HIDE and os.path.isdir(path)
    ]
    read_only = [*hidden_folders, "/dev", "/"]
    # The kernel decides by the owner who may write its settings in /proc, and the owner is root: a
    # job of root could change core_pattern of the machine without any capability. A job of another
    # user keeps its own files there writable.
    kernel_settings = ["--ro-bind", "/proc/sys", "/proc/sys"]
    kernel_settings += ["--ro-bind-try", "/proc/pressure", "/proc/pressure"]
    if os.geteuid() == 0:
        kernel_settings = []
        read_only.append("/proc")

    return [
        *_build_system_arguments(),
        # These are the sandbox's own folders, not those of the machine.
        *("--proc", "/proc", *kernel_settings),
        *("--dev", "/dev", *size, "--tmpfs", "/dev/shm"),  # noqa: S108
        *("--bind", str(tmp), "/tmp", "--bind", str(tmp), "/var/tmp"),  # noqa: S108
        *binds,
        *(argument for path in read_only for argument in ("--remount-ro", path)),
    ]


def _build_bind_arguments(path: str, kind: _MountKind) -> list[str]:
    if kind is not _MountKind.HIDE:
        return [kind.value, path, path]
    if os.path.isdir(path):
        return ["--tmpfs", path]
    return ["--ro-bind", os.devnull, path]


@cache
def _build_system_arguments() -> tuple[str, ...]:
    arguments: list[str] = []
    for folder in _SYSTEM_FOLDERS:
        if os.path.islink(folder):
            arguments += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            arguments += ["--ro-bind", folder, folder]

    for folder in filter(os.path.isdir, _HARDWARE_FOLDERS):
        arguments += ["--ro-bind", folder, folder]
    return (*arguments, *_build_settings_arguments())


def _build_settings_arguments() -> list[str]:
    """Mount the targets of links in /etc: systemd's name servers, some systems' certificates."""
    targets = [os.path.realpath(f"/etc/{name}") for name in _LINKED_SETTINGS]
    outside = [
        path
        for path in dict.fromkeys(targets)
        if not _is_inside(path, _SYSTEM_FOLDERS) and os.path.exists(path)
    ]
    return [argument for path in outside for argument in ("--ro-bind", path, path)]


def _plan_mounts(
    command: tuple[str, ...], path: str, folders: SandboxFolders
) -> dict[str, _MountKind]:
    """Decide how each path is mounted; refuse links in writable folders."""
    writable = [_require_real_folder(folder) for folder in folders.writable]
    # Paths in a writable folder are visible with it. A link in there may have been created by a
    # job, so it is never followed to the outside.
    writable_names = [*writable, *(os.path.normpath(folder) for folder in folders.writable)]
    command_paths = [
        *readable_paths.find_command_paths(command, path, writable=writable_names),
        *readable_paths.find_runtime_paths(),
    ]
    # Paths inside a writable folder must stay writable.
    needed = [path for path in _drop_nested(command_paths) if not _is_inside(path, writable)]
    requested = [
        os.path.realpath(path)
        for path in folders.readable
        if not _links_outside(path, writable_names)
    ]
    # On some systems /usr/local is a link to another folder: mount the target too.
    targets = [os.path.realpath(path) for path in needed]
    readable = [
        path
        for path in (*needed, *targets, *requested)
        if not _is_inside(path, _SYSTEM_FOLDERS) and os.path.exists(path)
    ]
    visible = [*readable, *writable, *_SYSTEM_FOLDERS]
    secrets = [path for path in readable_paths.list_secret_paths() if path not in requested]
    hidden = [
        *secrets,
        *_find_private_settings(),
        *(os.path.realpath(path) for path in folders.hidden),
    ]
    to_hide = [path for path in hidden if os.path.lexists(path) and _is_inside(path, visible)]
    kinds = {_MountKind.READ: readable, _MountKind.HIDE: to_hide, _MountKind.WRITE: writable}

    return {path: kind for kind, paths in kinds.items() for path in paths}


def _links_outside(path: Path, writable: list[str]) -> bool:
    """Return True if a path in a writable folder resolves to a target outside of it."""
    return _is_inside(os.path.normpath(path), writable) and not _is_inside(
        os.path.realpath(path), writable
    )


def _drop_nested(paths: list[str]) -> list[str]:
    """Drop the paths that lie inside another path of the list."""
    return [path for path in paths if not _is_inside(os.path.dirname(path), paths)]


def _require_real_folder(folder: Path) -> str:
    """Return the resolved path; refuse links, since a link could point to any folder."""
    path = os.path.normpath(folder)
    if os.path.islink(path) or not os.path.isdir(path):
        raise ConfigError(
            f"{path} is not a folder",
            "a writable folder of a job must exist and must not be a symbolic link",
        )

    if os.path.realpath(path) in ("/", *_SYSTEM_FOLDERS):
        raise ConfigError(f"{path} cannot be writable in a job", "use the worktree's path")

    return os.path.realpath(path)


def _is_inside(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


@cache
def _find_private_settings() -> tuple[str, ...]:
    """Return the files below /etc that only root may read, if Phasegate runs as root.

    A job that root starts has root's access to files, so these are hidden.
    """
    if os.geteuid() == 0:
        return tuple(_find_private_files("/etc"))
    return ()


def _find_private_files(folder: str) -> list[str]:
    paths: list[str] = []
    for entry in os.scandir(folder):
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IXOTH and mode & stat.S_IROTH:
            paths += _find_private_files(entry.path)
        elif not stat.S_ISLNK(mode) and not mode & stat.S_IROTH:
            paths.append(entry.path)

    return paths
