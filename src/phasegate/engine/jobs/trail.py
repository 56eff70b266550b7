"""Write the trail of a running job: the observations of Phasegate and the reports of the agent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from threading import Lock

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
from phasegate.workspace.changes.agent_actions import AgentAction

MAX_DERIVED_ENTRIES = 2_000


class JobTrail:
    """Writes the trail of one job.

    Thread-safe; the times of the entries never decrease.
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
        """Append an entry with the time `at`, or the current time.

        If the time is before that of the last entry, the time of the last entry is used.
        """
        self.write_all([(at, entry)])

    def write_all(self, entries: Iterable[tuple[str, TrailEvent]]) -> None:
        """Append entries, each with its time, or "" for the current time."""
        with self._lock:
            timed = []
            for at, entry in entries:
                self._last = max(self._last, at or self._now())
                timed.append((self._last, entry))

            if timed:
                self._trails.append_entries(self._job, timed)

    def log_documents(self, pieces: Iterable[ContextPiece]) -> None:
        """Log every document of the prompt as given: the agent may not have read it."""
        entries = []
        for piece in pieces:
            if piece.name is not None:
                digest = sha256_hex(piece.content.encode("utf-8", "surrogatepass"))
                entry = self.agent.build_event(
                    Action.READ_SPEC, Source.GIVEN, path=piece.name, hash=digest
                )
                entries.append(("", entry))

        self.write_all(entries)

    def log_signal(self, name: str) -> None:
        """Log a signal that was sent to the job."""
        if name == "SIGTERM":
            action = Action.STOP_REQUESTED
        else:
            action = Action.KILLED
        self.write(PHASEGATE_ACTOR.build_event(action, Source.OBSERVED, signal=name))

    def log_agent_actions(
        self, actions: list[AgentAction], ended: str, redact: Callable[[str], str]
    ) -> None:
        """Log the file changes and commits of the run that has just ended.

        `redact` removes secrets from paths and commit messages.
        """
        entries = []
        for action in actions[:MAX_DERIVED_ENTRIES]:
            at = min(format_timestamp(action.at_s), ended)
            redacted = action._replace(path=redact(action.path), message=redact(action.message))
            entries.append((at, _make_action_entry(self.agent, redacted, at, self._last)))

        if len(actions) > MAX_DERIVED_ENTRIES:
            text = f"{len(actions) - MAX_DERIVED_ENTRIES} more are in the commits"
            notice = PHASEGATE_ACTOR.build_event(Action.NOTICE, Source.OBSERVED, text=text)
            entries.append((ended, notice))

        self.write_all(entries)

    def log_end(self, ended: JobEnd, at: str) -> None:
        """Log how the process ended, its usage and its answer."""
        finished = ended.finished
        if ended.usage is not None:
            self.write(make_usage_entry(self.agent, ended.usage), at)

        exited = self.agent.build_event(
            Action.EXIT,
            Source.OBSERVED,
            code=finished.exit_status,
            signal=finished.signal,
            duration_total_s=round(finished.duration_s, 3),
        )
        verdict: dict[str, TrailValue] = {}
        if ended.answer.verdict is not None:
            verdict["verdict"] = str(ended.answer.verdict)

        answered = self.agent.build_event(
            Action.ANSWER,
            Source.REPORTED,
            end=str(ended.outcome),
            reason=ended.reason,
            **verdict,
            output_sha256=sha256_hex(finished.stdout.encode()),
        )
        self.write(exited, at)
        self.write(answered)

    def close(self) -> TrailSeal:
        return self._trails.close(self._job)


def _make_action_entry(agent: TrailActor, action: AgentAction, at: str, last: str) -> TrailEvent:
    """Make the entry of a file change or commit.

    Entries that were logged live may be later than it; then its own time is a field of the entry.
    """
    time_field: dict[str, TrailValue] = {"at": at} if at < last else {}

    if action.sha:
        return agent.build_event(
            Action.COMMIT,
            Source.DERIVED,
            sha=action.sha,
            message=action.message[:MAX_TEXT_CHARS],
            **time_field,
        )

    if not action.hash:
        return agent.build_event(Action.DELETE_FILE, Source.DERIVED, path=action.path, **time_field)

    lines: dict[str, TrailValue] = {} if action.lines is None else {"lines": action.lines}
    return agent.build_event(
        Action.WRITE_FILE,
        Source.DERIVED,
        path=action.path,
        **lines,
        hash=action.hash,
        **time_field,
    )


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
