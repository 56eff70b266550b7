"""What agents said about their work, kept until our own evidence is there to hold it against."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from phasegate.checks.evidence import Evidence
from phasegate.checks.false_claims import Facts, FalseClaim, false_claims
from phasegate.core.machine.package_events import End, PackageHappened, Validated, failure_key
from phasegate.core.machine.retry import Fault
from phasegate.core.plan.commits import Commit
from phasegate.engine.checks.manifest import Checker, describe, failures_of
from phasegate.engine.checks.phase_commands import seconds_of
from phasegate.engine.jobs.assignment import Assigned, Ended
from phasegate.engine.jobs.step import Did, UnitWorker
from phasegate.engine.jobs.trail_notes import JobNotes
from phasegate.engine.journal.entries import CLAIMED, CLAIMED_FALSELY, Claimed
from phasegate.engine.steps.harvest import write_remarks
from phasegate.engine.steps.workplace import Workplace
from phasegate.prompts.shipped_texts import note
from phasegate.storage.rows import Event
from phasegate.workspace.changes import TooMuch, observe

_WORDS = ("summary", "pr_url", "error", "blocked_reason", "remediation")
_LONGEST_WORDS = 4_000
_MOST_STEPS = 20


class _Falsely(msgspec.Struct, frozen=True):
    package: str
    round: int
    job: str
    agent: str
    claims: tuple[FalseClaim, ...]


def claimed(place: Workplace, assigned: Assigned, agent_index: int, ended: Ended) -> tuple[Event, ...]:
    """The event that keeps what an implementer's result says, if it counts, for the step that records its end."""
    said = ended.answer.response
    if said is None or ended.end not in (End.DONE, End.BLOCKED) or said.success != (ended.end is End.DONE):
        return ()
    words = {name: (getattr(said, name) or "")[:_LONGEST_WORDS] or None for name in _WORDS}
    steps = tuple(step[:_LONGEST_WORDS] for step in (said.next_steps or ())[:_MOST_STEPS]) or None
    # An escalation need not name its job: it is this one's.
    said = msgspec.structs.replace(said, job_id=assigned.job, next_steps=steps, **words)
    package, took_s = place.package.work_package_id, ended.finished.duration_s
    kept = Claimed(package, assigned.round, agent_index, assigned.agent, took_s, said)
    return (Event(CLAIMED, msgspec.json.encode(kept)),)


class Compared(NamedTuple):
    """What was said in a round and is not so: in words, as events, and by job."""

    remarks: tuple[str, ...]
    rows: tuple[Event, ...]
    false: tuple[tuple[str, tuple[FalseClaim, ...]], ...]


def hold_against(place: Workplace, said: Iterable[Claimed], checker: Checker, evidence: Evidence) -> Compared:
    """Compare what was said in a round with what is: an event for each job that said what is not so."""
    found = [(one, claims) for one in said if (claims := _false(place, one, checker, evidence))]
    told = tuple(_told(place, one, claim) for one, claims in found for claim in claims)
    wrong = [_Falsely(one.package, one.round, str(one.said.job_id), one.agent, tuple(claims)) for one, claims in found]
    rows = tuple(Event(CLAIMED_FALSELY, msgspec.json.encode(one)) for one in wrong)
    return Compared(told, rows, tuple((one.job, one.claims) for one in wrong))


def said_last(claims: Iterable[Claimed], round_: int) -> list[Claimed]:
    """What each agent said last in a round: a blocked package begins its rounds anew."""
    last = {one.agent_index: one for one in claims if one.round == round_}
    return [last[index] for index in sorted(last)]


def _told(place: Workplace, one: Claimed, claim: FalseClaim) -> str:
    who = f"{one.agent} (agent {one.agent_index})" if place.count > 1 else one.agent
    return note("claim", AGENT=who, CLAIM=claim.claim, TRUTH=claim.truth)


def _false(place: Workplace, one: Claimed, checker: Checker, evidence: Evidence) -> list[FalseClaim]:
    facts = Facts(
        commits=_commits(place, one) if one.said.commits else (),
        checkout=checker.tree,
        base_paths=place.blobs_of(checker.start),
        duration_s=one.duration_s,
        evidence=evidence,
    )
    return false_claims(one.said, facts)


def _commits(place: Workplace, one: Claimed) -> tuple[Commit, ...]:
    """The agent's own commits, by the ids that it knows them by."""
    seen = observe(place.checkout(one.agent_index), litter=place.litter)
    return () if isinstance(seen, TooMuch) else tuple(Commit(own.id, own.message) for own in seen.history.commits)


def validate(
    place: Workplace, round_: int, commit: str, said: Iterable[Claimed], workers: Sequence[UnitWorker]
) -> tuple[Validated, Did[PackageHappened]]:
    """Check a commit of a package, or of an attempt at it: what was found, and all that is to be recorded with it."""
    notes = JobNotes(place.project, workers)
    checker = Checker(place.project, place.package, place.start())
    evidence = checker.check(commit)
    found = hold_against(place, said, checker, evidence)
    paper = place.project.papers.put(describe(evidence).encode(), place.paper_name(round_))
    notes.checks(evidence, commit, paper)
    for job, claims in found.false:
        notes.false_claims(job, claims)
    lacking = tuple(check.name for check in evidence.failures if check.fault is Fault.NO_PROGRAM)
    failures = failures_of(evidence)
    event = Validated(
        commit,
        failures,
        lacking,
        paper,
        write_remarks(place.project, found.remarks, place.paper_name(round_, ".claims")),
        failure_key("\n".join(failures)) if failures else "",
    )
    return event, Did((event,), found.rows, found.remarks, seconds_of(evidence), notes.all)
