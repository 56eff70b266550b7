"""The head of the domain chain in git: the ref `refs/phasegate/audit`, which agents cannot write.

The ref points to a small JSON text: the store's id, the count and the hash. It is also the repository's identity: a
fresh clone has no such ref and starts anew; a repository that has it and lost its store does not.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec

from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.rules.chain import Head

REF = "refs/phasegate/audit"
_TIMEOUT_S = 60


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
    command = [
        "git",
        f"--git-dir={git_dir}",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.fsmonitor=false",
        *arguments,
    ]
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }
    try:
        result = subprocess.run(
            command, input=given, capture_output=True, env=environment, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise EnvironmentUnavailable("git is not installed", "install git 2.31 or later") from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentUnavailable(f"git {arguments[0]} did not end within {_TIMEOUT_S} s") from error
    if result.returncode:
        why = result.stderr.decode(errors="replace").strip()
        raise StateConflict(f"git {arguments[0]} failed: {why}", "check the repository with: git fsck")
    return result.stdout
