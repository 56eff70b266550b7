"""Our own git: one way to run it, with nothing in it that somebody else has set.

How agents are kept from running code through our git, or from being believed by it:

- An agent's checkout is a repository of its own. Its `.git` is written by us, reads the person's objects through
  `alternates`, and is never the git directory of any command of ours after the agent has started.
- Our commands run on a git directory below the person's `.git`, in `phasegate/`: its configuration, attributes and
  refs are ours, its objects are the person's (`GIT_OBJECT_DIRECTORY`). Agents cannot write there.
- What an agent changed is read from the file system by us: no link is followed, no filter or attribute is applied,
  and bytes are compared with the blobs of the commit from which the checkout was made.
- What an agent committed is read from a copy of its objects, in a store of ours, where each one is checked against
  its name. So there are no pipes, no alternates, no commit graphs and no replaced objects to be believed.
- The person's own git directory is used for refs only, with hooks, monitors and programs shut off.

The other way, `git worktree add`, shares one git directory with the person: 14 of 17 planted states
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

# `merge-tree --write-tree`
MIN_GIT_VERSION = (2, 38)
DEV_NULL = os.devnull
TIMEOUT_S = 900.0

_SAFE_CONFIG = {
    # programs and hooks that a configuration could name
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
    # nothing happens behind our back, or differs from machine to machine
    **dict.fromkeys(("gc.auto", "maintenance.auto", "fetch.writeCommitGraph"), "0"),
    **dict.fromkeys(("core.filesRefLockTimeout", "core.packedRefsTimeout"), "5000"),
    **dict.fromkeys(("core.protectHFS", "core.protectNTFS"), "true"),
    # what git has written is on the disk when it ends; the names of it: `make_durable`
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
# The clock of a file system may be behind ours by a little
_CLOCK_TOLERANCE_NS = 1_000_000_000
_REFS_DEPTH = 6
# Git holds the lock of a ref or an index for milliseconds
_STALE_LOCK_TIMEOUT_S = 1.0
_VERSION = re.compile(rb"git version (\d+)\.(\d+)")


class GitPaths(NamedTuple):
    """What a command works on.

    Every folder is absolute, and none but the work tree is in reach of an agent.
    """

    git_dir: Path
    objects: Path
    index_file: Path | None = None
    work_tree: Path | None = None


class Identity(NamedTuple):
    """Who made a commit."""

    name: str
    email: str


class _UnsyncedFolders:
    """Where git has written since its names were made durable, and since when."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.since_ns: dict[Path, int] = {}

    def mark_written(self, paths: GitPaths, started_ns: int) -> None:
        """To be done when git has ended.

        Another thread may make durable what was noted before, in the middle of it.
        """
        with self.lock:
            for folder in (paths.git_dir, paths.objects):
                self.since_ns[folder] = min(started_ns, self.since_ns.get(folder, started_ns))


_unsynced_folders = _UnsyncedFolders()


class GitFailed(StateConflict):
    """Git could not do what it always can: the repository is damaged, full, or in use."""


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
    """Run git on a place of ours.

    An exit code that is not accepted is an error, and so is output that was cut.

    `largest_allocation` is how many bytes it may ask for at once: an object may say of itself that
    it has any number.
    """
    started_ns = time.time_ns() - _CLOCK_TOLERANCE_NS
    if max_allocation_bytes is None:
        limited = {}
    else:
        limited = {"GIT_ALLOC_LIMIT": str(max_allocation_bytes)}

    found = run_program(
        [find_git(), *_SAFE_CONFIG_OPTIONS, *settings, *arguments],
        cwd=paths.git_dir,
        env={**_build_environment(paths), **limited},
        stdin=stdin,
        timeout_s=timeout_s,
        max_output_bytes=max_output_bytes,
        stdout_fd=stdout_to,
    )

    if arguments[0] not in _READ_ONLY_COMMANDS:
        _unsynced_folders.mark_written(paths, started_ns)

    if found.exit_code not in accepted_exit_codes or found.truncated or found.timed_out:
        raise GitFailed(
            f"git {arguments[0]} failed: {_describe_failure(found)}", _suggest_remedy(paths)
        )

    return found


def read_credential(url: str) -> str:
    """The password that the person's own credential helper knows for an address.

    Nobody is asked for one.
    """
    kept = {
        **_SAFE_ENVIRONMENT,
        "PATH": _get_safe_path(),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
    }

    theirs = {name: os.environ[name] for name in _USER_VARIABLES if name in os.environ}
    environment = {
        name: value for name, value in kept.items() if not name.startswith("GIT_CONFIG")
    } | theirs
    said = run_program(
        [find_git(), "credential", "fill"],
        cwd=Path("/"),
        env=environment,
        stdin=f"url={url}\n\n".encode(),
        timeout_s=20,
    )

    if said.ok:
        lines = said.stdout.decode(errors="replace").splitlines()
    else:
        lines = []

    return next(
        (line.removeprefix("password=") for line in lines if line.startswith("password=")), ""
    )


def run_git_over_network(
    paths: GitPaths, *arguments: str, extra_env: Mapping[str, str]
) -> ProgramResult:
    """Run git on a place of ours with a remote of the person's.

    Their way to reach it, nothing else of their settings.

    Any exit code is an answer. `more` may hold a credential: it is in no argument and no file.
    """
    started_ns = time.time_ns() - _CLOCK_TOLERANCE_NS
    theirs = {
        name: value for name, value in os.environ.items() if name.lower() in _NETWORK_VARIABLES
    }
    environment = {
        **_build_environment(paths),
        **theirs,
        "GIT_ALLOW_PROTOCOL": _NETWORK_PROTOCOLS,
        **extra_env,
    }

    allowed = (f"protocol.{name}.allow=always" for name in _NETWORK_PROTOCOLS.split(":"))
    settings = ("core.sshCommand=ssh -o BatchMode=yes", "http.followRedirects=false", *allowed)
    options = [part for setting in settings for part in ("-c", setting)]
    found = run_program(
        [find_git(), *_SAFE_CONFIG_OPTIONS, *options, *arguments],
        cwd=paths.git_dir,
        env=environment,
        timeout_s=TIMEOUT_S,
    )

    _unsynced_folders.mark_written(paths, started_ns)

    return found


def sync_written_folders() -> None:
    """Make the names durable of all that git has written in this process.

    Git itself syncs contents only.

    To be done before anything is recorded that rests on them. A ref never gets to the disk before
    its objects do.
    """
    with _unsynced_folders.lock:
        by_objects_first = sorted(
            _unsynced_folders.since_ns.items(), key=lambda item: item[0].name != "objects"
        )
        for folder, since_ns in by_objects_first:
            if folder.is_dir():
                sync_changed_folders(
                    folder, since_ns, 1 if folder.name == "objects" else _REFS_DEPTH
                )

        _unsynced_folders.since_ns.clear()


def remove_stale_lock(path: Path) -> None:
    """Remove a dead holder's lock file.

    One that a git of the person's made since goes by itself, and soon.
    """
    first = _read_inode(path)
    give_up_s = time.monotonic() + _STALE_LOCK_TIMEOUT_S
    while first is not None and _read_inode(path) == first and time.monotonic() < give_up_s:
        time.sleep(0.02)

    if first is not None and _read_inode(path) == first:
        with suppress(FileNotFoundError):
            path.unlink()


def _read_inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return None


def query_git_as_user(folder: Path, *arguments: str) -> ProgramResult:
    """Run git where the person stands, with their own settings.

    To find the repository and to know their name.
    """
    theirs = {
        name: os.environ[name]
        for name in os.environ
        if name in _USER_VARIABLES or name.endswith(_IDENTITY_VARIABLE_SUFFIXES)
    }
    environment = {**_SAFE_ENVIRONMENT, "PATH": _get_safe_path(), **theirs}
    if "GIT_CONFIG_NOSYSTEM" not in os.environ:
        del environment["GIT_CONFIG_NOSYSTEM"]
    if "GIT_CONFIG_GLOBAL" not in os.environ:
        del environment["GIT_CONFIG_GLOBAL"]

    return run_program([find_git(), *_SAFE_CONFIG_OPTIONS, *arguments], cwd=folder, env=environment)


def run_git_as_user(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> ProgramResult:
    """As `ask_as_the_person`, with their settings for signing and hooks too.

    Their program may be started.
    """
    theirs = {
        name: os.environ[name]
        for name in (*_USER_VARIABLES, *_SIGNING_VARIABLES)
        if name in os.environ
    }
    environment = {**_SAFE_ENVIRONMENT, "PATH": _get_safe_path(), **theirs, **(env or {})}
    for name in ("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL"):
        if name not in os.environ:
            del environment[name]

    named = (
        (name, value) for name, value in _SAFE_CONFIG.items() if name not in _COMMIT_CONFIG_KEYS
    )
    options = [part for name, value in named for part in ("-c", f"{name}={value}")]

    return run_program([find_git(), *options, *arguments], cwd=folder, env=environment, stdin=stdin)


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


def _build_environment(paths: GitPaths) -> Mapping[str, str]:
    found = {**_SAFE_ENVIRONMENT, "PATH": _get_safe_path(), "GIT_DIR": str(paths.git_dir)}
    found["GIT_OBJECT_DIRECTORY"] = str(paths.objects)
    if paths.index_file is not None:
        found["GIT_INDEX_FILE"] = str(paths.index_file)
    if paths.work_tree is not None:
        found["GIT_WORK_TREE"] = str(paths.work_tree)

    return found


def _get_safe_path() -> str:
    return filter_search_path(os.environ.get("PATH", ""))


def _suggest_remedy(paths: GitPaths) -> str:
    if any((paths.objects / "pack").glob("*.promisor")):
        return "this is a partial clone, and we fetch nothing: get the rest by `git fetch --refetch --no-filter`"
    return "see what `git fsck` says, and look for a full disk"


def _describe_failure(found: ProgramResult) -> str:
    if found.timed_out:
        return f"it took longer than {found.duration_s:.0f} s"
    if found.truncated:
        return "it said too much"

    text = (
        found.stderr.decode(errors="replace").strip()
        or f"exit code {found.exit_code}, signal {found.signal}"
    )
    return "".join(character if character.isprintable() else "?" for character in text[:500])


def find_git() -> str:
    """The git that is on the PATH, and new enough."""
    return _find_supported_git(_get_safe_path())


@cache
def _find_supported_git(path: str) -> str:
    program = find_program("git", path=path)
    if program is None:
        raise EnvironmentUnavailable("git was not found", "install git, or put it on the PATH")

    said = run_program(
        [program, "version"], cwd=Path("/"), env={"PATH": path, "LC_ALL": "C"}
    ).stdout
    found = _VERSION.match(said)

    if found is None or (int(found[1]), int(found[2])) < MIN_GIT_VERSION:
        wanted = ".".join(map(str, MIN_GIT_VERSION))
        raise EnvironmentUnavailable(
            f"{program} is too old: {said.decode(errors='replace').strip()}",
            f"install git {wanted} or later",
        )

    return program
