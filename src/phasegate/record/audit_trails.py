"""The trails in `audit verify`: a closed one against its seal in the journal, an open one against the log outside."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.record.location import Location
from phasegate.record.rows import Seal
from phasegate.record.trail_files import Key, read_trail
from phasegate.record.trail_log import OpenTrail, log_files, read_log
from phasegate.rules.trail import Reading, hash_of_line, origin, read_lines
from phasegate.rules.visible_text import visible


class Problem(msgspec.Struct, frozen=True):
    """Something that is not as it was written: where, and why."""

    where: str
    why: str


class Findings:
    """Problems and notes, in the order in which they are to be read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def add(self, where: str, why: str) -> None:
        self.problems.append(Problem(where, why))

    def add_first(self, where: str, why: str) -> None:
        self.problems.insert(0, Problem(where, why))

    def note(self, text: str) -> None:
        self.notes.append(text)


class Seen(NamedTuple):
    """What there was before the journal was read: files of trails, what is none, and the open trails in the logs."""

    files: dict[Key, Reading]
    strangers: tuple[Path, ...]
    open_trails: dict[Key, OpenTrail]


def look_at_trails(location: Location, outside: Path) -> Seen:
    """What the files of trails hold, and then which trails are open.

    In this order, and before the journal is read: so a file that no log holds has its seal in the journal already,
    even while others write.
    """
    files, strangers = {}, []
    for folder, folders, names in os.walk(location.trails):
        here = Path(folder)
        for path in (here / name for name in names + (folders if here != location.trails else [])):
            if here.parent == location.trails and path.suffix == ".jsonl" and stat.S_ISREG(path.lstat().st_mode):
                key = here.name, path.stem
                files[key] = read_lines(read_trail(path), origin(*key))
            else:
                strangers.append(path)
    open_trails = [trail for path in log_files(outside) for trail in read_log(path)]
    return Seen(files, tuple(strangers), {(trail.feature, trail.job): trail for trail in open_trails})


def check_trails(
    location: Location, seen: Seen, seals: Mapping[Key, Seal], ended: AbstractSet[Key], findings: Findings
) -> None:
    """Check every trail that was seen, and every one that the journal or a log knows. `ended` are jobs."""
    for path in seen.strangers:
        findings.add(visible(str(path.relative_to(location.folder))), "is not a trail")
    for key in sorted(seen.files.keys() | seals.keys() | seen.open_trails.keys()):
        _check(key, seen.files.get(key), seals.get(key), seen.open_trails.get(key), findings)
    for key in sorted(ended - seals.keys() - seen.open_trails.keys()):
        findings.note(f"job {'/'.join(key)} has no trail: its process died too early, or the log outside was lost")


def _check(key: Key, file: Reading | None, seal: Seal | None, open_: OpenTrail | None, findings: Findings) -> None:
    """A trail that was closed, and perhaps opened again, is as its seal says; or as it is exported for the next one."""
    if open_ and (broken := read_lines(open_.content, origin(*key)).broken):
        findings.add(_name(key, broken.position), f"{broken.why}, in the log outside")
    elif file and open_ and _is_exported(file, open_, seal):
        return
    elif seal:
        check_sealed(key, file, seal, findings)
    elif file and open_:
        line = file.broken.position if file.broken else min(file.lines, len(open_.lines)) + 1
        findings.add(_name(key, line), "was not written here: the log outside holds the trail")
    elif file:
        findings.add(_name(key, 1), "was added: neither the journal nor the log outside has such a trail")


def _is_exported(file: Reading, open_: OpenTrail, seal: Seal | None) -> bool:
    """Whether a file holds the first lines of an open trail, and at least those that were sealed."""
    if file.broken or file.torn_bytes or not (seal.lines if seal else 0) <= file.lines <= len(open_.lines):
        return False
    return not file.lines or hash_of_line(open_.lines[file.lines - 1]) == file.hash


def _name(key: Key, line: int) -> str:
    return f"trail {visible('/'.join(key))} line {line}"


def check_sealed(key: Key, file: Reading | None, seal: Seal, findings: Findings) -> None:
    """A closed trail is exactly as its seal says."""
    if not seal.witnessed:
        findings.note(f"trail {'/'.join(key)} was closed after its log outside was lost; until then it is unwitnessed")
    if file is None:
        findings.add(_name(key, 1), f"is missing: the journal says that there are {seal.lines} lines")
    elif file.broken:
        findings.add(_name(key, file.broken.position), file.broken.why)
    elif file.lines < seal.lines:
        findings.add(_name(key, file.lines + 1), f"is missing: the journal says that there are {seal.lines} lines")
    elif file.lines > seal.lines or file.torn_bytes:
        findings.add(_name(key, seal.lines + 1), "was added after the trail was closed")
    elif file.hash != seal.hash:
        findings.add(_name(key, seal.lines), "is not the one that was written: its hash differs from the journal")
