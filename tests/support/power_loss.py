"""A power failure, played: a run is traced by strace, and its files are made again as a disk has them that keeps only
what was synced.

The model is strict. The content of a file counts as it was when the file was synced last; before that the file is
empty. A name counts as it was when its folder was synced last, or the file system as a whole: a rename or a removal
whose folders were not synced has not happened. Or, on another disk, names are ahead: all of them count as they are,
and files that were not synced are empty (ext4 does so, for half a minute).

Threads share descriptors, and strace writes a call down when it has ended. Another thread can have the number of a
closed descriptor by then, and a new process can be ahead of the call that made it: both count from the begin of their
call. What a descriptor leads to is what strace shows of it: children close and open others that are not traced.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

CALLS = (
    "open,openat,openat2,creat,close,dup,dup2,dup3,fcntl,lseek,write,writev,pwrite64,pwritev,pwritev2,ftruncate,truncate,"
    "rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,symlink,symlinkat,fsync,fdatasync,"
    "syncfs,sync,sendfile,copy_file_range,chdir,fchdir,clone,clone3,fork,vfork,execve"
)
_LINE = re.compile(rb"^(\d+) +(.*)$", re.S)
_RESUMED = re.compile(rb"^<\.\.\. \w+ resumed>(.*)$", re.S)
_CALL = re.compile(rb"^(\w+)\((.*)\)\s+= (-?\d+|\?)(?:<((?:\\x[0-9a-f]{2}|[^>])*)>)?", re.S)
_FROM_THEIR_BEGIN = ("close", "clone", "clone3", "fork", "vfork")
_STRING = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_FD = re.compile(rb"^(-?\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2}|[^>])*)>")


def can_trace() -> bool:
    program = shutil.which("strace")
    return (
        program is not None
        and subprocess.run([program, "-o", "/dev/null", "true"], capture_output=True).returncode
        == 0
    )


class Call(NamedTuple):
    """One call of the system that may change a file: which process, its name, its arguments, what it returned.

    `opened` is the name behind a descriptor that it returned.
    """

    pid: int
    name: str
    arguments: tuple[bytes, ...]
    returned: int
    opened: bytes | None = None

    @property
    def readable(self) -> str:
        """Its first arguments, for a failed test."""
        shown = re.sub(
            rb"(?:\\x[0-9a-f]{2})+",
            lambda text: os.fsencode(_unescaped(text[0])),
            b" ".join(self.arguments[:2]),
        )
        return shown[:300].decode(errors="replace")


def trace(command: Sequence[str], log: Path, **options: object) -> int:
    """Run a command with all that it starts, and write down what it does to files; what it says is in `said` beside it.

    On one processor: two calls that are carried out at once may be written down in the other order.
    """
    one = random.choice(sorted(os.sched_getaffinity(0)))
    traced = [
        "strace",
        "-f",
        "-y",
        "-xx",
        "-s",
        "100000000",
        "--seccomp-bpf",
        "-qq",
        "-e",
        "signal=none",
    ]
    with log.with_name("said").open("wb") as out:
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [*traced, "-e", f"trace={CALLS}", "-o", str(log), *command],
            stdout=out,
            stderr=out,
            preexec_fn=lambda: os.sched_setaffinity(0, {one}),
            **options,
        ).returncode


def said_by(call: Call, path: Path) -> bytes:
    """What a call writes to this file, which lies beside the disk."""
    to = _FD.match(call.arguments[0]) if call.name == "write" else None
    if to is None or _unescaped(to[2]) != str(path):
        return b""
    return b"".join(map(_bytes_of, _STRING.finditer(call.arguments[1])))[: call.returned]


def calls_of(log: Path) -> list[Call]:
    """The calls of a trace that succeeded, in the order in which they took effect."""
    found: list[Call | None] = []
    waiting: dict[bytes, tuple[int, bytes]] = {}
    for raw in log.read_bytes().split(b"\n"):
        line = _LINE.match(raw)
        if line is None:
            continue
        pid, text = line[1], line[2]
        if text.endswith(b"<unfinished ...>"):
            waiting[pid] = len(found), text[: -len(b"<unfinished ...>")]
            found.append(None)
            continue
        begin = None
        if resumed := _RESUMED.match(text):
            begin, begun = waiting.pop(pid, (None, b""))
            text = begun + resumed[1]
        call = _CALL.match(text)
        if not call or call[3] == b"?" or int(call[3]) < 0:
            continue
        made = Call(int(pid), call[1].decode(), tuple(_split(call[2])), int(call[3]), call[4])
        if begin is not None and made.name in _FROM_THEIR_BEGIN:
            found[begin] = made
        else:
            found.append(made)
    return [call for call in found if call is not None]


def _split(arguments: bytes) -> Iterator[bytes]:
    """The arguments of a call; strings are in hexadecimal, so a comma outside of brackets divides."""
    depth, start = 0, 0
    for at, byte in enumerate(arguments):
        if byte in b"[{<":
            depth += 1
        elif byte in b"]}>" and not (byte == ord(">") and arguments[at - 1 : at] == b"-"):
            depth -= 1
        elif byte == ord(",") and depth == 0:
            yield arguments[start:at].strip()
            start = at + 1
    yield arguments[start:].strip()


def _text(argument: bytes) -> bytes:
    if argument.startswith(b"0x"):  # of a process that hides itself, see Disk._at
        return b"/nowhere"
    found = _STRING.search(argument)
    assert found, argument[:80]
    assert not found[2], "strace did not write down all of it"
    return bytes.fromhex(found[1].decode().replace("\\x", ""))


def _unescaped(name: bytes) -> str:
    return os.fsdecode(
        re.sub(rb"\\x([0-9a-f]{2})", lambda byte: bytes.fromhex(byte[1].decode()), name)
    )


class Node:
    """A file, a link or a folder: as it is, and as the disk has it."""

    def __init__(self, kind: str, data: bytes = b"", mode: int = 0o644) -> None:
        self.kind, self.mode = kind, mode
        self.data = bytearray(data)
        self.kept = bytes(data) if kind == "link" else b""
        self.names: dict[str, Node] = {}
        self.kept_names: dict[str, Node] = {}

    def sync(self) -> None:
        if self.kind == "file":
            self.kept = bytes(self.data)
        self.kept_names = dict(self.names)

    def sync_all(self) -> None:
        self.sync()
        for node in self.names.values():
            node.sync_all()

    def digest(self, names_ahead: bool) -> bytes:
        """One for the same names, bytes and modes."""
        whole = hashlib.sha256(f"{self.kind} {self.mode:o}\0".encode())
        if self.kind != "folder":
            whole.update(self.kept)
        for name, node in sorted((self.names if names_ahead else self.kept_names).items()):
            whole.update(os.fsencode(name) + b"\0" + node.digest(names_ahead))
        return whole.digest()


class _Open:
    """An open file: shared by the descriptors that were made from one another."""

    def __init__(self, node: Node, append: bool) -> None:
        self.node, self.append, self.at = node, append, 0


class Disk:
    """The files below a folder while a trace is played, and what a power failure would leave of them."""

    def __init__(self, top: Path) -> None:
        self.top = str(top)
        self.root = _read(top)
        self.root.sync_all()
        self._files: dict[int, dict[int, _Open]] = {}
        self._folders: dict[int, str] = {}  # where each process works
        self._moved = {"syncs": 0, "names": 0}
        self.strays: list[
            str
        ] = []  # calls on files of ours that the model does not have: it is out of step then

    def begin(self, pid: int, folder: Path) -> None:
        """Say where the first process works."""
        self._folders[pid] = str(folder)

    def play(self, call: Call) -> bool:
        """Take in a call; whether it changed what a power failure would leave, or what is in flight."""
        handler = getattr(self, f"_{call.name}", None)
        return bool(handler(call)) if handler else False

    def moment(self, *, names_ahead: bool = False) -> int:
        """Between two calls at one and the same moment a power failure leaves the same."""
        return self._moved["syncs"] + self._moved["names"] * names_ahead

    def leave(self, target: Path, *, names_ahead: bool = False) -> None:
        """Make the files as a power failure would leave them now."""
        _write(self.root, target, names_ahead)

    def state(self, *, names_ahead: bool = False) -> str:
        """What a power failure would leave now, as a digest: two that are equal leave the same files."""
        return self.root.digest(names_ahead).hex()

    def differences(self, node: Node | None = None, path: Path | None = None) -> Iterator[str]:
        """Where files are other than the model says. The index of SQLite's log is written through a mapping."""
        node, path = node or self.root, path or Path(self.top)
        if node.kind == "folder":
            yield from (
                f"{path}/{name}"
                for name in node.names.keys() ^ {child.name for child in path.iterdir()}
            )
            for name, child in node.names.items():
                yield from self.differences(child, path / name)
        elif (
            node.kind == "file"
            and bytes(node.data) != path.read_bytes()
            and path.suffix != ".db-shm"
        ):
            yield str(path)

    def content(self, path: Path) -> bytes:
        """A file as everybody reads it now."""
        node = self._find(str(path))
        return bytes(node.data) if node is not None else b""

    # --- names

    def _find(self, path: str) -> Node | None:
        if path == self.top:
            return self.root
        if not path.startswith(f"{self.top}/"):
            return None
        node: Node | None = self.root
        for part in path[len(self.top) + 1 :].split("/"):
            node = node.names.get(part) if node and node.kind == "folder" else None
        return node

    def _place(self, path: str) -> tuple[Node, str] | None:
        folder, _, name = path.rpartition("/")
        found = self._find(folder)
        return (found, name) if found is not None else None

    @staticmethod
    def _path(folder: bytes | None, name: bytes) -> str:
        path = os.fsdecode(_text(name))
        if path.startswith("/"):
            return os.path.normpath(path)
        base = _FD.match(folder) if folder else None
        return os.path.normpath(f"{_unescaped(base[2]) if base else '/nowhere'}/{path}")

    def _put(self, path: str, node: Node | None) -> bool:
        place = self._place(path)
        if place is None:
            return False
        folder, name = place
        self._moved["names"] += 1
        if node is None:
            folder.names.pop(name, None)
        else:
            folder.names[name] = node
        return True

    def _mkdirat(self, call: Call) -> bool:
        return self._put(
            self._path(call.arguments[0], call.arguments[1]), Node("folder", mode=0o755)
        )

    def _unlinkat(self, call: Call) -> bool:
        return self._put(self._path(call.arguments[0], call.arguments[1]), None)

    def _renameat(self, call: Call) -> bool:
        old = self._path(call.arguments[0], call.arguments[1])
        node = self._find(old)
        if node is None:
            return False
        self._put(old, None)
        return self._put(self._path(call.arguments[2], call.arguments[3]), node)

    _renameat2 = _renameat

    def _linkat(self, call: Call) -> bool:
        node = self._find(self._path(call.arguments[0], call.arguments[1]))
        return node is not None and self._put(
            self._path(call.arguments[2], call.arguments[3]), node
        )

    def _symlinkat(self, call: Call) -> bool:
        return self._put(
            self._path(call.arguments[1], call.arguments[2]), Node("link", _text(call.arguments[0]))
        )

    # The older calls name paths only: from the working folder, which `-y` does not show. Those of ours are absolute.
    def _mkdir(self, call: Call) -> bool:
        return self._put(self._plain(call, 0), Node("folder", mode=0o755))

    def _rmdir(self, call: Call) -> bool:
        return self._put(self._plain(call, 0), None)

    _unlink = _rmdir

    def _rename(self, call: Call) -> bool:
        node = self._find(self._plain(call, 0))
        if node is None:
            return False
        self._put(self._plain(call, 0), None)
        return self._put(self._plain(call, 1), node)

    def _link(self, call: Call) -> bool:
        node = self._find(self._plain(call, 0))
        return node is not None and self._put(self._plain(call, 1), node)

    def _symlink(self, call: Call) -> bool:
        return self._put(self._plain(call, 1), Node("link", _text(call.arguments[0])))

    def _plain(self, call: Call, at: int) -> str:
        path = os.fsdecode(_text(call.arguments[at]))
        return os.path.normpath(
            path if path.startswith("/") else f"{self._folders.get(call.pid, '/nowhere')}/{path}"
        )

    # --- processes: their descriptors and working folders

    def _chdir(self, call: Call) -> bool:
        self._folders[call.pid] = self._plain(call, 0)
        return False

    def _fchdir(self, call: Call) -> bool:
        found = _FD.match(call.arguments[0])
        self._folders[call.pid] = _unescaped(found[2]) if found else "/nowhere"
        return False

    def _clone(self, call: Call) -> bool:
        mine = self._files.setdefault(call.pid, {})
        shares = any(b"CLONE_FILES" in argument for argument in call.arguments)
        self._files[call.returned] = mine if shares else dict(mine)
        self._folders[call.returned] = self._folders.get(call.pid, "/nowhere")
        return False

    _clone3 = _fork = _vfork = _clone

    def _openat(self, call: Call) -> bool:
        return self._opened(
            call, self._path(call.arguments[0], call.arguments[1]), call.arguments[2]
        )

    _openat2 = _openat

    def _open(self, call: Call) -> bool:
        return self._opened(call, self._plain(call, 0), call.arguments[1])

    def _opened(self, call: Call, path: str, flags: bytes) -> bool:
        path = path if call.opened is None else _unescaped(call.opened)
        place, node = self._place(path), self._find(path)
        changed = False
        if place is not None and node is None and b"O_CREAT" in flags:
            node = Node("file")
            changed = self._put(path, node)
        if node is not None and node.kind == "file" and b"O_TRUNC" in flags and node.data:
            node.data.clear()
            changed = True
        mine = self._files.setdefault(call.pid, {})
        if node is None:
            mine.pop(call.returned, None)
        else:
            mine[call.returned] = _Open(node, b"O_APPEND" in flags)
        return changed

    def _close(self, call: Call) -> bool:
        self._files.setdefault(call.pid, {}).pop(_number(call.arguments[0]), None)
        return False

    def _dup(self, call: Call) -> bool:
        mine = self._files.setdefault(call.pid, {})
        if (found := self._at(call)) is not None:
            mine[call.returned] = found
        else:
            mine.pop(call.returned, None)
        return False

    _dup2 = _dup3 = _dup

    def _fcntl(self, call: Call) -> bool:
        return self._dup(call) if b"F_DUPFD" in call.arguments[1] else False

    def _at(self, call: Call, argument: int = 0) -> _Open | None:
        shown = _FD.match(call.arguments[argument])
        if (
            shown is None
        ):  # of a process that hides itself (a supervisor, where we are not root): it has no files of ours
            return None
        mine, number, path = (
            self._files.setdefault(call.pid, {}),
            int(shown[1]),
            _unescaped(shown[2]),
        )
        found, node = mine.get(number), self._find(path)
        if not f"{path}/".startswith(f"{self.top}/") or call.arguments[argument].endswith(
            b"(deleted)"
        ):
            return None
        if node is None:
            self.strays.append(f"{call.name} {call.readable}")
        elif (
            found is None or found.node is not node
        ):  # a process whose descriptors were handed on unseen
            found = mine[number] = _Open(node, append=False)
            found.at = len(node.data)
        return found

    # --- contents

    def _lseek(self, call: Call) -> bool:
        if found := self._at(call):
            found.at = call.returned
        return False

    def _write(self, call: Call) -> bool:
        found = self._at(call)
        if found is None:
            return False
        if found.append:
            found.at = len(found.node.data)
        data = b"".join(map(_bytes_of, _STRING.finditer(call.arguments[1])))[: call.returned]
        self._insert(found.node, data, found.at)
        found.at += len(data)
        return True

    _writev = _write

    def _pwrite64(self, call: Call) -> bool:
        found = self._at(call)
        if found is None:
            return False
        vector = call.name.startswith("pwritev")
        data = b"".join(map(_bytes_of, _STRING.finditer(call.arguments[1])))[: call.returned]
        self._insert(found.node, data, int(call.arguments[3]))
        if vector and any(b"RWF_" in argument for argument in call.arguments):
            self._sync_node(found.node)
        return True

    _pwritev = _pwritev2 = _pwrite64

    def _sendfile(self, call: Call) -> bool:
        return self._copied(self._at(call, 0), self._at(call, 1), call.returned)

    def _copy_file_range(self, call: Call) -> bool:
        return self._copied(self._at(call, 2), self._at(call, 0), call.returned)

    def _copied(self, to: _Open | None, from_: _Open | None, count: int) -> bool:
        if to is None or from_ is None:
            return False
        self._insert(to.node, bytes(from_.node.data[from_.at : from_.at + count]), to.at)
        to.at, from_.at = to.at + count, from_.at + count
        return True

    @staticmethod
    def _insert(node: Node, data: bytes, at: int) -> None:
        if len(node.data) < at:
            node.data.extend(bytes(at - len(node.data)))
        node.data[at : at + len(data)] = data

    def _ftruncate(self, call: Call) -> bool:
        found = self._at(call)
        if found is None:
            return False
        size = int(call.arguments[1])
        self._insert(found.node, b"", size)
        del found.node.data[size:]
        return True

    def _fsync(self, call: Call) -> bool:
        found = self._at(call)
        if found is not None:
            self._sync_node(found.node)
        return found is not None

    _fdatasync = _fsync

    def _sync_node(self, node: Node) -> None:
        self._moved["syncs"] += 1
        node.sync()

    def _syncfs(self, _: Call) -> bool:
        self._moved["syncs"] += 1
        self.root.sync_all()
        return True

    _sync = _syncfs


def _bytes_of(found: re.Match[bytes]) -> bytes:
    return bytes.fromhex(found[1].decode().replace("\\x", ""))


def _number(argument: bytes) -> int:
    found = _FD.match(argument)
    return int(found[1]) if found else int(argument)


def _read(path: Path) -> Node:
    about = path.lstat()
    if path.is_symlink():
        return Node("link", os.fsencode(path.readlink()))
    if not path.is_dir():
        return Node("file", path.read_bytes(), about.st_mode & 0o777)
    node = Node("folder", mode=about.st_mode & 0o777)
    node.names = {child.name: _read(child) for child in path.iterdir()}
    return node


def _write(node: Node, path: Path, names_ahead: bool) -> None:
    if node.kind == "link":
        path.symlink_to(os.fsdecode(node.kept))
    elif node.kind == "file":
        path.write_bytes(node.kept)
        path.chmod(node.mode)
    else:
        path.mkdir(mode=node.mode | 0o700)
        for name, child in (node.names if names_ahead else node.kept_names).items():
            _write(child, path / name, names_ahead)
