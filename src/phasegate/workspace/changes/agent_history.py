"""Read an agent's commits from a copy of its objects.

The commit messages can thus be kept, and edits that were reverted later become visible.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.git import GitFailed, GitPaths, Identity, git
from phasegate.workspace.checkout.agent_git_reader import copy_agent_objects, read_agent_head
from phasegate.workspace.repository.disk_files import CheckoutLimits, LimitReached
from phasegate.workspace.repository.git_cache import LruCache
from phasegate.workspace.repository.objects import Signature
from phasegate.workspace.repository.repository import Repository
from phasegate.workspace.repository.tree_diff import (
    RAW_DIFF_OPTIONS,
    Difference,
    parse_raw_diff,
    parse_raw_entry,
)

# A crafted tree can expand endlessly
_TIMEOUT_S = 20.0
_MAX_OUTPUT_BYTES = 64 * 1024**2
_MAX_MESSAGE_BYTES = 64 * 1024
_MAX_CACHE_BYTES = 32 * 1024**2
_SIGNATURE_LINE = re.compile(
    r"(?P<name>.*?) ?<(?P<email>[^<>]*)> (?P<when>\d{1,12}) (?P<zone>[+-]\d{4})"
)
_MAX_ZONE_OFFSET = 1400
# Character sets in real use. Python also accepts other codecs by name, some of them deliberately
# slow.
_CHARACTER_SET = re.compile(
    r"(?:utf|iso|latin|us-ascii|cp|windows|koi8|euc|shift|gb|big5)[\w-]{0,20}", re.ASCII | re.I
)
UNKNOWN_SIGNATURE = Signature(Identity("unknown", "unknown"), 0)


class AgentCommit(NamedTuple):
    """One commit of an agent, with its changes against the first parent."""

    id: str
    parents: tuple[str, ...]
    author: Signature
    message: str
    changes: tuple[Difference, ...]
    committer: Signature = UNKNOWN_SIGNATURE

    @property
    def subject(self) -> str:
        return self.message.partition("\n")[0]


class AgentHistory(NamedTuple):
    """An agent's commits, oldest first.

    Only a linear history is harvested commit by commit. For any other history, `note` says why it
    is not used.
    """

    head: str | None
    commits: tuple[AgentCommit, ...] = ()
    is_linear: bool = True
    note: str = ""


_HISTORY_CACHE: LruCache[tuple[Repository, str, str, CheckoutLimits], AgentHistory] = LruCache(
    _MAX_CACHE_BYTES
)


def read_agent_history(
    root: int, repository: Repository, since: str, store: Path, limits: CheckoutLimits
) -> AgentHistory:
    """Return the commits that an agent made after `since`.

    The function does not fail on damaged data; it returns fewer commits.
    """
    head = read_agent_head(root)
    if head is None:
        return AgentHistory(None, is_linear=False, note="the agent's HEAD cannot be read")
    if head == since:
        return AgentHistory(head)

    known = _HISTORY_CACHE.get((repository, since, head, limits))
    # Commit ids are hashes of the content, so the result can be cached
    if known is not None:
        return known

    try:
        history = _read_commits(
            copy_agent_objects(root, repository, store, limits), head, since, limits
        )
    except (GitFailed, LimitReached, ValueError) as error:
        return AgentHistory(
            head, is_linear=False, note=f"the agent's history cannot be read: {error}"
        )

    size = sum(len(commit.message) + 200 * (1 + len(commit.changes)) for commit in history.commits)
    _HISTORY_CACHE.put((repository, since, head, limits), history, size)

    return history


def _read_commits(place: GitPaths, head: str, since: str, limits: CheckoutLimits) -> AgentHistory:
    """Read the agent's commits since the start, up to the limit."""
    arguments = (
        "rev-list",
        "--topo-order",
        "--reverse",
        "--parents",
        f"--max-count={limits.commits + 1}",
    )

    lines = _run_git(place, *arguments, head, f"^{since}").decode().splitlines()
    if len(lines) > limits.commits:
        return AgentHistory(
            head, is_linear=False, note=f"the agent made more than {limits.commits} commits"
        )

    ids = [line.split()[0] for line in lines]
    changes = _read_commit_changes(place, ids)
    texts = _read_commit_objects(place, ids)
    commits = tuple(_parse_commit(one, texts[one], changes.get(one, ())) for one in ids)
    linear = _is_linear(commits, since)

    return AgentHistory(
        head,
        commits,
        linear,
        "" if linear else "the agent's history is not a linear continuation of the start",
    )


def _is_linear(commits: Sequence[AgentCommit], since: str) -> bool:
    before = (since, *(commit.id for commit in commits))
    return all(commit.parents == (parent,) for commit, parent in zip(commits, before, strict=False))


def _run_git(place: GitPaths, *arguments: str, stdin: bytes = b"") -> bytes:
    # The commit graph and the multi-pack index only duplicate the objects; an agent's are not
    # copied.
    return git(
        place, *arguments, stdin=stdin, timeout_s=_TIMEOUT_S, max_output_bytes=_MAX_OUTPUT_BYTES
    ).stdout


def _read_commit_changes(place: GitPaths, ids: Sequence[str]) -> dict[str, tuple[Difference, ...]]:
    """Return the changes of each commit against its first parent."""
    asked = "".join(f"{one}\n" for one in ids).encode()
    output = _run_git(
        place,
        "diff-tree",
        "--stdin",
        "--root",
        "--diff-merges=first-parent",
        *RAW_DIFF_OPTIONS,
        stdin=asked,
    )

    found: dict[str, list[Difference]] = {}
    fields = iter(output.split(b"\0"))
    current: list[Difference] = []

    for field in fields:
        if field.startswith(b":"):
            current.append(parse_raw_entry(field, next(fields)))
        elif field:
            current = found.setdefault(field.decode(), [])

    return {one: tuple(entries) for one, entries in found.items()}


def _read_commit_objects(place: GitPaths, ids: Sequence[str]) -> dict[str, bytes]:
    stream = _run_git(
        place, "cat-file", "--batch", stdin="".join(f"{one}\n" for one in ids).encode()
    )
    return dict(_parse_batch_output(stream))


def _parse_batch_output(stream: bytes) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at < len(stream):
        end = stream.index(b"\n", at)
        one, kind, size = stream[at:end].decode().split()
        if kind != "commit":
            raise ValueError(f"{one} is a {kind}")

        at = end + 1 + int(size) + 1
        yield one, stream[end + 1 : at - 1]


def _parse_commit(one: str, data: bytes, changes: tuple[Difference, ...]) -> AgentCommit:
    """Parse a commit object and normalize unusual values."""
    head, _, message = data.partition(b"\n\n")
    fields = [line.partition(" ")[::2] for line in head.decode(errors="replace").split("\n")]
    encoding = next((value for name, value in fields if name == "encoding"), "utf-8")
    parents = tuple(value for name, value in fields if name == "parent")
    author, committer = (
        next((_parse_signature(value) for name, value in fields if name == role), UNKNOWN_SIGNATURE)
        for role in ("author", "committer")
    )
    text = _decode_message(message[:_MAX_MESSAGE_BYTES], encoding).strip() or "(empty)"

    return AgentCommit(
        id=one, parents=parents, author=author, message=text, changes=changes, committer=committer
    )


def _decode_message(message: bytes, encoding: str) -> str:
    try:
        return message.decode(
            encoding if _CHARACTER_SET.fullmatch(encoding) else "utf-8", errors="replace"
        )
    except LookupError:
        return message.decode(errors="replace")


def _parse_signature(text: str) -> Signature:
    """Parse a signature line of a commit; an invalid one becomes unknown."""
    found = _SIGNATURE_LINE.fullmatch(text)
    if found is None:
        return UNKNOWN_SIGNATURE

    # Git creates no commit with another encoding
    if int(found["zone"][1:]) <= _MAX_ZONE_OFFSET:
        zone = found["zone"]
    else:
        zone = "+0000"

    return Signature(Identity(found["name"], found["email"]), int(found["when"]), zone)


_STAGED_CACHE: LruCache[tuple[Repository, str, bytes], bytes] = LruCache(_MAX_CACHE_BYTES)


def read_staged_changes(
    repository: Repository, index: bytes, start: str, temp_folder: Path
) -> list[Difference] | None:
    """Return the difference between an agent's index and the start; None if it cannot be read."""
    key = (repository, start, hashlib.sha256(index).digest())
    output = _STAGED_CACHE.get(key)

    if output is None:
        copy = temp_folder / "index"
        copy.write_bytes(index)
        arguments = (
            "diff-index",
            "--cached",
            *(part for part in RAW_DIFF_OPTIONS if part != "-r"),
            start,
        )

        try:
            output = _run_git(repository.place(copy), *arguments)
        except GitFailed:
            return None

        _STAGED_CACHE.put(key, output, len(output) + 200)

    return list(parse_raw_diff(output))
