"""The processes below this one: who they are, and an end to all of them.

Loaded by the warden: cheap imports only.
"""

from __future__ import annotations

import errno
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    # `signal` imports enum: 5 ms
    import _signal

SIGKILL = 9


def read_parents() -> dict[int, int]:
    """Each running process and its parent.

    Those that are dead and only wait to be noticed are left out.
    """
    if sys.platform == "linux":
        found = _read_parents_from_proc()
    else:
        found = _read_parents_from_ps()

    return {pid: parent for pid, (parent, state) in found.items() if state != "Z"}


def find_descendants(root: int, parent_of: dict[int, int]) -> list[int]:
    """All descendants of a process, nearest first."""
    children: dict[int, list[int]] = {}
    for pid, parent in parent_of.items():
        children.setdefault(parent, []).append(pid)

    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))

    return found[1:]


def signal_descendants(root: int, signal_number: int) -> None:
    """Signal every descendant once, and nobody else.

    Its number is pinned before its parentage is looked at.

    The farthest first: one whose parent has just ended may count as somebody else's.
    """
    for pid in reversed(find_descendants(root, read_parents())):
        try:
            _signal_if_descendant(root, pid, signal_number)
        except OSError:
            # Ended in the meantime, or not ours to signal
            continue


def _signal_if_descendant(root: int, pid: int, signal_number: int) -> None:
    if sys.platform != "linux":
        os.kill(pid, signal_number)
        return

    try:
        pinned = os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ENOSYS and pid in find_descendants(root, _read_ancestors(pid)):
            # A kernel before 5.3: looked at and signalled with nothing in between
            os.kill(pid, signal_number)

        return

    try:
        if pid in find_descendants(root, _read_ancestors(pid)):
            _signal.pidfd_send_signal(pinned, signal_number)
    finally:
        os.close(pinned)


def _read_ancestors(pid: int) -> dict[int, int]:
    """The process, its parent, its parent's parent, and so on."""
    line: dict[int, int] = {}
    while pid > 1 and pid not in line:
        line[pid] = _read_stat(pid)[0]
        pid = line[pid]
    return line


def kill_all_children(deadline_s: float) -> tuple[int, int]:
    """Kill and reap until no child is left.

    Returns how many were ended, and how many could not be in time.

    Only direct children are signalled: they cannot be mistaken, since nobody but us can reap them,
    and with every killed generation the next one becomes ours. It needs `adopt_orphans` or to be
    the first process of a namespace.
    """
    ended = 0
    rounds = 0
    # These had ended by themselves
    _, some_left = reap_children()

    while some_left:
        _kill_children()
        reaped, some_left = reap_children()
        ended += reaped
        if some_left and time.monotonic() > deadline_s:
            return ended, len(find_descendants(os.getpid(), read_parents()))

        rounds += 1
        # A chain of forks is only caught by being as quick
        time.sleep(0 if rounds < 200 else 0.001)

    return ended, 0


def reap_children() -> tuple[int, bool]:
    """Take note of all children that have ended; returns how many, and whether any are left."""
    reaped = 0

    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            reaped += 1
    except ChildProcessError:
        return reaped, False

    return reaped, True


def _kill_children() -> None:
    if os.getpid() == 1:
        # All of the namespace at once: the kernel leaves no gap between two of them
        _kill(-1)
        return
    for pid in _list_children():
        _kill(pid)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _list_children() -> list[int]:
    try:
        with open("/proc/thread-self/children", "rb") as listing:
            return [int(pid) for pid in listing.read().split()]
    except OSError:
        return [pid for pid, parent in read_parents().items() if parent == os.getpid()]


def _read_parents_from_proc() -> dict[int, tuple[int, str]]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found[int(name)] = _read_stat(int(name))
            except OSError:
                # Ended while we looked
                continue

    return found


def _read_stat(pid: int) -> tuple[int, str]:
    """Parent and state. The name before them may hold blanks and parentheses of its own.

    A process whose first thread alone has ended is said to be dead, and is not.
    """
    with open(f"/proc/{pid}/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    return int(fields[1]), "S" if fields[0] == b"Z" and int(fields[17]) > 1 else fields[0].decode()


def _read_parents_from_ps() -> dict[int, tuple[int, str]]:
    # On macOS only: slow to import
    import subprocess

    listing = subprocess.run(
        ["/bin/ps", "-axo", "pid=,ppid=,stat="], stdout=subprocess.PIPE, check=False
    )
    rows = [line.split() for line in listing.stdout.decode().splitlines()]
    return {int(pid): (int(parent), state[0]) for pid, parent, state in rows}
