"""Run the steps of one unit of work, a feature or a package, and record their results.

One thread decides and records; other threads only run agents. A job is recorded before it starts.
When the loop ends early, by a stop or an error, its agents are stopped too; their work is saved,
and the jobs are repeated by the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

from phasegate.agents.port import EMPTY_SCOPE
from phasegate.engine.drive.agent_wait import AgentSelector
from phasegate.engine.jobs.admission import DriverContext, admit_job
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.job_end import JobEnd
from phasegate.engine.jobs.job_threads import JobPool, TaskResult
from phasegate.engine.jobs.lost_jobs import close_lost_jobs
from phasegate.engine.jobs.run_job import run_job
from phasegate.engine.jobs.step import AgentRequest, StepResult, TrailNote, UnitSteps
from phasegate.engine.jobs.step_context import StepContextReader
from phasegate.engine.journal.unit_journal import UnitJournal
from phasegate.engine.project.agents import NamedAgent
from phasegate.errors import Interrupted, StateConflict
from phasegate.git import ObjectsMissing
from phasegate.storage.row_events import job_started_event, trail_sealed_event
from phasegate.storage.rows import TrailSeal

_MISSING_OBJECT_RETRIES = 10
# How often the stop flag is checked
POLL_INTERVAL_S = 0.2
S = TypeVar("S")
E = TypeVar("E")


class _RunningJob(NamedTuple):
    request: AgentRequest
    assigned: JobAssignment
    agent_name: str


class StepRunner(Generic[S, E]):
    """Runs the steps of one unit. `on_agents_changed` receives the names of the running agents."""

    def __init__(
        self,
        context: DriverContext,
        journal: UnitJournal[S, E],
        steps: UnitSteps[S, E],
        on_agents_changed: Callable[[tuple[str, ...]], None] = lambda _: None,
    ) -> None:
        self._context = context
        self._journal = journal
        self._steps = steps
        self._on_agents_changed = on_agents_changed
        self._step_context = StepContextReader(context.record, journal.unit.slug, journal.unit.work)
        self._clock = context.project.clock
        self._running_jobs: dict[str, _RunningJob] = {}
        self._agents = AgentSelector(context, journal.notify)
        self._last_wait_notices: tuple[str, ...] = ()

    def run_step(self) -> None:
        """Run the step that is due, with the agents that it needs, and record its result."""
        self.raise_if_stopped()
        if self._steps.list_agent_requests(self._journal.state):
            self._run_agents()
        else:
            self._append_result(self._run_without_agents())

    def _run_without_agents(self) -> StepResult[E]:
        """Run a step that is safe to repeat.

        It is repeated if git misses an object: `git gc --prune=now` of the user removes objects
        that no ref holds yet.
        """
        for _ in range(_MISSING_OBJECT_RETRIES):
            try:
                return self._steps.run(self._journal.state, self._step_context.read())
            except ObjectsMissing:
                self.raise_if_stopped()

        return self._steps.run(self._journal.state, self._step_context.read())

    def poll(self) -> bool:
        """Run a step that may still be waiting. Return True if it made progress.

        The reason for waiting is reported when it changes, not on every poll.
        """
        result = self._steps.run(self._journal.state, self._step_context.read())

        if result.events:
            self._append_result(result)
            return True

        if result.notices != self._last_wait_notices:
            self._last_wait_notices = result.notices
            self._journal.notify(*result.notices)
        return False

    def raise_if_stopped(self) -> None:
        if self._context.stop.is_set():
            raise Interrupted

    def close_lost_jobs(self, reason: str) -> None:
        """Close the open jobs that no process runs, and save their work."""
        close_lost_jobs(self._context, self._journal, self._steps, reason)

    def _append_result(self, result: StepResult[E]) -> None:
        self._journal.queue_notices(*result.notices)
        seals = list(self._append_trail_notes(result.trail_notes))
        self._journal.record(
            *result.events,
            rows=(*result.rows, *map(trail_sealed_event, seals)),
            command_durations_s=result.command_durations_s,
        )
        for seal in seals:
            self._context.trails.forget(seal.job)

    def _append_trail_notes(self, notes: Sequence[TrailNote]) -> Iterator[TrailSeal]:
        """Append to the trails of jobs that have ended; yield the new seals.

        The seals are recorded in the same append as the step. A crash before that repeats the step
        and its entries; the trail then contains a note that it was recovered.
        """
        record = self._context.record
        trails = self._context.trails

        by_job = sorted(notes, key=lambda note: note.job)
        for job, job_notes in groupby(by_job, key=lambda note: note.job):
            seal = record.find_seal(job)
            if seal is None:
                # A lost job: its trail was never closed
                continue

            try:
                trails.reopen(seal)
            except StateConflict as error:
                self._journal.queue_notices(
                    f"{error.message}; later findings about the job are not in the trail"
                )
                continue

            trails.append_entries(job, [(note.ts, note.entry) for note in job_notes])
            yield trails.close(job)

    # --- agents

    def _run_agents(self) -> None:
        try:
            with JobPool() as pool:
                self._run_agents_in_pool(pool)
        except Exception:
            self._journal.reload()
            self.close_lost_jobs("the job was stopped")
            raise

    def _run_agents_in_pool(self, pool: JobPool) -> None:
        """Run the agents of the due step in parallel, and record each end."""
        due = self._journal.due_step
        while self._journal.due_step == due or pool.running:
            self.raise_if_stopped()
            if self._context.is_draining():
                # Running agents end; no other one starts here
                if not pool.running:
                    raise Interrupted
            elif self._journal.due_step != due:
                # One of several agents has blocked the work: the others are not needed any more
                pool.stop_all()
            elif not self._start_due_jobs(pool) and not pool.running:
                self._context.stop.wait(POLL_INTERVAL_S)

            if pool.running:
                result = pool.wait_for_result(POLL_INTERVAL_S)
                if result is not None:
                    self._record_job_end(result)

    def _start_due_jobs(self, pool: JobPool) -> int:
        """Start every job that is due; return their number."""
        started = 0

        for request in self._steps.list_agent_requests(self._journal.state):
            agent = self._agents.choose_agent_now(request)
            if agent is not None:
                self._start_job(pool, request, agent)
                started += 1

        return started

    def _start_job(self, pool: JobPool, request: AgentRequest, agent: NamedAgent) -> None:
        """Admit a job, record its start, and submit it to the pool."""
        context = self._context
        job = self._clock.new_id()
        assigned = self._steps.assign_job(
            self._journal.state, request, agent, job, self._step_context.read()
        )
        assigned = assigned._replace(
            attempt=request.attempt,
            retry_reason=request.retry_reason,
            previous_answer=request.previous_answer,
        )
        admitted = admit_job(context, assigned)
        self._journal.record(
            self._steps.make_started_event(request, assigned),
            rows=(job_started_event(admitted.started_row),),
        )
        self._running_jobs[job] = _RunningJob(
            request, assigned, self._steps.describe_agent(request, assigned)
        )
        self._report_agents()
        pool.start_job(
            job,
            lambda register: run_job(context.project, context.trails, assigned, admitted, register),
        )

    def _record_job_end(self, result: TaskResult[JobEnd]) -> None:
        """Record the end of a job and its consequences as one step."""
        request, assigned, _ = self._running_jobs.pop(result.name)
        self._report_agents()
        end = result.outcome
        if isinstance(end, BaseException):
            raise end
        if assigned.scope != EMPTY_SCOPE:
            self._context.sync_work(assigned)

        step_result = self._steps.apply_job_end(request, assigned, end)
        notices = (*step_result.notices, *end.notices)
        self._append_result(step_result._replace(notices=notices, trail_notes=()))
        # The trail can be continued only once its seal is recorded
        if step_result.trail_notes:
            self._append_result(StepResult((), trail_notes=step_result.trail_notes))

        self._context.trails.forget(result.name)

    def _report_agents(self) -> None:
        self._on_agents_changed(
            tuple(sorted(one.agent_name for one in self._running_jobs.values()))
        )
