"""What agents said about their work, kept until our own evidence is there to hold it against."""

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
from phasegate.engine.jobs.assignment import JobAssignment, JobEnd
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
    package: str
    round: int
    job: str
    agent: str
    claims: tuple[FalseClaim, ...]


def build_claim_events(
    workspace: PackageWorkspace, assigned: JobAssignment, agent_index: int, ended: JobEnd
) -> tuple[NewEvent, ...]:
    """The event that keeps what an implementer's result says, if it counts, for the step that
    records its end.
    """
    said = ended.answer.response

    if (
        said is None
        or ended.outcome not in (JobEndKind.DONE, JobEndKind.BLOCKED)
        or said.success != (ended.outcome is JobEndKind.DONE)
    ):
        return ()

    words = {name: (getattr(said, name) or "")[:_MAX_TEXT_CHARS] or None for name in _TEXT_FIELDS}
    steps = (
        tuple(step[:_MAX_TEXT_CHARS] for step in (said.next_steps or ())[:_MAX_NEXT_STEPS]) or None
    )
    # An escalation need not name its job: it is this one's.
    said = msgspec.structs.replace(said, job_id=assigned.job_id, next_steps=steps, **words)
    package = workspace.package.work_package_id
    took_s = ended.finished.duration_s
    kept = AgentClaim(
        package=package,
        round=assigned.round,
        agent_index=agent_index,
        agent=assigned.agent,
        duration_s=took_s,
        said=said,
    )

    return (NewEvent(AGENT_CLAIMED, msgspec.json.encode(kept)),)


class ClaimComparison(NamedTuple):
    """What was said in a round and is not so: in words, as events, and by job."""

    remarks: tuple[str, ...]
    rows: tuple[NewEvent, ...]
    false_by_job: tuple[tuple[str, tuple[FalseClaim, ...]], ...]


def compare_claims(
    workspace: PackageWorkspace,
    agent_claims: Iterable[AgentClaim],
    checker: PackageChecker,
    evidence: Evidence,
) -> ClaimComparison:
    """Compare what was said in a round with what is.

    An event for each job that said what is not so.
    """
    found = [
        (one, claims)
        for one in agent_claims
        if (claims := _find_false_claims(workspace, one, checker, evidence))
    ]
    told = tuple(_render_claim(workspace, one, claim) for one, claims in found for claim in claims)
    wrong = [
        _FalseClaimsEntry(
            package=one.package,
            round=one.round,
            job=str(one.said.job_id),
            agent=one.agent,
            claims=tuple(claims),
        )
        for one, claims in found
    ]

    rows = tuple(NewEvent(AGENT_CLAIMED_FALSELY, msgspec.json.encode(one)) for one in wrong)

    return ClaimComparison(told, rows, tuple((one.job, one.claims) for one in wrong))


def select_latest_claims(claims: Iterable[AgentClaim], round_: int) -> list[AgentClaim]:
    """What each agent said last in a round: a blocked package begins its rounds anew."""
    last = {one.agent_index: one for one in claims if one.round == round_}
    return [last[index] for index in sorted(last)]


def _render_claim(workspace: PackageWorkspace, one: AgentClaim, claim: FalseClaim) -> str:
    if workspace.agent_count > 1:
        who = f"{one.agent} (agent {one.agent_index})"
    else:
        who = one.agent
    return render_note("claim", AGENT=who, CLAIM=claim.claim, TRUTH=claim.truth)


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
    """The agent's own commits, by the ids that it knows them by."""
    seen = observe_checkout(workspace.ensure_checkout(one.agent_index), litter=workspace.litter)
    if isinstance(seen, CheckoutTooLarge):
        return ()
    return tuple(Commit(own.id, own.message) for own in seen.history.commits)


def validate_commit(
    workspace: PackageWorkspace,
    round_: int,
    commit: str,
    agent_claims: Iterable[AgentClaim],
    workers: Sequence[UnitWorker],
) -> tuple[Validated, StepResult[AnyPackageEvent]]:
    """Check a commit of a package, or of an attempt at it.

    What was found, and all that is to be recorded with it.
    """
    notes = TrailNoteBuilder(workspace.project, workers)
    checker = PackageChecker(workspace.project, workspace.package, workspace.base_commit())
    evidence = checker.check_commit(commit)
    found = compare_claims(workspace, agent_claims, checker, evidence)
    paper = workspace.project.document_store.put(
        describe_evidence(evidence).encode(), workspace.evidence_path(round_)
    )
    notes.add_checks(evidence, commit, paper)
    for job, claims in found.false_by_job:
        notes.add_false_claims(job, claims)

    lacking = tuple(check.name for check in evidence.failures if check.fault is Fault.NO_PROGRAM)
    failures = describe_failures(evidence)
    event = Validated(
        commit=commit,
        failures=failures,
        without_program=lacking,
        evidence=paper,
        claims=write_remarks(
            workspace.project, found.remarks, workspace.evidence_path(round_, ".claims")
        ),
        alike=failure_key("\n".join(failures)) if failures else "",
    )

    return event, StepResult(
        events=(event,),
        rows=found.rows,
        notices=found.remarks,
        command_durations_s=sum_durations_s(evidence),
        trail_notes=notes.entries,
    )
