"""What a job uses, all its processes together, against its limits.

Loaded by the warden: cheap imports only.

The kernel's own limits are those of a process: a job of many processes, or one that keeps many
files, is none of them.
"""

from __future__ import annotations

import os
import time

from phasegate.sandbox.process_tree import find_descendants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CHECK_INTERVAL_S = 0.5
MEMORY = "memory"
TASKS = "tasks"
DISK = "disk"
_WALK_INTERVAL_S = 2.0
# Files that are looked at before the warden looks at its job again
_FILES_PER_STEP = 1000
_PAUSE_S = 0.01
# A walk takes at most so small a part of the time
_WALK_TIME_DIVISOR = 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat behind the name
_STATE = 0
_PARENT = 1
_THREADS = 17
_RESIDENT = 21
_OWN_MEMORY_FIELDS = (b"Pss_Anon:", b"Pss_Shmem:")


class ResourceMonitor:
    """Looks from time to time. A limit of 0 is none."""

    def __init__(
        self, root: int, memory_bytes: int, tasks: int, disk_bytes: int, folders: list[bytes]
    ) -> None:
        self._root = root
        self._folders = folders
        self._memory_bytes = memory_bytes
        self._tasks = tasks
        self._disk_bytes = disk_bytes
        now_s = time.monotonic()
        self._check_at_s = now_s + CHECK_INTERVAL_S
        self._walk_at_s = now_s + _WALK_INTERVAL_S
        self._walk_began_s = 0.0
        self._walk: Iterator[int] | None = None

    @property
    def next_check_at_s(self) -> float:
        """When there is something to be looked at."""
        return min(self._check_at_s, self._walk_at_s)

    def find_exceeded_limit(self) -> str:
        """The limit that the job has come to; empty: none."""
        now_s = time.monotonic()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + CHECK_INTERVAL_S
            if found := self._check_processes():
                return found

        if self._disk_bytes and now_s >= self._walk_at_s:
            return self._check_files(now_s)

        return ""

    def _check_processes(self) -> str:
        stats = dict(_read_all_stats())
        pids = find_descendants(
            self._root, {pid: int(fields[_PARENT]) for pid, fields in stats.items()}
        )
        if self._tasks and sum(int(stats[pid][_THREADS]) for pid in pids) >= self._tasks:
            return TASKS

        held = dict(_measure_memory({pid: stats[pid] for pid in pids}))
        # What is resident counts shared pages once a process: too much, but quick. The true number
        # is asked for then.
        if self._memory_bytes and sum(held.values()) >= self._memory_bytes:
            own = sum(read_own_memory(place, at_most) for place, at_most in held.items())
            if own >= self._memory_bytes:
                return MEMORY
            return ""

        return ""

    def _check_files(self, now_s: float) -> str:
        if self._walk is None:
            self._walk = _measure_folders(self._folders)
            self._walk_began_s = now_s

        size = next(self._walk, None)
        self._walk_at_s = now_s + _PAUSE_S

        if size is None:
            self._walk = None
            self._walk_at_s = now_s + max(
                _WALK_INTERVAL_S, _WALK_TIME_DIVISOR * (now_s - self._walk_began_s)
            )

        if size is not None and size >= self._disk_bytes:
            return DISK

        return ""


def _read_all_stats() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _read_stat(f"/proc/{name}")):
            yield int(name), fields


def _read_stat(place: str) -> list[bytes]:
    """The fields behind the name; none if it ended while we looked."""
    try:
        with open(f"{place}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _measure_memory(stats: dict[int, list[bytes]]) -> Iterator[tuple[str, int]]:
    """Where each process is measured, and what is resident.

    One whose first thread has ended is seen by another.
    """
    for pid, fields in stats.items():
        place = f"/proc/{pid}"
        seen = fields
        if fields[_STATE] == b"Z" and int(fields[_THREADS]) > 1:
            place, seen = next(_find_live_threads(place), (place, fields))

        yield place, int(seen[_RESIDENT]) * _PAGE_BYTES


def _find_live_threads(place: str) -> Iterator[tuple[str, list[bytes]]]:
    try:
        threads = os.listdir(f"{place}/task")
    except OSError:
        return

    for name in threads:
        fields = _read_stat(f"{place}/task/{name}")
        if fields and fields[_STATE] != b"Z":
            yield f"{place}/task/{name}", fields


def read_own_memory(proc_folder: str, resident_bytes: int) -> int:
    """What it alone holds, and its part of what it shares.

    Files that are only mapped count for nobody.
    """
    try:
        with open(f"{proc_folder}/smaps_rollup", "rb") as rollup:
            lines = [line.split() for line in rollup]
    except (FileNotFoundError, ProcessLookupError):
        lines = []
    except OSError:
        return resident_bytes

    if not lines:
        # It ended while we looked
        return 0

    found = [int(line[1]) * 1024 for line in lines if line[0] in _OWN_MEMORY_FIELDS]
    if found:
        return min(sum(found), resident_bytes)

    return resident_bytes


def _measure_folders(folders: list[bytes]) -> Iterator[int]:
    """The bytes on the disk below folders, as far as they are counted.

    No link is followed, no file counted twice.
    """
    size = 0
    seen = 0
    waiting = list(folders)

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
            if seen % _FILES_PER_STEP == 0:
                yield size

    yield size
