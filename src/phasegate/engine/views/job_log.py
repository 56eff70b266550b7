"""What an agent's program printed, as a transcript for people; live while the job runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from phasegate.agents.stream.transcript import Transcript
from phasegate.config import Config
from phasegate.core.agents.harnesses import COMMAND, HARNESSES
from phasegate.core.audit.trail import Action
from phasegate.engine.journal.entries import LOG_FILES
from phasegate.engine.project.project import Project
from phasegate.engine.views.job import JobView
from phasegate.storage.location import Location
from phasegate.storage.reader import open_store_reader
from phasegate.storage.trail_reader import EntryFields

# Lines
STDERR_TAIL_LINES = 20
# Bytes
STDERR_TAIL_BYTES = 16_000
# Bytes
MAX_PAGE_BYTES = 64_000
WaitCallback = Callable[[], bool]


def read_log_text(project: Project, view: JobView) -> str:
    """All that a job printed so far."""
    return "\n".join(read_log_lines(project, view))


def read_log_lines(
    project: Project, view: JobView, wait: WaitCallback | None = None
) -> Iterator[str]:
    """What a job printed: the stream of its program as a transcript, then the end of its stderr.

    With `wait` the log is followed to the end of the job: it is called between two looks, and says
    whether to go on.
    """
    folder = project.jobs_folder / view.job
    transcript = _make_transcript(project, view)

    for line in _follow_lines(
        folder / LOG_FILES[0],
        lambda: wait is not None and not _has_ended(project.location, view.job) and wait(),
    ):
        yield from transcript.format_line(line.decode("utf-8", "replace"))

    yield from transcript.format_end()
    yield from _read_stderr_tail(folder / LOG_FILES[1])


def _make_transcript(project: Project, view: JobView) -> Transcript:
    start: EntryFields = next(
        (entry for entry in view.entries if entry.get("action") == Action.START), {}
    )
    kind = _harness_of(start, view.row.agent if view.row else "", project.config)
    return Transcript(
        kind, Path(str(start.get("cwd", project.root))), view.row.phase if view.row else ""
    )


class LogPage(NamedTuple):
    """A part of what a job printed, as a transcript: the bytes from `start` to `end` of so many."""

    text: str
    start: int
    end: int
    size: int
    # Nothing more is to come
    is_over: bool


def read_log_page(
    project: Project, view: JobView, start: int | None = None, before: int | None = None
) -> LogPage:
    """One page of a log: from `start` on, the one before `before`, or the last.

    A log of any size opens at its end.
    """
    path = project.jobs_folder / view.job / LOG_FILES[0]
    is_over = _has_ended(project.location, view.job)
    if path.is_file():
        size = path.stat().st_size
    else:
        size = 0

    if before is not None:
        end = min(before, size)
    else:
        end = size

    if start is None:
        first = max(0, end - MAX_PAGE_BYTES)
    else:
        first = min(start, size)

    with path.open("rb") if size else BytesIO() as log:
        log.seek(first)
        read = log.read(min(MAX_PAGE_BYTES, end - first))

    # The line that was cut off belongs to the page before
    if start is None and first:
        cut = read.find(b"\n") + 1
        read = read[cut:]
        first = first + cut

    # A line that has not ended comes with the next page
    if not is_over or first + len(read) < end:
        read = read[: read.rfind(b"\n") + 1] or (read if len(read) == MAX_PAGE_BYTES else b"")

    transcript = _make_transcript(project, view)
    lines = [
        one
        for line in read.split(b"\n")
        for one in transcript.format_line(line.decode("utf-8", "replace"))
    ]
    if is_over and first + len(read) == size:
        last = [*transcript.format_end(), *_read_stderr_tail(path.parent / LOG_FILES[1])]
    else:
        last = []

    return LogPage(
        text="\n".join([*lines, *last]),
        start=first,
        end=first + len(read),
        size=size,
        is_over=is_over and first + len(read) == size,
    )


def _harness_of(start: EntryFields, agent: str, config: Config) -> str:
    """Which harness read the job.

    Its trail says so; before it did, the configuration of its agent does.
    """
    recorded = start.get("harness")
    if isinstance(recorded, str) and recorded in HARNESSES:
        return recorded
    if agent in config.agents:
        return config.agents[agent].harness

    return COMMAND


def _has_ended(location: Location, job: str) -> bool:
    """Whether the record knows the job's end.

    Where there is no record of it, nothing more is waited for.
    """
    reader = open_store_reader(location)
    if reader is None:
        return True

    with reader:
        row = reader.find_job(job)

    return row is None or bool(row.ended)


def _follow_lines(path: Path, keep_following: Callable[[], bool]) -> Iterator[bytes]:
    """The lines of a log that grows.

    The last one, without a line feed, when nothing more is to come.
    """
    while not path.is_file():
        if not keep_following():
            return

    begun = b""
    is_last = False
    with path.open("rb") as log:
        while True:
            for piece in log:
                begun += piece
                if begun.endswith(b"\n"):
                    yield begun[:-1]
                    begun = b""

            if is_last:
                break

            # What was written before its end is read once more
            is_last = not keep_following()

    if begun:
        yield begun


def _read_stderr_tail(path: Path) -> Iterator[str]:
    if not path.is_file() or not path.stat().st_size:
        return

    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - STDERR_TAIL_BYTES))
        lines = [
            line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()
        ]

    if lines:
        yield "on stderr:"
        yield from (f"  | {line}" for line in lines[-STDERR_TAIL_LINES:])
