"""The system-call filter, run by a small interpreter of the kernel's filter language."""

from __future__ import annotations

import errno
import os
import re
import struct
from pathlib import Path

import pytest

from phasegate.sandbox import seccomp

ALLOW = 0x7FFF0000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
COLUMN = {"x86_64": 0, "aarch64": 1}
MACHINES = list(ARCH)


def verdict(machine: str, number: int, *arguments: int, arch: int | None = None) -> int | None:
    """What the filter answers: None for yes, an errno for no."""
    program = seccomp.build_filter(machine)
    assert program is not None
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=iIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *padded)
    answer = _interpret(program, data)
    return None if answer == ALLOW else answer & 0xFFFF


def _interpret(program: bytes, data: bytes) -> int:
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at, loaded = 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            loaded = struct.unpack_from("=I", data, value)[0]
        else:
            passed = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[
                code
            ]
            at += if_true if passed else if_false


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", [*seccomp._REFUSED])
def test_each_listed_call_is_refused(machine: str, name: str) -> None:
    number = seccomp._REFUSED[name][COLUMN[machine]]
    if number >= 0:
        assert verdict(machine, number) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", [*seccomp._UNIMPLEMENTED])
def test_calls_that_programs_do_without_seem_not_to_exist(machine: str, name: str) -> None:
    assert verdict(machine, seccomp._UNIMPLEMENTED[name][COLUMN[machine]]) == errno.ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("family", "protocol", "expected"),
    [
        (1, 0, None),  # unix
        (2, 6, None),  # internet
        (10, 17, None),
        (16, 0, None),  # netlink: interfaces
        (16, 4, errno.EPROTONOSUPPORT),  # netlink: all sockets of the machine
        (16, 15, errno.EPROTONOSUPPORT),
        (17, 0, errno.EAFNOSUPPORT),  # packets
        (38, 0, errno.EAFNOSUPPORT),  # the kernel's ciphers
        (40, 0, errno.EAFNOSUPPORT),  # vsock
        (44, 0, errno.EAFNOSUPPORT),  # xdp
        (0, 0, errno.EAFNOSUPPORT),
    ],
)
def test_only_ordinary_sockets_can_be_made(
    machine: str, family: int, protocol: int, expected: int | None
) -> None:
    assert verdict(machine, seccomp._SOCKET[COLUMN[machine]], family, 1, protocol) == expected


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
)
def test_clone_makes_threads_and_processes_but_no_namespace(machine: str, flag: int) -> None:
    clone = seccomp._CLONE[COLUMN[machine]]
    assert verdict(machine, clone, 17) is None
    assert verdict(machine, clone, 0x3D0F00) is None  # what pthread_create asks for
    assert verdict(machine, clone, 0x3D0F00 | flag) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_can_be_typed_into_the_terminal(machine: str) -> None:
    ioctl = seccomp._IOCTL[COLUMN[machine]]
    assert verdict(machine, ioctl, 0, 0x5412) == errno.EPERM
    assert verdict(machine, ioctl, 0, 0x541C) == errno.EPERM
    assert verdict(machine, ioctl, 0, 0x5413) is None


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", [*seccomp._MODE_CALLS])
def test_no_file_gets_the_setuid_bit(machine: str, name: str) -> None:
    numbers, mode_at, flags_at = seccomp._MODE_CALLS[name]
    number = numbers[COLUMN[machine]]
    if number < 0:
        return
    arguments = [0o7777] * 4  # the others say nothing
    arguments[mode_at] = 0o4755
    if flags_at is not None:
        arguments[flags_at] = os.O_CREAT | os.O_WRONLY
    assert verdict(machine, number, *arguments) == errno.EPERM
    arguments[mode_at] = 0o3777
    assert verdict(machine, number, *arguments) is None
    if (
        flags_at is not None
    ):  # the mode of a file that is only opened is what the register happened to hold
        arguments[mode_at], arguments[flags_at] = 0o4755, os.O_RDWR | os.O_CLOEXEC
        assert verdict(machine, number, *arguments) is None


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_processor_mode_get_nothing(machine: str) -> None:
    assert verdict(machine, 1, arch=0x40000003) == errno.ENOSYS
    assert verdict(machine, 1) is None


def test_calls_by_their_second_numbers_get_nothing() -> None:
    assert verdict("x86_64", 0x40000000 | 101) == errno.ENOSYS


def test_a_processor_that_is_not_known_has_no_filter() -> None:
    assert seccomp.build_filter("mips") is None


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_the_numbers_are_those_of_the_kernel(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(
            f"the kernel's header {header} is not installed: the numbers cannot be compared"
        )
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text()))
    tables = {**seccomp._REFUSED, **seccomp._UNIMPLEMENTED}
    tables |= {name: numbers for name, (numbers, _, _) in seccomp._MODE_CALLS.items()}
    tables |= {"socket": seccomp._SOCKET, "clone": seccomp._CLONE, "ioctl": seccomp._IOCTL}
    ours = {name: numbers[COLUMN[machine]] for name, numbers in tables.items()}
    compared = {name for name in ours.keys() & known.keys() if ours[name] >= 0}
    assert {name: ours[name] for name in compared} == {name: int(known[name]) for name in compared}
    assert len(compared) > 40
