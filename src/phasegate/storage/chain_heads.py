"""Heads of the domain chain, kept in the user's state directory: outside `.phasegate`, where no agent can write.

A step is announced here before the store commits it, and confirmed after. So after a crash the store ends either at
the confirmed head or at the announced one; anything else was not written by us. Lines of the file:

    phasegate-heads 1 <store id> <path of the git directory>
    announced <count> <hash>      made durable before the store commits
    confirmed <count> <hash>      the store has committed
    adopted <count> <hash>        there was no such file, so it begins here; the journal says so too
    anchored <count> <hash>       this head was also put into git
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from phasegate.core.audit.chain import Head
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.files.durable_write import cut_torn_line, make_folder, replace_file, write_all
from phasegate.storage.location import Location

COMPACT_BEYOND_BYTES = 1_000_000
_TAIL_BYTES = 4096
_WORDS = ("announced", "confirmed", "adopted", "anchored")


class Kept(NamedTuple):
    """What the file says: all confirmed heads, the announced one that was not confirmed, the last put into git."""

    confirmed: tuple[Head, ...]
    announced: Head | None
    anchored: Head | None
    adopted: bool  # begun at a store that was there already, which the journal does not say yet

    @property
    def ends(self) -> tuple[Head, ...]:
        """The heads in which the store may end."""
        return self.confirmed[-1:] + ((self.announced,) if self.announced else ())


def outside_folder(location: Location, store_id: str) -> Path:
    """The folder for what is kept outside. A copy of the repository elsewhere has one of its own."""
    place = sha256(os.fsencode(location.git_dir)).hexdigest()[:12]
    return location.state_home / "heads" / f"{store_id}.{place}"


class Heads:
    """The file of heads of one repository. Whoever writes holds the journal's lock."""

    def __init__(self, location: Location, store_id: str) -> None:
        self._location = location
        self._store_id = store_id
        self.folder = outside_folder(location, store_id)
        self.path = self.folder / "chain"

    def read(self) -> Kept | None:
        """What is kept; None if there is no such file. A file that we did not write is refused."""
        lines = self._lines(0)
        if lines is None:
            return None
        if not lines or not lines[0].startswith(f"phasegate-heads 1 {self._store_id} "):
            raise StateConflict(f"{self.path} is not a file of heads of this repository")
        return _kept([_parse(self.path, line) for line in lines[1:]], str(self.path))

    def ends(self) -> tuple[Head, ...]:
        """The heads in which the store may end, from the end of the file if that is enough."""
        last = [_parse(self.path, line) for line in (self._lines(_TAIL_BYTES) or [])[1:]]
        if any(word == "confirmed" for word, _ in last):
            return _kept(last, str(self.path)).ends
        kept = self.read()
        return kept.ends if kept else ()

    def _lines(self, from_end: int) -> list[str] | None:
        """The whole lines at the end of the file; the first may be cut. All lines for 0."""
        try:
            with self.path.open("rb") as file:
                if from_end:
                    file.seek(max(0, os.fstat(file.fileno()).st_size - from_end))
                text = file.read().decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise StateConflict(f"{self.path} holds what was not written here") from error
        except OSError as error:
            raise self._unusable(error) from error
        # A last line without an end was torn by a crash: it was not durable, so nothing was committed for it.
        return text.split("\n")[:-1]

    def begin(self, head: Head, *, adopted: bool) -> None:
        """Start the file at a head: of a new store, or of one that was there already."""
        try:
            make_folder(self.folder)
            self._rewrite([_line("adopted" if adopted else "confirmed", head)])
        except OSError as error:
            raise self._unusable(error) from error

    def announce(self, head: Head) -> None:
        """Say, durably, which head the store is about to have."""
        self._add(_line("announced", head), durable=True)

    def confirm(self, head: Head) -> None:
        """Say that the store has this head now. Need not be durable: the next announcement makes it so."""
        self._add(_line("confirmed", head), durable=False)

    def anchored(self, head: Head) -> None:
        """Say that git has this head too."""
        self._add(_line("anchored", head), durable=True)

    def _add(self, line: str, durable: bool) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                cut_torn_line(descriptor)
                write_all(descriptor, line.encode())
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._unusable(error) from error

    def compact(self) -> None:
        """Forget all but the last heads once the file is large."""
        if self.path.stat().st_size > COMPACT_BEYOND_BYTES and (kept := self.read()):
            furthest = max(kept.confirmed)
            last = [("confirmed", furthest), ("anchored", kept.anchored), ("announced", kept.announced)]
            self._rewrite([_line(word, head) for word, head in last if head])

    def _rewrite(self, lines: list[str]) -> None:
        first = f"phasegate-heads 1 {self._store_id} {str(self._location.git_dir)!r}\n"
        replace_file(self.path, "".join([first, *lines]).encode("utf-8", "backslashreplace"))

    def _unusable(self, error: OSError) -> EnvironmentUnavailable:
        return EnvironmentUnavailable(
            f"the audit heads in {self.folder} cannot be used: {error.strerror}",
            "set XDG_STATE_HOME to a folder that you can read and write",
        )


def _line(word: str, head: Head) -> str:
    return f"{word} {head.entries} {head.hash}\n"


def _parse(path: Path, line: str) -> tuple[str, Head]:
    word, _, rest = line.partition(" ")
    count, _, digest = rest.partition(" ")
    if word not in _WORDS or not count.isdecimal() or len(digest) != len(sha256().hexdigest()):
        raise StateConflict(f"{path} holds a line that was not written here")
    return word, Head(int(count), digest, str(path))


def _kept(lines: list[tuple[str, Head]], kept_in: str) -> Kept:
    confirmed = tuple(head for word, head in lines if word in ("confirmed", "adopted"))
    anchors = [head for word, head in lines if word == "anchored"]
    steps = [line for line in lines if line[0] != "anchored"]
    if not confirmed:
        raise StateConflict(f"{kept_in} holds no head")
    announced = steps[-1][1] if steps[-1][0] == "announced" else None
    adopted = not any(word == "confirmed" for word, _ in lines)
    return Kept(confirmed, announced, anchors[-1] if anchors else None, adopted)
