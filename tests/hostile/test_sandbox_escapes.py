"""Ways out of the sandbox (ATTACKS D01): each one works without it, and none works with it.

Judged by what is found outside afterwards, never by what the attacker says.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import SandboxLevel
from support import escape_attempts
from support.sandboxed import SANDBOXED, Room, need, python

pytestmark = [
    pytest.mark.demand("D6.f", "D4.e"),
    pytest.mark.skipif(
        sys.platform != "linux", reason="not enforceable here: there is no sandbox on this system"
    ),
]
PAYLOAD = Path(escape_attempts.__file__).read_text()
OF_PROCESSES = {
    name
    for name in escape_attempts.ATTEMPTS
    if "process" in name or "memory" in name or "environment" in name
}
# Open by design where the agent needs its model; closed at the next level.
OF_THE_NETWORK = {"connect_tcp", "send_udp", "netlink_routes_of_the_machine"}
CASES = [
    (level, name)
    for level in SANDBOXED
    for name in escape_attempts.ATTEMPTS
    if level is SandboxLevel.OFFLINE or name not in OF_THE_NETWORK
]

VICTIM = """
    import ctypes, os, sys, tempfile, time
    secret = ctypes.create_string_buffer(sys.stdin.readline().strip().encode())
    file = tempfile.TemporaryFile()
    file.write(secret.value)
    file.flush()
    print(ctypes.addressof(secret), file.fileno(), flush=True)
    time.sleep(120)
"""


class World:
    """A repository with two worktrees, and around it what no agent may touch or learn."""

    def __init__(self, root: Path, stack: ExitStack, with_victim: bool) -> None:
        self.canary = f"canary-{uuid.uuid4().hex}"
        self.marker = f"marker-{uuid.uuid4().hex}"
        self.root = root
        self.worktree = root / "repo/.worktrees/mine"
        self.outside = root / "outside"
        self._make_files()
        self._heard: list[bytes] = []
        self._victim, address, descriptor = (
            self._start_victim(stack) if with_victim else (None, "0", "0")
        )
        of_the_victim = {
            "victim": str(self._victim.pid if self._victim else 0),
            "address": address,
            "victims_fd": descriptor,
        }
        self.facts = self._facts(stack) | of_the_victim
        self._before = self.seen()

    def _make_files(self) -> None:
        hidden, repo = self.root / "hidden", self.root / "repo"
        for folder in (
            self.worktree,
            self.outside / "empty",
            hidden,
            repo / ".phasegate",
            repo / ".worktrees/other",
        ):
            folder.mkdir(parents=True)
        (self.outside / "file").write_text("untouched")
        (self.outside / "file").chmod(0o644)
        for secret in (
            hidden / "secret",
            repo / ".phasegate/store",
            repo / ".worktrees/other/file",
        ):
            secret.write_text(self.canary)

    def _start_victim(self, stack: ExitStack) -> tuple[subprocess.Popen[bytes], str, str]:
        env = {"SECRET": self.canary, "PATH": os.environ["PATH"]}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        victim = stack.enter_context(subprocess.Popen(python(VICTIM), env=env, **pipes))  # type: ignore[call-overload]
        stack.callback(victim.kill)
        victim.stdin.write(self.canary.encode() + b"\n")
        victim.stdin.flush()
        address, descriptor = victim.stdout.readline().decode().split()
        return victim, address, descriptor

    def _facts(self, stack: ExitStack) -> dict[str, str]:
        abstract = f"phasegate-test-{uuid.uuid4().hex}"
        (self.root / "run").mkdir()
        unix = f"/proc/self/fd/{os.open(self.root / 'run', os.O_RDONLY)}/s"  # the full name is too long to bind
        listeners = {
            "tcp": self._listen(stack, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": self._listen(stack, socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "unix": self._listen(stack, socket.AF_UNIX, socket.SOCK_STREAM, unix),
            "abstract": self._listen(stack, socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract),
        }
        os.close(int(unix.split("/")[4]))
        return {
            "root": str(self.root),
            "outside": str(self.outside),
            "file": str(self.outside / "file"),
            "hidden": str(self.root / "hidden/secret"),
            "store": str(self.root / "repo/.phasegate/store"),
            "other_worktree": str(self.root / "repo/.worktrees/other/file"),
            "secret": self.marker,
            "unix": os.path.relpath(self.root / "run/s", self.worktree),
            "abstract": abstract,
            "tcp": str(listeners["tcp"].getsockname()[1]),
            "udp": str(listeners["udp"].getsockname()[1]),
        }

    def _listen(self, stack: ExitStack, family: int, kind: int, address: object) -> socket.socket:
        listener = stack.enter_context(socket.socket(family, kind))
        listener.bind(address)  # type: ignore[arg-type]
        if kind == socket.SOCK_STREAM:
            listener.listen()
        stack.enter_context(hearing(listener, self._heard))
        return listener

    def seen(self) -> dict[str, object]:
        """Everything outside the worktree that an escape would change."""
        found: dict[str, object] = {}
        for path in sorted(p for p in self.root.rglob("*") if not p.is_relative_to(self.worktree)):
            if path.name.startswith("job-") or any(
                parent.name.startswith("job-") for parent in path.parents
            ):
                continue
            stat = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
            times = None if path.is_dir() else stat.st_mtime_ns
            found[str(path)] = (
                stat.st_mode,
                stat.st_uid,
                stat.st_gid,
                times,
                content,
                os.listxattr(path),
            )
        return found

    def escapes(self) -> list[str]:
        """What got out or in, in words."""
        loot = self.worktree / "loot"
        taken = loot.read_bytes() if loot.exists() else b""
        after = self.seen()
        changed = [
            path
            for path in self._before.keys() | after.keys()
            if self._before.get(path) != after.get(path)
        ]
        return [
            *(f"changed {path}" for path in changed),
            *(["took a secret"] if self.canary.encode() in taken else []),
            *(["got what it asked for"] if self.marker.encode() in taken else []),
            *(["was heard"] if self._heard else []),
            *(["harmed a process"] if self._victim and self._victim.poll() is not None else []),
        ]


@contextmanager
def hearing(listener: socket.socket, heard: list[bytes]) -> Iterator[None]:
    """Note down whatever reaches a listener."""
    stop_reading, stop = socket.socketpair()

    def listen() -> None:
        import select

        while stop_reading not in (ready := select.select([listener, stop_reading], [], [])[0]):
            if ready and listener.type == socket.SOCK_DGRAM:
                heard.append(listener.recv(100))
            elif ready:
                listener.accept()[0].close()
                heard.append(b"connected")

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield
    finally:
        stop.close()
        thread.join()
        stop_reading.close()


@contextmanager
def world(root: Path, name: str) -> Iterator[World]:
    with ExitStack() as stack:
        root.mkdir()
        made = World(root, stack, name in OF_PROCESSES)
        descriptors = [
            os.open(made.outside, os.O_RDONLY),
            os.open(made.outside / "file", os.O_RDWR),
        ]
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
            stack.callback(os.close, descriptor)
        yield made


def attack_unprotected(name: str, control: World) -> None:
    argv = [*python(PAYLOAD), "token", name, json.dumps(control.facts)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(argv, cwd=control.worktree, close_fds=False, timeout=30, **quiet)  # type: ignore[call-overload]


@pytest.mark.parametrize(("level", "name"), CASES, ids=[f"{level}-{name}" for level, name in CASES])
def test_nothing_gets_out_of_the_sandbox(tmp_path: Path, level: SandboxLevel, name: str) -> None:
    need(level)
    with world(tmp_path / "control", name) as control:
        attack_unprotected(name, control)
        works = control.escapes()
    if not works:
        pytest.skip(f"invalid: {name} does not work on this machine even without a sandbox")
    if name == "connect_unix_abstract" and any(
        "abstract" in gap for gap in probe_level(level).gaps
    ):
        pytest.skip(
            f"not enforceable here: level {level}: abstract unix sockets need Landlock 6 or a network of its own"
        )
    with world(tmp_path / "sandboxed", name) as sandboxed:
        room = Room(sandboxed.root, sandboxed.worktree, "token")
        request = room.request(
            PAYLOAD, level, name, json.dumps(sandboxed.facts), readable=(sandboxed.outside,)
        )
        outcome = SandboxedJob(request).run()
        assert sandboxed.escapes() == []
        assert (sandboxed.worktree / "work").exists(), outcome.stderr.text
        assert re.match("done", (sandboxed.worktree / "work").read_text())
