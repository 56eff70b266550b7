"""Write blobs and commits into the user's object store, without an index or a work tree.

Blobs are stored as raw bytes by `git fast-import`: one process for any number of objects. It runs
in a temporary git directory, so no ref of the user is touched; refs are moved later by
compare-and-swap.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from phasegate.core.paths.repo_path import has_git_directory
from phasegate.errors import StateConflict
from phasegate.git import GitPaths, Identity, git
from phasegate.workspace.repository.repository import (
    Repository,
    temporary_folder,
    write_git_directory,
)

_MAX_BATCH_BYTES = 32 * 1024**2
_COMMITTABLE_MODES = frozenset(("100644", "100755", "120000"))
_UNQUOTED_BYTES = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')


class PathVersion(NamedTuple):
    """The entry of a path in a tree."""

    mode: str
    object_id: str


# By path; None if there is nothing at the path
VersionMap = dict[str, PathVersion | None]


class Signature(NamedTuple):
    """An identity and a time: seconds since 1970, and the UTC offset."""

    who: Identity
    when_s: int
    zone: str = "+0000"


class NewCommit(NamedTuple):
    """A commit to create: the tree of its first parent with some paths set, or removed (None)."""

    # If empty, the parent is the previous commit in the list
    parents: tuple[str, ...]
    author: Signature
    committer: Signature
    message: str
    paths: VersionMap


def write_blobs(repository: Repository, contents: Iterable[bytes]) -> None:
    """Store blobs in batches of bounded size."""
    batch: list[bytes] = []
    size = 0

    for content in contents:
        batch.append(b"blob\ndata %d\n%s\n" % (len(content), content))
        size += len(content)
        if size >= _MAX_BATCH_BYTES:
            _run_fast_import(repository, batch)
            batch = []
            size = 0

    if batch:
        _run_fast_import(repository, batch)


def write_commits(repository: Repository, commits: Sequence[NewCommit]) -> list[str]:
    """Create a chain of commits and return their ids. Their blobs must already exist."""
    if not commits:
        return []

    stream = [
        part
        for number, commit in enumerate(commits, 1)
        for part in _commit_commands(number, commit)
    ]
    return _run_fast_import(repository, stream)


def write_tree_commit(
    repository: Repository, tree: str, parents: Sequence[str], signature: Signature, message: str
) -> str:
    """Create a commit of an existing tree and return its id.

    The same input always gives the same commit.
    """
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    signed = _format_signature(signature)
    head = "\n".join(lines).encode() + b"\nauthor %s\ncommitter %s\n\n" % (signed, signed)
    arguments = ("hash-object", "-t", "commit", "-w", "--stdin")

    return (
        git(repository.place(), *arguments, stdin=head + message.encode() + b"\n")
        .stdout.decode()
        .strip()
    )


def _run_fast_import(repository: Repository, stream: Iterable[bytes]) -> list[str]:
    with temporary_folder(repository) as room:
        write_git_directory(room, repository.hash_name, "\tbare = true\n")
        data = b"".join((b"feature done\n", *stream, b"done\n"))
        said = git(GitPaths(room, repository.objects), "fast-import", "--quiet", stdin=data)
    return said.stdout.decode().split()


def _commit_commands(number: int, commit: NewCommit) -> Iterator[bytes]:
    """Yield the `git fast-import` commands that create a commit."""
    message = (commit.message.replace("\0", "").rstrip("\n") + "\n").encode(errors="replace")
    yield b"commit refs/made\nmark :%d\n" % number
    yield b"author %s\ncommitter %s\n" % (
        _format_signature(commit.author),
        _format_signature(commit.committer),
    )
    yield b"data %d\n%s\n" % (len(message), message)
    for word, parent in zip(
        ("from", *["merge"] * len(commit.parents)), commit.parents, strict=False
    ):
        yield f"{word} {parent}\n".encode()

    gone = [path for path, version in commit.paths.items() if version is None]
    # Deletions first: a file may replace a folder
    yield from (b"D %s\n" % _quote_path(path) for path in gone)

    for path, version in commit.paths.items():
        if version is not None:
            yield b"M %s %s %s\n" % (
                _require_committable_mode(version).encode(),
                version.object_id.encode(),
                _quote_path(path),
            )

    yield b"\nget-mark :%d\n" % number


def _require_committable_mode(version: PathVersion) -> str:
    if version.mode not in _COMMITTABLE_MODES:
        raise StateConflict(
            f"mode {version.mode} cannot be committed", "this is a bug in Phasegate: report it"
        )
    return version.mode


def _quote_path(path: str) -> bytes:
    """Quote a path for fast-import; raise an error for one that could never be checked out."""
    if has_git_directory(path) or any(part in ("", ".", "..") for part in path.split("/")):
        raise StateConflict(
            f"{path!a} cannot be committed", "this is a bug in Phasegate: report it"
        )

    raw = os.fsencode(path)
    return b'"%s"' % b"".join(
        bytes((byte,)) if byte in _UNQUOTED_BYTES else b"\\%03o" % byte for byte in raw
    )


def _format_signature(signature: Signature) -> bytes:
    name, email = (_strip_signature_marks(part) for part in signature.who)
    text = f"{name or 'unknown'} <{email}> {max(0, signature.when_s)} {signature.zone}"
    return text.encode(errors="replace")


def _strip_signature_marks(text: str) -> str:
    return "".join(
        character for character in text if character.isprintable() and character not in "<>"
    ).strip()
