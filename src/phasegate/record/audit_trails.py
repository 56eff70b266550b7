"""The trails in `audit verify`: each against its end in the journal, or, while unfinished, against the log outside."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

from phasegate.record.finding import Findings
from phasegate.record.location import Location
from phasegate.record.lock import is_held
from phasegate.record.recovery import Key, key_of, read_spool, read_trail, spool_files
from phasegate.record.rows import Seal
from phasegate.record.spool import Spooled, compare
from phasegate.record.trails import trail_path
from phasegate.rules.trail import origin, read_lines
from phasegate.rules.visible_text import visible


class Seen(NamedTuple):
    """What there was before the journal was read: trails, logs with the trails they hold, and what is neither."""

    files: frozenset[Key]
    strangers: tuple[Path, ...]
    spools: dict[Path, frozenset[Key]]


def look_at_trails(location: Location, outside: Path) -> Seen:
    """Which trails there are, and then which of them are unfinished.

    In this order, and before the journal is read: so a trail that no log holds has its end in the journal already, even
    while others write.
    """
    files, strangers = set(), []
    for folder, folders, names in os.walk(location.trails):
        here = Path(folder)
        for path in (here / name for name in names + (folders if here != location.trails else [])):
            if here.parent == location.trails and path.suffix == ".jsonl" and stat.S_ISREG(path.lstat().st_mode):
                files.add((here.name, path.stem))
            else:
                strangers.append(path)
    spools = {path: frozenset(map(key_of, read_spool(path))) for path in spool_files(outside)}
    return Seen(frozenset(files), tuple(strangers), spools)


def check_trails(
    location: Location, seen: Seen, seals: Mapping[Key, Seal], jobs: AbstractSet[Key], findings: Findings
) -> None:
    """Check every trail that was seen, and every one that the journal or a log knows."""
    for path in seen.strangers:
        findings.add(visible(str(path.relative_to(location.folder))), "is no trail")
    for seal in seals.values():
        _check_sealed(location, seal, findings)
    for path, keys in seen.spools.items():
        _check_unfinished(location, path, keys - seals.keys(), findings)
    for key in sorted(seen.files.difference(seals, *seen.spools.values())):
        why = "cannot be checked: the log outside holds no such trail" if key in jobs else "was added: no such job"
        findings.add(_name(key, 1), why)


def _name(key: Key, line: int) -> str:
    return f"trail {visible('/'.join(key))} line {line}"


def _check_sealed(location: Location, seal: Seal, findings: Findings) -> None:
    key = seal.feature, seal.job
    if not seal.witnessed:
        findings.note(f"trail {'/'.join(key)} was closed after its log outside was lost; until then it is unwitnessed")
    path = trail_path(location, *key)
    reading = read_lines(read_trail(path), origin(*key))
    if reading.broken:
        findings.add(_name(key, reading.broken.position), reading.broken.why)
    elif reading.lines < seal.lines or not path.is_file():
        findings.add(_name(key, reading.lines + 1), f"is missing: the journal says that there are {seal.lines} lines")
    elif reading.lines > seal.lines or reading.torn_bytes:
        findings.add(_name(key, seal.lines + 1), "was added after the trail was closed")
    elif reading.hash != seal.hash:
        findings.add(_name(key, seal.lines), "is not the one that was written: its hash differs from the journal")


def _check_unfinished(location: Location, path: Path, keys: AbstractSet[Key], findings: Findings) -> None:
    """A trail is never ahead of its log: so it is read first, and the log after it."""
    alive = _is_alive(path)
    trails = {key: read_trail(trail_path(location, *key)) for key in keys}
    for spooled in read_spool(path):
        trail = trails.get(key_of(spooled))
        if trail is None:
            continue
        if alive and len(trail) < spooled.base.bytes:  # the log was begun anew in between
            trail = read_trail(trail_path(location, *key_of(spooled)))[: spooled.base.bytes + len(spooled.added)]
        _check_open(trail, spooled, alive, findings)


def _is_alive(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True  # its process ends in this very moment
    try:
        return is_held(descriptor)
    finally:
        os.close(descriptor)


def _check_open(trail: bytes, spooled: Spooled, alive: bool, findings: Findings) -> None:
    """An unfinished trail may lack the last batch if its process died, and must lack nothing else."""
    key = key_of(spooled)
    whole_bytes, torn_bytes, missing, broken = compare(trail, spooled)
    if broken:
        findings.add(_name(key, broken.position), broken.why)
    elif alive or not (missing or torn_bytes):
        return
    elif len(missing) <= spooled.last_batch_bytes:
        findings.note(f"trail {'/'.join(key)}: its end was torn by a crash; the next run completes it")
    else:
        line = trail[:whole_bytes].count(b"\n") + 1
        findings.add(_name(key, line), "is missing; the log outside holds it, and the next run puts it back")
