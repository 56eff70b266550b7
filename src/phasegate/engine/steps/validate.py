"""Check a package's commit, and compare the claims of agents with the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from phasegate.checks.evidence import Evidence
from phasegate.checks.false_claims import FalseClaim, ObservedFacts, find_false_claims
from phasegate.core.machine.package_events import (
    AnyPackageEvent,
    JobEndKind,
    Validated,
    failure_key,
)
from phasegate.core.machine.retry import Fault
from phasegate.core.plan.commits import Commit
from phasegate.engine.checks.manifest import PackageChecker, describe_evidence, describe_failures
from phasegate.engine.checks.phase_commands import sum_durations_s
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.job_end import JobEnd
from phasegate.engine.jobs.step import StepResult, UnitWorker
from phasegate.engine.jobs.trail_notes import TrailNoteBuilder
from phasegate.engine.journal.entries import AGENT_CLAIMED, AGENT_CLAIMED_FALSELY, AgentClaim
from phasegate.engine.steps.harvest import write_remarks
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.prompts.shipped_texts import render_note
from phasegate.storage.rows import NewEvent
from phasegate.workspace.changes import CheckoutTooLarge, observe_checkout

_TEXT_FIELDS = ("summary", "pr_url", "error", "blocked_reason", "remediation")
_MAX_TEXT_CHARS = 4_000
_MAX_NEXT_STEPS = 20


class _FalseClaimsEntry(msgspec.Struct, frozen=True):
    """Journal entry: the false claims of one job."""

    package: str
    round: int
    job: str
    agent: str
    claims: tuple[FalseClaim, ...]


def build_claim_events(
    workspace: PackageWorkspace, assigned: JobAssignment, agent_index: int, ended: JobEnd
) -> tuple[NewEvent, ...]:
    """Build the event that records the claims in an implementer's result, if the result is valid.

    It is recorded together with the end of the job.
    """
    response = ended.answer.response

    if (
        response is None
        or ended.outcome not in (JobEndKind.DONE, JobEndKind.BLOCKED)
        or response.success != (ended.outcome is JobEndKind.DONE)
    ):
        return ()

    texts = {
        name: (getattr(response, name) or "")[:_MAX_TEXT_CHARS] or None for name in _TEXT_FIELDS
    }
    steps = (response.next_steps or ())[:_MAX_NEXT_STEPS]
    # An escalation may omit its job id: it is this job.
    response = msgspec.structs.replace(
        response,
        job_id=assigned.job_id,
        next_steps=tuple(step[:_MAX_TEXT_CHARS] for step in steps) or None,
        **texts,
    )
    claim = AgentClaim(
        package=workspace.package.work_package_id,
        round=assigned.round,
        agent_index=agent_index,
        agent=assigned.agent,
        duration_s=ended.finished.duration_s,
        said=response,
    )

    return (NewEvent(AGENT_CLAIMED, msgspec.json.encode(claim)),)


class ClaimComparison(NamedTuple):
    """False claims of a round: as remarks, as journal rows, and by job."""

    remarks: tuple[str, ...]
    rows: tuple[NewEvent, ...]
    false_by_job: tuple[tuple[str, tuple[FalseClaim, ...]], ...]


def compare_claims(
    workspace: PackageWorkspace,
    agent_claims: Iterable[AgentClaim],
    checker: PackageChecker,
    evidence: Evidence,
) -> ClaimComparison:
    """Compare the claims of a round with the evidence. One event per job with false claims."""
    remarks: list[str] = []
    entries = []
    for one in agent_claims:
        if false_claims := _find_false_claims(workspace, one, checker, evidence):
            remarks += (_render_claim(workspace, one, claim) for claim in false_claims)
            entries.append(
                _FalseClaimsEntry(
                    package=one.package,
                    round=one.round,
                    job=str(one.said.job_id),
                    agent=one.agent,
                    claims=tuple(false_claims),
                )
            )

    rows = (NewEvent(AGENT_CLAIMED_FALSELY, msgspec.json.encode(entry)) for entry in entries)

    return ClaimComparison(
        tuple(remarks), tuple(rows), tuple((entry.job, entry.claims) for entry in entries)
    )


def select_latest_claims(claims: Iterable[AgentClaim], round_: int) -> list[AgentClaim]:
    """Return each agent's last claim of a round: a blocked package restarts its round numbers."""
    last = {one.agent_index: one for one in claims if one.round == round_}
    return [last[index] for index in sorted(last)]


def _render_claim(workspace: PackageWorkspace, one: AgentClaim, claim: FalseClaim) -> str:
    if workspace.agent_count > 1:
        agent = f"{one.agent} (agent {one.agent_index})"
    else:
        agent = one.agent
    return render_note("claim", AGENT=agent, CLAIM=claim.claim, TRUTH=claim.truth)


def _find_false_claims(
    workspace: PackageWorkspace, one: AgentClaim, checker: PackageChecker, evidence: Evidence
) -> list[FalseClaim]:
    facts = ObservedFacts(
        commits=_agent_commits(workspace, one) if one.said.commits else (),
        checkout=checker.tree,
        base_paths=workspace.blobs_of(checker.start),
        duration_s=one.duration_s,
        evidence=evidence,
    )
    return find_false_claims(one.said, facts)


def _agent_commits(workspace: PackageWorkspace, one: AgentClaim) -> tuple[Commit, ...]:
    """Return the agent's commits with their original ids, which the agent refers to."""
    observation = observe_checkout(
        workspace.ensure_checkout(one.agent_index), litter=workspace.litter
    )
    if isinstance(observation, CheckoutTooLarge):
        return ()
    return tuple(Commit(commit.id, commit.message) for commit in observation.history.commits)


def validate_commit(
    workspace: PackageWorkspace,
    round_: int,
    commit: str,
    agent_claims: Iterable[AgentClaim],
    workers: Sequence[UnitWorker],
) -> tuple[Validated, StepResult[AnyPackageEvent]]:
    """Check a commit of a package or of an attempt. Return the event and the step's full result."""
    notes = TrailNoteBuilder(workspace.project, workers)
    checker = PackageChecker(workspace.project, workspace.package, workspace.base_commit())
    evidence = checker.check_commit(commit)
    comparison = compare_claims(workspace, agent_claims, checker, evidence)
    document = workspace.project.document_store.put(
        describe_evidence(evidence).encode(), workspace.evidence_path(round_)
    )
    notes.add_checks(evidence, commit, document)
    for job, claims in comparison.false_by_job:
        notes.add_false_claims(job, claims)

    missing_programs = tuple(
        check.name for check in evidence.failures if check.fault is Fault.NO_PROGRAM
    )
    failures = describe_failures(evidence)
    event = Validated(
        commit=commit,
        failures=failures,
        without_program=missing_programs,
        evidence=document,
        claims=write_remarks(
            workspace.project, comparison.remarks, workspace.evidence_path(round_, ".claims")
        ),
        alike=failure_key("\n".join(failures)) if failures else "",
    )

    return event, StepResult(
        events=(event,),
        rows=comparison.rows,
        notices=comparison.remarks,
        command_durations_s=sum_durations_s(evidence),
        trail_notes=notes.entries,
    )
