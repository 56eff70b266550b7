"""What a sandboxed job can see of the file system, as arguments for bubblewrap.

The view starts empty. The system's programs and settings, what the job's command needs, and what
the caller names are put in read-only; the worktree and the job's own folders are put in writable.
The rest is not there: no home folder, no sockets of the machine's services, no other worktree, no
repository.
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
# Programs count the processors there
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


class _MountKind(Enum):
    READ = "--ro-bind"
    WRITE = "--bind"
    HIDE = "hide"


class SandboxFolders(NamedTuple):
    """What the caller of a job says about folders: all absolute."""

    writable: tuple[Path, ...]
    readable: tuple[Path, ...]
    hidden: tuple[Path, ...]
    tmp: Path


class Bubblewrap(NamedTuple):
    program: str
    help_text: str

    def has_option(self, option: str) -> bool:
        return f"{option} " in self.help_text


@cache
def find_bubblewrap() -> Bubblewrap | None:
    """The installed bubblewrap and the options it knows, or None."""
    # Not what the repository has under this name
    here = filter_search_path(os.environ.get("PATH", ""))
    if sys.platform == "linux":
        program = shutil.which("bwrap", path=here)
    else:
        program = None

    if program is None:
        return None

    listing = subprocess.run(
        [program, "--help"], capture_output=True, check=False, timeout=10, env={}
    )
    return Bubblewrap(program, (listing.stdout + listing.stderr).decode("utf-8", "replace"))


def build_arguments(
    isolate_network: bool, command: tuple[str, ...], path: str, folders: SandboxFolders
) -> list[str]:
    """The command line that goes in front of a program to put it into the cage.

    `alone`: with a network of its own.
    """
    tool = find_bubblewrap()
    if tool is None:
        raise EnvironmentUnavailable(
            "bubblewrap is not installed", "install it: apt-get install bubblewrap"
        )

    mounts = _plan_mounts(command, path, folders)
    return [
        tool.program,
        *_build_namespace_arguments(tool, isolate_network),
        *_build_mount_arguments(tool, mounts, folders.tmp),
        "--",
    ]


def _build_namespace_arguments(tool: Bubblewrap, isolate_network: bool) -> list[str]:
    always = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]

    if isolate_network:
        network = ["--unshare-net"]
    else:
        network = []

    # Without it seccomp still refuses new user namespaces; the two do not depend on each other.
    if tool.has_option("--disable-userns"):
        no_more = ["--disable-userns"]
    else:
        no_more = []

    return [
        *always,
        *network,
        *no_more,
        "--cap-drop",
        "ALL",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
    ]


def _build_mount_arguments(tool: Bubblewrap, mounts: dict[str, _MountKind], tmp: Path) -> list[str]:
    if tool.has_option("--size"):
        size = ["--size", _SHARED_MEMORY_BYTES]
    else:
        size = []

    # What contains comes before what is contained
    ordered = sorted(mounts, key=lambda path: path.split("/"))
    bound = [argument for path in ordered for argument in _build_bind_arguments(path, mounts[path])]
    covered = [path for path in ordered if mounts[path] is _MountKind.HIDE and os.path.isdir(path)]

    return [
        *_build_system_arguments(),
        *("--proc", "/proc", "--dev", "/dev", *size, "--tmpfs", "/dev/shm"),  # noqa: S108 - the cage's own
        *("--bind", str(tmp), "/tmp", "--bind", str(tmp), "/var/tmp"),  # noqa: S108 - the cage's own
        *bound,
        *(argument for path in (*covered, "/dev", "/") for argument in ("--remount-ro", path)),
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
    """Settings of which /etc has only links.

    The name servers of systemd, the certificates of some systems.
    """
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
    writable = [_require_real_folder(folder) for folder in folders.writable]
    # What lies in a writable folder is shown with it. A link in there may be a job's own: it is
    # never followed out.
    theirs = [*writable, *(os.path.normpath(folder) for folder in folders.writable)]
    found = [
        *readable_paths.find_command_paths(command, path, writable=theirs),
        *readable_paths.find_runtime_paths(),
    ]
    # Those are to stay writable
    needed = [path for path in _drop_nested(found) if not _is_inside(path, writable)]
    named = [
        os.path.realpath(path) for path in folders.readable if not _links_outside(path, theirs)
    ]
    # /usr/local is a link to somewhere else on some systems
    real = [os.path.realpath(path) for path in needed]
    shown = [
        path
        for path in (*needed, *real, *named)
        if not _is_inside(path, _SYSTEM_FOLDERS) and os.path.exists(path)
    ]
    visible = [*shown, *writable, *_SYSTEM_FOLDERS]
    secrets = [path for path in readable_paths.list_secret_paths() if path not in named]
    hidden = [
        *secrets,
        *_find_private_settings(),
        *(os.path.realpath(path) for path in folders.hidden),
    ]
    covered = [path for path in hidden if os.path.lexists(path) and _is_inside(path, visible)]
    kinds = {_MountKind.READ: shown, _MountKind.HIDE: covered, _MountKind.WRITE: writable}

    return {path: kind for kind, paths in kinds.items() for path in paths}


def _links_outside(path: Path, writable: list[str]) -> bool:
    """Whether a path in a writable folder is by a link somewhere else."""
    return _is_inside(os.path.normpath(path), writable) and not _is_inside(
        os.path.realpath(path), writable
    )


def _drop_nested(paths: list[str]) -> list[str]:
    """Without what lies in another of them."""
    return [path for path in paths if not _is_inside(os.path.dirname(path), paths)]


def _require_real_folder(folder: Path) -> str:
    """A writable folder must be what it is called: a link in its place could lead to any folder."""
    path = os.path.normpath(folder)
    if os.path.islink(path) or not os.path.isdir(path):
        raise ConfigError(
            f"{path} is not a folder", "a folder that a job may write to must exist and be no link"
        )

    if os.path.realpath(path) in ("/", *_SYSTEM_FOLDERS):
        raise ConfigError(f"{path} cannot be writable in a job", "name the worktree")

    return os.path.realpath(path)


def _is_inside(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


@cache
def _find_private_settings() -> tuple[str, ...]:
    """What only root may read below /etc.

    A job of root is root to the files, so these are covered.
    """
    if os.geteuid() == 0:
        return tuple(_find_private_files("/etc"))
    return ()


def _find_private_files(folder: str) -> list[str]:
    found: list[str] = []
    for entry in os.scandir(folder):
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IXOTH and mode & stat.S_IROTH:
            found += _find_private_files(entry.path)
        elif not stat.S_ISLNK(mode) and not mode & stat.S_IROTH:
            found.append(entry.path)

    return found
