"""A work package from PLANNED to DONE or BLOCKED: `decide` says what is next, `apply` takes in what came.

Both are pure. The dispatcher carries the actions out, records the events, and asks again; after a crash it folds the
recorded events and asks again, too. Agents of one package work side by side: each owes its part, and is tried again and
asked again by itself. No event of an agent leads to DONE: that takes a harvest within scope, a passed
manifest, a PASS of the reviewer and a merge, in this order, in one round.

In a contest several agents do the whole package, each in a checkout of its own. Each attempt is harvested and checked;
the reviewer compares those that passed; the best one becomes the package's work and goes on as any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256

import msgspec

from phasegate.rules.answer_words import TaskStatus, Verdict
from phasegate.rules.ordering import By
from phasegate.rules.work_package import State

LONGEST_QUOTE = 200
_PASSING = re.compile(
    r"\b\d+(?:\.\d+)? ?(?:m?s|sec(?:onds?)?|min(?:utes?)?)\b|\b0x[0-9a-f]+\b|\b\d\d:\d\d(?::\d\d)?\b", re.I
)
_THEN = "then fix the package, its plan or the check, or tell the agent more: resolve, and dispatch again"
MOST_PAUSES = 20  # of one run, for limits of the provider
MOST_LOSSES = 3  # of one run: one that ends whoever drives it would go round for ever


class PackageLimits(msgspec.Struct, frozen=True):
    """How often things are tried."""

    rounds: int = 5
    retries: int = 3
    agents: int = 1
    pauses: int = MOST_PAUSES
    losses: int = MOST_LOSSES


class End(StrEnum):
    """How an agent's job ended, as we see it."""

    DONE = "done"  # exit code 0 and a valid answer
    LOST = "lost"  # we died before its end: it is run again, a few times, and that counts as no try
    TRANSIENT = "transient"  # worth trying again by itself: network, a lock, a rate limit
    LIMITED = "rate limited"  # the provider says when it goes on: tried again then, and that counts as no try
    UNREADABLE = "unreadable"  # the work may be good, the answer is missing or malformed: ask once more
    BLOCKED = "blocked"  # the agent says that it cannot go on
    FAILED = "failed"  # a timeout, a crash, a failure response


class PackageEvent(msgspec.Struct, frozen=True, tag=True):
    """Something that happened. The journal holds nothing else."""


class PackagePrepared(PackageEvent, frozen=True, tag="prepared"):
    """The package's branch and checkouts are there, from this commit of the feature's branch."""

    base: str
    entrants: tuple[str, ...] = ()  # the agents of a contest, one an attempt; none: there is no contest
    delta_is_final: bool = False  # whether a review of what changed since the last one is enough for a merge


class PackageJobStarted(PackageEvent, frozen=True, tag="job-started"):
    job: str
    role: str  # implement or review
    round: int
    agent_index: int = 0
    agent: str = ""  # as people know it
    saved_tokens: int = 0  # of a review of what changed since the last one: by how much its prompt is shorter


class PackageJobEnded(PackageEvent, frozen=True, tag="job-ended"):
    job: str
    end: End
    reason: str = ""
    remediation: str = ""
    cleanup: bool = False
    last_seen: str = ""  # of a lost job: when it last gave a sign. Without it, a loss of before they were counted
    tasks: tuple[tuple[str, TaskStatus], ...] = ()  # as the implementer reports them


class Harvested(PackageEvent, frozen=True, tag="harvested"):
    """What was taken over from the checkouts: a commit, or none where nothing differs from the base, or violations."""

    commit: str = ""
    violations: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()  # where a key stood that was lent to the agent
    remarks: str = ""  # the paper with what a diff would not make plain to the reviewer
    there: tuple[str, ...] = ()  # where nothing differs from the base: the deliverables that it has already
    unchanged: bool = False  # the round brought nothing: the commit is that of the round before, or there is none


class Validated(PackageEvent, frozen=True, tag="validated"):
    """What our own checks found on a clean checkout; no failures means that the manifest passed."""

    commit: str
    failures: tuple[str, ...] = ()
    without_program: tuple[str, ...] = ()  # of the failed checks, those whose program is not there
    evidence: str = ""  # the paper with what was found, for the reviewer
    claims: str = ""  # the paper with what the agents said and is not so
    alike: str = ""  # the `failure_key` of the failures


class AttemptJudged(PackageEvent, frozen=True, tag="attempt-judged"):
    """What an attempt left, and what our checks found there; nothing to check is None."""

    attempt: int
    harvested: Harvested
    validated: Validated | None = None


class AttemptsCompared(PackageEvent, frozen=True, tag="attempts-compared"):
    """The reviewer's choice among those that passed."""

    best: int
    findings: str = ""


class AttemptTaken(PackageEvent, frozen=True, tag="attempt-taken"):
    """An attempt's checkout and branch are the package's now; the others are kept under these refs, by attempt."""

    attempt: int
    kept: dict[int, str] = {}


class Reviewed(PackageEvent, frozen=True, tag="reviewed"):
    verdict: Verdict
    findings: str = ""
    delta: bool = False  # it was about what changed since the last review, with the whole by reference
    alike: str = ""  # the `failure_key` of the findings


class PackageMerged(PackageEvent, frozen=True, tag="merged"):
    commit: str


class PackageNotMerged(PackageEvent, frozen=True, tag="not-merged"):
    """The feature's branch could not take the work: a conflict, or checks that fail on the merged tree."""

    reason: str


class Cleaned(PackageEvent, frozen=True, tag="cleaned"):
    """The checkouts are gone; what was uncommitted in them is saved."""


class PackageResolved(PackageEvent, frozen=True, tag="resolved"):
    """A person has dealt with the blocker."""

    how: str
    by: By = By()


PackageHappened = (
    PackagePrepared
    | PackageJobStarted
    | PackageJobEnded
    | Harvested
    | Validated
    | AttemptJudged
    | AttemptsCompared
    | AttemptTaken
    | Reviewed
    | PackageMerged
    | PackageNotMerged
    | Cleaned
    | PackageResolved
)


class PackageStep(StrEnum):
    PREPARE = "prepare"
    IMPLEMENT = "implement"
    HARVEST = "harvest"
    VALIDATE = "validate"
    JUDGE = "judge"  # an attempt of a contest: harvest and manifest
    COMPARE = "compare"  # the attempts that passed
    TAKE = "take"  # the best of them
    REVIEW = "review"
    MERGE = "merge"
    CLEAN = "clean"
    STOP = "stop"


BY_AGENTS = (PackageStep.IMPLEMENT, PackageStep.COMPARE, PackageStep.REVIEW)


class Owed(msgspec.Struct, frozen=True):
    """What an agent has yet to deliver, and how often it was tried; `reason` is why the last try did not count."""

    agent_index: int = 0
    retries: int = 0
    asked_again: bool = False
    reason: str = ""
    pauses: int = 0  # for limits of the provider
    losses: int = 0


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a contest, once its agent has ended."""

    number: int
    out: str = ""  # why it came to nothing
    tasks: tuple[tuple[str, TaskStatus], ...] = ()  # as its agent reported them
    harvested: Harvested | None = None
    validated: Validated | None = None

    @property
    def is_judged(self) -> bool:
        return bool(self.out) or self.harvested is not None

    @property
    def passed(self) -> bool:
        """Within scope, something changed, and every check of the manifest holds."""
        return self.validated is not None and not self.validated.failures

    @property
    def rank(self) -> tuple[int, int, int]:
        """The lower, the nearer to work that counts: where none passed, the best goes on with its findings."""
        if self.validated is not None:
            return (0, len(self.validated.failures), self.number)
        if self.harvested is None:
            return (3, 0, self.number)
        return (2 if self.harvested.violations or self.harvested.leaks else 1, 0, self.number)


class Run(msgspec.Struct, frozen=True):
    """Where a package stands, folded from its events."""

    limits: PackageLimits = PackageLimits()
    state: State = State.PLANNED
    step: PackageStep = PackageStep.PREPARE
    round: int = 1
    rounds_before: int = 0  # those before a person's last answer: the limit counts from there, the number goes on
    merge_rounds: int = 0
    owed: tuple[Owed, ...] = ()  # by the implementers of this round, or by its reviewer
    open_jobs: tuple[PackageJobStarted, ...] = ()
    commit: str = ""
    findings: str = ""
    tried: str = ""  # the commit that the round before ended with; none in the first one, and after a person's answer
    failed_as: str = ""  # the `failure_key` of the round before
    without_program: tuple[str, ...] = ()  # the checks of the last round that had none
    papers: tuple[str, ...] = ()  # for the reviewer of this round: evidence, then what there is to remark
    reason: str = ""
    remediation: str = ""
    tasks: tuple[tuple[str, TaskStatus], ...] = ()  # the last status of each, as reported
    doubted: tuple[str, ...] = ()  # tasks that were FAILED in an answer of this round, whatever was said later
    entrants: tuple[str, ...] = ()  # of a contest that is not decided
    attempts: tuple[Attempt, ...] = ()  # of it, those that have ended, by number
    best: int = -1  # the attempt that is to be taken
    maker: str = ""  # the agent whose attempt was taken: later rounds are its own
    seen: str = ""  # the commit that was reviewed last
    reviews: tuple[str, ...] = ()  # what reviewers found so far
    is_last_review: bool = False  # a review of the changes says PASS: one of the whole comes after it
    delta_is_final: bool = False

    @property
    def last_round(self) -> int:
        """The one after which a person decides."""
        return self.rounds_before + self.limits.rounds

    @property
    def can_review_delta(self) -> bool:
        """Whether a reviewer needs to be told no more than what changed since the last review."""
        return bool(self.seen) and not self.is_last_review

    @property
    def candidates(self) -> dict[str, Attempt]:
        """The attempts that passed, by a letter that does not tell who made them: commits are in no order."""
        passed = sorted(
            (one for one in self.attempts if one.passed), key=lambda one: one.harvested.commit if one.harvested else ""
        )
        return {chr(ord("A") + index): one for index, one in enumerate(passed)}


class PackageAction(msgspec.Struct, frozen=True):
    """What to do next. `owed` is the part of it, and which try it is, where an agent is to do it."""

    step: PackageStep
    round: int
    owed: Owed = Owed()


def decide(run: Run) -> tuple[PackageAction, ...]:
    """What to do next. Several actions can be carried out side by side; none means that jobs are to be waited for."""
    if run.step not in BY_AGENTS:
        return (PackageAction(run.step, run.round),)
    busy = {job.agent_index for job in run.open_jobs}
    return tuple(PackageAction(run.step, run.round, owed) for owed in run.owed if owed.agent_index not in busy)


def fold(events: Iterable[PackageHappened], limits: PackageLimits) -> Run:
    """The run after these events, from the beginning."""
    run = Run(limits=limits)
    for event in events:
        run = apply(run, event)
    return run


def apply(run: Run, event: PackageHappened) -> Run:  # noqa: C901 - one case an event: a table, not a maze
    """The run after one more event. An event that cannot happen now changes nothing: the journal may hold late ones."""
    match event:
        case PackagePrepared() if run.step is PackageStep.PREPARE:
            return _prepared(run, event)
        case PackageJobStarted() if _is_owed(run, event):
            return msgspec.structs.replace(run, open_jobs=(*run.open_jobs, event))
        case PackageJobEnded() if job := next((job for job in run.open_jobs if job.job == event.job), None):
            return _after_job(run, job, event)
        case Harvested() if run.step is PackageStep.HARVEST:
            return _after_harvest(run, event)
        case Validated() if run.step is PackageStep.VALIDATE and event.commit == run.commit:
            return _after_checks(run, event)
        case AttemptJudged() if run.step is PackageStep.JUDGE and _is_open(run, event.attempt):
            return _after_judging(run, event)
        case AttemptsCompared() if run.step is PackageStep.COMPARE and not run.open_jobs:
            found = any(one.number == event.best for one in run.candidates.values())
            return msgspec.structs.replace(run, step=PackageStep.TAKE, best=event.best) if found else run
        case AttemptTaken() if run.step is PackageStep.TAKE and event.attempt == run.best:
            return _taken(run)
        case Reviewed() if run.step is PackageStep.REVIEW and not run.open_jobs:
            return _after_review(run, event)
        case PackageMerged() if run.step is PackageStep.MERGE:
            return msgspec.structs.replace(run, state=State.DONE, step=PackageStep.CLEAN, reason="")
        case PackageNotMerged() if run.step is PackageStep.MERGE:
            return _after_failed_merge(run, event.reason)
        case Cleaned() if run.step is PackageStep.CLEAN:
            return msgspec.structs.replace(run, step=PackageStep.STOP)
        case PackageResolved() if run.state is State.BLOCKED:
            kept = Run(limits=run.limits, findings=run.findings, commit=run.commit, tasks=run.tasks, maker=run.maker)
            if run.candidates:  # what passed is not made again: it is compared when the way is clear
                kept = msgspec.structs.replace(kept, entrants=run.entrants, attempts=run.attempts)
            return msgspec.structs.replace(kept, round=run.round + 1, rounds_before=run.round)
        case _:
            return run


def _prepared(run: Run, prepared: PackagePrepared) -> Run:
    run = msgspec.structs.replace(run, state=State.DOING, delta_is_final=prepared.delta_is_final)
    if run.attempts:
        return _to_choice(run)
    return _to_work(msgspec.structs.replace(run, entrants=prepared.entrants))


def _to_work(run: Run) -> Run:
    """A round begins: every agent of the package owes its part, or its attempt at the whole."""
    owed = tuple(Owed(index) for index in range(len(run.entrants) or run.limits.agents))
    fresh = msgspec.structs.replace(run, state=State.DOING, step=PackageStep.IMPLEMENT, owed=owed, reason="")
    return msgspec.structs.replace(fresh, doubted=(), is_last_review=False)


def _is_owed(run: Run, started: PackageJobStarted) -> bool:
    """Whether a job is for what an agent still owes and no other job is at."""
    wanted = {(str(action.step), action.owed.agent_index) for action in decide(run)}
    return (started.role, started.agent_index) in wanted and started.role in BY_AGENTS


def _after_job(run: Run, job: PackageJobStarted, ended: PackageJobEnded) -> Run:
    """A job is closed; what it means counts only while its step lasts: a package that is blocked stays so."""
    run = msgspec.structs.replace(run, open_jobs=tuple(one for one in run.open_jobs if one is not job))
    if ended.tasks and not run.entrants:
        failed = (name for name, status in ended.tasks if status is TaskStatus.FAILED)
        doubted = tuple(dict.fromkeys((*run.doubted, *failed)))
        run = msgspec.structs.replace(run, tasks=tuple(dict((*run.tasks, *ended.tasks)).items()), doubted=doubted)
    owed = next((one for one in run.owed if one.agent_index == job.agent_index), None)
    if owed is None or run.step != job.role:
        return run
    match ended.end:
        case End.DONE:
            return _delivered(run, owed, ended)
        case End.LOST if not ended.last_seen:
            return run
        case End.LOST if owed.losses < run.limits.losses:
            return _still_owed(run, msgspec.structs.replace(owed, losses=owed.losses + 1))
        case End.LOST:
            return _given_up(run, owed, *lost_too_often(owed.losses + 1, ended.reason))
        case End.TRANSIENT if owed.retries < run.limits.retries:
            return _still_owed(run, msgspec.structs.replace(owed, retries=owed.retries + 1, reason=ended.reason))
        case End.LIMITED if owed.pauses < run.limits.pauses:
            return _still_owed(run, msgspec.structs.replace(owed, pauses=owed.pauses + 1, reason=ended.reason))
        case End.UNREADABLE if not owed.asked_again:
            return _still_owed(run, msgspec.structs.replace(owed, asked_again=True, reason=ended.reason))
        case _:
            return _given_up(run, owed, ended.reason or f"the agent ended as {ended.end}", ended.remediation)


def lost_too_often(losses: int, why: str) -> tuple[str, str]:
    """Reason and remedy of a job that nobody sees the end of."""
    reason = f"the agent's run was lost {losses} times; the last time: {why or 'the reason is unknown'}"
    return reason, "see what ended it (memory, a kill, a crash): phasegate audit show; then let it be tried again"


def _still_owed(run: Run, again: Owed) -> Run:
    owed = tuple(again if one.agent_index == again.agent_index else one for one in run.owed)
    return msgspec.structs.replace(run, owed=owed)


def _delivered(run: Run, delivered: Owed, ended: PackageJobEnded) -> Run:
    """An agent has answered. A reviewer's answer is judged by the event that follows, in the same recorded step."""
    if run.step is not PackageStep.IMPLEMENT:
        return run
    if run.entrants:
        return _attempted(run, Attempt(delivered.agent_index, tasks=ended.tasks))
    owed = tuple(one for one in run.owed if one is not delivered)
    return msgspec.structs.replace(run, owed=owed, step=run.step if owed else PackageStep.HARVEST)


def _given_up(run: Run, owed: Owed, reason: str, remediation: str) -> Run:
    """An agent cannot deliver. That blocks the package, unless others are at the same task."""
    if not run.entrants or run.step is not PackageStep.IMPLEMENT:
        return _blocked(run, reason, remediation)
    after = _attempted(run, Attempt(owed.agent_index, out=reason))
    if after.owed or any(not one.out for one in after.attempts):
        return after
    return _blocked(msgspec.structs.replace(after, attempts=()), f"no attempt was made: {reason}", remediation)


def _attempted(run: Run, attempt: Attempt) -> Run:
    """An attempt has ended; when all have, what they left is judged."""
    owed = tuple(one for one in run.owed if one.agent_index != attempt.number)
    attempts = tuple(sorted((*run.attempts, attempt), key=lambda one: one.number))
    return msgspec.structs.replace(run, owed=owed, attempts=attempts, step=run.step if owed else PackageStep.JUDGE)


def next_attempt(run: Run) -> Attempt | None:
    """The attempt that is to be judged next."""
    return next((one for one in run.attempts if not one.is_judged), None)


def _is_open(run: Run, number: int) -> bool:
    return any(one.number == number and not one.is_judged for one in run.attempts)


def _after_judging(run: Run, judged: AttemptJudged) -> Run:
    harvested, validated = judged.harvested, judged.validated
    strayed = harvested.violations or harvested.leaks
    if strayed or validated is None or validated.commit != harvested.commit:
        validated = None  # checks of another commit say nothing about this one
    attempts = tuple(
        msgspec.structs.replace(one, harvested=harvested, validated=validated) if one.number == judged.attempt else one
        for one in run.attempts
    )
    run = msgspec.structs.replace(run, attempts=attempts)
    return run if next_attempt(run) else _to_choice(run)


def _to_choice(run: Run) -> Run:
    """Several that passed are compared; of one, or of none, there is nothing to choose."""
    if len(run.candidates) > 1:
        return msgspec.structs.replace(run, step=PackageStep.COMPARE, owed=(Owed(),))
    best = min(run.attempts, key=lambda one: one.rank)
    return msgspec.structs.replace(run, step=PackageStep.TAKE, best=best.number)


def _taken(run: Run) -> Run:
    """The best attempt is the package's work now, and goes on as any other: from its harvest."""
    best = next(one for one in run.attempts if one.number == run.best)
    doubted = tuple(name for name, status in best.tasks if status is TaskStatus.FAILED)
    run = msgspec.structs.replace(run, tasks=best.tasks, doubted=doubted, maker=run.entrants[run.best])
    return msgspec.structs.replace(run, step=PackageStep.HARVEST, entrants=(), attempts=(), best=-1)


def _after_harvest(run: Run, harvested: Harvested) -> Run:
    if harvested.leaks:
        reason = f"a key that was lent to the agent is in its work: {'; '.join(harvested.leaks)}"
        return _blocked(
            msgspec.structs.replace(run, findings=f"{reason}\nWrite no key, in no form, and begin again."),
            reason,
            "revoke the key and set a new one; the checkout begins anew, and what was there is saved without the key",
        )
    if harvested.violations:
        reason = f"File scope violation: {'; '.join(harvested.violations)}"
        return _blocked(
            msgspec.structs.replace(run, findings=f"{reason}\nStay within the file scope as it is now."),
            reason,
            'allow the path (phasegate scope allow WPnn PATH --reason "...") or take it out of the checkout',
        )
    if harvested.unchanged:
        return _blocked(run, *_nothing_done(run, harvested.there))
    if not harvested.commit:
        same = f"unchanged: {', '.join(harvested.there)}" if harvested.there else "the deliverables are not there"
        return _next_round(run, f"nothing was changed: {same}")
    papers = (harvested.remarks,) if harvested.remarks else ()
    return msgspec.structs.replace(run, step=PackageStep.VALIDATE, commit=harvested.commit, papers=papers)


def _after_checks(run: Run, checked: Validated) -> Run:
    lacking = _lacking_again(run, checked)
    if checked.failures:
        run = msgspec.structs.replace(
            run, without_program=checked.without_program, findings="\n".join(checked.failures)
        )
        return _blocked(run, *lacking) if lacking else _next_round(run, run.findings, checked.alike)
    papers = tuple(paper for paper in (checked.evidence, *run.papers, checked.claims) if paper)
    return msgspec.structs.replace(run, state=State.FOR_REVIEW, step=PackageStep.REVIEW, owed=(Owed(),), papers=papers)


def _lacking_again(run: Run, checked: Validated) -> tuple[str, str] | None:
    """A program that was missing and still is: the agent was told, and more rounds would only cost."""
    again = {name for name in checked.without_program if name in run.without_program}
    told = [failure.partition("\n")[0] for failure in checked.failures if failure.partition(":")[0] in again]
    if not told:
        return None
    return f"{'; '.join(told)}, in this round again", "install it, or change setup or the command"


def _after_review(run: Run, reviewed: Reviewed) -> Run:
    run = msgspec.structs.replace(run, seen=run.commit)
    if reviewed.verdict is Verdict.PASS and reviewed.delta and not run.delta_is_final:
        return msgspec.structs.replace(run, is_last_review=True, owed=(Owed(),))
    if reviewed.verdict is Verdict.PASS:
        return msgspec.structs.replace(run, step=PackageStep.MERGE)
    run = msgspec.structs.replace(run, reviews=(*run.reviews, reviewed.findings))
    if reviewed.verdict is Verdict.NEEDS_CHANGES:
        return _next_round(run, reviewed.findings, reviewed.alike)
    return _blocked(
        msgspec.structs.replace(run, findings=reviewed.findings),
        f"the reviewer says {reviewed.verdict}",
        "read the findings, and decide",
    )


def _after_failed_merge(run: Run, reason: str) -> Run:
    """One round may solve a conflict; the second is a person's."""
    if run.merge_rounds:
        return _blocked(run, reason, "merge by hand on the package's branch")
    return _next_round(msgspec.structs.replace(run, merge_rounds=1), reason)


def failure_key(findings: str) -> str:
    """A name for what went wrong: the same for the same failure, however long it took and wherever it lay in memory."""
    lines = (_PASSING.sub("", line).strip() for line in findings.splitlines())
    return sha256("\n".join(line for line in lines if line).encode(errors="surrogateescape")).hexdigest()[:16]


def _nothing_done(run: Run, there: tuple[str, ...]) -> tuple[str, str]:
    """Reason and remedy of a round that changed nothing: another one would cost the same and bring as little."""
    asked = f"; it was to answer: {_first_line(run.findings)}" if run.findings else ""
    same = f"; unchanged: {', '.join(there)}" if there else ""
    return f"the round changed nothing{asked}{same}", f"read why (phasegate show WPnn --answer), {_THEN}"


def _next_round(run: Run, findings: str, alike: str = "") -> Run:
    if alike and alike == run.failed_as:
        return _blocked(
            msgspec.structs.replace(run, findings=findings),
            f"the round failed in exactly the same way as the one before: {_first_line(findings)}",
            f"see what was tried (phasegate show WPnn --diff, --evidence, --answer), {_THEN}",
        )
    run = msgspec.structs.replace(run, tried=run.commit, failed_as=alike)
    if run.round >= run.last_round:
        return _blocked(
            msgspec.structs.replace(run, findings=findings),
            f"all {run.limits.rounds} review cycles are used up; the last finding: {_first_line(findings)}",
            "see `.phasegate/evidence` for what our checks found; fix the package or its plan",
        )
    return _to_work(msgspec.structs.replace(run, round=run.round + 1, findings=findings))


def _first_line(findings: str) -> str:
    line = next((line.strip() for line in findings.splitlines() if line.strip()), "none was given")
    return line if len(line) <= LONGEST_QUOTE else f"{line[:LONGEST_QUOTE]}..."


def _blocked(run: Run, reason: str, remediation: str) -> Run:
    return msgspec.structs.replace(
        run,
        state=State.BLOCKED,
        step=PackageStep.STOP,
        reason=reason,
        remediation=remediation or "see the log: phasegate audit show",
    )
