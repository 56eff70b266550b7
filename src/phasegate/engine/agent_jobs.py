"""The jobs of a package's step: started when they are due, side by side, and each end recorded as it comes.

One thread decides and records; the others only run agents. A job is on record before it starts. Whoever ends this in
between, a person or an error, ends the agents with it; their work is saved, and they are run again next time.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event as Cancelled
from typing import NamedTuple, Protocol

from phasegate.engine.briefing import agent_for, brief
from phasegate.engine.claims import claimed
from phasegate.engine.crew import Came, Crew
from phasegate.engine.job_end import Assigned, Ended
from phasegate.engine.jobs import clear_away, last_seen, lost_row, run_job, started_row
from phasegate.engine.staffing import clock
from phasegate.engine.workplace import Workplace
from phasegate.errors import Interrupted, PhasegateError
from phasegate.record.row_events import job_started
from phasegate.record.rows import Event
from phasegate.record.trails import Trails
from phasegate.rules.package_run import Action, End, Happened, JobEnded, JobStarted, Owed, Reviewed, Run, Step, decide
from phasegate.rules.retry import back_off_s
from phasegate.rules.work_package import State
from phasegate.workspace.checkout_lifecycle import Unsaved, start_over
from phasegate.workspace.export import export
from phasegate.workspace.removal import remove_tree

LOOK_EVERY_S = 0.2  # whether somebody has cancelled


class Progress(NamedTuple):
    """What is going on, for a person who watches."""

    package: str
    state: State
    round: int
    rounds: int
    step: Step
    agents: tuple[str, ...] = ()  # at work now


class Record(Protocol):
    """Where events go, and who is told."""

    @property
    def run(self) -> Run: ...

    def __call__(self, *events: Happened, rows: tuple[Event, ...] = ()) -> None: ...

    def read_again(self) -> None: ...

    def say(self, text: str, *, at_once: bool = False) -> None: ...

    def show(self, agents: tuple[str, ...] | None = None) -> None: ...


class _AtWork(NamedTuple):
    assigned: Assigned
    owed: Owed
    name: str


class AgentJobs:
    """Runs agents of one package."""

    def __init__(
        self, place: Workplace, trails: Trails, record: Record, agent: str | None, cancelled: Cancelled
    ) -> None:
        self._place, self._trails, self._record = place, trails, record
        self._agent, self._cancelled, self._clock = agent, cancelled, place.project.clock
        self._at_work: dict[str, _AtWork] = {}
        self._told_until_s: dict[str, float] = {}
        self._due_s: dict[tuple[int, Owed], float] = {}  # when a try after an error may begin, by round and part

    def run(self) -> None:
        """Carry a step of the package out to its end, with all the agents that it takes."""
        try:
            with Crew() as crew:
                self._run_with(crew)
        except (Interrupted, PhasegateError):
            self._record.read_again()
            self.give_up("it was stopped before its end")
            raise

    def stop_if_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise Interrupted

    def give_up(self, why: str) -> None:
        """Close the jobs that are open on record and that nobody runs any more; what they left is saved."""
        lost = self._record.run.open_jobs
        for job in lost:
            clear_away(self._place.project, job.job)
            if job.role == Step.IMPLEMENT:
                self._place.renew(job.agent_index)
        if lost:
            rows = [row for job in lost if (row := self._place.store.job(job.job)) is not None]
            seen = {row.id: last_seen(self._place.project, row) for row in rows}
            ends = (JobEnded(job.job, End.LOST, why, last_seen=seen.get(job.job, "")) for job in lost)
            self._record(*ends, rows=tuple(lost_row(row, seen[row.id]) for row in rows))

    def _run_with(self, crew: Crew) -> None:
        step = self._record.run.step
        while self._record.run.step is step or crew.is_busy:
            self.stop_if_cancelled()
            if self._record.run.step is not step:
                crew.stop()  # one of several has blocked the package: what the others do is not wanted any more
            elif not self._start_due(crew) and not crew.is_busy:
                self._cancelled.wait(LOOK_EVERY_S)
            came = crew.wait(LOOK_EVERY_S) if crew.is_busy else None
            if came is not None:
                self._take_in(came)

    def _start_due(self, crew: Crew) -> int:
        """Start every job whose time has come; how many that were."""
        due = [action for action in decide(self._record.run) if self._is_due(action)]
        for action in due:
            self._start(crew, action)
        return len(due)

    def _rests(self, action: Action) -> bool:
        """Whether the agent that would do it has run into a limit of its provider, and nobody stands in for it."""
        resting = self._place.store.resting(self._clock.time_s())
        if not resting:
            return False
        member = agent_for(self._place, action.step, self._agent, resting)
        until_s = resting.get(member.name, 0.0)
        if until_s and self._told_until_s.get(member.name) != until_s:
            self._told_until_s[member.name] = until_s
            self._record.say(
                f"{member.name} rests at a limit until {clock(until_s)}; it goes on by itself", at_once=True
            )
        return bool(until_s)

    def _is_due(self, action: Action) -> bool:
        if self._rests(action):
            return False
        if not action.owed.retries:
            return True
        key = (action.round, action.owed)
        if key not in self._due_s:
            wait_s = back_off_s(action.owed.retries, self._clock.chance())
            self._record.say(f"trying again in {wait_s:.0f} s", at_once=True)
            self._due_s[key] = self._clock.monotonic_s() + wait_s
        return self._clock.monotonic_s() >= self._due_s[key]

    def _start(self, crew: Crew, action: Action) -> None:
        place, run, index = self._place, self._record.run, action.owed.agent_index
        assigned = brief(place, run, action, self._folder(action), self._agent)
        several = place.count > 1 and action.step is Step.IMPLEMENT
        name = f"{assigned.agent} (agent {index})" if several else assigned.agent
        row = started_row(place.project, assigned)
        self._record(JobStarted(assigned.job, assigned.phase, action.round, index, name), rows=(job_started(row),))
        self._at_work[assigned.job] = _AtWork(assigned, action.owed, name)
        self._show()
        crew.start(
            assigned.job,
            lambda announce: run_job(place.project, place.store, self._trails, assigned, row, announce),
        )

    def _folder(self, action: Action) -> Path:
        """Where the agent works: an implementer in its checkout, a reviewer in a copy that is thrown away."""
        if action.step is Step.IMPLEMENT:
            return self._place.checkout(action.owed.agent_index).folder
        room = self._room
        if room.exists():
            remove_tree(room)
        export(self._place.project.repository, self._record.run.commit, room, with_git=True)
        return room

    @property
    def _room(self) -> Path:
        package = self._place.package
        return self._place.project.worktrees / f".review-{package.feature_slug}-{package.work_package_id}"

    def _take_in(self, came: Came) -> None:
        """Record how a job ended, with all that follows from it, as one step."""
        at_work = self._at_work.pop(came.job)
        self._show()
        if isinstance(came.result, BaseException):
            raise came.result
        ended, assigned = came.result, at_work.assigned
        end = JobEnded(assigned.job, ended.end, ended.reason, ended.remediation, ended.cleanup)
        if assigned.phase == Step.REVIEW:
            self._record(end, *_judged(ended), rows=ended.rows)
            remove_tree(self._room)
        else:
            self._record_implemented(end, at_work, ended)
        self._trails.forget(assigned.job)

    def _record_implemented(self, end: JobEnded, at_work: _AtWork, ended: Ended) -> None:
        index = at_work.owed.agent_index
        if ended.cleanup:
            renewed = start_over(self._place.checkout(index), self._place.terms())
            if isinstance(renewed, Unsaved):  # the package is blocked: a person sees to the rest
                self._record.say(f"{renewed.folder} is not reset: {renewed.reason}")
        elif ended.end is not End.DONE:  # else it is looked at first
            self._place.disarm(index)
        said = claimed(self._place, at_work.assigned, index, ended) if ended.end is End.DONE else ()
        self._record(end, rows=(*ended.rows, *said))

    def _show(self) -> None:
        self._record.show(tuple(sorted(one.name for one in self._at_work.values())))


def _judged(ended: Ended) -> tuple[Happened, ...]:
    verdict = ended.answer.verdict
    return (Reviewed(verdict, ended.answer.text),) if ended.end is End.DONE and verdict else ()
