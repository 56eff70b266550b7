"""Add to the trail of a job after its end: harvested commits, checks, false claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

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
from phasegate.engine.jobs.step import CHECKS_RAN, LastJob, TrailNote
from phasegate.engine.project.agents import list_builtin_agents
from phasegate.engine.project.ports import format_timestamp
from phasegate.engine.project.project import Project
from phasegate.storage.rows import NewEvent
from phasegate.workspace.changes.harvest import Harvest
from phasegate.workspace.repository.commit_log import commits_between


class TrailNoteBuilder:
    """Collects the entries of a step for the trails of the jobs that did the work.

    Create it when the step starts: no entry gets an earlier time.
    """

    def __init__(self, project: Project, workers: Sequence[LastJob]) -> None:
        self._project = project
        self._workers = workers
        self._started_at = project.now()
        self._notes: list[TrailNote] = []
        # The checks that were added
        self.checks: list[tuple[str, TrailEvent]] = []

    @property
    def entries(self) -> tuple[TrailNote, ...]:
        """The collected entries, sorted by time."""
        return tuple(sorted(self._notes, key=lambda note: note.ts))

    def add_commits(self, harvests: Sequence[Harvest], before: str) -> None:
        """Add the commits of the work's branch since `before`; `harvests` has one item per agent.

        These are the agents' commits, restricted to their scope, and commits by Phasegate. They are
        read from git, not from the harvests: after a crash there may be nothing left to harvest.
        """
        sources = {
            commit.id: (index, commit.agent_commit)
            for index, harvest in enumerate(harvests)
            for commit in harvest.commits
        }

        for commit in commits_between(self._project.repository, before, harvests[-1].tip):
            index, source = sources.get(commit.id, (None, None))
            source_field: dict[str, TrailValue] = {"taken_from": source} if source else {}
            entry = PHASEGATE_ACTOR.build_event(
                Action.COMMIT,
                Source.DERIVED,
                sha=commit.id,
                message=_first_line(commit.message),
                **source_field,
            )
            self._add(index, entry)

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
        """Add every check of a commit; `evidence_hash` is the hash of its report."""
        self.checks = make_check_entries(evidence, commit, evidence_hash, self._project.now())
        for ts, entry in self.checks:
            self._add(None, entry, at=max(self._started_at, ts))

    def add_false_claims(self, job: str, claims: Iterable[FalseClaim]) -> None:
        for claim, truth in claims:
            for worker in self._workers:
                if worker.job == job:
                    self._add(
                        worker.agent_index, None, Action.FALSE_CLAIM, claimed=claim, seen=truth
                    )

    def add_reset(self, folder: Path) -> None:
        """Add that the checkout was reset because its agent asked for it."""
        text = f"{folder.name} was reset: the agent reported cleanup_required"
        self._add(None, PHASEGATE_ACTOR.build_event(Action.NOTICE, Source.OBSERVED, text=text))

    def _add(
        self,
        agent_index: int | None,
        entry: TrailEvent | None,
        action: Action = Action.NOTICE,
        at: str = "",
        **fields: TrailValue,
    ) -> None:
        """Add an entry by Phasegate or, without `entry`, an action of the agent.

        If `agent_index` is None, the entry is added for all agents that took part.
        """
        ts = at or self._project.now()

        for worker in self._workers:
            if agent_index in (None, worker.agent_index):
                note = entry or self._make_agent_actor(worker).build_event(
                    action, Source.OBSERVED, **fields
                )
                self._notes.append(TrailNote(worker.job, ts, note))

    def _make_agent_actor(self, worker: LastJob) -> TrailActor:
        settings = (self._project.config.agents or list_builtin_agents()).get(worker.agent)
        return build_agent_actor(settings.harness if settings else worker.agent, worker.agent)


def _first_line(message: str) -> str:
    return message.partition("\n")[0][:MAX_TEXT_CHARS]


def make_checks_event(entries: Sequence[tuple[str, TrailEvent]]) -> NewEvent:
    """Make the journal entry of checks that ran for a feature."""
    return NewEvent(CHECKS_RAN, msgspec.json.encode(entries))


def make_check_entries(
    evidence: Evidence, commit: str, evidence_hash: str, now: str
) -> list[tuple[str, TrailEvent]]:
    """Make the trail entries of the checks of a commit, sorted by time.

    An entry has the command and its exit code, the number of tests and the hash of the report.
    """
    entries = []

    for check in evidence.checks:
        if check.outcome is CheckOutcome.NOT_REQUESTED:
            continue

        is_test = check.name in (Purpose.TEST, Purpose.COVERAGE)
        entry = PHASEGATE_ACTOR.build_event(
            Action.RUN_TESTS if is_test else Action.RUN_CHECK,
            Source.OBSERVED,
            **dict(_check_fields(check)),
            commit=commit,
            evidence=evidence_hash,
        )
        ended_at = min(format_timestamp(check.ended_at_s), now) if check.ended_at_s else now
        entries.append((ended_at, entry))

    return sorted(entries, key=lambda entry: entry[0])


def _check_fields(check: CheckResult) -> Iterator[tuple[str, TrailValue]]:
    """Yield the trail fields of a check."""
    yield "check", check.name
    if check.root:
        yield "root", check.root
    if check.argv:
        yield "command", check.argv[-1]
        yield "exit_code", check.exit_status
    if check.duration_s is not None:
        yield "duration_ms", round(check.duration_s * 1000)
    if check.is_recorded:
        yield "recorded", True
    if check.tests is not None:
        yield "tests", check.tests.executed
        yield "tests_failed", check.tests.failed

    yield "outcome", str(check.outcome)
    if check.outcome is CheckOutcome.FAILED:
        yield "summary", check.summary
