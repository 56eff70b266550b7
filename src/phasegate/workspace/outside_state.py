"""What lies outside of a checkout: refs, the person's files, the parts of their git directory that steer it (D6.e).

Where a sandbox holds, nothing there can change. Where none does, this tells afterwards what changed while an agent ran.
It cannot tell who did it: the person, or another run, may have.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from phasegate.file_times import times_tell
from phasegate.rules.scope import Change, ChangeKind
from phasegate.workspace.repository import Repository, read_refs

Sight = Mapping[str, str]
_STEERING = ("config", "config.worktree", "HEAD", "hooks", "info", "objects/info")
_OURS = ("phasegate/git", "phasegate/git-as-asked")  # the git directories that our own git works with


def look_outside(
    repository: Repository,
    unwatched: Collection[str] = (".worktrees", ".phasegate", ".isdlc"),
    checkouts: Mapping[str, Path] | None = None,
) -> Sight:
    """The state of everything outside: cheap marks, and contents only where times do not tell what was written.

    `unwatched` are names in the root. `checkouts` are those of others, each with the name under which it is reported.
    """
    with_content = not times_tell(repository.root)
    found = {f"ref {name}": target for name, target in read_refs(repository).items()}
    for name in (*_STEERING, *_OURS):
        found.update(_marks(repository.common_dir / name, f".git/{name}", with_content))
    for entry in repository.root.iterdir():
        if entry.name != ".git" and entry.name not in unwatched:
            found.update(_marks(entry, entry.name, with_content))
    for name, folder in (checkouts or {}).items():
        found.update(_marks(folder, name, with_content))
    return found


def changed_outside(before: Sight, after: Sight, ours: Collection[str] = ()) -> list[Change]:
    """What differs between two looks, but for the refs (`refs/heads/feat/…`) that we moved ourselves."""
    mine = {f"ref {name}" for name in ours}
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return [Change(ChangeKind.OUTSIDE, name.removeprefix("ref ")) for name in names if name not in mine]


def _marks(path: Path, name: str, with_content: bool) -> Iterator[tuple[str, str]]:
    """A mark for each file at or below a path; folders have none, for they change whenever a file comes or goes.

    What cannot be looked at has a mark too: an agent may have gone too deep for any path.
    """
    pending = [(path, name)]
    while pending:
        path, name = pending.pop()
        try:
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode):
                pending += [(entry, f"{name}/{entry.name}") for entry in path.iterdir()]
                continue
            content = _digest(path) if with_content and stat.S_ISREG(about.st_mode) else ""
        except FileNotFoundError:
            continue
        except OSError:
            yield name, "cannot be looked at"
            continue
        times = f"{about.st_mtime_ns} {about.st_ctime_ns}"
        yield name, f"{about.st_mode} {about.st_ino} {about.st_size} {times} {content}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
