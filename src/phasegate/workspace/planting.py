"""Writing a checkout: the files of a commit, and a git directory for the agent that nobody else relies on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from phasegate.file_times import times_tell
from phasegate.workspace.disk import opened_folder
from phasegate.workspace.git import Identity, git
from phasegate.workspace.removal import removal_room
from phasegate.workspace.repository import Repository, config_text, write_git_directory

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Seedling(NamedTuple):
    """What goes into an agent's git directory."""

    branch: str
    start: str
    agent: Identity
    refs: Mapping[str, str]  # tags and branches that it may see
    excluded: tuple[str, ...]  # what its own `git add -A` should leave out


def write_files(repository: Repository, folder: Path, index: Path, commit: str) -> None:
    """Fill an empty folder with the files of a commit."""
    git(repository.place(index, folder), "read-tree", "-m", "-u", commit)


def mend_files(repository: Repository, folder: Path, index: Path, lost: Sequence[str], old: str, new: str) -> None:
    """Bring a folder from one commit to another. Its index is true but for the lost files: only those are written."""
    place = repository.place(index, folder)
    if lost:
        names = b"".join(os.fsencode(path) + b"\0" for path in lost)
        git(place, "checkout-index", "--force", "--index", "-z", "--stdin", stdin=names)
    if old != new:
        git(place, "read-tree", "-m", "-u", old, new)


def write_agents_git(repository: Repository, folder: Path, index: Path, seedling: Seedling) -> int:
    """Give a checkout its git directory, and return the time of its file system after all files were written.

    The time is 0, which is before all others, where times do not tell what was written: then contents are compared.
    It reads the person's objects through `alternates` and shares nothing else: no refs, no configuration, no remotes.
    """
    git_dir = folder / ".git"
    git_dir.mkdir()
    write_git_directory(git_dir, repository.hash_name, _settings(seedling.agent))
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (git_dir / name).mkdir()
    (git_dir / "objects/info/alternates").write_bytes(b"%s\n" % os.fsencode(repository.objects))
    refs = {**seedling.refs, f"refs/heads/{seedling.branch}": seedling.start}
    (git_dir / "packed-refs").write_bytes(b"".join(os.fsencode(f"{refs[name]} {name}\n") for name in sorted(refs)))
    (git_dir / "HEAD").write_text(f"ref: refs/heads/{seedling.branch}\n")
    (git_dir / "info/exclude").write_text("".join(f"{line}\n" for line in seedling.excluded))
    if (repository.common_dir / "shallow").is_file():
        shutil.copyfile(repository.common_dir / "shallow", git_dir / "shallow")
    shutil.copyfile(index, git_dir / "index")
    return (git_dir / "index").stat().st_mtime_ns if times_tell(git_dir) else 0


def lay_file(folder: Path, name: str, text: str) -> None:
    """Put a file of ours into a folder that an agent may have written to: whatever lay under its name is gone first.

    A link there could lead our write to any file of the person, and a pipe could hold it up for ever.
    """
    with opened_folder(folder) as root:
        try:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=root)
        except OSError:  # a folder
            with removal_room(folder.parent) as room:
                room.take(root, name)
        with os.fdopen(os.open(name, _CREATE, 0o644, dir_fd=root), "w", encoding="utf-8") as file:
            file.write(text)


def agents_settings(repository: Repository, agent: Identity) -> str:
    """The text of the `config` that an agent's git directory gets."""
    return config_text(repository.hash_name, _settings(agent))


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
        lines = os.fsdecode((objects / "info/alternates").read_bytes()).split("\n")
    except OSError:
        return []
    return [(objects / line).resolve() for line in lines if line and not line.startswith("#")]
