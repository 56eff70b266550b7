"""Call the few Linux system calls that Python does not offer.

The supervisor imports this module, so it uses cheap imports only.
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

# These system call numbers are the same on all architectures.
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_QUERY_VERSION = 1
_PATH_BENEATH = 1
_WRITE_FILE = 1 << 1
_TRUNCATE = 1 << 14
# Landlock's rights to write, remove and create files of every type.
_WRITES = 0x1FF2
_REFER = 1 << 13
_O_PATH = 0o10000000
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that it can be killed."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_own_memory(hidden: bool = True) -> None:
    """Forbid processes of the same user to trace this one or open its descriptors in /proc."""
    _prctl(_PR_SET_DUMPABLE, 0 if hidden else 1)


def die_with_parent(signal_number: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def load_seccomp(program: bytes) -> None:
    """Apply the filter to this process and all its future children, irrevocably."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    filter_program = Program(len(program) // _INSTRUCTION_BYTES, program)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filter_program))


def get_landlock_version() -> int:
    """Return the version of Landlock's interface, or 0 if the kernel has none."""
    try:
        return _syscall(_CREATE_RULESET, None, 0, _QUERY_VERSION)
    except OSError:
        return 0


def restrict_writes(writable: list[bytes], version: int) -> None:
    """Allow this process and its future children to write below these folders only.

    From version 6 on, signals and abstract unix sockets are restricted to the sandbox too. Plain
    writes to /dev and /proc are allowed: the namespaces decide what may be written there.
    """
    handled = _WRITES
    if version >= 2:
        handled |= _REFER
    if version >= 3:
        handled |= _TRUNCATE

    # Each version has a longer structure: file rights, then network rights, then scopes.
    fields = [handled]
    if version >= 4:
        fields.append(0)
    if version >= 6:
        fields.append(_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)

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
