"""The git directory in an agent's checkout: written for the agent alone, and made harmless after its run.

Our own git never works with it. A person's would, who stands in the checkout: settings, hooks and a directory in the
place of another can name programs that a plain `git status`, or the prompt of a shell, runs outside of every cage.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.files.file_times import times_tell
from phasegate.git import Identity
from phasegate.workspace.agent_git_reader import fingerprint
from phasegate.workspace.checkout import Checkout, opened_root
from phasegate.workspace.removal import lay_file, removal_room
from phasegate.workspace.repository import Repository, config_text, write_git_directory

_CONFIG = ".git/config"
_ARMED = (".git", _CONFIG, *(f".git/{name}" for name in ("config.worktree", "commondir", "hooks", "modules")))


class Seedling(NamedTuple):
    """What goes into an agent's git directory."""

    branch: str
    start: str
    agent: Identity
    refs: Mapping[str, str]  # tags and branches that it may see
    excluded: tuple[str, ...]  # what its own `git add -A` should leave out


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


def agents_settings(repository: Repository, agent: Identity) -> str:
    """The text of the `config` that an agent's git directory gets."""
    return config_text(repository.hash_name, _settings(agent))


def _settings(agent: Identity) -> str:
    name, email = (_quoted(part) for part in agent)
    return f"\tbare = false\n\tlogAllRefUpdates = true\n[user]\n\tname = {name}\n\temail = {email}\n[gc]\n\tauto = 0\n"


def _quoted(text: str) -> str:
    plain = "".join(character for character in text if character.isprintable())
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def disarm(checkout: Checkout, agent: Identity) -> tuple[str, ...]:
    """Take out what could make a git run something, if it is not as we left it; the names of what was. Commits stay."""
    ours = checkout.record.git_files
    with opened_root(checkout.record) as root:
        now = fingerprint(root, checkout.repository.hash_name)
        changed = tuple(path for path in _ARMED if now.get(path) != ours.get(path))
        if changed:
            with removal_room(checkout.folder.parent) as room:
                for path in changed:
                    room.take_beneath(root, path)
                if _CONFIG in changed and not _is_set(checkout, agent):
                    room.take_beneath(root, ".git")
    return changed


def _is_set(checkout: Checkout, agent: Identity) -> bool:
    """Write our settings anew; False if there is no place for them."""
    try:
        lay_file(checkout.folder / ".git", "config", agents_settings(checkout.repository, agent))
    except OSError:
        return False
    return True


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
