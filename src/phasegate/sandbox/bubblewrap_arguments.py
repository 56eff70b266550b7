"""What a sandboxed job can see of the file system, as arguments for bubblewrap.

The view starts empty. The system's programs and settings, what the job's command needs, and what the caller names are
put in read-only; the worktree and the job's own folders are put in writable. The rest is not there: no home folder, no
sockets of the machine's services, no other worktree, no repository.
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
from phasegate.sandbox.environment import safe_path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu")
_MACHINE = ("/sys/devices/system",)  # programs count the processors there
_OFTEN_LINKED = ("resolv.conf", "hosts", "localtime", "ssl/certs", "ssl/cert.pem", "ssl/ca-bundle.pem", "pki/tls/certs")
_SHARED_MEMORY_BYTES = "1073741824"


class _Kind(Enum):
    READ = "--ro-bind"
    WRITE = "--bind"
    HIDE = "hide"


class Folders(NamedTuple):
    """What the caller of a job says about folders: all absolute."""

    writable: tuple[Path, ...]
    readable: tuple[Path, ...]
    hidden: tuple[Path, ...]
    tmp: Path


class Bubblewrap(NamedTuple):
    program: str
    options: str

    def has(self, option: str) -> bool:
        return f"{option} " in self.options


@cache
def bubblewrap() -> Bubblewrap | None:
    """The installed bubblewrap and the options it knows, or None."""
    here = safe_path(os.environ.get("PATH", ""))  # not what the repository has under this name
    program = shutil.which("bwrap", path=here) if sys.platform == "linux" else None
    if program is None:
        return None
    listing = subprocess.run([program, "--help"], capture_output=True, check=False, timeout=10, env={})
    return Bubblewrap(program, (listing.stdout + listing.stderr).decode("utf-8", "replace"))


def arguments(alone: bool, command: tuple[str, ...], path: str, folders: Folders) -> list[str]:
    """The command line that goes in front of a program to put it into the cage; `alone`: with a network of its own."""
    tool = bubblewrap()
    if tool is None:
        raise EnvironmentUnavailable("bubblewrap is not installed", "install it: apt-get install bubblewrap")
    mounts = _mounts(command, path, folders)
    return [tool.program, *_namespaces(tool, alone), *_file_system(tool, mounts, folders.tmp), "--"]


def _namespaces(tool: Bubblewrap, alone: bool) -> list[str]:
    always = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    network = ["--unshare-net"] if alone else []
    # Without it seccomp still refuses new user namespaces; the two do not depend on each other.
    no_more = ["--disable-userns"] if tool.has("--disable-userns") else []
    return [*always, *network, *no_more, "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1"]


def _file_system(tool: Bubblewrap, mounts: dict[str, _Kind], tmp: Path) -> list[str]:
    size = ["--size", _SHARED_MEMORY_BYTES] if tool.has("--size") else []
    ordered = sorted(mounts, key=lambda path: path.split("/"))  # what contains comes before what is contained
    bound = [argument for path in ordered for argument in _bind(path, mounts[path])]
    covered = [path for path in ordered if mounts[path] is _Kind.HIDE and os.path.isdir(path)]
    return [
        *_system(),
        *("--proc", "/proc", "--dev", "/dev", *size, "--tmpfs", "/dev/shm"),  # noqa: S108 - the cage's own
        *("--bind", str(tmp), "/tmp", "--bind", str(tmp), "/var/tmp"),  # noqa: S108
        *bound,
        *(argument for path in (*covered, "/dev", "/") for argument in ("--remount-ro", path)),
    ]


def _bind(path: str, kind: _Kind) -> list[str]:
    if kind is not _Kind.HIDE:
        return [kind.value, path, path]
    return ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", os.devnull, path]


@cache
def _system() -> tuple[str, ...]:
    arguments: list[str] = []
    for folder in _SYSTEM:
        if os.path.islink(folder):
            arguments += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            arguments += ["--ro-bind", folder, folder]
    for folder in filter(os.path.isdir, _MACHINE):
        arguments += ["--ro-bind", folder, folder]
    return (*arguments, *_linked_settings())


def _linked_settings() -> list[str]:
    """Settings of which /etc has only links: the name servers of systemd, the certificates of some systems."""
    targets = [os.path.realpath(f"/etc/{name}") for name in _OFTEN_LINKED]
    outside = [path for path in dict.fromkeys(targets) if not _is_inside(path, _SYSTEM) and os.path.exists(path)]
    return [argument for path in outside for argument in ("--ro-bind", path, path)]


def _mounts(command: tuple[str, ...], path: str, folders: Folders) -> dict[str, _Kind]:
    writable = [_real_folder(folder) for folder in folders.writable]
    # What lies in a writable folder is shown with it. A link in there may be a job's own: it is never followed out.
    theirs = [*writable, *(os.path.normpath(folder) for folder in folders.writable)]
    found = [*readable_paths.of_command(command, path, keep_out=theirs), *readable_paths.of_ourselves()]
    needed = [path for path in _widest(found) if not _is_inside(path, writable)]  # those are to stay writable
    named = [os.path.realpath(path) for path in folders.readable if not _leads_out(path, theirs)]
    real = [os.path.realpath(path) for path in needed]  # /usr/local is a link to somewhere else on some systems
    shown = [path for path in (*needed, *real, *named) if not _is_inside(path, _SYSTEM) and os.path.exists(path)]
    visible = [*shown, *writable, *_SYSTEM]
    secrets = [path for path in readable_paths.secrets() if path not in named]
    hidden = [*secrets, *_private_settings(), *(os.path.realpath(path) for path in folders.hidden)]
    covered = [path for path in hidden if os.path.lexists(path) and _is_inside(path, visible)]
    kinds = {_Kind.READ: shown, _Kind.HIDE: covered, _Kind.WRITE: writable}
    return {path: kind for kind, paths in kinds.items() for path in paths}


def _leads_out(path: Path, theirs: list[str]) -> bool:
    """Whether a path in a writable folder is by a link somewhere else."""
    return _is_inside(os.path.normpath(path), theirs) and not _is_inside(os.path.realpath(path), theirs)


def _widest(paths: list[str]) -> list[str]:
    """Without what lies in another of them."""
    return [path for path in paths if not _is_inside(os.path.dirname(path), paths)]


def _real_folder(folder: Path) -> str:
    """A writable folder must be what it is called: a link in its place could lead to any folder."""
    path = os.path.normpath(folder)
    if os.path.islink(path) or not os.path.isdir(path):
        raise ConfigError(f"{path} is not a folder", "a folder that a job may write to must exist and be no link")
    if os.path.realpath(path) in ("/", *_SYSTEM):
        raise ConfigError(f"{path} cannot be writable in a job", "name the worktree")
    return os.path.realpath(path)


def _is_inside(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


@cache
def _private_settings() -> tuple[str, ...]:
    """What only root may read below /etc. A job of root is root to the files, so these are covered."""
    return tuple(_not_for_others("/etc")) if os.geteuid() == 0 else ()


def _not_for_others(folder: str) -> list[str]:
    found: list[str] = []
    for entry in os.scandir(folder):
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IXOTH and mode & stat.S_IROTH:
            found += _not_for_others(entry.path)
        elif not stat.S_ISLNK(mode) and not mode & stat.S_IROTH:
            found.append(entry.path)
    return found
