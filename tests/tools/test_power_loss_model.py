"""The model of a disk against traces that a busy machine has: calls of threads and children out of order."""

from __future__ import annotations

from pathlib import Path

from support.power_loss import Disk, calls_of


def hexed(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


class Log:
    """A trace as strace writes it, line by line."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "top"
        self.top.mkdir()
        (self.top / "kept").write_text("as it was")
        self._path, self._lines = folder / "log", [""]

    def name(self, name: str) -> str:
        return hexed(f"{self.top}/{name}")

    def opened(self, pid: int, number: int, name: str) -> None:
        call = (
            f'openat(AT_FDCWD<{hexed("/")}>, "{self.name(name)}", O_RDWR|O_CREAT|O_CLOEXEC, 0600)'
        )
        self.line(pid, f"{call} = {number}<{self.name(name)}>")

    def synced(self, pid: int, number: int, name: str) -> None:
        self.line(pid, f'write({number}<{self.name(name)}>, "{hexed("new")}", 3) = 3')
        self.line(pid, f"fsync({number}<{self.name(name)}>) = 0")

    def line(self, pid: int, text: str) -> None:
        self._lines.append(f"{pid} {text}")

    def left(self, target: Path) -> Path:
        self.line(1, f"fsync(9<{hexed(str(self.top))}>) = 0")
        self._path.write_text("\n".join(self._lines))
        disk = Disk(self.top)
        for call in calls_of(self._path):
            disk.play(call)
        assert disk.strays == []
        disk.leave(target)
        return target


def test_a_descriptor_that_another_thread_got_while_it_was_closed_leads_to_the_new_file(
    tmp_path: Path,
) -> None:
    log = Log(tmp_path)
    log.line(1, "clone(child_stack=0x1, flags=CLONE_VM|CLONE_FILES|CLONE_THREAD) = 2")
    log.opened(1, 4, "old")
    log.line(1, f"close(4<{log.name('old')}> <unfinished ...>")
    log.opened(2, 4, "index")
    log.line(1, "<... close resumed>) = 0")
    log.synced(2, 4, "index")
    left = log.left(tmp_path / "left")
    assert (left / "index").read_text() == "new"
    assert (left / "old").read_text() == ""


def test_a_child_that_is_ahead_of_the_call_that_made_it_keeps_what_it_opened(
    tmp_path: Path,
) -> None:
    log = Log(tmp_path)
    log.opened(1, 4, "parents")
    log.line(1, "vfork( <unfinished ...>")
    log.line(2, f"close(4<{log.name('parents')}>) = 0")
    log.opened(2, 4, "index")
    log.line(1, "<... vfork resumed>) = 2")
    log.synced(2, 4, "index")
    log.synced(1, 4, "parents")
    left = log.left(tmp_path / "left")
    assert (left / "index").read_text() == (left / "parents").read_text() == "new"


def test_what_a_child_writes_to_a_pipe_goes_to_no_file_of_its_parent_with_that_number(
    tmp_path: Path,
) -> None:
    log = Log(tmp_path)
    log.opened(1, 4, "kept")
    log.line(1, "vfork() = 2")
    for name in (
        "anon_inode:[eventfd]",
        "pipe:[12]",
    ):  # made by calls that are not traced, behind an execve
        log.line(2, f'write(4<{hexed(name)}>, "{hexed("poison")}", 6) = 6')
    log.line(1, f"fsync(4<{log.name('kept')}>) = 0")
    assert (log.left(tmp_path / "left") / "kept").read_text() == "as it was"
