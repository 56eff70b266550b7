"""Compare two commits: list the commits between them, the diff, and the files of a tree."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

from phasegate.core.plan.commits import Commit
from phasegate.git import git
from phasegate.workspace.git_cache import git_cached
from phasegate.workspace.refs import BRANCH_COPY_PREFIX, BRANCH_PREFIX
from phasegate.workspace.repository import Repository, read_refs
from phasegate.workspace.tree_diff import RAW_DIFF_OPTIONS, list_tree_entries

MAX_DIFF_CHARS = 4_000_000
_LOG_OPTIONS = ("-z", "--reverse", "--format=%H%x0a%B")


def commits_between(repository: Repository, old: str, new: str) -> list[Commit]:
    """Return the commits that `new` has and `old` does not, oldest first."""
    return _parse_commits(
        git_cached(repository.place(), "log", *_LOG_OPTIONS, f"{old}..{new}").stdout
    )


def _parse_commits(output: bytes) -> list[Commit]:
    entries = [
        entry.partition("\n")
        for entry in output.decode(errors="replace").split("\0")
        if entry.strip()
    ]
    return [Commit(commit, message.strip()) for commit, _, message in entries]


def diff_commits(repository: Repository, old: str, new: str) -> str:
    """Return the diff between two commits as text.

    A diff that is too long for a reviewer is truncated, with a notice.
    """
    arguments = (
        "diff-tree",
        "-r",
        "-p",
        "-M",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        old,
        new,
    )

    text = git(repository.place(), *arguments).stdout.decode(errors="replace")
    if len(text) <= MAX_DIFF_CHARS:
        return text

    return text[:MAX_DIFF_CHARS] + "\n[truncated]\n"


def list_blobs(
    repository: Repository, commit: str, *, include_links: bool = True
) -> dict[str, str]:
    """Return the files of a commit with their blob ids. Submodules are not listed."""
    left_out = (b"160000 ",) if include_links else (b"160000 ", b"120000 ")
    entries = (
        entry.partition(b"\t")
        for entry in list_tree_entries(repository, commit)
        if not entry.startswith(left_out)
    )
    return {os.fsdecode(path): about.split()[2].decode() for about, _, path in entries}


def list_merged_subjects(repository: Repository, branch: str, tip: str) -> list[str]:
    """Return the subjects of the commits in `tip` that a branch lacks, newest first.

    A merge counts as one commit.
    """
    shown = git(
        repository.place(), "log", "-z", "--first-parent", "--format=%s", f"{branch}..{tip}"
    ).stdout
    return [one for one in shown.decode(errors="replace").split("\0") if one.strip()]


def list_changed_paths(repository: Repository, base: str, head: str) -> list[str]:
    """Return the paths that `head` changed since it branched off from its base."""
    shown = git(
        repository.place(), "diff", "--name-only", "-z", "--no-renames", f"{base}...{head}"
    ).stdout
    return [path for path in os.fsdecode(shown).split("\0") if path]


def changed_paths_by_commit(repository: Repository, commits: Sequence[str]) -> dict[str, set[str]]:
    """Return the paths that each commit changed.

    For a merge, these are the paths that differ from all parents.
    """
    asked = "".join(f"{commit}\n" for commit in commits).encode()
    arguments = ("diff-tree", "--stdin", "--root", "--diff-merges=combined", *RAW_DIFF_OPTIONS)
    fields = iter(git(repository.place(), *arguments, stdin=asked).stdout.split(b"\0"))
    found: dict[str, set[str]] = {commit: set() for commit in commits}
    current: set[str] = set()

    for field in fields:
        if field.startswith(b":"):
            current.add(os.fsdecode(next(fields)))
        elif field:
            current = found.setdefault(field.decode(), set())

    return found


def find_commits_mentioning(
    repository: Repository, words: str, tip: str, since: str | None
) -> list[Commit]:
    """Return the commits up to `tip` whose message contains a text.

    With `since`, older commits are left out.
    """
    options = (*_LOG_OPTIONS, "--fixed-strings", f"--grep={words}")
    return _parse_commits(
        git(
            repository.place(), "log", *options, tip, *([f"^{since}"] if since else []), "--"
        ).stdout
    )


@lru_cache(maxsize=64)
def find_latest_user_commit(repository: Repository, start: str, slug: str) -> str | None:
    """Return the newest ancestor of `start` that is on a branch of the user, so no agent wrote it.

    Branches that Phasegate created do not count. Return None if no branch of the user has an
    ancestor of `start`. The result is cached per process: when a branch moves, more commits can
    become the user's, but none fewer.
    """
    own = f"{BRANCH_PREFIX}feat/{slug}"
    prefix = f"{BRANCH_PREFIX}feat/{slug}-"
    refs = read_refs(repository, BRANCH_PREFIX, BRANCH_COPY_PREFIX)
    made = {
        BRANCH_PREFIX + name.removeprefix(BRANCH_COPY_PREFIX)
        for name in refs
        if name.startswith(BRANCH_COPY_PREFIX)
    }
    branches = [name for name in refs if name.startswith(BRANCH_PREFIX) and name not in made]
    theirs = [refs[name] for name in branches if name != own and not name.startswith(prefix)]
    asked = "".join(
        f"{line}\n" for line in (start, *(f"^{commit}" for commit in dict.fromkeys(theirs)))
    ).encode()
    listed = git(
        repository.place(), "rev-list", "--first-parent", "--parents", "--stdin", stdin=asked
    ).stdout
    lines = listed.decode().split("\n")[:-1]
    if not lines:
        return start

    parents = lines[-1].split()[1:]
    if parents:
        return parents[0]

    return None
