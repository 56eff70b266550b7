"""The trail of one job while it runs: what we see and what its agent reports, each at its time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from threading import Lock

from phasegate.agents.port import FinishedRun
from phasegate.core.audit.trail import (
    PHASEGATE_ACTOR,
    Action,
    Source,
    TrailActor,
    TrailEvent,
    TrailValue,
    build_agent_actor,
)
from phasegate.core.prompt.budget import ContextPiece
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.job_end import JobEnd
from phasegate.engine.jobs.live_events import MAX_TEXT_CHARS, make_usage_entry
from phasegate.engine.project.ports import TrailSink, format_timestamp
from phasegate.storage.rows import TrailSeal
from phasegate.workspace.agent_actions import AgentAction

MAX_DERIVED_ENTRIES = 2_000


class JobTrail:
    """Writes one job's lines.

    Threads may write at once: no line has a time before the one above it.
    """

    def __init__(self, trails: TrailSink, assigned: JobAssignment, now: Callable[[], str]) -> None:
        self._trails = trails
        self._job = assigned.job_id
        self._now = now
        self._lock = Lock()
        self._last = ""
        self.agent: TrailActor = build_agent_actor(assigned.settings.harness, assigned.agent)
        trails.open(assigned.feature, assigned.job_id)

    def write(self, entry: TrailEvent, at: str = "") -> None:
        """Append what happened now, or at a time that lies behind.

        A later line has no earlier time.
        """
        self.write_all([(at, entry)])

    def write_all(self, entries: Iterable[tuple[str, TrailEvent]]) -> None:
        with self._lock:
            timed = []
            for at, done in entries:
                self._last = max(self._last, at or self._now())
                timed.append((self._last, done))

            if timed:
                self._trails.append_entries(self._job, timed)

    def log_documents(self, pieces: Iterable[ContextPiece]) -> None:
        """Each document that the agent is given."""
        handed = (one for one in pieces if one.name is not None)
        self.write_all(
            [
                (
                    "",
                    self.agent.build_event(
                        Action.READ_SPEC, Source.OBSERVED, **_document_fields(one)
                    ),
                )
                for one in handed
            ]
        )

    def log_signal(self, name: str) -> None:
        """A signal was sent to the job."""
        if name == "SIGTERM":
            action = Action.STOP_REQUESTED
        else:
            action = Action.KILLED
        self.write(PHASEGATE_ACTOR.build_event(action, Source.OBSERVED, signal=name))

    def log_agent_actions(
        self, actions: list[AgentAction], ended: str, redact: Callable[[str], str]
    ) -> None:
        """What files and git tell of the run that has just ended.

        `hide` takes keys out of names and messages.
        """
        clean = (
            one._replace(path=redact(one.path), message=redact(one.message))
            for one in actions[:MAX_DERIVED_ENTRIES]
        )
        timed = ((min(format_timestamp(one.at_s), ended), one) for one in clean)
        lines = [(at, _make_action_entry(self.agent, one, at, self._last)) for at, one in timed]

        if len(actions) > MAX_DERIVED_ENTRIES:
            told = f"{len(actions) - MAX_DERIVED_ENTRIES} more are in the commits"
            lines.append(
                (ended, PHASEGATE_ACTOR.build_event(Action.NOTICE, Source.OBSERVED, text=told))
            )

        self.write_all(lines)

    def log_end(self, ended: JobEnd, at: str) -> None:
        """How the process ended, and what was said."""
        finished = ended.finished
        if ended.usage is not None:
            self.write(make_usage_entry(self.agent, ended.usage), at)

        exit_fields: dict[str, TrailValue] = {
            "code": finished.exit_status,
            "signal": finished.signal,
            "duration_total_s": round(finished.duration_s, 3),
        }
        self.write(self.agent.build_event(Action.EXIT, Source.OBSERVED, **exit_fields), at)
        self.write(
            self.agent.build_event(
                Action.ANSWER, Source.REPORTED, **_answer_fields(ended, finished)
            )
        )

    def close(self) -> TrailSeal:
        return self._trails.close(self._job)


def _document_fields(piece: ContextPiece) -> dict[str, TrailValue]:
    data = piece.content.encode("utf-8", "surrogatepass")
    return {"path": piece.name, "hash": sha256_hex(data)}


def _make_action_entry(agent: TrailActor, action: AgentAction, at: str, last: str) -> TrailEvent:
    """A deed as a line.

    Where lines that were written live stand behind its own time, that time is a field of it.
    """
    own: dict[str, TrailValue] = {"at": at} if at < last else {}

    if action.sha:
        return agent.build_event(
            Action.COMMIT,
            Source.DERIVED,
            sha=action.sha,
            message=action.message[:MAX_TEXT_CHARS],
            **own,
        )

    if not action.hash:
        return agent.build_event(Action.DELETE_FILE, Source.DERIVED, path=action.path, **own)

    lines: dict[str, TrailValue] = {} if action.lines is None else {"lines": action.lines}
    return agent.build_event(
        Action.WRITE_FILE, Source.DERIVED, path=action.path, **lines, hash=action.hash, **own
    )


def _answer_fields(ended: JobEnd, finished: FinishedRun) -> dict[str, TrailValue]:
    said: dict[str, TrailValue] = {"end": str(ended.outcome), "reason": ended.reason}
    if ended.answer.verdict is not None:
        said["verdict"] = str(ended.answer.verdict)
    return {**said, "output_sha256": sha256_hex(finished.stdout.encode())}


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
