"""What an agent's program printed, as a transcript for people; live while the job runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from phasegate.agents.transcript import Transcript
from phasegate.config import Config
from phasegate.engine.job_view import JobView
from phasegate.engine.jobs import LOGS
from phasegate.engine.project import Project
from phasegate.record.location import Location
from phasegate.record.reader import read_store
from phasegate.record.trail_reader import Fields
from phasegate.rules.harnesses import COMMAND, ROWS
from phasegate.rules.trail import Action

LAST_OF_STDERR = 20  # lines
READ_OF_STDERR = 16_000  # bytes
Wait = Callable[[], bool]


def log_text(project: Project, view: JobView) -> str:
    """All that a job printed so far."""
    return "\n".join(log_lines(project, view))


def log_lines(project: Project, view: JobView, wait: Wait | None = None) -> Iterator[str]:
    """What a job printed: the stream of its program as a transcript, then the end of its stderr.

    With `wait` the log is followed to the end of the job: it is called between two looks, and says whether to go on.
    """
    folder = project.jobs / view.job
    start: Fields = next((entry for entry in view.entries if entry.get("action") == Action.START), {})
    kind = _kind_of(start, view.row.agent if view.row else "", project.config)
    transcript = Transcript(kind, Path(str(start.get("cwd", project.root))), view.row.phase if view.row else "")
    for line in _lines(
        folder / LOGS[0], lambda: wait is not None and not _has_ended(project.location, view.job) and wait()
    ):
        yield from transcript.line(line.decode("utf-8", "replace"))
    yield from transcript.end()
    yield from _stderr(folder / LOGS[1])


def _kind_of(start: Fields, agent: str, config: Config) -> str:
    """Which harness read the job: its trail says so; before it did, the configuration of its agent does."""
    recorded = start.get("harness")
    if isinstance(recorded, str) and recorded in ROWS:
        return recorded
    return config.agents[agent].harness if agent in config.agents else COMMAND


def _has_ended(location: Location, job: str) -> bool:
    """Whether the record knows the job's end. Where there is no record of it, nothing more is waited for."""
    reader = read_store(location)
    if reader is None:
        return True
    with reader:
        row = reader.job(job)
    return row is None or bool(row.ended)


def _lines(path: Path, goes_on: Callable[[], bool]) -> Iterator[bytes]:
    """The lines of a log that grows; the last one, without a line feed, when nothing more is to come."""
    while not path.is_file():
        if not goes_on():
            return
    begun, is_last = b"", False
    with path.open("rb") as log:
        while True:
            for piece in log:
                begun += piece
                if begun.endswith(b"\n"):
                    yield begun[:-1]
                    begun = b""
            if is_last:
                break
            is_last = not goes_on()  # what was written before its end is read once more
    if begun:
        yield begun


def _stderr(path: Path) -> Iterator[str]:
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - READ_OF_STDERR))
        lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    if lines:
        yield "on stderr:"
        yield from (f"  | {line}" for line in lines[-LAST_OF_STDERR:])
