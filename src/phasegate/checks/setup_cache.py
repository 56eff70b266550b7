"""What a project's setup command made, kept for the next checkout with the same command and lock files.

Only trees that no agent has just written fill the cache: a setup runs code of the tree, and could leave anything behind
for those who come after. A virtual environment holds the path of its checkout, so the path is part of the key.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from phasegate.checks.snapshot import Snapshot, take_snapshot

# Besides lock files: what a setup command reads to decide what to install.
MANIFESTS = frozenset(
    (
        *(
            "package.json",
            ".npmrc",
            ".yarnrc.yml",
            "pnpm-workspace.yaml",
            "Cargo.toml",
            "rust-toolchain.toml",
            "rust-toolchain",
        ),
        *("go.mod", "go.work", "pyproject.toml", "setup.py", "setup.cfg", "Pipfile", ".python-version", ".nvmrc"),
        *(".node-version", ".tool-versions", "Makefile", "makefile", "GNUmakefile", "justfile"),
    )
)
KEPT_AT_MOST = 8
_WORD = re.compile(r"[^\s;&|()<>'\"`=]+")


def key_of(command: str, checkout: Path, before: Snapshot, lock_files: Iterable[str]) -> str:
    """A name for the result of this command on this tree: any change in what it reads gives another.

    A file that the command names is run by it: what another version of it made is another result.
    """
    names, words = MANIFESTS | frozenset(lock_files), _paths_in(command)
    asked = sorted(path for path in before if _is_read(path, names, words))
    digest = sha256()
    for part in (command, str(checkout), sys.platform, os.uname().machine, *asked):
        digest.update(b"%d:%s" % (len(os.fsencode(part)), os.fsencode(part)))
    for path in asked:
        digest.update(_content_digest(checkout / path))
    return digest.hexdigest()


def _is_read(path: str, names: frozenset[str], words: frozenset[str]) -> bool:
    return _name(path) in names or _is_requirements(_name(path)) or path in words


def _paths_in(command: str) -> frozenset[str]:
    """The words of a command line, as paths from the root, whatever stands around them."""
    return frozenset(word.removeprefix("./") for word in _WORD.findall(command))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_requirements(name: str) -> bool:
    return name.startswith("requirements") and name.endswith((".txt", ".in"))


def _content_digest(path: Path) -> bytes:
    if path.is_symlink():
        return sha256(os.fsencode(path.readlink())).digest()
    return sha256(path.read_bytes()).digest()


class SetupCache:
    """A folder of results. An entry appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def restore(self, key: str, checkout: Path) -> bool:
        """Copy a result into a checkout; False if there is none, or if something stands in its way.

        A copy, so that nothing done to it comes back. What the tree brought may be a link to anywhere, so only what is
        not there yet is made.
        """
        entry = self._folder / key
        if not entry.is_dir():
            return False
        pairs = [*_to_copy(entry, checkout)]
        if any(os.path.lexists(target) for _, target in pairs):
            return False
        for source, target in pairs:
            _copy(source, target)
        os.utime(entry)  # used now: the entries that were not go first
        return True

    def keep(self, key: str, checkout: Path, before: Snapshot) -> None:
        """Copy what a setup added to a checkout."""
        draft = self._folder / f".{uuid4().hex}"
        draft.mkdir(parents=True)
        try:
            for path in _tops(before, take_snapshot(checkout)):
                _copy(checkout / path, draft / path)
            draft.rename(self._folder / key)
        except OSError:  # no room, or another run was faster: the cache is a help, not a need
            shutil.rmtree(draft, ignore_errors=True)
        self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        entries = [entry for entry in self._folder.iterdir() if not entry.name.startswith(".")]
        for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime)[:-KEPT_AT_MOST]:
            shutil.rmtree(entry, ignore_errors=True)


def _tops(before: Snapshot, after: Snapshot) -> list[str]:
    """The topmost folders and files that are there now and were not before."""
    known = {"", *(parent for path in before for parent in _folders(path))}
    return sorted({_top(path, known) for path in after if path not in before})


def _folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _top(path: str, known: set[str]) -> str:
    return next((folder for folder in _folders(path) if folder not in known), path)


def _to_copy(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """What of `source` is to be put where: folders that both have are gone into, links are not."""
    for child in source.iterdir():
        there = target / child.name
        if _is_folder(child) and _is_folder(there):
            yield from _to_copy(child, there)
        else:
            yield child, there


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if _is_folder(source):
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)
