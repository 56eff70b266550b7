"""Compare two commits: list the commits between them, the diff, and the files of a tree."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from phasegate.core.plan.commits import Commit
from phasegate.git import git
from phasegate.workspace.repository.git_cache import git_cached
from phasegate.workspace.repository.refs import BRANCH_COPY_PREFIX, BRANCH_PREFIX
from phasegate.workspace.repository.repository import Repository, read_refs
from phasegate.workspace.repository.tree_diff import RAW_DIFF_OPTIONS, list_tree_entries

MAX_DIFF_CHARS = 4_000_000
MAX_DIFF_PATHS = 1_000
# In the message of a feature's merge
_SPECIFICATION = re.compile(r"^Specification: \S*?(\d{3,}-[a-z0-9-]+)", re.M)
_LOG_OPTIONS = ("-z", "--reverse", "--format=%H%x0a%B")


def commits_between(repository: Repository, old: str, new: str) -> list[Commit]:
    """Return the commits that `new` has and `old` does not, oldest first."""
    return _parse_commits(
        git_cached(repository.place(), "log", *_LOG_OPTIONS, f"{old}..{new}").stdout
    )


class CommitTree(NamedTuple):
    """The tree and the parents of a commit."""

    tree: str
    parents: tuple[str, ...]


def read_commit_trees(repository: Repository, commits: Iterable[str]) -> dict[str, CommitTree]:
    """Return the tree and the parents of each commit."""
    arguments = ("log", "--no-walk=unsorted", "--format=%H %T %P", *dict.fromkeys(commits))
    lines = git(repository.place(), *arguments).stdout.decode().splitlines()
    fields = [line.split() for line in lines]
    return {commit: CommitTree(tree, tuple(parents)) for commit, tree, *parents in fields}


def _parse_commits(output: bytes) -> list[Commit]:
    entries = [
        entry.partition("\n")
        for entry in output.decode(errors="replace").split("\0")
        if entry.strip()
    ]
    return [Commit(commit, message.strip()) for commit, _, message in entries]


_DIFF_OPTIONS = ("-p", "-M", "--no-color", "--no-ext-diff", "--no-textconv")


def diff_commits(
    repository: Repository, old: str, new: str, paths: Sequence[str] | None = None
) -> str:
    """Return the diff between two commits as text, of all files or of some paths.

    A diff that is too long for a reviewer is truncated. Of too many paths, all files are shown.
    """
    return _read_diff(repository, ("diff-tree", "-r", *_DIFF_OPTIONS, old, new), paths)


def diff_changes(
    repository: Repository, base: str, new: str, paths: Sequence[str] | None = None
) -> str:
    """Return the diff of the changes on `new` since it left `base`, of all files or of some paths.

    It is limited like that of `diff_commits`.
    """
    return _read_diff(repository, ("diff", *_DIFF_OPTIONS, f"{base}...{new}"), paths)


def _read_diff(
    repository: Repository, arguments: tuple[str, ...], paths: Sequence[str] | None
) -> str:
    """Run git with the arguments and the paths, and truncate a long diff, with a notice.

    No paths give an empty diff. More paths than a command line can carry give that of all files.
    """
    if paths is not None and not paths:
        return ""

    selected = ("--", *paths) if paths and len(paths) <= MAX_DIFF_PATHS else ("--",)
    text = git(repository.place(), *arguments, *selected).stdout.decode(errors="replace")
    if len(text) <= MAX_DIFF_CHARS:
        return text

    return text[:MAX_DIFF_CHARS] + "\n[truncated]\n"


class FileStat(NamedTuple):
    """A changed file with the number of added and deleted lines; both are 0 for binary files."""

    path: str
    added: int
    deleted: int


def list_changed_files(repository: Repository, base: str, new: str) -> tuple[FileStat, ...]:
    """List the files that `new` changed since it left `base`, sorted by path."""
    arguments = ("diff", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv")
    output = git(repository.place(), *arguments, f"{base}...{new}").stdout
    entries = (entry.split("\t", 2) for entry in output.decode(errors="replace").split("\0"))
    return tuple(
        FileStat(
            path=fields[2],
            added=int(fields[0]) if fields[0].isdigit() else 0,
            deleted=int(fields[1]) if fields[1].isdigit() else 0,
        )
        for fields in entries
        if len(fields) == 3
    )


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
        repository.place(), "log", "-z", "--first-parent", "--format=%B", f"{branch}..{tip}"
    ).stdout
    messages = [one for one in shown.decode(errors="replace").split("\0") if one.strip()]
    return [_name_merged_feature(message) for message in messages]


def _name_merged_feature(message: str) -> str:
    """Return a commit's subject, prefixed with the feature's slug if the message names one."""
    subject = message.strip().partition("\n")[0]
    found = _SPECIFICATION.search(message)
    if found:
        return f"{found[1]}: {subject}"
    return subject


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


def list_recent_changes(repository: Repository, tip: str, max_commits: int) -> list[set[str]]:
    """Return the paths that each of the newest commits up to `tip` changed, without merges."""
    arguments = ("rev-list", "--no-merges", f"--max-count={max_commits}", tip)
    commits = git(repository.place(), *arguments).stdout.decode().split()
    return list(changed_paths_by_commit(repository, commits).values())


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
