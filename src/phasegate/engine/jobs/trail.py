"""The trail of one job while it runs: what we see and what its agent reports, each at its time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from threading import Lock

from phasegate.agents.port import FinishedRun
from phasegate.core.audit.trail import US, Action, Doer, Done, Source, Value, doer_of
from phasegate.core.prompt.budget import Piece
from phasegate.engine.jobs.assignment import Assigned, Ended
from phasegate.engine.jobs.live_events import LONGEST_TEXT, used
from phasegate.engine.project.ports import TrailSink, stamp
from phasegate.storage.rows import Seal
from phasegate.workspace.agent_actions import Deed

MOST_DEEDS = 2_000


class JobTrail:
    """Writes one job's lines. Threads may write at once: no line has a time before the one above it."""

    def __init__(self, trails: TrailSink, assigned: Assigned, now: Callable[[], str]) -> None:
        self._trails, self._job, self._now = trails, assigned.job, now
        self._lock, self._last = Lock(), ""
        self.agent: Doer = doer_of(assigned.settings.harness, assigned.agent)
        trails.open(assigned.feature, assigned.job)

    def write(self, done: Done, at: str = "") -> None:
        """Append what happened now, or at a time that lies behind; a later line has no earlier time."""
        self.write_all([(at, done)])

    def write_all(self, entries: Iterable[tuple[str, Done]]) -> None:
        with self._lock:
            timed = []
            for at, done in entries:
                self._last = max(self._last, at or self._now())
                timed.append((self._last, done))
            if timed:
                self._trails.write_all(self._job, timed)

    def hand_over(self, pieces: Iterable[Piece]) -> None:
        """Each document that the agent is given."""
        handed = (one for one in pieces if one.name is not None)
        self.write_all([("", self.agent.did(Action.READ_SPEC, Source.OBSERVED, **_document(one))) for one in handed])

    def signal(self, name: str) -> None:
        """A signal was sent to the job."""
        action = Action.TOLD_TO_STOP if name == "SIGTERM" else Action.KILLED
        self.write(US.did(action, Source.OBSERVED, signal=name))

    def deeds(self, deeds: list[Deed], ended: str, hide: Callable[[str], str]) -> None:
        """What files and git tell of the run that has just ended. `hide` takes keys out of names and messages."""
        clean = (one._replace(path=hide(one.path), message=hide(one.message)) for one in deeds[:MOST_DEEDS])
        timed = ((min(stamp(one.at_s), ended), one) for one in clean)
        lines = [(at, _deed(self.agent, one, at, self._last)) for at, one in timed]
        if len(deeds) > MOST_DEEDS:
            told = f"{len(deeds) - MOST_DEEDS} more are in the commits"
            lines.append((ended, US.did(Action.NOTICE, Source.OBSERVED, text=told)))
        self.write_all(lines)

    def end(self, ended: Ended, at: str) -> None:
        """How the process ended, and what was said."""
        finished = ended.finished
        if ended.usage is not None:
            self.write(used(self.agent, ended.usage), at)
        exit_fields: dict[str, Value] = {
            "code": finished.exit_status,
            "signal": finished.signal,
            "duration_total_s": round(finished.duration_s, 3),
        }
        self.write(self.agent.did(Action.EXIT, Source.OBSERVED, **exit_fields), at)
        self.write(self.agent.did(Action.ANSWER, Source.REPORTED, **_answer(ended, finished)))

    def close(self) -> Seal:
        return self._trails.close(self._job)


def _document(piece: Piece) -> dict[str, Value]:
    data = piece.content.encode("utf-8", "surrogatepass")
    return {"path": piece.name, "hash": digest(data)}


def _deed(agent: Doer, deed: Deed, at: str, last: str) -> Done:
    """A deed as a line. Where lines that were written live stand behind its own time, that time is a field of it."""
    own: dict[str, Value] = {"at": at} if at < last else {}
    if deed.sha:
        return agent.did(Action.COMMIT, Source.DERIVED, sha=deed.sha, message=deed.message[:LONGEST_TEXT], **own)
    if not deed.hash:
        return agent.did(Action.DELETE_FILE, Source.DERIVED, path=deed.path, **own)
    lines: dict[str, Value] = {} if deed.lines is None else {"lines": deed.lines}
    return agent.did(Action.WRITE_FILE, Source.DERIVED, path=deed.path, **lines, hash=deed.hash, **own)


def _answer(ended: Ended, finished: FinishedRun) -> dict[str, Value]:
    said: dict[str, Value] = {"end": str(ended.end), "reason": ended.reason}
    if ended.answer.verdict is not None:
        said["verdict"] = str(ended.answer.verdict)
    return {**said, "output_sha256": digest(finished.stdout.encode())}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
