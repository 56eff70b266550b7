"""Writing a checkout: the files of a commit, and a git directory for the agent that nobody else relies on."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.workspace.git import Identity, git
from phasegate.workspace.repository import Repository, write_git_directory


class Seedling(NamedTuple):
    """What goes into an agent's git directory."""

    branch: str
    start: str
    agent: Identity
    refs: Mapping[str, str]  # tags and branches that it may see
    excluded: tuple[str, ...]  # what its own `git add -A` should leave out


def write_files(repository: Repository, folder: Path, index: Path, commit: str) -> None:
    """Bring a folder to the files of a commit. An index that describes the folder saves what is there already."""
    git(repository.place(index, folder), "read-tree", "--reset", "-u", commit)


def write_agents_git(repository: Repository, folder: Path, index: Path, seedling: Seedling) -> int:
    """Give a checkout its git directory, and return the time of its file system after all files were written.

    It reads the person's objects through `alternates` and shares nothing else: no refs, no configuration, no remotes.
    """
    git_dir = folder / ".git"
    git_dir.mkdir()
    write_git_directory(git_dir, repository.hash_name, _settings(seedling.agent))
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (git_dir / name).mkdir()
    (git_dir / "objects/info/alternates").write_text(f"{repository.objects}\n")
    refs = {**seedling.refs, f"refs/heads/{seedling.branch}": seedling.start}
    (git_dir / "packed-refs").write_text("".join(f"{refs[name]} {name}\n" for name in sorted(refs)))
    (git_dir / "HEAD").write_text(f"ref: refs/heads/{seedling.branch}\n")
    (git_dir / "info/exclude").write_text("".join(f"{line}\n" for line in seedling.excluded))
    if (repository.common_dir / "shallow").is_file():
        shutil.copyfile(repository.common_dir / "shallow", git_dir / "shallow")
    shutil.copyfile(index, git_dir / "index")
    return (git_dir / "index").stat().st_mtime_ns


def _settings(agent: Identity) -> str:
    name, email = (_quoted(part) for part in agent)
    return f"\tbare = false\n\tlogAllRefUpdates = true\n[user]\n\tname = {name}\n\temail = {email}\n[gc]\n\tauto = 0\n"


def _quoted(text: str) -> str:
    plain = "".join(character for character in text if character.isprintable())
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def object_stores(repository: Repository) -> list[Path]:
    """The folders that a checkout's git reads objects from: a cage must let an agent read them."""
    found: list[Path] = []
    waiting: Iterable[Path] = [repository.objects]
    for _ in range(6):  # git itself follows five
        found += waiting
        waiting = [store for folder in waiting for store in _alternates(folder) if store not in found]
    return found


def _alternates(objects: Path) -> list[Path]:
    try:
        lines = (objects / "info/alternates").read_text().splitlines()
    except OSError:
        return []
    return [(objects / line).resolve() for line in lines if line and not line.startswith("#")]
