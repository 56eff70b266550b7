"""Render the output of an agent's program as a transcript, live while the job runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from phasegate.agents.stream.transcript import Transcript
from phasegate.config.settings import Config
from phasegate.core.agents.harnesses import COMMAND, HARNESSES
from phasegate.core.audit.trail import Action
from phasegate.engine.journal.entries import LOG_FILES
from phasegate.engine.project.project import Project
from phasegate.engine.views.job import JobView
from phasegate.storage.location import Location
from phasegate.storage.reader import open_store_reader
from phasegate.storage.trail_reader import EntryFields

STDERR_TAIL_LINES = 20
STDERR_TAIL_BYTES = 16_000
MAX_PAGE_BYTES = 64_000
WaitCallback = Callable[[], bool]


def read_log_text(project: Project, view: JobView) -> str:
    """Return the whole output of a job so far."""
    return "\n".join(read_log_lines(project, view))


def read_log_lines(
    project: Project, view: JobView, wait: WaitCallback | None = None
) -> Iterator[str]:
    """Yield a job's output: the transcript of its stdout, then the end of its stderr.

    With `wait` the log is followed to the end of the job: it is called between two polls, and
    returns whether to continue.
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
    """A part of a job's transcript: the bytes `start` to `end` of a log of `size` bytes."""

    text: str
    start: int
    end: int
    size: int
    # The job has ended and this is the last page
    is_over: bool


def read_log_page(
    project: Project, view: JobView, start: int | None = None, before: int | None = None
) -> LogPage:
    """Read one page of a log: from `start`, the page before `before`, or the last page.

    A log of any size opens at its end.
    """
    path = project.jobs_folder / view.job / LOG_FILES[0]
    is_over = _has_ended(project.location, view.job)
    size = path.stat().st_size if path.is_file() else 0
    limit = size if before is None else min(before, size)
    first = max(0, limit - MAX_PAGE_BYTES) if start is None else min(start, size)

    with path.open("rb") if size else BytesIO() as log:
        log.seek(first)
        content = log.read(min(MAX_PAGE_BYTES, limit - first))

    # The rest of a line that starts before this page belongs to the previous page.
    if start is None and first:
        cut = content.find(b"\n") + 1
        content = content[cut:]
        first += cut

    # An incomplete line comes with the next page, unless it fills the whole page.
    if not is_over or first + len(content) < limit:
        complete = content[: content.rfind(b"\n") + 1]
        if complete or len(content) < MAX_PAGE_BYTES:
            content = complete

    transcript = _make_transcript(project, view)
    lines: list[str] = []
    for line in content.split(b"\n"):
        lines += transcript.format_line(line.decode("utf-8", "replace"))

    end = first + len(content)
    is_last = is_over and end == size
    if is_last:
        lines += transcript.format_end()
        lines += _read_stderr_tail(path.parent / LOG_FILES[1])

    return LogPage(text="\n".join(lines), start=first, end=end, size=size, is_over=is_last)


def _harness_of(start: EntryFields, agent: str, config: Config) -> str:
    """Return the harness that ran the job: from its trail, else from its agent's configuration."""
    recorded = start.get("harness")
    if isinstance(recorded, str) and recorded in HARNESSES:
        return recorded
    if agent in config.agents:
        return config.agents[agent].harness

    return COMMAND


def _has_ended(location: Location, job: str) -> bool:
    """Return True if the job's end is recorded, or if the job is not recorded at all."""
    reader = open_store_reader(location)
    if reader is None:
        return True

    with reader:
        row = reader.find_job(job)

    return row is None or bool(row.ended)


def _follow_lines(path: Path, keep_following: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the lines of a growing log; an incomplete last line when the log has ended."""
    while not path.is_file():
        if not keep_following():
            return

    pending = b""
    is_last = False
    with path.open("rb") as log:
        while True:
            for part in log:
                pending += part
                if pending.endswith(b"\n"):
                    yield pending[:-1]
                    pending = b""

            if is_last:
                break

            # Read the last output, which was written before the job ended.
            is_last = not keep_following()

    if pending:
        yield pending


def _read_stderr_tail(path: Path) -> Iterator[str]:
    """Yield the last lines that the agent wrote to stderr."""
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
