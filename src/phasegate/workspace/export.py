"""A tree written into an empty folder, for checks and for whoever must see exactly what was harvested.

Bytes are written as they are: no filter, no line ends, no keywords. A symbolic link that does not surely stay inside
the tree is left out and named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.core.paths.scope import link_problem
from phasegate.errors import StateConflict
from phasegate.git import Identity, Place, git
from phasegate.workspace.agent_git_writer import Seedling, write_agents_git
from phasegate.workspace.repository import NOBODY, Repository, read_blobs, read_refs, temporary_folder
from phasegate.workspace.submodules import fill_submodules
from phasegate.workspace.tree_diff import tree_entries


class Exported(NamedTuple):
    """A folder that holds a tree. `refused` are links that could lead out of it: they are not there."""

    folder: Path
    refused: tuple[str, ...]


def export(repository: Repository, tree: str, folder: Path, *, with_git: bool = False) -> Exported:
    """Write the files of a commit or tree into an empty folder.

    `with_git` gives it a git directory of its own, as builds that read their version from a tag need it; `tree` must
    be the id of a commit then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise StateConflict(f"{folder} is not empty", "export into a new folder")
    refused = _leaving_links(repository, tree)
    with temporary_folder(repository) as room:
        _write_files(repository.place(room / "index", folder), f"{tree}^{{commit}}" if with_git else tree, refused)
        fill_submodules(repository, tree, folder)
        if with_git:
            _give_git(repository, tree, folder, room / "index")
    return Exported(folder, refused)


def _write_files(place: Place, tree: str, but: Sequence[str]) -> None:
    if not but:
        git(place, "read-tree", "-m", "-u", tree)
        return
    git(place, "read-tree", tree)
    names = b"".join(os.fsencode(path) + b"\0" for path in but)
    git(place, "update-index", "--force-remove", "-z", "--stdin", stdin=names)
    git(place, "checkout-index", "--all", "--force", "-u")


def _give_git(repository: Repository, commit: str, folder: Path, index: Path) -> None:
    seedling = Seedling("checked", commit, Identity(*NOBODY), read_refs(repository, "refs/tags"), ())
    write_agents_git(repository, folder, index, seedling)


def _leaving_links(repository: Repository, tree: str) -> tuple[str, ...]:
    """The links of a tree that do not surely stay inside it."""
    links = [entry.partition(b"\t") for entry in tree_entries(repository, tree) if entry.startswith(b"120000 ")]
    ids = {os.fsdecode(path): about.split()[2].decode() for about, _, path in links}
    targets = read_blobs(repository.place(), ids.values())
    return tuple(path for path, one in ids.items() if link_problem(path, os.fsdecode(targets[one])) is not None)
