"""Read the context of a step from the journal."""

from __future__ import annotations

from collections.abc import Mapping

from phasegate.core.audit.trail import TrailEvent
from phasegate.core.machine.package_events import AttemptSelected, PackageJobStarted, Reviewed
from phasegate.core.plan.acceptance import AcceptanceSeal, SealedTests, find_due_requirements
from phasegate.core.plan.work_package import PackageState
from phasegate.core.text.markdown_lines import collapse_whitespace
from phasegate.core.workflow.phase_transitions import build_state_view
from phasegate.engine.jobs.step import CHECKS_RAN, LastJob, PackageReview, StepContext
from phasegate.engine.journal.artifacts import (
    ARTIFACT_WRITTEN,
    StoredArtifact,
    select_current_artifacts,
)
from phasegate.engine.journal.entries import (
    ACCEPTANCE_SEALED,
    AGENT_CLAIMED,
    EVIDENCE_ACCEPTED,
    PACKAGE_STEP,
    PLAN_LOADED,
    SCOPE_ALLOWED,
    AgentClaim,
    AskedQuestion,
    EvidenceAcceptance,
    GivenAnswer,
    ScopeException,
    read_package_step,
    read_plan,
)
from phasegate.engine.journal.feature import make_workflow
from phasegate.engine.journal.package import parse_planned_packages
from phasegate.engine.journal.questions import QUESTION_ANSWERED, QUESTION_ASKED
from phasegate.engine.project.ports import RecordReader
from phasegate.storage.row_events import JOB_STARTED, WORKFLOW_CHANGED, decode_row
from phasegate.storage.rows import JobRow, RecordedEvent, WorkflowRow
from phasegate.storage.state_view import format_state
from phasegate.typed import read_json


class StepContextReader:
    """Builds the context of the next step of a feature, or of one of its packages.

    `read` folds only the events that were appended since its last call. Reading the whole journal
    at every step was quadratic: a feature of 76 steps and 385 events caused 46 324 event reads.
    """

    def __init__(self, record: RecordReader, slug: str, package: str = "") -> None:
        self._record = record
        self._slug = slug
        self._package = package
        self._last_seq = 0
        self._started_at = ""
        self._seal: AcceptanceSeal | None = None
        self._documents: Mapping[str, str] = {}
        self._scope_exceptions: list[ScopeException] = []
        self._accepted: list[EvidenceAcceptance] = []
        self._claims: list[AgentClaim] = []
        self._check_entries: list[tuple[str, TrailEvent]] = []
        self._artifacts: list[StoredArtifact] = []
        self._questions: dict[str, AskedQuestion] = {}
        self._answers: list[str] = []
        self._workflow: WorkflowRow | None = None
        # The jobs of this unit, by id
        self._jobs: dict[str, JobRow] = {}
        # The implementers of the last round of a package, by the index of their agent
        self._implementers: dict[int, PackageJobStarted] = {}
        # The reviews of all packages of a feature
        self._reviews: list[PackageReview] = []
        self._handlers = {
            PLAN_LOADED: self._on_plan_loaded,
            SCOPE_ALLOWED: self._on_scope_allowed,
            EVIDENCE_ACCEPTED: self._on_evidence_accepted,
            AGENT_CLAIMED: self._on_agent_claimed,
            CHECKS_RAN: self._on_checks_ran,
            ACCEPTANCE_SEALED: self._on_acceptance_sealed,
            JOB_STARTED: self._on_row_changed,
            WORKFLOW_CHANGED: self._on_row_changed,
            PACKAGE_STEP: self._on_package_step,
            ARTIFACT_WRITTEN: self._on_artifact_written,
            QUESTION_ASKED: self._on_question_asked,
            QUESTION_ANSWERED: self._on_question_answered,
        }

    def read(self) -> StepContext:
        """Fold the new events and return the context."""
        for recorded in self._record.events(self._slug, self._last_seq):
            self._started_at = self._started_at or recorded.ts
            handler = self._handlers.get(recorded.kind)
            if handler is not None:
                handler(recorded)
            self._last_seq = recorded.seq

        workflow = make_workflow(self._workflow) if self._workflow else None
        context = StepContext(
            started_at=self._started_at,
            base=self._workflow.base if self._workflow else "",
            scope_exceptions=tuple(self._scope_exceptions),
            accepted_evidence=tuple(self._accepted),
            claims=tuple(self._claims),
            artifacts=select_current_artifacts(self._artifacts, self._package),
            workers=tuple(self._list_workers()),
            acceptance=self._find_sealed_tests(),
            state_json=format_state(build_state_view(workflow)),
            user_answers=tuple(self._answers),
            package_documents=self._documents,
        )
        if self._package:
            return context

        return context._replace(
            packages=tuple(self._record.packages(self._slug)),
            spent=self._record.total_spent(self._slug),
            chain_head=self._record.chain_head().hash,
            reviews=tuple(self._reviews),
            check_entries=tuple(self._check_entries),
        )

    def _list_workers(self) -> list[LastJob]:
        if not self._package:
            last = next(reversed(self._jobs.values()), None)
            return [LastJob(last.id, last.agent)] if last else []

        return [
            LastJob(started.job, self._jobs[started.job].agent, index)
            for index, started in sorted(self._implementers.items())
            if started.job in self._jobs
        ]

    def _find_sealed_tests(self) -> SealedTests | None:
        """Return the seal, and the requirements that this package completes; all for a feature."""
        seal = self._seal
        if seal is None or not seal.files:
            return None
        if not self._package:
            return SealedTests(seal, tuple(seal.tests))

        planned = parse_planned_packages(self._slug, self._documents)
        requirements = {name: one.package.requirements for name, one in planned.items()}
        rows = self._record.packages(self._slug)
        done = [row.id for row in rows if row.state == PackageState.DONE]
        return SealedTests(seal, find_due_requirements(self._package, requirements, done))

    def _on_acceptance_sealed(self, recorded: RecordedEvent) -> None:
        self._seal = read_json(recorded.payload, AcceptanceSeal)

    def _on_plan_loaded(self, recorded: RecordedEvent) -> None:
        self._documents = read_plan(recorded.payload)

    def _on_scope_allowed(self, recorded: RecordedEvent) -> None:
        exception = read_json(recorded.payload, ScopeException)
        if exception.package == self._package:
            self._scope_exceptions.append(exception)
        elif not self._package:
            # A decision of the user, for the specification and the merge message
            self._answers.append(f"{exception.package}: {exception.describe()}")

    def _on_evidence_accepted(self, recorded: RecordedEvent) -> None:
        acceptance = read_json(recorded.payload, EvidenceAcceptance)
        if acceptance.package == self._package:
            self._accepted.append(acceptance)

    def _on_agent_claimed(self, recorded: RecordedEvent) -> None:
        claim = read_json(recorded.payload, AgentClaim)
        if self._package in ("", claim.package):
            self._claims.append(claim)

    def _on_checks_ran(self, recorded: RecordedEvent) -> None:
        self._check_entries += read_json(recorded.payload, list[tuple[str, TrailEvent]])

    def _on_row_changed(self, recorded: RecordedEvent) -> None:
        row = decode_row(self._slug, recorded.kind, recorded.payload)
        if isinstance(row, WorkflowRow):
            self._workflow = row
        elif isinstance(row, JobRow) and row.wp == self._package:
            self._jobs[row.id] = row
            # The trail of this job contains them
            self._check_entries = []

    def _on_package_step(self, recorded: RecordedEvent) -> None:
        """Track the last implementers of a package; after a contest, the selected attempt."""
        payload = recorded.payload
        if not self._package and b"reviewed" in payload:
            package, event = read_package_step(payload)
            if isinstance(event, Reviewed):
                self._reviews.append(PackageReview(package, event.verdict, event.findings))

        if not self._package or (b"job-started" not in payload and b"attempt-taken" not in payload):
            return

        package, event = read_package_step(payload)
        if package != self._package:
            return

        if isinstance(event, PackageJobStarted) and event.role == "implement":
            same_round = {
                index: started
                for index, started in self._implementers.items()
                if started.round == event.round
            }
            self._implementers = {**same_round, event.agent_index: event}
        elif isinstance(event, AttemptSelected) and event.attempt in self._implementers:
            self._implementers = {0: self._implementers[event.attempt]}

    def _on_artifact_written(self, recorded: RecordedEvent) -> None:
        self._artifacts.append(read_json(recorded.payload, StoredArtifact))

    def _on_question_asked(self, recorded: RecordedEvent) -> None:
        question = read_json(recorded.payload, AskedQuestion)
        self._questions[question.id] = question

    def _on_question_answered(self, recorded: RecordedEvent) -> None:
        answer = read_json(recorded.payload, GivenAnswer)
        question = self._questions.get(answer.id)
        # What was decided in planning is for every package; all of it is for the feature
        if question is not None and (not self._package or question.work in ("", self._package)):
            self._answers.append(collapse_whitespace(f"{question.text} Answer: {answer.text}"))
