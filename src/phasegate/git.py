"""Run git with a fixed configuration and environment.

Agents must not run code through Phasegate's git commands, nor deceive them:

- An agent's checkout is a separate repository. Phasegate writes its `.git`, which reads a copy of
  the objects that its commit reaches through `alternates`. Once the agent has started, no
  Phasegate command uses it as its git directory.
- Phasegate's commands use a git directory below the user's `.git`, in `phasegate/`. It has its own
  configuration, attributes and refs, and the user's objects (`GIT_OBJECT_DIRECTORY`). Agents cannot
  write there.
- An agent's changes are read from the file system: no link is followed, no filter or attribute is
  applied, and bytes are compared with the blobs of the commit that the checkout was made from.
- An agent's commits are read from a copy of its objects, where each object is checked against its
  name. Pipes, alternates, commit graphs and replaced objects therefore have no effect.
- The user's git directory is used for refs only, with hooks, monitors and programs disabled.

The alternative, `git worktree add`, shares one git directory with the user: 14 of 17 planted states
ran code there.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import RLock
from typing import NamedTuple

from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.files.durable_write import sync_changed_folders
from phasegate.sandbox.environment import filter_search_path
from phasegate.sandbox.run_program import MIB, ProgramResult, find_program, run_program

# The first version with `merge-tree --write-tree`.
MIN_GIT_VERSION = (2, 38)
DEV_NULL = os.devnull
TIMEOUT_S = 900.0

_SAFE_CONFIG = {
    # Programs and hooks that a configuration could name.
    **dict.fromkeys(("core.hooksPath", "core.attributesFile", "core.excludesFile"), DEV_NULL),
    **dict.fromkeys(
        ("core.fsmonitor", "core.untrackedCache", "core.splitIndex", "feature.manyFiles"), "false"
    ),
    **dict.fromkeys(
        ("core.editor", "core.sshCommand", "core.askPass", "gpg.program", "sequence.editor"),
        "false",
    ),
    **dict.fromkeys(
        ("commit.gpgSign", "tag.gpgSign", "log.showSignature", "submodule.recurse"), "false"
    ),
    **dict.fromkeys(
        ("diff.external", "core.alternateRefsCommand", "credential.helper", "core.gitProxy"), ""
    ),
    **dict.fromkeys(("protocol.allow", "protocol.ext.allow", "protocol.file.allow"), "never"),
    # No background work, and no differences between machines.
    **dict.fromkeys(("gc.auto", "maintenance.auto", "fetch.writeCommitGraph"), "0"),
    **dict.fromkeys(("core.filesRefLockTimeout", "core.packedRefsTimeout"), "5000"),
    **dict.fromkeys(("core.protectHFS", "core.protectNTFS"), "true"),
    # Contents are on disk when git ends; `sync_written_folders` syncs the directory entries.
    "core.fsync": "all",
    "core.fsyncMethod": "fsync",
    "index.version": "2",
    "diff.renames": "false",
    "checkout.workers": "1",
    "core.pager": "cat",
}
_SAFE_ENVIRONMENT = {
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": DEV_NULL,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
}
_USER_VARIABLES = (
    "HOME",
    "XDG_CONFIG_HOME",
    "EMAIL",
    "SUDO_UID",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
)
_NETWORK_PROTOCOLS = "https:http:ssh:file"
_NETWORK_VARIABLES = {
    *("home", "ssh_auth_sock", "https_proxy", "http_proxy", "all_proxy", "no_proxy"),
    *("ssl_cert_file", "ssl_cert_dir", "git_ssl_cainfo", "git_ssl_capath"),
}
_SAFE_CONFIG_OPTIONS = tuple(
    part for name, value in _SAFE_CONFIG.items() for part in ("-c", f"{name}={value}")
)
_READ_ONLY_COMMANDS = {
    "cat-file",
    "check-attr",
    "config",
    "for-each-ref",
    "log",
    "ls-tree",
    "merge-base",
    "rev-list",
    "rev-parse",
}
# The clock of a file system may lag slightly behind the system clock.
_CLOCK_TOLERANCE_NS = 1_000_000_000
_REFS_DEPTH = 6
# A live git process holds the lock of a ref or an index for milliseconds.
_STALE_LOCK_TIMEOUT_S = 1.0
_VERSION = re.compile(rb"git version (\d+)\.(\d+)")


class GitPaths(NamedTuple):
    """The folders that a git command uses.

    All are absolute, and an agent can reach none but the work tree.
    """

    git_dir: Path
    objects: Path
    index_file: Path | None = None
    work_tree: Path | None = None


class Identity(NamedTuple):
    """Author or committer of a commit."""

    name: str
    email: str


class _UnsyncedFolders:
    """Folders that git has written to and that are not synced yet, each with the first time."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.since_ns: dict[Path, int] = {}

    def mark_written(self, paths: GitPaths, started_ns: int) -> None:
        """Record a write. Call it after git has ended.

        If it were called before, another thread could sync and clear the entry while git runs.
        """
        with self.lock:
            for folder in (paths.git_dir, paths.objects):
                self.since_ns[folder] = min(started_ns, self.since_ns.get(folder, started_ns))


_unsynced_folders = _UnsyncedFolders()
_MISSING_OBJECT = re.compile(
    rb"blob not found|nonexistent object|invalid revision range|not a valid object|bad object"
    rb"|unable to read (?:tree|sha1|[0-9a-f]{40})"
    rb"|invalid object|could not (?:read|parse) (?:object|commit|tree)|object [0-9a-f]+ not found",
    re.I,
)
_REMOVED_FOLDER = re.compile(rb"unable to write file \S*objects/\S+: No such file or directory")
_FOLDER_RETRIES = 5
_FAILURE_HINT = "run `git fsck`, and check the free disk space"
_MISSING_OBJECT_HINT = (
    "objects were removed during the run, for example by `git gc --prune=now`: stop that, then "
    "run the command again; if it still fails, run `git fsck`"
)


class GitFailed(StateConflict):
    """An essential git command failed: the repository is damaged, in use, or the disk is full."""


class ObjectsMissing(GitFailed):
    """Git does not find an object: another git process removed it, or the repository is damaged."""


def git(
    paths: GitPaths,
    *arguments: str,
    settings: tuple[str, ...] = (),
    stdin: bytes = b"",
    accepted_exit_codes: tuple[int, ...] = (0,),
    timeout_s: float = TIMEOUT_S,
    max_output_bytes: int = 256 * MIB,
    stdout_to: int | None = None,
    max_allocation_bytes: int | None = None,
) -> ProgramResult:
    """Run git on folders that Phasegate controls.

    Raises GitFailed for an exit code that is not accepted, for truncated output and for a timeout.

    `max_allocation_bytes` bounds a single allocation: the header of an object can claim any size.
    """
    started_ns = time.time_ns() - _CLOCK_TOLERANCE_NS
    environment = dict(_build_environment(paths))
    if max_allocation_bytes is not None:
        environment["GIT_ALLOC_LIMIT"] = str(max_allocation_bytes)

    for _ in range(_FOLDER_RETRIES):
        result = run_program(
            [find_git(), *_SAFE_CONFIG_OPTIONS, *settings, *arguments],
            cwd=paths.git_dir,
            env=environment,
            stdin=stdin,
            timeout_s=timeout_s,
            max_output_bytes=max_output_bytes,
            stdout_fd=stdout_to,
        )
        # `git gc` of the user removed the empty folder in which git wanted to write an object
        if result.exit_code == 0 or not _REMOVED_FOLDER.search(result.stderr):
            break

    if arguments[0] not in _READ_ONLY_COMMANDS:
        _unsynced_folders.mark_written(paths, started_ns)

    if result.exit_code not in accepted_exit_codes or result.truncated or result.timed_out:
        message = f"git {arguments[0]} failed: {_describe_failure(result)}"
        if _MISSING_OBJECT.search(result.stderr):
            raise ObjectsMissing(message, _suggest_remedy(paths) or _MISSING_OBJECT_HINT)
        raise GitFailed(message, _suggest_remedy(paths) or _FAILURE_HINT)

    return result


class Login(NamedTuple):
    """A user name and a password for a URL; both are empty if none is stored."""

    user: str = ""
    password: str = ""


def read_credential(url: str) -> str:
    """Return the password that the user's credential helper has for a URL, or an empty text."""
    return read_login(url).password


def read_login(url: str) -> Login:
    """Return what the user's credential helper has for a URL.

    Nothing prompts the user. A URL with a line feed could name another host to the helper.
    """
    if not url.isprintable():
        return Login()

    safe = {name: v for name, v in _SAFE_ENVIRONMENT.items() if not name.startswith("GIT_CONFIG")}
    inherited = {name: os.environ[name] for name in _USER_VARIABLES if name in os.environ}
    environment = {
        **safe,
        "PATH": _get_safe_path(),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        **inherited,
    }
    result = run_program(
        [find_git(), "credential", "fill"],
        cwd=Path("/"),
        env=environment,
        stdin=f"url={url}\n\n".encode(),
        timeout_s=20,
    )

    if not result.ok:
        return Login()

    lines = result.stdout.decode(errors="replace").splitlines()
    fields = {name: value for name, _, value in (line.partition("=") for line in lines)}
    return Login(fields.get("username", ""), fields.get("password", ""))


def run_git_over_network(
    paths: GitPaths, *arguments: str, extra_env: Mapping[str, str]
) -> ProgramResult:
    """Run git on folders that Phasegate controls, against a remote of the user.

    Only the user's network variables are passed on, no other settings. Any exit code is a result.
    `extra_env` may hold a credential, which then appears in no argument and no file.
    """
    started_ns = time.time_ns() - _CLOCK_TOLERANCE_NS
    inherited = {
        name: value for name, value in os.environ.items() if name.lower() in _NETWORK_VARIABLES
    }
    environment = {
        **_build_environment(paths),
        **inherited,
        "GIT_ALLOW_PROTOCOL": _NETWORK_PROTOCOLS,
        **extra_env,
    }

    allowed = (f"protocol.{name}.allow=always" for name in _NETWORK_PROTOCOLS.split(":"))
    settings = ("core.sshCommand=ssh -o BatchMode=yes", "http.followRedirects=false", *allowed)
    options = [part for setting in settings for part in ("-c", setting)]
    result = run_program(
        [find_git(), *_SAFE_CONFIG_OPTIONS, *options, *arguments],
        cwd=paths.git_dir,
        env=environment,
        timeout_s=TIMEOUT_S,
    )

    _unsynced_folders.mark_written(paths, started_ns)

    return result


def sync_written_folders() -> None:
    """Sync the directory entries of everything that git has written in this process.

    Git itself syncs contents only. Call it before recording anything that depends on them. Objects
    are synced before refs, so that a ref never points to a missing object after a power failure.
    """
    with _unsynced_folders.lock:
        objects_first = sorted(
            _unsynced_folders.since_ns.items(), key=lambda item: item[0].name != "objects"
        )
        for folder, since_ns in objects_first:
            if folder.is_dir():
                depth = 1 if folder.name == "objects" else _REFS_DEPTH
                sync_changed_folders(folder, since_ns, depth)

        _unsynced_folders.since_ns.clear()


def remove_stale_lock(path: Path) -> None:
    """Remove the lock file of a dead process.

    A lock of a live git process disappears within milliseconds: only one that stays is removed.
    """
    inode = _read_inode(path)
    deadline_s = time.monotonic() + _STALE_LOCK_TIMEOUT_S
    while inode is not None and _read_inode(path) == inode and time.monotonic() < deadline_s:
        time.sleep(0.02)

    if inode is not None and _read_inode(path) == inode:
        with suppress(FileNotFoundError):
            path.unlink()


def _read_inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return None


def query_git_as_user(folder: Path, *arguments: str) -> ProgramResult:
    """Run git in a folder of the user, with the user's configuration.

    For finding the repository and reading the user's name. Programs and hooks stay disabled.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in _USER_VARIABLES or name.endswith(_IDENTITY_VARIABLE_SUFFIXES)
    }
    environment = _build_user_environment(inherited)

    return run_program([find_git(), *_SAFE_CONFIG_OPTIONS, *arguments], cwd=folder, env=environment)


def run_git_as_user(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> ProgramResult:
    """Run git like `query_git_as_user`, with the user's settings for signing and hooks too.

    It may start the user's signing program and hooks.
    """
    environment = {**build_signing_environment(), **(env or {})}

    options = []
    for name, value in _SAFE_CONFIG.items():
        if name not in _COMMIT_CONFIG_KEYS:
            options += ["-c", f"{name}={value}"]

    return run_program([find_git(), *options, *arguments], cwd=folder, env=environment, stdin=stdin)


def build_signing_environment() -> dict[str, str]:
    """Return the environment in which the user's signing program finds its agent and its keys."""
    inherited = {
        name: os.environ[name]
        for name in (*_USER_VARIABLES, *_SIGNING_VARIABLES)
        if name in os.environ
    }
    return _build_user_environment(inherited)


_SIGNING_VARIABLES = (
    "GNUPGHOME",
    "GPG_TTY",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
)
_COMMIT_CONFIG_KEYS = ("commit.gpgSign", "gpg.program", "core.hooksPath")
_IDENTITY_VARIABLE_SUFFIXES = (
    "_AUTHOR_NAME",
    "_AUTHOR_EMAIL",
    "_COMMITTER_NAME",
    "_COMMITTER_EMAIL",
)


def _build_user_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the safe environment with the user's variables and configuration files."""
    environment = {**_SAFE_ENVIRONMENT, "PATH": _get_safe_path(), **inherited}
    for name in ("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL"):
        if name not in os.environ:
            del environment[name]

    return environment


def _build_environment(paths: GitPaths) -> Mapping[str, str]:
    """Return the environment of a git command, without the user's settings."""
    environment = {
        **_SAFE_ENVIRONMENT,
        "PATH": _get_safe_path(),
        "GIT_DIR": str(paths.git_dir),
        "GIT_OBJECT_DIRECTORY": str(paths.objects),
    }
    if paths.index_file is not None:
        environment["GIT_INDEX_FILE"] = str(paths.index_file)
    if paths.work_tree is not None:
        environment["GIT_WORK_TREE"] = str(paths.work_tree)

    return environment


def _get_safe_path() -> str:
    return filter_search_path(os.environ.get("PATH", ""))


def _suggest_remedy(paths: GitPaths) -> str:
    if any((paths.objects / "pack").glob("*.promisor")):
        return (
            "this is a partial clone, and Phasegate does not fetch missing objects: "
            "run `git fetch --refetch --no-filter`"
        )
    return ""


def _describe_failure(result: ProgramResult) -> str:
    if result.timed_out:
        return f"no result after {result.duration_s:.0f} s"
    if result.truncated:
        return "the output is too large"

    text = result.stderr.decode(errors="replace").strip()
    if not text:
        text = f"exit code {result.exit_code}, signal {result.signal}"

    return "".join(character if character.isprintable() else "?" for character in text[:500])


def find_git() -> str:
    """Return the git program on the PATH. Raises EnvironmentUnavailable if it is too old."""
    return _find_supported_git(_get_safe_path())


@cache
def _find_supported_git(path: str) -> str:
    """Return the path of git; raise if it is missing or too old."""
    program = find_program("git", path=path)
    if program is None:
        raise EnvironmentUnavailable("git was not found", "install git, or put it on the PATH")

    result = run_program([program, "version"], cwd=Path("/"), env={"PATH": path, "LC_ALL": "C"})
    version = _VERSION.match(result.stdout)

    if version is None or (int(version[1]), int(version[2])) < MIN_GIT_VERSION:
        required = ".".join(map(str, MIN_GIT_VERSION))
        raise EnvironmentUnavailable(
            f"{program} is too old: {result.stdout.decode(errors='replace').strip()}",
            f"install git {required} or later",
        )

    return program
