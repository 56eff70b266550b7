"""Compare the memory, tasks and disk space that all processes of a job use with its limits.

The kernel's limits apply to one process: they do not stop a job with many processes or many files.

The supervisor imports this module, so it uses cheap imports only.
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
# Files measured in one step; between steps the supervisor checks on its job.
_FILES_PER_STEP = 1000
_PAUSE_S = 0.01
# Measuring the folders may take at most 1/20 of the time.
_WALK_TIME_DIVISOR = 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat after the name.
_STATE = 0
_PARENT = 1
_THREADS = 17
_RESIDENT = 21
_OWN_MEMORY_FIELDS = (b"Pss_Anon:", b"Pss_Shmem:")


class ResourceMonitor:
    """A periodic check of a job's resource limits. A limit of 0 means unlimited."""

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
        """The time of the next check."""
        return min(self._check_at_s, self._walk_at_s)

    def find_exceeded_limit(self) -> str:
        """Return the limit that the job has reached; empty if none."""
        now_s = time.monotonic()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + CHECK_INTERVAL_S
            if limit := self._check_processes():
                return limit

        if self._disk_bytes and now_s >= self._walk_at_s:
            return self._check_files(now_s)

        return ""

    def _check_processes(self) -> str:
        """Return the limit of tasks or memory that is reached, or ""."""
        stats = dict(_read_all_stats())
        pids = find_descendants(
            self._root, {pid: int(fields[_PARENT]) for pid, fields in stats.items()}
        )
        if self._tasks and sum(int(stats[pid][_THREADS]) for pid in pids) >= self._tasks:
            return TASKS

        resident = dict(_measure_memory({pid: stats[pid] for pid in pids}))
        # Resident memory counts shared pages once per process: too high, but fast to read. The
        # exact number is read only when it reaches the limit.
        if self._memory_bytes and sum(resident.values()) >= self._memory_bytes:
            used = sum(read_own_memory(folder, at_most) for folder, at_most in resident.items())
            if used >= self._memory_bytes:
                return MEMORY

        return ""

    def _check_files(self, now_s: float) -> str:
        """Measure the job's folders in small steps; return DISK at the limit."""
        if self._walk is None:
            self._walk = _measure_folders(self._folders)
            self._walk_began_s = now_s

        size = next(self._walk, None)
        self._walk_at_s = now_s + _PAUSE_S

        if size is None:
            self._walk = None
            pause_s = _WALK_TIME_DIVISOR * (now_s - self._walk_began_s)
            self._walk_at_s = now_s + max(_WALK_INTERVAL_S, pause_s)
        elif size >= self._disk_bytes:
            return DISK

        return ""


def _read_all_stats() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _read_stat(f"/proc/{name}")):
            yield int(name), fields


def _read_stat(proc_folder: str) -> list[bytes]:
    """Return the fields after the name; empty if the process has ended."""
    try:
        with open(f"{proc_folder}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _measure_memory(stats: dict[int, list[bytes]]) -> Iterator[tuple[str, int]]:
    """Yield the /proc folder and the resident memory of each process.

    For a process whose main thread has ended, the folder of another thread is used.
    """
    for pid, fields in stats.items():
        folder = f"/proc/{pid}"
        measured = fields
        if fields[_STATE] == b"Z" and int(fields[_THREADS]) > 1:
            folder, measured = next(_find_live_threads(folder), (folder, fields))

        yield folder, int(measured[_RESIDENT]) * _PAGE_BYTES


def _find_live_threads(proc_folder: str) -> Iterator[tuple[str, list[bytes]]]:
    try:
        threads = os.listdir(f"{proc_folder}/task")
    except OSError:
        return

    for name in threads:
        fields = _read_stat(f"{proc_folder}/task/{name}")
        if fields and fields[_STATE] != b"Z":
            yield f"{proc_folder}/task/{name}", fields


def read_own_memory(proc_folder: str, resident_bytes: int) -> int:
    """Return the memory of a process: its private pages and its share of shared pages.

    Mapped files are not counted.
    """
    try:
        with open(f"{proc_folder}/smaps_rollup", "rb") as rollup:
            lines = [line.split() for line in rollup]
    except (FileNotFoundError, ProcessLookupError):
        lines = []
    except OSError:
        return resident_bytes

    if not lines:
        # The process has ended.
        return 0

    sizes = [int(line[1]) * 1024 for line in lines if line[0] in _OWN_MEMORY_FIELDS]
    if sizes:
        return min(sum(sizes), resident_bytes)

    return resident_bytes


def _measure_folders(folders: list[bytes]) -> Iterator[int]:
    """Yield the bytes on disk below the folders, counted so far.

    No link is followed, and no file is counted twice.
    """
    size = 0
    file_count = 0
    pending = list(folders)

    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue

        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
            except OSError:
                continue

            size += status.st_blocks * 512 // max(status.st_nlink, 1)
            file_count += 1
            if file_count % _FILES_PER_STEP == 0:
                yield size

    yield size
