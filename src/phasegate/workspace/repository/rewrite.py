"""Copy the history of a feature's branch without the files that are not delivered.

The copy has new commits with the same authors, dates and messages. A commit that changed nothing
else is left out. The original branch is not moved. The same input always gives the same commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from phasegate.git import Identity, git
from phasegate.workspace.repository.git_cache import git_cached
from phasegate.workspace.repository.objects import Signature, write_tree_commit
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import Repository, is_ancestor, read_refs
from phasegate.workspace.repository.tree_diff import resolve_tree

# The branch of a merged feature, with all of its documents
ORIGINAL_PREFIX = "refs/phasegate/features/"
# The commit that was merged, or is offered for a merge
DELIVERED_PREFIX = "refs/phasegate/delivered/"
# A commit whose parents are the original and the copy that a pull request has
PUBLISHED_PREFIX = "refs/phasegate/published/"
_KEPT_HEADERS = (b"author ", b"committer ", b"encoding ")


class _Entry(NamedTuple):
    """An entry of a tree: mode, type and id as in `git ls-tree`."""

    about: bytes
    name: bytes

    @property
    def object_id(self) -> str:
        return self.about.split()[2].decode()

    @property
    def is_tree(self) -> bool:
        return self.about.split()[1] == b"tree"


def read_original_head(repository: Repository, slug: str) -> str:
    """Return the last commit of a feature's branch, even if it was merged and deleted."""
    names = (f"{BRANCH_PREFIX}feat/{slug}", ORIGINAL_PREFIX + slug)
    refs = read_refs(repository, *names)
    return next((refs[name] for name in names if name in refs), "")


def rewrite_history(
    repository: Repository,
    head: str,
    excluded: Collection[str],
    pinned_paths: Iterable[str],
    reference: str,
    known: Mapping[str, str],
) -> str:
    """Return the head of a copy in which the pinned paths are as in the reference commit.

    Commits that are reachable from `excluded` are not copied. `known` maps commits to copies that
    were published before.
    """
    listed = git(
        repository.place(),
        "log",
        "--topo-order",
        "--reverse",
        "--format=%H %T %P",
        head,
        *(f"^{commit}" for commit in (*excluded, *known)),
        "--",
    ).stdout
    commits = [line.split() for line in listed.decode().splitlines()]
    trees = {tree: tree for _, tree, *_ in commits}

    pinned = pin_paths(repository, trees.values(), pinned_paths, reference)
    trees = {tree: pinned[tree] for tree in trees}
    copies = dict(known)

    for commit, old_tree, *old_parents in commits:
        parents = [*dict.fromkeys(copies.get(parent, parent) for parent in old_parents)]
        tree = trees[old_tree]
        if parents and _adds_nothing(repository, tree, parents):
            copies[commit] = parents[0]
        else:
            copies[commit] = _copy_commit(repository, commit, tree, parents)

    return copies.get(head, head)


def pin_paths(
    repository: Repository, trees: Iterable[str], paths: Iterable[str], reference: str
) -> dict[str, str]:
    """Return for each tree the tree in which these paths are as in the reference commit."""
    found = {tree: tree for tree in trees}
    for path in paths:
        entry = _find_entry(repository, reference, path)
        changed = _set_entry(repository, set(found.values()), path, entry)
        found = {tree: changed[now] for tree, now in found.items()}
    return found


def put_files(repository: Repository, tree: str, files: Mapping[str, str]) -> str:
    """Return the tree with these files, given by path with their blob ids."""
    for path, object_id in files.items():
        entry = f"100644 blob {object_id}".encode()
        changed = _set_entry(repository, [tree], path, entry)
        tree = changed[tree]

    return tree


def add_files(
    repository: Repository, parent: str, files: Mapping[str, str], message: str, dated: str
) -> str:
    """Return a commit that adds or replaces files, with the committer and date of `dated`."""
    before = resolve_tree(repository.place(), parent)
    tree = put_files(repository, before, files)
    if tree == before:
        return parent

    shown = git_cached(repository.place(), "log", "-1", "--format=%cn%x00%ce%x00%ct", dated)
    name, email, when = shown.stdout.decode(errors="replace").strip("\n").split("\0")
    signature = Signature(Identity(name, email), int(when))
    return write_tree_commit(repository, tree, (parent,), signature, message)


def find_path(repository: Repository, commit: str, path: str) -> str:
    """Return the id of the file or folder at a path of a commit; empty if there is none."""
    entry = _find_entry(repository, commit, path)
    return entry.split()[2].decode() if entry else ""


def _adds_nothing(repository: Repository, tree: str, parents: list[str]) -> bool:
    if resolve_tree(repository.place(), parents[0]) != tree:
        return False
    return all(is_ancestor(repository, other, parents[0]) for other in parents[1:])


def _copy_commit(repository: Repository, commit: str, tree: str, parents: list[str]) -> str:
    """Write a commit with another tree and other parents. A signature would be wrong: it is left
    out.
    """
    raw = git_cached(repository.place(), "cat-file", "commit", commit).stdout
    head, _, message = raw.partition(b"\n\n")
    kept = [line for line in head.split(b"\n") if line.startswith(_KEPT_HEADERS)]

    lines = [f"tree {tree}".encode()]
    for parent in parents:
        lines.append(f"parent {parent}".encode())

    data = b"\n".join((*lines, *kept)) + b"\n\n" + message
    arguments = ("hash-object", "-t", "commit", "-w", "--stdin")
    return git(repository.place(), *arguments, stdin=data).stdout.decode().strip()


def _list_entries(repository: Repository, tree: str) -> list[_Entry]:
    shown = git_cached(repository.place(), "ls-tree", "-z", "--full-tree", tree).stdout
    parts = (record.partition(b"\t") for record in shown.split(b"\0") if record)
    return [_Entry(about, name) for about, _, name in parts]


def _find_entry(repository: Repository, commit: str, path: str) -> bytes | None:
    tree = resolve_tree(repository.place(), commit)
    *folders, name = path.encode().split(b"/")
    for folder in folders:
        found = [one for one in _list_entries(repository, tree) if one.name == folder]
        if not found or not found[0].is_tree:
            return None
        tree = found[0].object_id

    return next((one.about for one in _list_entries(repository, tree) if one.name == name), None)


def _set_entry(
    repository: Repository, trees: Collection[str], path: str, entry: bytes | None
) -> dict[str, str]:
    """Return for each tree the tree with this entry at a path; None removes it.

    A folder that has no entries left is removed too.
    """
    first, _, rest = path.partition("/")
    name = first.encode()
    listed = {tree: _list_entries(repository, tree) for tree in trees}
    subtrees = {}

    for tree, entries in listed.items():
        for one in entries:
            if one.name == name and one.is_tree:
                subtrees[tree] = one.object_id

    new: dict[str, bytes | None] = dict.fromkeys(trees, entry)

    if rest:
        # A path below a new folder starts from an empty tree
        empty = _write_trees(repository, [[]])[0]
        below = {tree: subtrees.get(tree, empty) for tree in trees}
        changed = _set_entry(repository, set(below.values()), rest, entry)

        for tree, subtree in below.items():
            new[tree] = None
            if changed[subtree] != empty:
                new[tree] = f"040000 tree {changed[subtree]}".encode()

    contents = []

    for tree, about in new.items():
        entries = [one for one in listed[tree] if one.name != name]
        if about:
            entries.append(_Entry(about, name))
        contents.append(entries)

    written = _write_trees(repository, contents)
    return dict(zip(new, written, strict=True))


def _write_trees(repository: Repository, contents: Iterable[list[_Entry]]) -> list[str]:
    """Write trees with one git process."""
    records = b"".join(
        b"".join(b"%s\t%s\0" % entry for entry in entries) + b"\0" for entries in contents
    )
    written = git(repository.place(), "mktree", "-z", "--batch", stdin=records).stdout
    return written.decode().split()
