"""What one job may use, as far as the kernel's per-process limits reach."""

from __future__ import annotations

import resource
from typing import NamedTuple

GIB = 1024**3


class Limits(NamedTuple):
    """Limits of each process of a job; `memory_bytes` bounds what it can write to, not what it reserves.

    Node and the JVM reserve far more address space than they use: RLIMIT_AS would stop them, RLIMIT_DATA does not.
    `processes` counts the job's own only inside a user namespace, and the kernel never holds root to it.
    """

    open_files: int = 16_384
    file_bytes: int = 4 * GIB
    processes: int = 4_096
    memory_bytes: int | None = None

    def as_rlimits(self, sandboxed: bool) -> list[tuple[int, int]]:
        """(resource, value) pairs, none above what this process may have itself."""
        wanted = [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_FSIZE, self.file_bytes),
        ]
        if sandboxed:  # outside a user namespace it would count everything that the person has running
            wanted.append((resource.RLIMIT_NPROC, self.processes))
        if self.memory_bytes is not None:
            wanted.append((resource.RLIMIT_DATA, self.memory_bytes))
        return [(which, _at_most_ours(which, value)) for which, value in wanted]


def _at_most_ours(which: int, value: int) -> int:
    hard = resource.getrlimit(which)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
