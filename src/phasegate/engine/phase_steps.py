"""The steps of a phase, each carried out once: agents run, work taken over, commands run, documents written.

Each step is idempotent up to the record at its end, so that a run that was killed is followed by one that goes on.
"""

from __future__ import annotations

from phasegate.checks.excerpt import listed
from phasegate.engine.crew import Crew
from phasegate.engine.document_harvest import take_documents
from phasegate.engine.feature_branch import Branch
from phasegate.engine.harvesting import told
from phasegate.engine.job_end import Assigned, Ended
from phasegate.engine.jobs import clear_away, last_seen, lost_row, run_job, started_row
from phasegate.engine.phase_briefs import brief, write_scope
from phasegate.engine.phase_checks import run_commands, seconds_of
from phasegate.engine.planning import Plans, plan_findings
from phasegate.engine.project import Project
from phasegate.engine.staffing import Member, clock, member_for
from phasegate.engine.work_journal import WorkJournal
from phasegate.errors import Interrupted, StateConflict
from phasegate.prompts.shipped_words import report
from phasegate.record.row_events import job_started
from phasegate.record.rows import Job as Row
from phasegate.record.store import Store
from phasegate.record.trails import Trails
from phasegate.rules.feature_events import GateChecked, Happened, JobEnded, JobStarted, Reported, Strayed, Written
from phasegate.rules.feature_state import ROLES, Feature, Step
from phasegate.rules.package_run import End
from phasegate.rules.phase import TASKS, Work
from phasegate.rules.retry import back_off_s
from phasegate.rules.scope import Scope, judge
from phasegate.rules.workflow import gate_name
from phasegate.workspace.changes import Observation, TooMuch, observe
from phasegate.workspace.checkout import Assignment, Checkout, find_checkout
from phasegate.workspace.checkout_lifecycle import Unsaved, drop_branch, remove_checkout, start_over, take_checkout
from phasegate.workspace.checkout_making import Terms
from phasegate.workspace.commit_log import blobs_of
from phasegate.workspace.export import export
from phasegate.workspace.merge import fork_point
from phasegate.workspace.removal import remove_tree

LOOK_EVERY_S = 0.2  # whether somebody has cancelled
LONGEST_NAP_S = 10.0
SAME_TREE = "comparison with what was judged"


class PhaseSteps:
    """The steps of one feature's phases. One thread decides and records."""

    def __init__(
        self,
        project: Project,
        store: Store,
        trails: Trails,
        journal: WorkJournal[Feature, Happened],
        agent: str | None,
    ) -> None:
        self._project, self._store, self._trails, self._journal = project, store, trails, journal
        self._agent = agent
        self.branch = Branch(project, journal.state.workflow.feature)
        self.steps = {
            Step.WRITE: self._write,
            Step.ARCHIVE: self._write,
            Step.HARVEST: self._harvest,
            Step.CRITICISE: self._judge,
            Step.REVIEW: self._judge,
            Step.PLAN: self._plan,
            Step.MEND: self._mend,
            Step.COMMANDS: self._commands,
            Step.REPORT: self._report,
            Step.GATE: self._gate,
        }

    @property
    def _feature(self) -> Feature:
        return self._journal.state

    @property
    def _due(self) -> Step:
        return self._feature.todo[0]

    def pick_up(self) -> None:
        """A job that nobody saw the end of is run again, from a clean beginning; what it left is saved."""
        job = self._feature.open_job
        if job is not None:
            self._give_up(job.job, "the run died before its end")

    # --- agents

    def _write(self) -> None:
        checkout = take_checkout(self._project.repository, self._assignment, self._terms())
        head, member = self.branch.head(), self._member()
        self._run_agent(brief(self._project, self._feature, self._due, checkout.folder, head, member))

    def _judge(self) -> None:
        """A critic sees a copy that is thrown away: whatever it writes there has no effect."""
        commit = self._feature.judged or self.branch.head()  # what the commands ran on is what a reviewer sees
        room = self._project.worktrees / f".review-{self._assignment.name}"
        if room.exists():
            remove_tree(room)
        export(self._project.repository, commit, room, with_git=True)
        self._run_agent(brief(self._project, self._feature, self._due, room, commit, self._member()), commit)
        remove_tree(room)

    def _run_agent(self, assigned: Assigned, commit: str = "") -> None:
        self._back_off()
        row = started_row(self._project, assigned)
        started = JobStarted(assigned.job, assigned.phase, assigned.agent, commit)
        self._journal.record(started, rows=(job_started(row),))
        try:
            ended = self._run(assigned, row)
        except BaseException as error:
            self._journal.read_again()
            if isinstance(error, Exception) and self._feature.open_job is not None:
                self._give_up(assigned.job, "it was stopped before its end")
            raise
        answer = ended.answer
        event = JobEnded(assigned.job, ended.end, ended.reason, ended.remediation, answer.verdict, answer.text)
        self._journal.record(event, rows=ended.rows)
        self._trails.forget(assigned.job)

    def _run(self, assigned: Assigned, row: Row) -> Ended:
        with Crew() as crew:
            crew.start(
                assigned.job,
                lambda announce: run_job(self._project, self._store, self._trails, assigned, row, announce),
            )
            while True:
                if self._project.stop.is_set():
                    raise Interrupted
                came = crew.wait(LOOK_EVERY_S)
                if came is not None:
                    if isinstance(came.result, BaseException):
                        raise came.result
                    return came.result

    def _member(self) -> Member:
        """Who does the step. One that rests at a limit of its provider is waited for, unless another stands in."""
        told_until_s = 0.0
        while True:
            resting = self._store.resting(self._project.clock.time_s())
            member = member_for(self._project, ROLES[self._due], self._feature.phase.key, self._agent, resting)
            if member.name not in resting:
                return member
            until_s = resting[member.name]
            if told_until_s != until_s:
                told_until_s = until_s
                self._journal.tell(f"{member.name} rests at a limit until {clock(until_s)}; it goes on by itself")
            if self._project.stop.wait(min(LONGEST_NAP_S, max(0.0, until_s - self._project.clock.time_s()))):
                raise Interrupted

    def _back_off(self) -> None:
        if self._feature.retries:
            wait_s = back_off_s(self._feature.retries, self._project.clock.chance())
            self._journal.tell(f"trying again in {wait_s:.0f} s")
            if self._project.stop.wait(wait_s):
                raise Interrupted

    def _give_up(self, job: str, why: str) -> None:
        clear_away(self._project, job)
        found = find_checkout(self._project.repository, self._assignment)
        if found is not None and self._due in (Step.WRITE, Step.ARCHIVE):
            _expect_saved(start_over(found, self._terms()))
        row = self._store.job(job)
        seen = last_seen(self._project, row) if row else ""
        rows = (lost_row(row, seen),) if row else ()
        self._journal.record(JobEnded(job, End.LOST, why, last_seen=seen), rows=rows)

    # --- what a writer left

    def _harvest(self) -> None:
        checkout = take_checkout(self._project.repository, self._assignment, self._terms())
        look = observe(checkout)
        if violations := self._violations(look, checkout.start):
            self._refuse(checkout, violations)
            return
        assert not isinstance(look, TooMuch)
        title = f"{self._assignment.work}: documents, round {self._feature.round}"
        if secrets := take_documents(self.branch, checkout, look, self._scope, title):
            self._refuse(checkout, secrets)
            return
        removed = remove_checkout(checkout, self._project.signature(), keep_for_reuse=True)
        _expect_saved(removed)
        drop_branch(self._project.repository, self._assignment.branch, self.branch.name)
        wanted = () if self._feature.closing else self._feature.phase.artifacts
        there = self.branch.present(wanted)
        self._journal.record(Written(self.branch.head(), tuple(name for name in wanted if name not in there)))

    def _refuse(self, checkout: Checkout, why: tuple[str, ...]) -> None:
        """Nothing is taken over. What was written is saved; where it cannot be, it stays, and that is told too."""
        renewed = start_over(checkout, self._terms())
        kept = (f"{renewed.folder} is kept: {renewed.reason}",) if isinstance(renewed, Unsaved) else ()
        self._journal.record(Strayed((*why, *kept)))

    def _violations(self, look: Observation | TooMuch, start: str) -> tuple[str, ...]:
        if isinstance(look, TooMuch):
            return (f"the checkout holds more than {look.limit} {look.what}",)
        tracked = blobs_of(self._project.repository, start)
        found = judge(look.changes, self._scope, tracked)
        return tuple(told(found))

    @property
    def _scope(self) -> Scope:
        step = Step.ARCHIVE if self._feature.closing else Step.WRITE
        return write_scope(self._project, self.branch, step)

    # --- what we do ourselves

    def _plan(self) -> None:
        self._journal.record(self._plans.make())

    def _mend(self) -> None:
        self._journal.record(self._plans.mend())

    @property
    def _plans(self) -> Plans:
        created = next(iter(self._store.events(self.branch.slug))).ts
        return Plans(self._project, self._store, self._feature, created)

    def _commands(self) -> None:
        """A phase that has no command may have been given some since: that is what its stop asks for."""
        phase = self._feature.phase
        own = self._project.config.phases.get(phase.key)
        commands = phase.commands or (own.commands if own else None) or ()
        head = self.branch.head()
        start = fork_point(self._project.repository, self._feature.base, head)
        ran, evidence = run_commands(self._project, self.branch.slug, start, head, commands)
        self._journal.record(ran, parts=seconds_of(evidence))

    def _report(self) -> None:
        """Write the document of a phase in which no agent writes one."""
        phase = self._feature.phase
        text = self._implementation() if phase.work is Work.PACKAGES else self._review(gate_name(phase.key))
        path = f"{self.branch.folder}/{self._report_name}"
        commit = self.branch.put({path: text.encode()}, f"{phase.key}: {self._report_name}\n")
        self._journal.record(Reported(commit))

    @property
    def _report_name(self) -> str:
        phase = self._feature.phase
        return phase.artifacts[0] if phase.artifacts else f"{gate_name(phase.key).replace('GATE', 'REVIEW')}.md"

    def _review(self, gate: str) -> str:
        feature = self._feature
        commands = (f"{name} {'passed' if passed else 'failed'}" for name, passed in feature.commands.items())
        return report(
            "review",
            {
                "GATE": gate,
                "PHASE": feature.phase.key,
                "ROUND": str(feature.workflow.round),
                "VERDICT": str(feature.verdict or "none"),
                "COMMANDS": ", ".join(commands) or "none",
                "REPORT": feature.report,
            },
        )

    def _implementation(self) -> str:
        rows = self._store.packages(self.branch.slug)
        lines = (f"| {row.id} | {row.state} | {row.round} | {row.title.replace('|', '/')} |" for row in rows)
        values = {"FEATURE": self.branch.slug, "BRANCH": self.branch.name, "PACKAGES": "\n".join(lines)}
        return report("implementation", values)

    def _gate(self) -> None:
        self._journal.record(self.at_the_gate())
        self._store.anchor()

    def at_the_gate(self) -> GateChecked:
        """What is found at the gate of the phase now: its documents, and whether the tasks can be carried out.

        What was judged must be what is there: somebody may have moved the branch meanwhile.
        """
        phase, head = self._feature.phase, self.branch.head()
        there = self.branch.present(phase.artifacts, head)
        problems = plan_findings(self.branch, head) if TASKS in there else ()
        checks = {"plan of tasks": not problems} if TASKS in there else {}
        ours = () if phase.work is Work.PLANNING else (f"{self.branch.folder}/{self._report_name}",)
        if later := self.branch.changed_since(self._feature.judged, head, *ours):
            checks[SAME_TREE] = False
            problems = (*problems, f"changed on {self.branch.name} after it was judged: {listed(later)}")
        return GateChecked(there, checks, "\n".join(problems))

    # --- what the steps share

    @property
    def _assignment(self) -> Assignment:
        work = "archive" if self._feature.closing else self._feature.phase.key
        return Assignment(self.branch.slug, work)

    def _terms(self) -> Terms:
        signature = self._project.signature()
        return Terms(signature.who, signature, worktrees=self._project.worktrees)


def _expect_saved(renewed: object) -> None:
    if isinstance(renewed, Unsaved):
        raise StateConflict(f"{renewed.folder} cannot be reset: {renewed.reason}", "look into it, then run again")
