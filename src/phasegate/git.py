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

The other way, `git worktree add`, shares one git directory with the person: 14 of 17 planted states ran code there.
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
from phasegate.sandbox.environment import safe_path
from phasegate.sandbox.run_program import MIB, Finished, find_program, run

OLDEST_GIT = (2, 38)  # `merge-tree --write-tree`
NOWHERE = os.devnull
TIMEOUT_S = 900.0

_SETTINGS = {
    # programs and hooks that a configuration could name
    **dict.fromkeys(("core.hooksPath", "core.attributesFile", "core.excludesFile"), NOWHERE),
    **dict.fromkeys(("core.fsmonitor", "core.untrackedCache", "core.splitIndex", "feature.manyFiles"), "false"),
    **dict.fromkeys(("core.editor", "core.sshCommand", "core.askPass", "gpg.program", "sequence.editor"), "false"),
    **dict.fromkeys(("commit.gpgSign", "tag.gpgSign", "log.showSignature", "submodule.recurse"), "false"),
    **dict.fromkeys(("diff.external", "core.alternateRefsCommand", "credential.helper", "core.gitProxy"), ""),
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
_ENVIRONMENT = {
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": NOWHERE,
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
_OF_THE_PERSON = ("HOME", "XDG_CONFIG_HOME", "EMAIL", "SUDO_UID", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")
_PROTOCOLS = "https:http:ssh:file"
_TO_REACH = {
    *("home", "ssh_auth_sock", "https_proxy", "http_proxy", "all_proxy", "no_proxy"),
    *("ssl_cert_file", "ssl_cert_dir", "git_ssl_cainfo", "git_ssl_capath"),
}
_OPTIONS = tuple(part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}"))
_ONLY_READS = {
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
_COARSE_NS = 1_000_000_000  # the clock of a file system may be behind ours by a little
_REFS_DEPTH = 6
_PERSON_MAY_HOLD_S = 1.0  # git holds the lock of a ref or an index for milliseconds
_VERSION = re.compile(rb"git version (\d+)\.(\d+)")


class Place(NamedTuple):
    """What a command works on. Every folder is absolute, and none but the work tree is in reach of an agent."""

    git_dir: Path
    objects: Path
    index_file: Path | None = None
    work_tree: Path | None = None


class Identity(NamedTuple):
    """Who made a commit."""

    name: str
    email: str


class _Unsynced:
    """Where git has written since its names were made durable, and since when."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.since_ns: dict[Path, int] = {}

    def note(self, place: Place, started_ns: int) -> None:
        """To be done when git has ended: another thread may make durable what was noted before, in the middle of it."""
        with self.lock:
            for folder in (place.git_dir, place.objects):
                self.since_ns[folder] = min(started_ns, self.since_ns.get(folder, started_ns))


_unsynced = _Unsynced()


class GitFailed(StateConflict):
    """Git could not do what it always can: the repository is damaged, full, or in use."""


def git(
    place: Place,
    *arguments: str,
    settings: tuple[str, ...] = (),
    stdin: bytes = b"",
    accept: tuple[int, ...] = (0,),
    timeout_s: float = TIMEOUT_S,
    output_limit: int = 256 * MIB,
    stdout_to: int | None = None,
    largest_allocation: int | None = None,
) -> Finished:
    """Run git on a place of ours; an exit code that is not accepted is an error, and so is output that was cut.

    `largest_allocation` is how many bytes it may ask for at once: an object may say of itself that it has any number.
    """
    started_ns = time.time_ns() - _COARSE_NS
    limited = {} if largest_allocation is None else {"GIT_ALLOC_LIMIT": str(largest_allocation)}
    found = run(
        [git_program(), *_OPTIONS, *settings, *arguments],
        cwd=place.git_dir,
        env={**_environment_of(place), **limited},
        stdin=stdin,
        timeout_s=timeout_s,
        output_limit=output_limit,
        stdout_to=stdout_to,
    )
    if arguments[0] not in _ONLY_READS:
        _unsynced.note(place, started_ns)
    if found.exit_code not in accept or found.cut or found.timed_out:
        raise GitFailed(f"git {arguments[0]} failed: {_reason(found)}", _hint(place))
    return found


def credential_of(url: str) -> str:
    """The password that the person's own credential helper knows for an address; nobody is asked for one."""
    kept = {**_ENVIRONMENT, "PATH": _path(), "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true"}
    theirs = {name: os.environ[name] for name in _OF_THE_PERSON if name in os.environ}
    environment = {name: value for name, value in kept.items() if not name.startswith("GIT_CONFIG")} | theirs
    said = run(
        [git_program(), "credential", "fill"],
        cwd=Path("/"),
        env=environment,
        stdin=f"url={url}\n\n".encode(),
        timeout_s=20,
    )
    lines = said.stdout.decode(errors="replace").splitlines() if said.ok else []
    return next((line.removeprefix("password=") for line in lines if line.startswith("password=")), "")


def git_over_network(place: Place, *arguments: str, more: Mapping[str, str]) -> Finished:
    """Run git on a place of ours with a remote of the person's: their way to reach it, nothing else of their settings.

    Any exit code is an answer. `more` may hold a credential: it is in no argument and no file.
    """
    started_ns = time.time_ns() - _COARSE_NS
    theirs = {name: value for name, value in os.environ.items() if name.lower() in _TO_REACH}
    environment = {**_environment_of(place), **theirs, "GIT_ALLOW_PROTOCOL": _PROTOCOLS, **more}
    allowed = (f"protocol.{name}.allow=always" for name in _PROTOCOLS.split(":"))
    settings = ("core.sshCommand=ssh -o BatchMode=yes", "http.followRedirects=false", *allowed)
    options = [part for setting in settings for part in ("-c", setting)]
    found = run(
        [git_program(), *_OPTIONS, *options, *arguments], cwd=place.git_dir, env=environment, timeout_s=TIMEOUT_S
    )
    _unsynced.note(place, started_ns)
    return found


def make_durable() -> None:
    """Make the names durable of all that git has written in this process: git itself syncs contents only.

    To be done before anything is recorded that rests on them. A ref never gets to the disk before its objects do.
    """
    with _unsynced.lock:
        by_objects_first = sorted(_unsynced.since_ns.items(), key=lambda item: item[0].name != "objects")
        for folder, since_ns in by_objects_first:
            if folder.is_dir():
                sync_changed_folders(folder, since_ns, 1 if folder.name == "objects" else _REFS_DEPTH)
        _unsynced.since_ns.clear()


def remove_stale_lock(path: Path) -> None:
    """Remove a dead holder's lock file; one that a git of the person's made since goes by itself, and soon."""
    first = _inode(path)
    give_up_s = time.monotonic() + _PERSON_MAY_HOLD_S
    while first is not None and _inode(path) == first and time.monotonic() < give_up_s:
        time.sleep(0.02)
    if first is not None and _inode(path) == first:
        with suppress(FileNotFoundError):
            path.unlink()


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return None


def ask_as_the_person(folder: Path, *arguments: str) -> Finished:
    """Run git where the person stands, with their own settings: to find the repository and to know their name."""
    theirs = {name: os.environ[name] for name in os.environ if name in _OF_THE_PERSON or name.endswith(_NAMES)}
    environment = {**_ENVIRONMENT, "PATH": _path(), **theirs}
    if "GIT_CONFIG_NOSYSTEM" not in os.environ:
        del environment["GIT_CONFIG_NOSYSTEM"]
    if "GIT_CONFIG_GLOBAL" not in os.environ:
        del environment["GIT_CONFIG_GLOBAL"]
    return run([git_program(), *_OPTIONS, *arguments], cwd=folder, env=environment)


def run_as_the_person(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> Finished:
    """As `ask_as_the_person`, with their settings for signing and hooks too: their program may be started."""
    theirs = {name: os.environ[name] for name in (*_OF_THE_PERSON, *_OF_SIGNING) if name in os.environ}
    environment = {**_ENVIRONMENT, "PATH": _path(), **theirs, **(env or {})}
    for name in ("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL"):
        if name not in os.environ:
            del environment[name]
    named = ((name, value) for name, value in _SETTINGS.items() if name not in _OF_COMMITS)
    options = [part for name, value in named for part in ("-c", f"{name}={value}")]
    return run([git_program(), *options, *arguments], cwd=folder, env=environment, stdin=stdin)


_OF_SIGNING = ("GNUPGHOME", "GPG_TTY", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY")
_OF_COMMITS = ("commit.gpgSign", "gpg.program", "core.hooksPath")
_NAMES = ("_AUTHOR_NAME", "_AUTHOR_EMAIL", "_COMMITTER_NAME", "_COMMITTER_EMAIL")


def _environment_of(place: Place) -> Mapping[str, str]:
    found = {**_ENVIRONMENT, "PATH": _path(), "GIT_DIR": str(place.git_dir)}
    found["GIT_OBJECT_DIRECTORY"] = str(place.objects)
    if place.index_file is not None:
        found["GIT_INDEX_FILE"] = str(place.index_file)
    if place.work_tree is not None:
        found["GIT_WORK_TREE"] = str(place.work_tree)
    return found


def _path() -> str:
    return safe_path(os.environ.get("PATH", ""))


def _hint(place: Place) -> str:
    if any((place.objects / "pack").glob("*.promisor")):
        return "this is a partial clone, and we fetch nothing: get the rest by `git fetch --refetch --no-filter`"
    return "see what `git fsck` says, and look for a full disk"


def _reason(found: Finished) -> str:
    if found.timed_out:
        return f"it took longer than {found.duration_s:.0f} s"
    if found.cut:
        return "it said too much"
    text = found.stderr.decode(errors="replace").strip() or f"exit code {found.exit_code}, signal {found.signal}"
    return "".join(character if character.isprintable() else "?" for character in text[:500])


def git_program() -> str:
    """The git that is on the PATH, and new enough."""
    return _checked_program(_path())


@cache
def _checked_program(path: str) -> str:
    program = find_program("git", path=path)
    if program is None:
        raise EnvironmentUnavailable("git was not found", "install git, or put it on the PATH")
    said = run([program, "version"], cwd=Path("/"), env={"PATH": path, "LC_ALL": "C"}).stdout
    found = _VERSION.match(said)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        wanted = ".".join(map(str, OLDEST_GIT))
        raise EnvironmentUnavailable(
            f"{program} is too old: {said.decode(errors='replace').strip()}", f"install git {wanted} or later"
        )
    return program
