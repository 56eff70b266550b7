"""A prompt of 100 MB of files, escaped and checked, written to a file, against `cat` of them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

from bench.measure import Row, in_turn
from phasegate.core.prompt.document import ItemType, render_end_tag, render_head, render_start_tag
from phasegate.prompts.stream import FileSource, PromptParts, write_prompt_xml

MEGABYTES = 100
BUFFER_BYTES = 256 * 1024
GOAL = 5
MEMORY_GOAL_MB = 64
SAMPLES = Path(__file__).parent.parent / "tests" / "golden" / "tokens"
MEASURE_MEMORY = """
import sys
from pathlib import Path
from bench.prompt_stream import parts_of, streamed
streamed(parts_of([Path(name) for name in sys.argv[2:]]), Path(sys.argv[1]))()
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as room:
        many, one = _files(Path(room))
        out = Path(room) / "out"
        found = [_row("files of 1 MB", many, out), _row("one file", [one], out)]
        memory = _memory_mb(many, out)
    return [
        *found,
        Row("memory of it, in a process of its own", memory, MEMORY_GOAL_MB, 1, unit="MB"),
    ]


def _row(name: str, files: list[Path], out: Path) -> Row:
    ours = streamed(parts_of(files), out)
    ours()
    _check(files, out)
    return Row(
        f"prompt of {MEGABYTES} MB, {name}, against cat", *in_turn(ours, _cat(files, out)), GOAL
    )


def parts_of(files: list[Path]) -> PromptParts:
    return PromptParts(
        "system", [FileSource(ItemType.FILE, file.name, file) for file in files], "go"
    )


def streamed(parts: PromptParts, out: Path) -> Callable[[], object]:
    def run() -> None:
        with out.open("wb", buffering=BUFFER_BYTES) as file:
            write_prompt_xml(parts, file)

    return run


def _files(room: Path) -> tuple[list[Path], Path]:
    """Code and some prose of several languages, as repositories hold them: one character in 300 is not ASCII."""
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(SAMPLES.glob("code-*.txt")))
    prose = "".join(
        path.read_text(encoding="utf-8") for path in sorted(SAMPLES.glob("prose-*.txt"))
    )
    text = ((code * 40 + prose).encode() * 10)[: 1024 * 1024].decode(errors="ignore").encode()
    many = [room / f"file{number:03}" for number in range(MEGABYTES)]
    for path in many:
        path.write_bytes(text)
    one = room / "one"
    one.write_bytes(text * MEGABYTES)
    return many, one


def _cat(files: list[Path], out: Path) -> Callable[[], object]:
    def run() -> None:
        with out.open("wb") as file:
            subprocess.run(["cat", *files], stdout=file, check=True)

    return run


def _check(files: list[Path], out: Path) -> None:
    with out.open(encoding="utf-8", newline="") as written:
        assert written.read(len(render_head("system"))) == render_head("system")
        for path in files:
            start, end = (
                render_start_tag(ItemType.FILE, path.name, True),
                render_end_tag(ItemType.FILE),
            )
            expected = start + escape(path.read_text(encoding="utf-8")) + end
            assert written.read(len(expected)) == expected


def _memory_mb(files: list[Path], out: Path) -> float:
    command = [sys.executable, "-c", MEASURE_MEMORY, str(out), *map(str, files)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1024
