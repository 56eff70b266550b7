"""One unit of work, a feature or a package, carried on: take the step that is due, record what came of it.

One thread decides and records; the others only run agents. A job is on record before it starts. Whoever ends this in
between, a person or an error, ends the agents with it; their work is saved, and they are run again next time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

from phasegate.agents.port import NOTHING
from phasegate.core.machine.retry import back_off_s
from phasegate.engine.jobs.admission import DriverDesk, admit
from phasegate.engine.jobs.assignment import Assigned
from phasegate.engine.jobs.pool import Came, Crew
from phasegate.engine.jobs.run_job import clear_away, last_seen, lost_row, run_job
from phasegate.engine.jobs.step import Did, Errand, JobNote, Known, Steps
from phasegate.engine.jobs.step_context import read_known
from phasegate.engine.journal.unit_journal import WorkJournal
from phasegate.engine.project.agents import Member, clock, member_for
from phasegate.errors import Interrupted, StateConflict
from phasegate.storage.row_events import job_started, trail_sealed
from phasegate.storage.rows import Seal

LOOK_EVERY_S = 0.2  # whether somebody has cancelled
S = TypeVar("S")
E = TypeVar("E")


class _AtWork(NamedTuple):
    errand: Errand
    assigned: Assigned
    name: str


class UnitLoop(Generic[S, E]):
    """Carries one unit on. `show` hears which agents are at work."""

    def __init__(
        self,
        desk: DriverDesk,
        journal: WorkJournal[S, E],
        steps: Steps[S, E],
        show: Callable[[tuple[str, ...]], None] = lambda _: None,
    ) -> None:
        self._desk, self._journal, self._steps, self._show = desk, journal, steps, show
        self._clock = desk.project.clock
        self._at_work: dict[str, _AtWork] = {}
        self._told_until_s: dict[str, float] = {}
        self._due_s: dict[Errand, float] = {}  # when a try after an error may begin
        self._waits_for: tuple[str, ...] = ()

    def take_step(self) -> None:
        """Take the step that is due, with all the agents that it needs, and record it."""
        self.stop_if_asked()
        if self._steps.errands(self._journal.state):
            self._run_agents()
        else:
            self._record(self._steps.carry_out(self._journal.state, self._known()))

    def look(self) -> bool:
        """Take a step that may find nothing to do yet; whether it found something. What it waits for is told once."""
        did = self._steps.carry_out(self._journal.state, self._known())
        if did.events:
            self._record(did)
        elif did.notices != self._waits_for:
            self._waits_for = did.notices
            self._journal.tell(*did.notices)
        return bool(did.events)

    def stop_if_asked(self) -> None:
        if self._desk.stop.is_set():
            raise Interrupted

    def give_up(self, why: str) -> None:
        """Close the jobs that are open on record and that nobody runs any more; what they left is saved."""
        jobs = self._steps.open_jobs(self._journal.state)
        project = self._desk.project
        for job in jobs:
            clear_away(project, job)
        self._steps.save(self._journal.state)
        if jobs:
            rows = [row for job in jobs if (row := self._desk.record.job(job)) is not None]
            seen = {row.id: last_seen(project, row) for row in rows}
            ends = (self._steps.lost(job, why, seen.get(job, "")) for job in jobs)
            self._journal.record(*ends, rows=[lost_row(row, seen[row.id]) for row in rows])

    def _known(self) -> Known:
        unit = self._journal.unit
        return read_known(self._desk.record, unit.slug, unit.work)

    def _record(self, did: Did[E]) -> None:
        self._journal.note(*did.notices)
        seals = list(self._note_in_trails(did.trail))
        self._journal.record(*did.events, rows=(*did.rows, *map(trail_sealed, seals)), parts=did.parts)
        for seal in seals:
            self._desk.trails.forget(seal.job)

    def _note_in_trails(self, notes: Sequence[JobNote]) -> Iterator[Seal]:
        """Go on with the trails of jobs that have ended; the new ends are recorded in the same step.

        A crash before that record repeats the step, and its lines: a trail says then that it was recovered in between.
        """
        record, trails = self._desk.record, self._desk.trails
        for job, of_job in groupby(sorted(notes, key=lambda note: note.job), key=lambda note: note.job):
            seal = record.seal(job)
            if seal is None:
                continue  # nobody saw the job's end
            try:
                trails.open_again(seal)
            except StateConflict as error:
                self._journal.note(f"{error.message}; what was found out about the job since is not in it")
                continue
            trails.write_all(job, [(note.ts, note.done) for note in of_job])
            yield trails.close(job)

    # --- agents

    def _run_agents(self) -> None:
        try:
            with Crew() as crew:
                self._run_with(crew)
        except Exception:
            self._journal.read_again()
            self.give_up("it was stopped before its end")
            raise

    def _run_with(self, crew: Crew) -> None:
        due = self._journal.due
        while self._journal.due == due or crew.is_busy:
            self.stop_if_asked()
            if self._journal.due != due:
                crew.stop()  # one of several has blocked the work: what the others do is not wanted any more
            elif not self._start_due(crew) and not crew.is_busy:
                self._desk.stop.wait(LOOK_EVERY_S)
            came = crew.wait(LOOK_EVERY_S) if crew.is_busy else None
            if came is not None:
                self._take_in(came)

    def _start_due(self, crew: Crew) -> int:
        """Start every job whose time has come; how many that were."""
        started = 0
        for errand in self._steps.errands(self._journal.state):
            member = self._admitted(errand)
            if member is not None:
                self._start(crew, errand, member)
                started += 1
        return started

    def _admitted(self, errand: Errand) -> Member | None:
        """Who does it now; None while a try must wait, or an agent rests and nobody stands in for it."""
        if errand.retries:
            if errand not in self._due_s:
                wait_s = back_off_s(errand.retries, self._clock.chance())
                self._journal.tell(f"trying again in {wait_s:.0f} s")
                self._due_s[errand] = self._clock.monotonic_s() + wait_s
            if self._clock.monotonic_s() < self._due_s[errand]:
                return None
        desk = self._desk
        resting = desk.record.resting(self._clock.time_s())
        wanted = desk.agent or errand.agent or None
        member = member_for(desk.project, errand.role, errand.phase, wanted, resting, errand.made_by)
        until_s = resting.get(member.name, 0.0)
        if until_s and self._told_until_s.get(member.name) != until_s:
            self._told_until_s[member.name] = until_s
            self._journal.tell(f"{member.name} rests at a limit until {clock(until_s)}; it goes on by itself")
        return None if until_s else member

    def _start(self, crew: Crew, errand: Errand, member: Member) -> None:
        desk, job = self._desk, self._clock.new_id()
        assigned = self._steps.assign(self._journal.state, errand, member, job, self._known())
        assigned = assigned._replace(retries=errand.retries, why_again=errand.reason)
        admitted = admit(desk, assigned)
        self._journal.record(self._steps.started(errand, assigned), rows=(job_started(admitted.row),))
        self._at_work[job] = _AtWork(errand, assigned, self._steps.agent_name(errand, assigned))
        self._show_agents()
        crew.start(job, lambda announce: run_job(desk.project, desk.trails, assigned, admitted, announce))

    def _take_in(self, came: Came) -> None:
        """Record how a job ended, with all that follows from it, as one step."""
        errand, assigned, _ = self._at_work.pop(came.job)
        self._show_agents()
        if isinstance(came.result, BaseException):
            raise came.result
        if assigned.scope != NOTHING:
            self._desk.keep(assigned)
        did = self._steps.take_in(errand, assigned, came.result)
        self._record(did._replace(notices=(*did.notices, *came.result.notices)))
        self._desk.trails.forget(came.job)

    def _show_agents(self) -> None:
        self._show(tuple(sorted(one.name for one in self._at_work.values())))
