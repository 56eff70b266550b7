"""Ways out of a sandbox, one function each. Run as a program: `python -c TEXT TOKEN NAME FACTS`.

Each attempt leaves its trace outside, or carries what it could reach into the worktree as `loot`. Nobody believes its
exit code. The legitimate work is done afterwards, whatever became of the attempt.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
ATTEMPTS: dict[str, Callable[[dict[str, str]], object]] = {}


def attempt(function: Callable[[dict[str, str]], object]) -> Callable[[dict[str, str]], object]:
    ATTEMPTS[function.__name__] = function
    return function


def loot(data: bytes) -> None:
    Path("loot").write_bytes(data)


def call(number: int, *arguments: object) -> int:
    result: int = LIBC.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


# --- files, by every verb


@attempt
def create(facts: dict[str, str]) -> None:
    Path(facts["outside"], "new").write_text("escaped")


@attempt
def overwrite(facts: dict[str, str]) -> None:
    Path(facts["file"]).write_text("escaped")


@attempt
def append(facts: dict[str, str]) -> None:
    with Path(facts["file"]).open("a") as file:
        file.write("escaped")


@attempt
def truncate(facts: dict[str, str]) -> None:
    os.truncate(facts["file"], 0)


@attempt
def unlink(facts: dict[str, str]) -> None:
    Path(facts["file"]).unlink()


@attempt
def rename_out_of_the_worktree(facts: dict[str, str]) -> None:
    Path("mine").write_text("escaped")
    Path("mine").rename(Path(facts["outside"], "moved"))


@attempt
def rename_into_the_worktree(facts: dict[str, str]) -> None:
    Path(facts["file"]).rename("stolen")


@attempt
def rename_outside(facts: dict[str, str]) -> None:
    Path(facts["file"]).rename(facts["file"] + "2")


@attempt
def mkdir(facts: dict[str, str]) -> None:
    Path(facts["outside"], "folder").mkdir()


@attempt
def rmdir(facts: dict[str, str]) -> None:
    Path(facts["outside"], "empty").rmdir()


@attempt
def symlink(facts: dict[str, str]) -> None:
    Path(facts["outside"], "link").symlink_to("file")


@attempt
def fifo(facts: dict[str, str]) -> None:
    os.mkfifo(Path(facts["outside"], "fifo"))


@attempt
def chmod(facts: dict[str, str]) -> None:
    Path(facts["file"]).chmod(0o777)


@attempt
def chown(facts: dict[str, str]) -> None:
    os.chown(facts["file"], 12345, 12345)


@attempt
def utime(facts: dict[str, str]) -> None:
    os.utime(facts["file"], (1, 1))


@attempt
def xattr(facts: dict[str, str]) -> None:
    if sys.platform == "linux":
        os.setxattr(facts["file"], "user.escaped", b"1")


# --- files, by every way there


@attempt
def through_dot_dot(facts: dict[str, str]) -> None:
    Path(os.path.relpath(facts["file"])).write_text("escaped")


@attempt
def through_a_linked_file(facts: dict[str, str]) -> None:
    Path("alias").symlink_to(facts["file"])
    Path("alias").write_text("escaped")


@attempt
def through_a_linked_folder(facts: dict[str, str]) -> None:
    Path("alias").symlink_to(facts["outside"])
    Path("alias", "new").write_text("escaped")


@attempt
def through_a_hard_link(facts: dict[str, str]) -> None:
    os.link(facts["file"], "alias")
    Path("alias").write_text("escaped")


@attempt
def through_proc_root(facts: dict[str, str]) -> None:
    Path("/proc/self/root" + facts["file"]).write_text("escaped")


@attempt
def through_proc_cwd(facts: dict[str, str]) -> None:
    Path("/proc/self/cwd", os.path.relpath(facts["file"])).write_text("escaped")


@attempt
def through_another_process(facts: dict[str, str]) -> None:
    for pid in ("1", facts["victim"]):
        try:
            Path(f"/proc/{pid}/root{facts['file']}").write_text("escaped")
        except OSError:
            continue


@attempt
def through_inherited_descriptors(facts: dict[str, str]) -> None:
    for number in range(3, 256):
        for target in (os.fsencode("new"), os.fsencode("../outside/new")):
            try:
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT, dir_fd=number))
            except OSError:
                continue


@attempt
def through_inherited_files(facts: dict[str, str]) -> None:
    for number in range(3, 256):
        try:
            os.write(number, b"escaped")
        except OSError:
            continue


@attempt
def through_a_bind_mount_in_a_new_user_namespace(facts: dict[str, str]) -> None:
    new_user, new_mounts, bind = 0x10000000, 0x20000, 4096
    uid = os.getuid()
    if LIBC.unshare(new_user | new_mounts):
        raise OSError("no namespace")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("view").mkdir()
    if LIBC.mount(os.fsencode(facts["outside"]), b"view", None, bind, None):
        raise OSError("no mount")
    Path("view", "new").write_text("escaped")


@attempt
def by_mounting_it_writable_again(facts: dict[str, str]) -> None:
    """Read-only is a flag of the mount: who may mount takes it off. Without a sandbox it is not even there."""
    remount, bind = 32, 4096
    for mounted in (facts["outside"], str(Path(facts["outside"]).parent), "/"):
        LIBC.mount(None, os.fsencode(mounted), None, remount | bind, None)
    Path(facts["outside"], "new").write_text("escaped")


@attempt
def by_handle(facts: dict[str, str]) -> None:
    """open_by_handle_at ignores paths, and with them every mount: the way out of many containers."""
    handle = (ctypes.c_ubyte * 136)()
    struct.pack_into("=I", handle, 0, 128)
    mount_id = ctypes.c_int()
    name = os.fsencode(facts["file"])
    to_handle, by_handle_at = (303, 304) if X86 else (264, 265)
    call(to_handle, -100, name, handle, ctypes.byref(mount_id), 0)
    root = os.open(facts["outside"], os.O_RDONLY)
    opened = call(by_handle_at, root, handle, os.O_WRONLY)
    os.write(opened, b"escaped")


# --- privileges that outlive the job


@attempt
def device_node(facts: dict[str, str]) -> None:
    os.mknod("device", 0o20666, os.makedev(1, 3))
    loot(Path("device").stat().st_rdev.to_bytes(8, "big") + facts["secret"].encode())


@attempt
def setuid_program(facts: dict[str, str]) -> None:
    shutil.copy("/bin/sh", "shell")
    Path("shell").chmod(0o4755)
    loot(facts["secret"].encode() if Path("shell").stat().st_mode & 0o4000 else b"")


@attempt
def setuid_program_at_birth(facts: dict[str, str]) -> None:
    os.umask(0)
    os.close(os.open("shell", os.O_WRONLY | os.O_CREAT, 0o4755))
    loot(facts["secret"].encode() if Path("shell").stat().st_mode & 0o4000 else b"")


# --- other processes


@attempt
def signal_a_process(facts: dict[str, str]) -> None:
    os.kill(int(facts["victim"]), signal.SIGKILL)


@attempt
def trace_a_process(facts: dict[str, str]) -> None:
    attach, kill = 16, 8
    victim = int(facts["victim"])
    if LIBC.ptrace(attach, victim, None, None):
        raise OSError("refused")
    os.waitpid(victim, 0x40000000)
    LIBC.ptrace(kill, victim, None, None)


@attempt
def read_the_environment_of_a_process(facts: dict[str, str]) -> None:
    loot(Path("/proc", facts["victim"], "environ").read_bytes())


@attempt
def read_every_environment(facts: dict[str, str]) -> None:
    found = b""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += (entry / "environ").read_bytes()
            except OSError:
                continue
    loot(found)


@attempt
def read_the_memory_of_a_process(facts: dict[str, str]) -> None:
    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    buffer = ctypes.create_string_buffer(64)
    ours = Vector(ctypes.addressof(buffer), 64)
    theirs = Vector(int(facts["address"]), 64)
    call(
        310 if X86 else 270, int(facts["victim"]), ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0
    )
    loot(buffer.raw)


@attempt
def take_a_descriptor_of_a_process(facts: dict[str, str]) -> None:
    pidfd = os.pidfd_open(int(facts["victim"])) if sys.platform == "linux" else -1
    taken = call(438, pidfd, int(facts["victims_fd"]), 0)
    loot(os.pread(taken, 100, 0))


@attempt
def read_memory_through_proc(facts: dict[str, str]) -> None:
    with Path("/proc", facts["victim"], "mem").open("rb", buffering=0) as memory:
        memory.seek(int(facts["address"]))
        loot(memory.read(64))


# --- sockets


@attempt
def connect_unix(facts: dict[str, str]) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(facts["unix"])
        client.sendall(b"escaped")


@attempt
def connect_unix_abstract(facts: dict[str, str]) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + facts["abstract"])
        client.sendall(b"escaped")


@attempt
def connect_tcp(facts: dict[str, str]) -> None:
    with socket.create_connection(("127.0.0.1", int(facts["tcp"])), 5) as client:
        client.sendall(b"escaped")


@attempt
def send_udp(facts: dict[str, str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"escaped", ("127.0.0.1", int(facts["udp"])))


@attempt
def netlink_sockets_of_the_machine(facts: dict[str, str]) -> None:
    """Ask the kernel for all listening TCP sockets, and look for the one of the test."""
    with socket.socket(16, socket.SOCK_RAW, 4) as link:
        dump = 0x300 | 1
        body = struct.pack("=BBBBI", 2, 6, 0, 0, 1 << 10) + bytes(48)
        link.send(struct.pack("=IHHII", 16 + len(body), 20, dump, 1, 0) + body)
        answer = link.recv(65536)
    loot(facts["secret"].encode() if struct.pack(">H", int(facts["tcp"])) in answer else b"")


@attempt
def netlink_routes_of_the_machine(facts: dict[str, str]) -> None:
    names = {name for _, name in socket.if_nameindex()}
    loot(facts["secret"].encode() if names - {"lo"} else b"")


@attempt
def raw_socket(facts: dict[str, str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 1):
        loot(facts["secret"].encode())


@attempt
def packet_socket(facts: dict[str, str]) -> None:
    with socket.socket(17, socket.SOCK_RAW, 0):
        loot(facts["secret"].encode())


@attempt
def vsock(facts: dict[str, str]) -> None:
    with socket.socket(40, socket.SOCK_STREAM):
        loot(facts["secret"].encode())


@attempt
def kernel_ciphers(facts: dict[str, str]) -> None:
    with socket.socket(38, socket.SOCK_SEQPACKET):
        loot(facts["secret"].encode())


# --- the kernel


@attempt
def io_uring(facts: dict[str, str]) -> None:
    parameters = (ctypes.c_ubyte * 120)()
    os.close(call(425, 4, parameters))
    loot(facts["secret"].encode())


@attempt
def keyring(facts: dict[str, str]) -> None:
    call(248 if X86 else 217, b"user", b"escape", b"x", ctypes.c_size_t(1), -2)
    loot(facts["secret"].encode())


@attempt
def new_user_namespace(facts: dict[str, str]) -> None:
    if LIBC.unshare(0x10000000):
        raise OSError("refused")
    loot(facts["secret"].encode())


@attempt
def new_user_namespace_by_clone(facts: dict[str, str]) -> None:
    pid = call(56 if X86 else 220, 0x10000000 | 17, None, None, None, None)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    loot(facts["secret"].encode())


@attempt
def new_user_namespace_by_clone3(facts: dict[str, str]) -> None:
    arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)
    pid = call(435, ctypes.byref(arguments), ctypes.c_size_t(88))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    loot(facts["secret"].encode())


@attempt
def performance_counters(facts: dict[str, str]) -> None:
    attributes = (ctypes.c_uint32 * 32)(1, 128)
    os.close(call(298 if X86 else 241, attributes, 0, -1, -1, 0))
    loot(facts["secret"].encode())


@attempt
def user_faults(facts: dict[str, str]) -> None:
    os.close(call(323 if X86 else 282, 1))
    loot(facts["secret"].encode())


@attempt
def kernel_programs(facts: dict[str, str]) -> None:
    """An array map: the first step of every program for the kernel."""
    attributes = (ctypes.c_uint32 * 18)(2, 4, 8, 1)
    os.close(call(321 if X86 else 280, 0, attributes, 72))
    loot(facts["secret"].encode())


@attempt
def kernel_messages(facts: dict[str, str]) -> None:
    if LIBC.klogctl(10, None, 0) >= 0:
        loot(facts["secret"].encode())


@attempt
def set_the_host_name(facts: dict[str, str]) -> None:
    """To the name that it has: harmless where it works."""
    socket.sethostname(socket.gethostname())
    loot(facts["secret"].encode())


# --- secrets


@attempt
def read_a_secret_outside(facts: dict[str, str]) -> None:
    loot(Path(facts["hidden"]).read_bytes())


@attempt
def read_the_repository_store(facts: dict[str, str]) -> None:
    loot(Path(facts["store"]).read_bytes())


@attempt
def write_the_repository_store(facts: dict[str, str]) -> None:
    Path(facts["store"]).write_text("escaped")


@attempt
def read_another_worktree(facts: dict[str, str]) -> None:
    loot(Path(facts["other_worktree"]).read_bytes())


@attempt
def search_everywhere(facts: dict[str, str]) -> None:
    """All of the folder that holds the repository, by walking it."""
    found = b""
    for folder, _, names in os.walk(facts["root"]):
        for name in names:
            try:
                path = Path(folder, name)
                found += path.read_bytes() if path.is_file() else b""
            except OSError:
                continue
    loot(found)


def main() -> None:
    name, facts = sys.argv[2], json.loads(sys.argv[3])
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        ATTEMPTS[name](facts)
        os._exit(0)
    os.waitpid(pid, 0)
    Path("work").write_text(f"done at {time.monotonic()}")


if __name__ == "__main__":
    main()
