"""Heads of the journal's hash chain, kept in the user's state directory.

The hash of a journal entry covers the hash of the entry before it, so the hash of the last entry
(the head) covers the whole journal. `core/audit/chain.py` computes the hashes. The heads are stored
outside `.phasegate`, where no agent can write.

A step is announced here before the store commits it, and confirmed after. So after a crash the
store ends either at the confirmed head or at the announced one; anything else was not written by
Phasegate. Lines of the file:

    phasegate-heads 1 <store id> <path of the git directory>
    announced <count> <hash>      made durable before the store commits
    confirmed <count> <hash>      the store has committed
    adopted <count> <hash>        the file was missing and starts here; the journal records that too
    anchored <count> <hash>       this head was also anchored in git
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from phasegate.core.audit.chain import ChainHead
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.files.durable_write import make_folder, replace_file, truncate_torn_line, write_all
from phasegate.storage.location import Location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from phasegate.storage.reader import StoreReader

COMPACT_THRESHOLD_BYTES = 1_000_000
_TAIL_BYTES = 4096
_LINE_KINDS = ("announced", "confirmed", "adopted", "anchored")


class RecordedHeads(NamedTuple):
    """The parsed content of the file.

    It has the confirmed heads, an announced head that was not confirmed, and the last anchored
    head.
    """

    confirmed: tuple[ChainHead, ...]
    announced: ChainHead | None
    anchored: ChainHead | None
    # True if the file was started for an existing store, and the journal does not record that yet
    is_adoption_pending: bool

    @property
    def possible_ends(self) -> tuple[ChainHead, ...]:
        """The chain heads that the end of the store may match."""
        return self.confirmed[-1:] + ((self.announced,) if self.announced else ())


def get_heads_folder(location: Location, store_id: str) -> Path:
    """Return the folder for the chain heads of a repository.

    A copy of the repository at another path has its own folder.
    """
    place = sha256(os.fsencode(location.git_dir)).hexdigest()[:12]
    return location.state_home / "heads" / f"{store_id}.{place}"


class ChainHeadsFile:
    """The chain heads of one repository. Writers must hold the journal's lock."""

    def __init__(self, location: Location, store_id: str) -> None:
        self._location = location
        self._store_id = store_id
        self.folder = get_heads_folder(location, store_id)
        self.path = self.folder / "chain"

    def read(self) -> RecordedHeads | None:
        """Return the recorded heads, or None if there is no file.

        Raise an error if the file belongs to another repository.
        """
        lines = self._read_lines(0)
        if lines is None:
            return None
        if not lines or not lines[0].startswith(f"phasegate-heads 1 {self._store_id} "):
            raise StateConflict(f"{self.path} is not the chain head file of this repository")

        return _collect_heads([_parse_line(self.path, line) for line in lines[1:]], str(self.path))

    def read_possible_ends(self) -> tuple[ChainHead, ...]:
        """Return the chain heads that the end of the store may match.

        Only the end of the file is read, if that suffices.
        """
        last = [_parse_line(self.path, line) for line in (self._read_lines(_TAIL_BYTES) or [])[1:]]
        if any(word == "confirmed" for word, _ in last):
            return _collect_heads(last, str(self.path)).possible_ends

        kept = self.read()
        if kept:
            return kept.possible_ends

        return ()

    def _read_lines(self, tail_bytes: int) -> list[str] | None:
        """Return the lines in the last `tail_bytes` of the file, or all lines if it is 0.

        An incomplete last line is dropped. If only the tail is read, the first line may be
        incomplete.
        """
        try:
            with self.path.open("rb") as file:
                if tail_bytes:
                    file.seek(max(0, os.fstat(file.fileno()).st_size - tail_bytes))

                text = file.read().decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise StateConflict(
                f"{self.path} contains data that Phasegate did not write"
            ) from error
        except OSError as error:
            raise self._unusable_error(error) from error

        # An incomplete last line was interrupted by a crash: it was not durable, so nothing was
        # committed for it.
        return text.split("\n")[:-1]

    def create(self, head: ChainHead, *, adopted: bool) -> None:
        """Create the file, starting at the head of a new or (`adopted`) an existing store."""
        try:
            make_folder(self.folder)
            self._rewrite([_format_line("adopted" if adopted else "confirmed", head)])
        except OSError as error:
            raise self._unusable_error(error) from error

    def announce(self, head: ChainHead) -> None:
        """Record durably which head the store will have after the next commit."""
        self._append_line(_format_line("announced", head), durable=True)

    def confirm(self, head: ChainHead) -> None:
        """Record that the store has this head.

        The entry is not synced; the next announcement syncs it.
        """
        self._append_line(_format_line("confirmed", head), durable=False)

    def confirm_anchored(self, head: ChainHead) -> None:
        """Record that this head was also anchored in git."""
        self._append_line(_format_line("anchored", head), durable=True)

    def _append_line(self, line: str, durable: bool) -> None:
        """Append a line, after removing a torn one; flush it to disk if `durable`."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                truncate_torn_line(descriptor)
                write_all(descriptor, line.encode())
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._unusable_error(error) from error

    def compact(self) -> None:
        """Remove all but the last heads if the file is large."""
        try:
            size = self.path.stat().st_size
        except OSError as error:
            raise self._unusable_error(error) from error

        if size > COMPACT_THRESHOLD_BYTES and (kept := self.read()):
            furthest = max(kept.confirmed)
            last = [
                ("confirmed", furthest),
                ("anchored", kept.anchored),
                ("announced", kept.announced),
            ]
            self._rewrite([_format_line(word, head) for word, head in last if head])

    def _rewrite(self, lines: list[str]) -> None:
        first = f"phasegate-heads 1 {self._store_id} {str(self._location.git_dir)!r}\n"
        replace_file(self.path, "".join([first, *lines]).encode("utf-8", "backslashreplace"))

    def _unusable_error(self, error: OSError) -> EnvironmentUnavailable:
        return EnvironmentUnavailable(
            f"cannot use the chain heads in {self.folder}: {error.strerror}",
            "if the folder was removed, run the command again: the heads are recreated, and "
            "the journal records it; otherwise set XDG_STATE_HOME to a folder that you can write",
        )


def refuse_foreign_store(reader: StoreReader) -> None:
    """Raise StateConflict for a store with entries that nothing outside of `.phasegate` knows.

    Such a store came with the repository: its features, verdicts and approvals are planted.
    """
    location = reader.location
    heads = get_heads_folder(location, reader.store_id) / "chain"
    if location.fleet_copy is not None or heads.exists() or not reader.chain_head().entries:
        return

    # Imported here: `status` is fast, and this case is rare
    from phasegate.storage.git_anchor import ANCHOR_REF, read_anchor

    if read_anchor(location.git_dir) is None:
        raise StateConflict(
            f"the record {location.store_path} was not created in this clone: "
            f"neither {heads} nor {ANCHOR_REF} of this repository knows it",
            "remove .phasegate; if the record is yours, fetch its anchor from the clone that made "
            f"it: git fetch CLONE {ANCHOR_REF}:{ANCHOR_REF}",
        )


def _format_line(kind: str, head: ChainHead) -> str:
    return f"{kind} {head.entries} {head.hash}\n"


def _parse_line(path: Path, line: str) -> tuple[str, ChainHead]:
    word, _, rest = line.partition(" ")
    count, _, digest = rest.partition(" ")
    if word not in _LINE_KINDS or not count.isdecimal() or len(digest) != len(sha256().hexdigest()):
        raise StateConflict(f"{path} contains a line that Phasegate did not write")
    return word, ChainHead(int(count), digest, str(path))


def _collect_heads(lines: list[tuple[str, ChainHead]], source: str) -> RecordedHeads:
    """Return the heads that the lines of the file record."""
    confirmed = tuple(head for word, head in lines if word in ("confirmed", "adopted"))
    anchors = [head for word, head in lines if word == "anchored"]
    steps = [line for line in lines if line[0] != "anchored"]
    if not confirmed:
        raise StateConflict(f"{source} contains no chain head")

    if steps[-1][0] == "announced":
        announced = steps[-1][1]
    else:
        announced = None

    adopted = not any(word == "confirmed" for word, _ in lines)
    return RecordedHeads(confirmed, announced, anchors[-1] if anchors else None, adopted)
