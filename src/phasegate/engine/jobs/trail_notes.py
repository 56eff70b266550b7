"""What is found out about a job after its end, as lines of its trail.

What was taken over, our own checks, claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from phasegate.checks.evidence import CheckOutcome, CheckResult, Evidence
from phasegate.checks.false_claims import FalseClaim
from phasegate.checks.plan import Purpose
from phasegate.core.audit.trail import (
    PHASEGATE_ACTOR,
    Action,
    Source,
    TrailActor,
    TrailEvent,
    TrailValue,
    build_agent_actor,
)
from phasegate.engine.jobs.live_events import MAX_TEXT_CHARS
from phasegate.engine.jobs.step import TrailNote, UnitWorker
from phasegate.engine.project.agents import list_builtin_agents
from phasegate.engine.project.ports import format_timestamp
from phasegate.engine.project.project import Project
from phasegate.workspace.commit_log import commits_between
from phasegate.workspace.harvest import Harvest


class TrailNoteBuilder:
    """The lines that a step has for the trails of those who did the work.

    Made when the step begins.
    """

    def __init__(self, project: Project, workers: Sequence[UnitWorker]) -> None:
        self._project = project
        self._workers = workers
        self._started_at = project.now()
        self._notes: list[TrailNote] = []

    @property
    def entries(self) -> tuple[TrailNote, ...]:
        """In the order of their times."""
        return tuple(sorted(self._notes, key=lambda note: note.ts))

    def add_commits(self, harvests: Sequence[Harvest], before: str) -> None:
        """What is on the branch of the work since a commit.

        An agent's own, cut down to its scope, or ours.

        Git is asked, not only the harvests, one an agent: after a crash there may be nothing left
        to harvest.
        """
        sources = {
            one.id: (index, one.agent_commit)
            for index, taken in enumerate(harvests)
            for one in taken.commits
        }

        for commit in commits_between(self._project.repository, before, harvests[-1].tip):
            index, source = sources.get(commit.id, (None, None))
            own: dict[str, TrailValue] = {"taken_from": source} if source else {}
            line = PHASEGATE_ACTOR.build_event(
                Action.COMMIT,
                Source.DERIVED,
                sha=commit.id,
                message=_first_line(commit.message),
                **own,
            )

            self._add(index, line)

    def add_violations(self, texts: Iterable[str], agent_index: int | None = None) -> None:
        for text in texts:
            self._add(agent_index, None, Action.SCOPE_VIOLATION, detail=text)

    def add_merge(self, sha: str, message: str) -> None:
        self._add(
            None,
            PHASEGATE_ACTOR.build_event(
                Action.COMMIT, Source.OBSERVED, sha=sha, message=_first_line(message)
            ),
        )

    def add_checks(self, evidence: Evidence, commit: str, evidence_hash: str = "") -> None:
        """Every check that was made on a commit; `paper` is the hash of what it found, in words."""
        for ts, line in make_check_entries(evidence, commit, evidence_hash, self._project.now()):
            self._add(None, line, at=max(self._started_at, ts))

    def add_false_claims(self, job: str, claims: Iterable[FalseClaim]) -> None:
        for claim, truth in claims:
            for worker in self._workers:
                if worker.job == job:
                    self._add(
                        worker.agent_index, None, Action.FALSE_CLAIM, claimed=claim, seen=truth
                    )

    def _add(
        self,
        agent_index: int | None,
        entry: TrailEvent | None,
        action: Action = Action.NOTICE,
        at: str = "",
        **fields: TrailValue,
    ) -> None:
        """`done` by us, or without it what the agent itself did.

        For one agent, or for all that had a part in it.
        """
        ts = at or self._project.now()

        for worker in self._workers:
            if agent_index in (None, worker.agent_index):
                line = entry or self._find_doer(worker).build_event(
                    action, Source.OBSERVED, **fields
                )
                self._notes.append(TrailNote(worker.job, ts, line))

    def _find_doer(self, worker: UnitWorker) -> TrailActor:
        known = (self._project.config.agents or list_builtin_agents()).get(worker.agent)
        return build_agent_actor(known.harness if known else worker.agent, worker.agent)


def _first_line(message: str) -> str:
    return message.partition("\n")[0][:MAX_TEXT_CHARS]


def make_check_entries(
    evidence: Evidence, commit: str, evidence_hash: str, now: str
) -> list[tuple[str, TrailEvent]]:
    """Our checks of a commit as lines, each with its time.

    What ran and its end, how many tests, where to read more.
    """
    lines = []

    for check in evidence.checks:
        if check.outcome is not CheckOutcome.NOT_REQUESTED:
            if check.name in (Purpose.TEST, Purpose.COVERAGE):
                action = Action.RUN_TESTS
            else:
                action = Action.RUN_CHECK

            done = PHASEGATE_ACTOR.build_event(
                action,
                Source.OBSERVED,
                **dict(_check_fields(check)),
                commit=commit,
                evidence=evidence_hash,
            )

            lines.append(
                (min(format_timestamp(check.ended_at_s), now) if check.ended_at_s else now, done)
            )

    return sorted(lines, key=lambda line: line[0])


def _check_fields(check: CheckResult) -> Iterator[tuple[str, TrailValue]]:
    yield "check", check.name
    if check.argv:
        yield "command", check.argv[-1]
        yield "exit_code", check.exit_status
    if check.duration_s is not None:
        yield "duration_ms", round(check.duration_s * 1000)
    if check.tests is not None:
        yield "tests", check.tests.executed
        yield "tests_failed", check.tests.failed

    yield "outcome", str(check.outcome)
    if check.outcome is CheckOutcome.FAILED:
        yield "summary", check.summary
