"""A contest: attempts at one package judged one by one, compared by a reviewer who does not know
whose they are.
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
    Validated,
)
from phasegate.core.machine.package_machine import PackageRun, find_unchecked_attempt
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.step import AgentRequest, StepContext, StepResult
from phasegate.engine.project.agents import NamedAgent
from phasegate.engine.steps.briefing import build_comparison_job
from phasegate.engine.steps.harvest import harvest_package
from phasegate.engine.steps.validate import select_latest_claims, validate_commit
from phasegate.engine.steps.workplace import PackageWorkspace, copy_for_review, review_folder
from phasegate.workspace.checkout_lifecycle import archive_attempt, promote_attempt
from phasegate.workspace.export import export_tree
from phasegate.workspace.removal import remove_tree

CANDIDATES_FOLDER = "phasegate-candidates"
_BEST_PATTERN = re.compile(r"^[ \t]*BEST:[ \t]*([A-Z])[ \t]*$", re.MULTILINE)


def judge_attempt(
    workspace: PackageWorkspace, run: PackageRun, context: StepContext
) -> StepResult[AnyPackageEvent]:
    """Harvest and check the attempt that is due."""
    due = find_unchecked_attempt(run)
    assert due is not None, "all are judged"
    own = workspace.for_attempt(due.number)
    mine = tuple(
        one._replace(agent_index=0) for one in context.workers if one.agent_index == due.number
    )
    taken = harvest_package(own, run, context._replace(workers=mine))
    (harvested,) = taken.events
    assert isinstance(harvested, Harvested)
    if not harvested.commit:
        return taken._replace(events=(AttemptChecked(due.number, harvested),))

    said = [
        one
        for one in select_latest_claims(context.claims, run.round)
        if one.agent_index == due.number
    ]
    validated, checked = validate_commit(own, run.round, harvested.commit, said, mine)
    event = AttemptChecked(due.number, harvested, validated)

    return StepResult(
        events=(event,),
        rows=checked.rows,
        notices=(*taken.notices, *checked.notices),
        command_durations_s=checked.command_durations_s,
        trail_notes=(*taken.trail_notes, *checked.trail_notes),
    )


def assign_comparison(
    workspace: PackageWorkspace, run: PackageRun, request: AgentRequest, agent: NamedAgent, job: str
) -> JobAssignment:
    """A copy of the base, with the tree of each candidate beside it: no history says who made it."""
    project = workspace.project
    start = workspace.for_attempt(request.candidates[0]).base_commit()
    room = copy_for_review(project, workspace.name, start)
    commits = {name: one.harvested.commit for name, one in run.candidates.items() if one.harvested}
    for name, commit in commits.items():
        export_tree(project.repository, commit, room / CANDIDATES_FOLDER / name)

    return build_comparison_job(
        workspace=workspace,
        run=run,
        request=request,
        agent=agent,
        job=job,
        folder=room,
        start=start,
    )


def finish_comparison(
    workspace: PackageWorkspace, request: AgentRequest, end: PackageJobEnded, answer: Answer
) -> Iterator[AnyPackageEvent]:
    """The end of a comparison, and the choice if it can be read.

    One letter, of one of those that were shown.
    """
    remove_tree(review_folder(workspace.project, workspace.name))
    said = {ord(letter) - ord("A") for letter in _BEST_PATTERN.findall(answer.text)}

    if end.end is not JobEndKind.DONE:
        yield end
    elif len(said) == 1 and (at := said.pop()) < len(request.candidates):
        yield end
        yield AttemptsCompared(request.candidates[at], answer.text)
    else:
        why = "it does not say which one is the best: one line with BEST: and one of their letters"
        yield PackageJobEnded(job=end.job, end=JobEndKind.UNREADABLE, reason=why)


def promote_best_attempt(
    workspace: PackageWorkspace, run: PackageRun
) -> StepResult[AnyPackageEvent]:
    """Make the best attempt the package's own work, with what was found about it.

    The others are kept as refs.
    """
    project = workspace.project
    kept = dict[int, str]()
    notices = list[str]()

    for one in run.attempts:
        if one.number != run.selected_attempt:
            attempt = workspace.for_attempt(one.number).assignment(0)
            kept[one.number], unsaved = archive_attempt(
                project.repository, attempt, workspace.signature(), workspace.lent_secrets
            )
            notices += [f"{unsaved.folder} is kept: {unsaved.reason}"] if unsaved else []

    promote_attempt(
        project.repository,
        workspace.for_attempt(run.selected_attempt).assignment(0),
        workspace.assignment(0),
    )
    best = next(one for one in run.attempts if one.number == run.selected_attempt)
    found = tuple(event for event in (best.harvested, best.validated) if event is not None)

    for event in found:
        if isinstance(event, Validated):
            project.document_store.put(
                project.document_store.get(event.evidence), workspace.evidence_path(run.round)
            )

    return StepResult((AttemptSelected(run.selected_attempt, kept), *found), notices=tuple(notices))
