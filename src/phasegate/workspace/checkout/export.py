"""Write a tree into an empty folder, for checks and reviewers that must see exactly what was
harvested.

Files are written unchanged: without filters, line ending conversion or keywords. A symbolic link
that may lead out of the tree is not written but reported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.scope import find_link_problem
from phasegate.errors import StateConflict
from phasegate.git import GitPaths, Identity, git
from phasegate.workspace.checkout.agent_git_writer import AgentGitSpec, write_agent_git_dir
from phasegate.workspace.checkout.submodules import fill_submodules
from phasegate.workspace.repository.repository import (
    FALLBACK_IDENTITY,
    Repository,
    read_blobs,
    read_refs,
    temporary_folder,
)
from phasegate.workspace.repository.tree_diff import list_tree_entries


class ExportedTree(NamedTuple):
    """A folder with the files of a tree.

    `skipped_links` are links that could lead out of the folder and were not written.
    """

    folder: Path
    skipped_links: tuple[str, ...]


def export_tree(
    repository: Repository,
    tree: str,
    folder: Path,
    *,
    with_git: bool = False,
    hidden: Sequence[str] = (),
) -> ExportedTree:
    """Write the files of a commit or tree into an empty folder.

    `with_git` adds a git directory for builds that read their version from a tag; `tree` must then
    be a commit id. Files in `hidden` are not written, and git does not report them as deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise StateConflict(f"{folder} is not empty", "export into a new folder")

    refused = _find_escaping_links(repository, tree)
    with temporary_folder(repository) as room:
        _write_files(
            repository.place(room / "index", folder),
            f"{tree}^{{commit}}" if with_git else tree,
            refused,
            hidden,
        )
        fill_submodules(repository, tree, folder)
        if with_git:
            _write_git_dir(repository, tree, folder, room / "index")

    return ExportedTree(folder, refused)


def _write_files(
    place: GitPaths, tree: str, excluded: Sequence[str], hidden: Sequence[str]
) -> None:
    """Write a tree to the work tree, without excluded and hidden paths."""
    if not excluded and not hidden:
        git(place, "read-tree", "-m", "-u", tree)
        return

    git(place, "read-tree", tree)
    for option, paths in (("--force-remove", excluded), ("--skip-worktree", hidden)):
        names = b"".join(os.fsencode(path) + b"\0" for path in paths)
        git(place, "update-index", option, "-z", "--stdin", stdin=names)
    git(place, "checkout-index", "--all", "--force", "-u")


def _write_git_dir(repository: Repository, commit: str, folder: Path, index: Path) -> None:
    seedling = AgentGitSpec(
        branch="checked",
        start=commit,
        agent=Identity(*FALLBACK_IDENTITY),
        refs=read_refs(repository, "refs/tags"),
        excluded=(),
    )

    write_agent_git_dir(repository, folder, index, seedling)


def _find_escaping_links(repository: Repository, tree: str) -> tuple[str, ...]:
    """Return the links of a tree that may lead out of it."""
    links = [
        entry.partition(b"\t")
        for entry in list_tree_entries(repository, tree)
        if entry.startswith(b"120000 ")
    ]
    ids = {os.fsdecode(path): about.split()[2].decode() for about, _, path in links}
    targets = read_blobs(repository.place(), ids.values())

    return tuple(
        path
        for path, one in ids.items()
        if find_link_problem(path, os.fsdecode(targets[one])) is not None
    )
