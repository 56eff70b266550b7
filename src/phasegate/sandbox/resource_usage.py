"""What a job uses, all its processes together, against its limits. Loaded by the warden: cheap imports only.

The kernel's own limits are those of a process: a job of many processes, or one that keeps many files, is none of them.
"""

from __future__ import annotations

import os
import time

from phasegate.sandbox.process_tree import below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_EVERY_S = 0.5
MEMORY, TASKS, DISK = "memory", "tasks", "disk"
_WALK_EVERY_S = 2.0
_AT_ONCE = 1000  # files that are looked at before the warden looks at its job again
_PAUSE_S = 0.01
_SHARE = 20  # a walk takes at most so small a part of the time
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATE, _PARENT, _THREADS, _RESIDENT = 0, 1, 17, 21  # fields of /proc/PID/stat behind the name
_OWN = (b"Pss_Anon:", b"Pss_Shmem:")


class Watched:
    """Looks from time to time. A limit of 0 is none."""

    def __init__(self, root: int, memory_bytes: int, tasks: int, disk_bytes: int, folders: list[bytes]) -> None:
        self._root, self._folders = root, folders
        self._memory_bytes, self._tasks, self._disk_bytes = memory_bytes, tasks, disk_bytes
        now_s = time.monotonic()
        self._look_at_s, self._walk_at_s, self._walk_began_s = now_s + LOOK_EVERY_S, now_s + _WALK_EVERY_S, 0.0
        self._walk: Iterator[int] | None = None

    @property
    def next_at_s(self) -> float:
        """When there is something to be looked at."""
        return min(self._look_at_s, self._walk_at_s)

    def exceeded(self) -> str:
        """The limit that the job has come to; empty: none."""
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            if found := self._processes():
                return found
        return self._files(now_s) if self._disk_bytes and now_s >= self._walk_at_s else ""

    def _processes(self) -> str:
        stats = dict(_stats())
        pids = below(self._root, {pid: int(fields[_PARENT]) for pid, fields in stats.items()})
        if self._tasks and sum(int(stats[pid][_THREADS]) for pid in pids) >= self._tasks:
            return TASKS
        held = dict(_memories({pid: stats[pid] for pid in pids}))
        # What is resident counts shared pages once a process: too much, but quick. The true number is asked for then.
        if self._memory_bytes and sum(held.values()) >= self._memory_bytes:
            own = sum(own_memory(place, at_most) for place, at_most in held.items())
            return MEMORY if own >= self._memory_bytes else ""
        return ""

    def _files(self, now_s: float) -> str:
        if self._walk is None:
            self._walk, self._walk_began_s = _sizes(self._folders), now_s
        size = next(self._walk, None)
        self._walk_at_s = now_s + _PAUSE_S
        if size is None:
            self._walk = None
            self._walk_at_s = now_s + max(_WALK_EVERY_S, _SHARE * (now_s - self._walk_began_s))
        return DISK if size is not None and size >= self._disk_bytes else ""


def _stats() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(f"/proc/{name}")):
            yield int(name), fields


def _stat(place: str) -> list[bytes]:
    """The fields behind the name; none if it ended while we looked."""
    try:
        with open(f"{place}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _memories(stats: dict[int, list[bytes]]) -> Iterator[tuple[str, int]]:
    """Where each process is measured, and what is resident. One whose first thread has ended is seen by another."""
    for pid, fields in stats.items():
        place, seen = f"/proc/{pid}", fields
        if fields[_STATE] == b"Z" and int(fields[_THREADS]) > 1:
            place, seen = next(_living(place), (place, fields))
        yield place, int(seen[_RESIDENT]) * _PAGE


def _living(place: str) -> Iterator[tuple[str, list[bytes]]]:
    try:
        threads = os.listdir(f"{place}/task")
    except OSError:
        return
    for name in threads:
        fields = _stat(f"{place}/task/{name}")
        if fields and fields[_STATE] != b"Z":
            yield f"{place}/task/{name}", fields


def own_memory(place: str, at_most: int) -> int:
    """What it alone holds, and its part of what it shares; files that are only mapped count for nobody."""
    try:
        with open(f"{place}/smaps_rollup", "rb") as rollup:
            lines = [line.split() for line in rollup]
    except (FileNotFoundError, ProcessLookupError):
        lines = []
    except OSError:
        return at_most
    if not lines:
        return 0  # it ended while we looked
    found = [int(line[1]) * 1024 for line in lines if line[0] in _OWN]
    return min(sum(found), at_most) if found else at_most


def _sizes(folders: list[bytes]) -> Iterator[int]:
    """The bytes on the disk below folders, as far as they are counted; no link is followed, no file counted twice."""
    size, seen, waiting = 0, 0, list(folders)
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                about = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
            except OSError:
                continue
            size += about.st_blocks * 512 // max(about.st_nlink, 1)
            seen += 1
            if seen % _AT_ONCE == 0:
                yield size
    yield size
