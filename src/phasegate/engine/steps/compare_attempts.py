"""Contest between attempts at one package: check each, compare them blind, promote the best.

The reviewer who compares them does not learn which agent made which attempt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from phasegate.core.answer.parse import Answer
from phasegate.core.machine.package_events import (
    AnyPackageEvent,
    AttemptChecked,
    AttemptsCompared,
    AttemptSelected,
    Harvested,
    JobEndKind,
    PackageJobEnded,
)
from phasegate.core.machine.package_machine import find_unchecked_attempt
from phasegate.core.machine.package_state import PackageRun
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.step import AgentRequest, StepContext, StepResult
from phasegate.engine.project.agents import NamedAgent
from phasegate.engine.steps.briefing import build_comparison_job
from phasegate.engine.steps.harvest import harvest_package
from phasegate.engine.steps.validate_package import select_latest_claims, validate_commit
from phasegate.engine.steps.workplace import PackageWorkspace, copy_for_review, review_folder
from phasegate.workspace.checkout.export import export_tree
from phasegate.workspace.checkout.removal import remove_tree
from phasegate.workspace.checkout_lifecycle import archive_attempt, promote_attempt

CANDIDATES_FOLDER = "phasegate-candidates"
_BEST_PATTERN = re.compile(r"^[ \t]*BEST:[ \t]*([A-Z])[ \t]*$", re.MULTILINE)


def judge_attempt(
    workspace: PackageWorkspace, run: PackageRun, context: StepContext
) -> StepResult[AnyPackageEvent]:
    """Harvest and check the next attempt that is not checked yet."""
    due = find_unchecked_attempt(run)
    assert due is not None, "all attempts are checked"
    attempt = workspace.for_attempt(due.number)
    workers = tuple(
        claim._replace(agent_index=0)
        for claim in context.workers
        if claim.agent_index == due.number
    )
    harvest = harvest_package(attempt, run, context._replace(workers=workers))
    (harvested,) = harvest.events
    assert isinstance(harvested, Harvested)
    if not harvested.commit:
        return harvest._replace(events=(AttemptChecked(due.number, harvested),))

    claims = [
        claim
        for claim in select_latest_claims(context.claims, run.round)
        if claim.agent_index == due.number
    ]
    validated, checked = validate_commit(
        attempt, run.round, harvested.commit, claims, context._replace(workers=workers)
    )
    event = AttemptChecked(due.number, harvested, validated)

    return StepResult(
        events=(event,),
        rows=checked.rows,
        notices=(*harvest.notices, *checked.notices),
        command_durations_s=checked.command_durations_s,
        trail_notes=(*harvest.trail_notes, *checked.trail_notes),
    )


def assign_comparison(
    workspace: PackageWorkspace,
    run: PackageRun,
    request: AgentRequest,
    agent: NamedAgent,
    job: str,
    user_message: str,
) -> JobAssignment:
    """Build the comparison job: a copy of the base, next to the tree of each candidate.

    The trees of the candidates have no git directory: its history would reveal the agents.
    `user_message`: the user's message to all agents of the feature.
    """
    project = workspace.project
    base_commit = workspace.for_attempt(request.candidates[0]).base_commit()
    folder = copy_for_review(project, workspace.name, base_commit)
    commits = {
        name: attempt.harvested.commit
        for name, attempt in run.contest.candidates.items()
        if attempt.harvested
    }
    for name, commit in commits.items():
        export_tree(project.repository, commit, folder / CANDIDATES_FOLDER / name)

    return build_comparison_job(
        workspace=workspace,
        run=run,
        request=request,
        agent=agent,
        job=job,
        folder=folder,
        base_commit=base_commit,
        user_message=user_message,
    )


def finish_comparison(
    workspace: PackageWorkspace, request: AgentRequest, end: PackageJobEnded, answer: Answer
) -> Iterator[AnyPackageEvent]:
    """Yield the end of a comparison job, and the choice if the answer names exactly one candidate.

    An answer that names none, several or an unknown letter is unreadable.
    """
    remove_tree(review_folder(workspace.project, workspace.name))
    choices = {ord(letter) - ord("A") for letter in _BEST_PATTERN.findall(answer.text)}

    if end.end is not JobEndKind.DONE:
        yield end
    elif len(choices) == 1 and max(choices) < len(request.candidates):
        yield end
        yield AttemptsCompared(request.candidates[max(choices)], answer.text)
    else:
        why = "the answer does not name the best attempt: it needs one line with BEST: and a letter"
        yield PackageJobEnded(job=end.job, end=JobEndKind.UNREADABLE, reason=why)


def promote_best_attempt(
    workspace: PackageWorkspace, run: PackageRun
) -> StepResult[AnyPackageEvent]:
    """Move the best attempt to the package's branch, with its check results.

    The other attempts are kept as refs.
    """
    project = workspace.project
    kept = dict[int, str]()
    notices = list[str]()

    for attempt in run.contest.attempts:
        if attempt.number != run.contest.selected:
            assignment = workspace.for_attempt(attempt.number).assignment(0)
            kept[attempt.number], unsaved = archive_attempt(
                project.repository, assignment, workspace.signature(), workspace.lent_secrets
            )
            if unsaved:
                notices.append(f"{unsaved.folder} is kept: {unsaved.reason}")

    promote_attempt(
        project.repository,
        workspace.for_attempt(run.contest.selected).assignment(0),
        workspace.assignment(0),
    )
    best = next(
        attempt for attempt in run.contest.attempts if attempt.number == run.contest.selected
    )
    if best.validated is not None:
        project.document_store.put(
            project.document_store.get(best.validated.evidence), workspace.evidence_path(run.round)
        )

    results = tuple(event for event in (best.harvested, best.validated) if event is not None)

    return StepResult(
        (AttemptSelected(run.contest.selected, kept), *results), notices=tuple(notices)
    )
