"""The few system calls of Linux that Python does not offer.

Loaded by the warden: cheap imports only.
"""

from __future__ import annotations

import ctypes
import os

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8

# The same numbers on all machines
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_QUERY_VERSION = 1
_PATH_BENEATH = 1
_WRITE_FILE = 1 << 1
_TRUNCATE = 1 << 14
# Write, remove and make, of every kind
_WRITES = 0x1FF2
_REFER = 1 << 13
_O_PATH = 0o10000000
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def adopt_orphans() -> None:
    """Every descendant whose parent ends becomes our child, and so stays in reach."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_own_memory(hidden: bool = True) -> None:
    """No process of the same user may trace this one or open its descriptors through /proc."""
    _prctl(_PR_SET_DUMPABLE, 0 if hidden else 1)


def die_with_parent(signal_number: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def load_seccomp(program: bytes) -> None:
    """Bind this process and all that it starts to the filter, for ever."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    filter_program = Program(len(program) // _INSTRUCTION_BYTES, program)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filter_program))


def get_landlock_version() -> int:
    """The version of Landlock's interface, 0 where the kernel has none."""
    try:
        return _syscall(_CREATE_RULESET, None, 0, _QUERY_VERSION)
    except OSError:
        return 0


def restrict_writes(writable: list[bytes], version: int) -> None:
    """From now on this process and all that it starts can write below these folders only.

    From version 6 on, signals and abstract unix sockets end at this fence too. Devices and /proc
    take plain writes: what may be written there is decided by the namespaces.
    """
    handled = _WRITES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    fields = [handled, 0, _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS][
        : 1 if version < 4 else 2 if version < 6 else 3
    ]
    attributes = (ctypes.c_uint64 * len(fields))(*fields)
    ruleset = _syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    for folder in writable:
        _allow_below(ruleset, folder, handled)

    for folder in (b"/dev", b"/proc"):
        _allow_below(ruleset, folder, handled & (_WRITE_FILE | _TRUNCATE))

    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow_below(ruleset: int, folder: bytes, access: int) -> None:
    class PathBeneath(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))

    descriptor = os.open(folder, _O_PATH | os.O_CLOEXEC)
    rule = PathBeneath(access, descriptor)
    _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(descriptor)


def _prctl(option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    _check_result(_libc().prctl(ctypes.c_int(option), *padded))


def _syscall(number: int, *arguments: object) -> int:
    as_words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _check_result(_libc().syscall(ctypes.c_long(number), *as_words))


def _check_result(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
