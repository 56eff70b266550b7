"""List, signal and kill the descendants of this process.

The supervisor imports this module, so it uses cheap imports only.
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
    # `signal` imports enum, which takes 5 ms.
    import _signal

SIGKILL = 9


def read_parents() -> dict[int, int]:
    """Map each running process, except zombies, to its parent."""
    if sys.platform == "linux":
        processes = _read_parents_from_proc()
    else:
        processes = _read_parents_from_ps()

    return {pid: parent for pid, (parent, state) in processes.items() if state != "Z"}


def find_descendants(root: int, parent_of: dict[int, int]) -> list[int]:
    """Return all descendants of a process, nearest first."""
    children: dict[int, list[int]] = {}
    for pid, parent in parent_of.items():
        children.setdefault(parent, []).append(pid)

    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, ()))

    return tree[1:]


def signal_descendants(root: int, signal_number: int) -> None:
    """Signal every descendant once, and no other process.

    Each process is pinned by a pidfd before its ancestors are checked. The farthest descendants
    come first: once its parent has ended, a process may be reparented and not count as ours.
    """
    for pid in reversed(find_descendants(root, read_parents())):
        try:
            _signal_if_descendant(root, pid, signal_number)
        except OSError:
            # It has ended, or belongs to another user.
            continue


def _signal_if_descendant(root: int, pid: int, signal_number: int) -> None:
    """Signal a process, if it is still a descendant of `root`."""
    if sys.platform != "linux":
        os.kill(pid, signal_number)
        return

    try:
        pinned = os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ENOSYS and pid in find_descendants(root, _read_ancestors(pid)):
            # Kernels before 5.3 have no pidfd: signal right after the check.
            os.kill(pid, signal_number)

        return

    try:
        if pid in find_descendants(root, _read_ancestors(pid)):
            _signal.pidfd_send_signal(pinned, signal_number)
    finally:
        os.close(pinned)


def _read_ancestors(pid: int) -> dict[int, int]:
    """Map the process and each of its ancestors to its parent."""
    parent_of: dict[int, int] = {}
    while pid > 1 and pid not in parent_of:
        parent_of[pid] = _read_stat(pid)[0]
        pid = parent_of[pid]
    return parent_of


def kill_all_children(deadline_s: float) -> tuple[int, int]:
    """Kill and reap until no child is left; return how many were killed and how many are left.

    Only direct children are signalled. Their pids cannot be reused, since only we can reap them,
    and each killed generation makes us the parent of the next one. This requires `adopt_orphans`,
    or to be the first process of a PID namespace.
    """
    killed = 0
    rounds = 0
    # Children that ended by themselves are not counted.
    _, some_left = reap_children()

    while some_left:
        _kill_children()
        reaped, some_left = reap_children()
        killed += reaped
        if some_left and time.monotonic() > deadline_s:
            return killed, len(find_descendants(os.getpid(), read_parents()))

        rounds += 1
        # Only a loop that is as fast as a chain of forks catches it, so do not sleep at first.
        time.sleep(0 if rounds < 200 else 0.001)

    return killed, 0


def reap_children() -> tuple[int, bool]:
    """Reap all ended children; return how many, and whether any children are left."""
    reaped = 0

    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            reaped += 1
    except ChildProcessError:
        return reaped, False

    return reaped, True


def _kill_children() -> None:
    if os.getpid() == 1:
        # Kill the whole namespace in one call, so that no process can fork in between.
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
    processes = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                processes[int(name)] = _read_stat(int(name))
            except OSError:
                # It ended after it was listed.
                continue

    return processes


def _read_stat(pid: int) -> tuple[int, str]:
    """Return parent and state. The name before them may contain blanks and parentheses.

    The kernel reports a process as a zombie when only its main thread has ended; correct that.
    """
    with open(f"/proc/{pid}/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()

    state = fields[0].decode()
    if state == "Z" and int(fields[17]) > 1:
        state = "S"

    return int(fields[1]), state


def _read_parents_from_ps() -> dict[int, tuple[int, str]]:
    # Imported here because it is slow and only needed on macOS.
    import subprocess

    listing = subprocess.run(
        ["/bin/ps", "-axo", "pid=,ppid=,stat="], stdout=subprocess.PIPE, check=False
    )
    rows = [line.split() for line in listing.stdout.decode().splitlines()]
    return {int(pid): (int(parent), state[0]) for pid, parent, state in rows}
