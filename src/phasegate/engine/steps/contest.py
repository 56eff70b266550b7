"""A contest: attempts at one package judged one by one, compared by a reviewer who does not know whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from phasegate.core.answer.parse import Answer
from phasegate.core.machine.package_events import (
    AttemptJudged,
    AttemptsCompared,
    AttemptTaken,
    End,
    Harvested,
    PackageHappened,
    PackageJobEnded,
    Validated,
)
from phasegate.core.machine.package_machine import Run, next_attempt
from phasegate.engine.jobs.assignment import Assigned
from phasegate.engine.jobs.step import Did, Errand, Known
from phasegate.engine.project.agents import Member
from phasegate.engine.steps.briefing import brief_comparison
from phasegate.engine.steps.harvest import take_over
from phasegate.engine.steps.validate import said_last, validate
from phasegate.engine.steps.workplace import Workplace, copy_for_review, review_room
from phasegate.workspace.checkout_lifecycle import set_attempt_aside, take_attempt
from phasegate.workspace.export import export
from phasegate.workspace.removal import remove_tree

CANDIDATES = "phasegate-candidates"
_CHOICE = re.compile(r"^[ \t]*BEST:[ \t]*([A-Z])[ \t]*$", re.MULTILINE)


def judge_attempt(place: Workplace, run: Run, known: Known) -> Did[PackageHappened]:
    """Harvest and check the attempt that is due."""
    due = next_attempt(run)
    assert due is not None, "all are judged"
    own = place.of_attempt(due.number)
    mine = tuple(one._replace(agent_index=0) for one in known.workers if one.agent_index == due.number)
    taken = take_over(own, run, known._replace(workers=mine))
    (harvested,) = taken.events
    assert isinstance(harvested, Harvested)
    if not harvested.commit:
        return taken._replace(events=(AttemptJudged(due.number, harvested),))
    said = [one for one in said_last(known.claims, run.round) if one.agent_index == due.number]
    validated, checked = validate(own, run.round, harvested.commit, said, mine)
    event = AttemptJudged(due.number, harvested, validated)
    return Did(
        (event,), checked.rows, (*taken.notices, *checked.notices), checked.parts, (*taken.trail, *checked.trail)
    )


def assign_comparison(place: Workplace, run: Run, errand: Errand, member: Member, job: str) -> Assigned:
    """A copy of the base, with the tree of each candidate beside it: no history says who made it."""
    project, start = place.project, place.of_attempt(errand.candidates[0]).start()
    room = copy_for_review(project, place.name, start)
    commits = {name: one.harvested.commit for name, one in run.candidates.items() if one.harvested}
    for name, commit in commits.items():
        export(project.repository, commit, room / CANDIDATES / name)
    return brief_comparison(place, run, errand, member, job, room, start)


def compared(place: Workplace, errand: Errand, end: PackageJobEnded, answer: Answer) -> Iterator[PackageHappened]:
    """The end of a comparison, and the choice if it can be read: one letter, of one of those that were shown."""
    remove_tree(review_room(place.project, place.name))
    said = {ord(letter) - ord("A") for letter in _CHOICE.findall(answer.text)}
    if end.end is not End.DONE:
        yield end
    elif len(said) == 1 and (at := said.pop()) < len(errand.candidates):
        yield end
        yield AttemptsCompared(errand.candidates[at], answer.text)
    else:
        why = "it does not say which one is the best: one line with BEST: and one of their letters"
        yield PackageJobEnded(end.job, End.UNREADABLE, why)


def take_best(place: Workplace, run: Run) -> Did[PackageHappened]:
    """Make the best attempt the package's own work, with what was found about it; the others are kept as refs."""
    project, kept, notices = place.project, dict[int, str](), list[str]()
    for one in run.attempts:
        if one.number != run.best:
            attempt = place.of_attempt(one.number).assignment(0)
            kept[one.number], unsaved = set_attempt_aside(project.repository, attempt, place.signature(), place.lent)
            notices += [f"{unsaved.folder} is kept: {unsaved.reason}"] if unsaved else []
    take_attempt(project.repository, place.of_attempt(run.best).assignment(0), place.assignment(0))
    best = next(one for one in run.attempts if one.number == run.best)
    found = tuple(event for event in (best.harvested, best.validated) if event is not None)
    for event in found:
        if isinstance(event, Validated):
            project.papers.put(project.papers.get(event.evidence), place.paper_name(run.round))
    return Did((AttemptTaken(run.best, kept), *found), notices=tuple(notices))
