"""Check a package's commit, and compare the claims of agents with the evidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from phasegate.checks.evidence import Evidence
from phasegate.checks.false_claims import (
    FalseClaim,
    ObservedFacts,
    find_false_claims,
    find_false_failure_claims,
)
from phasegate.checks.manifest import RULES_CHECK
from phasegate.core.machine.package_events import (
    AnyPackageEvent,
    JobEndKind,
    Validated,
    failure_key,
)
from phasegate.core.machine.retry import Fault
from phasegate.core.plan.commits import Commit
from phasegate.core.test_strength.model import StrengthReport
from phasegate.engine.checks.acceptance import check_sealed_tests
from phasegate.engine.checks.evidence_text import (
    describe_evidence,
    describe_failures,
    describe_questions,
)
from phasegate.engine.checks.feature_checks import sum_durations_s
from phasegate.engine.checks.manifest import PackageChecker
from phasegate.engine.checks.strength import AcceptedEvidence
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.job_end import JobEnd
from phasegate.engine.jobs.step import StepContext, StepResult
from phasegate.engine.jobs.trail_notes import TrailNoteBuilder
from phasegate.engine.journal.entries import (
    ACCEPTANCE_CHECKED,
    AGENT_CLAIMED,
    AGENT_CLAIMED_FALSELY,
    AgentClaim,
)
from phasegate.engine.steps.harvest import store_remarks
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.prompts.shipped_texts import render_note
from phasegate.storage.rows import NewEvent
from phasegate.workspace.changes.changes import CheckoutTooLarge, observe_checkout
from phasegate.workspace.repository.merge import merge_trees
from phasegate.workspace.repository.objects import write_tree_commit

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


def compare_failure_claims(
    workspace: PackageWorkspace,
    assigned: JobAssignment,
    agent_index: int,
    ended: JobEnd,
    notes: TrailNoteBuilder,
) -> tuple[NewEvent, ...]:
    """Compare the claims of a failure response with git and the clock, before a reset."""
    response = ended.answer.response
    if ended.outcome is not JobEndKind.BLOCKED or response is None:
        return ()

    commits = _agent_commits(workspace, agent_index) if response.commits else ()
    claims = find_false_failure_claims(response, commits, ended.finished.duration_s)
    if not claims:
        return ()

    notes.add_false_claims(assigned.job_id, claims)
    entry = _FalseClaimsEntry(
        package=workspace.package.work_package_id,
        round=assigned.round,
        job=assigned.job_id,
        agent=assigned.agent,
        claims=tuple(claims),
    )
    return (NewEvent(AGENT_CLAIMED_FALSELY, msgspec.json.encode(entry)),)


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
        commits=_agent_commits(workspace, one.agent_index) if one.said.commits else (),
        checkout=checker.tree,
        base_paths=workspace.blobs_of(checker.base_commit),
        duration_s=one.duration_s,
        evidence=evidence,
    )
    return find_false_claims(one.said, facts)


def _agent_commits(workspace: PackageWorkspace, agent_index: int) -> tuple[Commit, ...]:
    """Return the agent's commits with their original ids, which the agent refers to."""
    observation = observe_checkout(workspace.ensure_checkout(agent_index), litter=workspace.litter)
    if isinstance(observation, CheckoutTooLarge):
        return ()
    return tuple(Commit(commit.id, commit.message) for commit in observation.history.commits)


class _CheckedCommit(NamedTuple):
    checker: PackageChecker
    evidence: Evidence
    strength: StrengthReport | None


def _check_alone(
    workspace: PackageWorkspace, commit: str, accepted: AcceptedEvidence
) -> _CheckedCommit:
    checker = PackageChecker(
        workspace.project, workspace.package, workspace.base_commit(), workspace.approved
    )
    return _CheckedCommit(
        checker, *checker.check_with_strength(commit, workspace.document, accepted)
    )


def _check_merged(
    workspace: PackageWorkspace, commit: str, accepted: AcceptedEvidence
) -> _CheckedCommit | None:
    """Check a commit merged with its feature's branch, if the branch has moved since the start.

    The merge then finds the results of its tree. Return None if the merged tree does not pass: the
    agent knows only its own tree.
    """
    merge = _merge_with_feature(workspace, commit)
    if merge is None:
        return None

    head, merged = merge
    checker = PackageChecker(workspace.project, workspace.package, head, workspace.approved)
    evidence, strength = checker.check_with_strength(merged, workspace.document, accepted)
    if evidence.has_passed:
        return _CheckedCommit(checker, evidence, strength)

    return None


def _merge_with_feature(workspace: PackageWorkspace, commit: str) -> tuple[str, str] | None:
    """Return the head of the feature's branch, and its merge with a commit.

    Return None if the branch has not moved since the start, or if there are conflicts.
    """
    project = workspace.project
    target = f"feat/{workspace.package.feature_slug}"
    head = project.refs.fetch(target).get(target)
    if head is None or head == workspace.base_commit():
        return None

    merged = merge_trees(project.repository, head, commit)
    if merged.conflicts:
        return None

    message = f"{workspace.package.work_package_id}: merge into {target}\n"
    return head, write_tree_commit(
        project.repository, merged.tree, (head, commit), workspace.signature(), message
    )


def _add_acceptance(
    workspace: PackageWorkspace, commit: str, evidence: Evidence
) -> tuple[Evidence, tuple[NewEvent, ...]]:
    """Add the sealed tests to evidence that passed so far; return it with the journal rows."""
    if workspace.acceptance is None or evidence.failures:
        return evidence, ()

    # Packages that share a requirement are merged already
    merge = _merge_with_feature(workspace, commit)
    start, tested = merge or (workspace.base_commit(), commit)
    checker = PackageChecker(workspace.project, workspace.package, start)
    result = check_sealed_tests(checker, tested, workspace.acceptance)
    row = NewEvent(ACCEPTANCE_CHECKED, msgspec.json.encode(result.rows))
    return Evidence((*evidence.checks, result.check)), (row,)


def validate_commit(
    workspace: PackageWorkspace,
    round_: int,
    commit: str,
    agent_claims: Iterable[AgentClaim],
    context: StepContext,
) -> tuple[Validated, StepResult[AnyPackageEvent]]:
    """Check a commit of a package or of an attempt. Return the event and the step's full result."""
    notes = TrailNoteBuilder(workspace.project, context.workers)
    accepted = AcceptedEvidence(
        findings={one.finding: one.reason for one in context.accepted_evidence},
        paths=tuple(one.path for one in context.scope_exceptions),
    )
    checked = _check_merged(workspace, commit, accepted) or _check_alone(
        workspace, commit, accepted
    )
    checker, evidence, strength = checked
    evidence, acceptance_rows = _add_acceptance(workspace, commit, evidence)
    comparison = compare_claims(workspace, agent_claims, checker, evidence)
    questions = tuple(str(finding) for finding in strength.asked) if strength else ()
    document = workspace.project.document_store.put(
        f"{describe_evidence(evidence)}{describe_questions(questions)}".encode(),
        workspace.evidence_path(round_),
    )
    strength_document = ""
    if strength is not None:
        strength_document = workspace.project.document_store.put(msgspec.json.encode(strength))
    notes.add_checks(evidence, commit, document)
    for job, claims in comparison.false_by_job:
        notes.add_false_claims(job, claims)

    missing_programs = tuple(
        check.name for check in evidence.failures if check.fault is Fault.NO_PROGRAM
    )
    failures = describe_failures(evidence)
    ran_tests = (check.summary for check in evidence.checks if check.tests is not None)
    event = Validated(
        commit=commit,
        failures=failures,
        without_program=missing_programs,
        governance=tuple(check.summary for check in evidence.failures if check.name == RULES_CHECK),
        evidence=document,
        claims=store_remarks(
            workspace.project, comparison.remarks, workspace.evidence_path(round_, ".claims")
        ),
        alike=failure_key("\n".join(failures)) if failures else "",
        questions=questions,
        strength=strength_document,
        tests=next(ran_tests, ""),
    )

    return event, StepResult(
        events=(event,),
        rows=(*comparison.rows, *acceptance_rows),
        notices=comparison.remarks,
        command_durations_s=sum_durations_s(evidence),
        trail_notes=notes.entries,
    )
