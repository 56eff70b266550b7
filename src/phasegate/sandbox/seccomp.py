"""Build the seccomp filter that refuses system calls of a sandboxed program.

A refused call returns an error and does not kill the process: programs try such calls and continue
without them. ENOSYS is returned where a program must assume an older kernel (glibc falls back from
clone3 to clone on ENOSYS only).
"""

from __future__ import annotations

import errno
import struct
from functools import cache
from typing import NamedTuple


class _CpuArchitecture(NamedTuple):
    audit_arch: int
    column: int


_ARCHITECTURES = {
    "x86_64": _CpuArchitecture(0xC000003E, 0),
    "aarch64": _CpuArchitecture(0xC00000B7, 1),
    "arm64": _CpuArchitecture(0xC00000B7, 1),
}
_ABSENT = -1

# name: (number on x86_64, number on aarch64)
_REFUSED = {
    # other processes: their memory, descriptors and execution
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # new views of the file system, and ways around path checks
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "unshare": (272, 97),
    "setns": (308, 268),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # keys of the kernel's keyring
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # the kernel itself
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "iopl": (172, _ABSENT),
    "ioperm": (173, _ABSENT),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "lookup_dcookie": (212, 18),
}
_UNIMPLEMENTED = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # these two take their arguments from memory, which a filter cannot read
    "clone3": (435, 435),
    "openat2": (437, 437),
}
_SOCKET = (41, 198)
_CLONE = (56, 220)
_IOCTL = (16, 29)

# Calls that set the mode of a file: (numbers, index of the mode argument, index of the flags
# argument that says whether a file is created).
_MODE_CALLS = {
    "chmod": ((90, _ABSENT), 1, None),
    "fchmod": ((91, 52), 1, None),
    "fchmodat": ((268, 53), 2, None),
    "fchmodat2": ((452, 452), 2, None),
    "creat": ((85, _ABSENT), 1, None),
    "mknod": ((133, _ABSENT), 1, None),
    "mknodat": ((259, 33), 2, None),
    "open": ((2, _ABSENT), 2, 1),
    "openat": ((257, 56), 3, 2),
}
# A setuid program of our user could be run by any user, long after the job.
_SETUID = 0o4000
# O_CREAT, O_TMPFILE: without one of them the register of the mode argument has a random value.
_CREATE_FLAGS = 0o100 | 0o20000000

_AF_UNIX = 1
_AF_INET = 2
_AF_INET6 = 10
_AF_NETLINK = 16
_NETLINK_ROUTE = 0
# CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET
_NEW_NAMESPACES = 0x7E02_0000
# These two insert input into the terminal that we were started from.
_TIOCSTI = 0x5412
_TIOCLINUX = 0x541C
_X32_CALL_BIT = 0x4000_0000

_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF_0000
_NUMBER_OFFSET = 0
_ARCH_OFFSET = 4
_ARGUMENTS_OFFSET = 16


@cache
def build_filter(machine: str) -> bytes | None:
    """Return the filter program, or None on a machine with unknown system call numbers."""
    architecture = _ARCHITECTURES.get(machine)
    if architecture is None:
        return None
    return b"".join(_build_program(architecture))


def _build_program(architecture: _CpuArchitecture) -> list[bytes]:
    """Return the filter's BPF instructions for one CPU architecture."""
    column = architecture.column
    return [
        _instruction(_LOAD, _ARCH_OFFSET),
        # 32-bit programs would need another list: all their system calls are refused.
        *_run_unless_equal(architecture.audit_arch, [_refuse(errno.ENOSYS)]),
        _instruction(_LOAD, _NUMBER_OFFSET),
        *_run_if(_AT_LEAST, _X32_CALL_BIT, [_refuse(errno.ENOSYS)]),
        *_refuse_calls(_REFUSED, column, errno.EPERM),
        *_refuse_calls(_UNIMPLEMENTED, column, errno.ENOSYS),
        *_run_if(_EQUAL, _SOCKET[column], _restrict_sockets()),
        *_run_if(_EQUAL, _CLONE[column], _refuse_namespaces()),
        *_run_if(_EQUAL, _IOCTL[column], _refuse_terminal_input()),
        *_refuse_setuid(column),
        _instruction(_RETURN, _ALLOW),
    ]


def _refuse_calls(table: dict[str, tuple[int, int]], column: int, error: int) -> list[bytes]:
    numbers = [numbers[column] for numbers in table.values() if numbers[column] != _ABSENT]
    return [step for number in numbers for step in _run_if(_EQUAL, number, [_refuse(error)])]


def _restrict_sockets() -> list[bytes]:
    """Allow unix and internet sockets, and the netlink protocol that lists interfaces.

    Node's os.networkInterfaces() throws without it. It cannot change anything without
    capabilities, and a sandboxed program has none.
    """
    allow = [_instruction(_RETURN, _ALLOW)]
    return [
        _load_argument(0),
        *_run_if(_EQUAL, _AF_UNIX, allow),
        *_run_if(_EQUAL, _AF_INET, allow),
        *_run_if(_EQUAL, _AF_INET6, allow),
        *_run_unless_equal(_AF_NETLINK, [_refuse(errno.EAFNOSUPPORT)]),
        _load_argument(2),
        *_run_if(_EQUAL, _NETLINK_ROUTE, allow),
        _refuse(errno.EPROTONOSUPPORT),
    ]


def _refuse_namespaces() -> list[bytes]:
    return [
        _load_argument(0),
        *_run_if(_ANY_BIT, _NEW_NAMESPACES, [_refuse(errno.EPERM)]),
        _instruction(_RETURN, _ALLOW),
    ]


def _refuse_terminal_input() -> list[bytes]:
    return [
        _load_argument(1),
        *_run_if(_EQUAL, _TIOCSTI, [_refuse(errno.EPERM)]),
        *_run_if(_EQUAL, _TIOCLINUX, [_refuse(errno.EPERM)]),
        _instruction(_RETURN, _ALLOW),
    ]


def _refuse_setuid(column: int) -> list[bytes]:
    """Return the instructions that refuse to set the setuid bit of a file."""
    steps: list[bytes] = []
    for numbers, mode, flags in _MODE_CALLS.values():
        check = [
            _load_argument(mode),
            *_run_if(_ANY_BIT, _SETUID, [_refuse(errno.EPERM)]),
            _instruction(_RETURN, _ALLOW),
        ]
        if flags is not None:
            check = [
                _load_argument(flags),
                *_run_if(_ANY_BIT, _CREATE_FLAGS, check),
                _instruction(_RETURN, _ALLOW),
            ]

        if numbers[column] != _ABSENT:
            steps += _run_if(_EQUAL, numbers[column], check)

    return steps


def _load_argument(index: int) -> bytes:
    """Load the lower half of an argument; both architectures are little-endian."""
    return _instruction(_LOAD, _ARGUMENTS_OFFSET + 8 * index)


def _run_if(test: int, value: int, then: list[bytes]) -> list[bytes]:
    """Run `then` if the loaded word passes the test, else skip it; `then` must return."""
    return [_instruction(test, value, 0, len(then)), *then]


def _run_unless_equal(value: int, then: list[bytes]) -> list[bytes]:
    return [_instruction(_EQUAL, value, len(then), 0), *then]


def _refuse(error: int) -> bytes:
    return _instruction(_RETURN, 0x0005_0000 | error)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
