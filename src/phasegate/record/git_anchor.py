"""The head of the domain chain in git: the ref `refs/phasegate/audit`, which agents cannot write.

The ref points to a small JSON text: the store's id, the count and the hash. It is also the repository's identity: a
fresh clone has no such ref and starts anew; a repository that has it and lost its store does not.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from phasegate.cage.environment import safe_path
from phasegate.cage.run import find_program, run
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.rules.chain import Head
from phasegate.rules.visible_text import visible

REF = "refs/phasegate/audit"
_TIMEOUT_S = 60
_OPTIONS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}


class Anchor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the ref says."""

    store: str
    count: int
    hash: str

    @property
    def head(self) -> Head:
        return Head(self.count, self.hash, REF)


def read_anchor(git_dir: Path) -> Anchor | None:
    """The head in git; None if there is no such ref."""
    about, _, text = _git(git_dir, "cat-file", "--batch", given=f"{REF}\n".encode()).partition(b"\n")
    if about.endswith(b" missing"):
        return None
    try:
        return msgspec.json.decode(text, type=Anchor)
    except msgspec.MsgspecError as error:
        raise StateConflict(f"{REF} holds something that was not written here: {error}") from error


def write_anchor(git_dir: Path, anchor: Anchor) -> None:
    """Move the ref to a newer head."""
    blob = _git(git_dir, "hash-object", "-w", "--stdin", given=msgspec.json.encode(anchor)).decode().strip()
    _git(git_dir, "update-ref", REF, blob)


def _git(git_dir: Path, *arguments: str, given: bytes = b"") -> bytes:
    """Run git on a git directory of the user's with nothing of anybody's configuration that could start a program."""
    path = safe_path(os.environ.get("PATH", os.defpath))
    program = find_program("git", path=path)
    if program is None:
        raise EnvironmentUnavailable("git is not installed", "install git 2.31 or later")
    command = [program, f"--git-dir={git_dir.absolute()}", *_OPTIONS, *arguments]
    result = run(command, cwd=Path("/"), env={**_ENVIRONMENT, "PATH": path}, stdin=given, timeout_s=_TIMEOUT_S)
    if result.timed_out:
        raise EnvironmentUnavailable(f"git {arguments[0]} did not end within {_TIMEOUT_S} s", "is the disk stuck?")
    if not result.ok:
        why = visible(result.stderr.decode(errors="replace").strip())
        raise StateConflict(f"git {arguments[0]} failed: {why}", "check the repository with: git fsck")
    return result.stdout
