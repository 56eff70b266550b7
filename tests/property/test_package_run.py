"""No sequence of events makes a package DONE without its evidence, and none leaves it stuck."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.machine.package_events import (
    AcceptedRemark,
    AnyPackageEvent,
    AttemptChecked,
    AttemptsCompared,
    AttemptSelected,
    CheckoutsRemoved,
    Harvested,
    JobEndKind,
    PackageHeld,
    PackageJobEnded,
    PackageJobStarted,
    PackageLimits,
    PackageMerged,
    PackageNotMerged,
    PackagePrepared,
    PackagePublished,
    PackageRemarksReceived,
    PackageResolved,
    Reviewed,
    Validated,
    failure_key,
)
from phasegate.core.machine.package_machine import (
    apply_package_event,
    decide_package_actions,
    fold_package_events,
)
from phasegate.core.machine.package_state import (
    AGENT_STEPS,
    PackageAction,
    PackageRun,
    PackageStep,
    PendingWork,
)
from phasegate.core.plan.work_package import PackageState

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow

Path = tuple[AnyPackageEvent, ...]
AT_FORGE = PackageLimits(2, 0, 1, 1, 0)  # by pull requests
DELTA = PackageLimits(3, 0, 1, 0, 0)  # a review of the changes is enough
ENTRANTS, CONTEST = ("claude", "codex"), PackageLimits(2, 0, 1, 0, 0)
SEEN = "2026-01-01T00:00:00.000Z"
MOVES = {
    PackageState.PLANNED: {PackageState.DOING, PackageState.BLOCKED},
    PackageState.DOING: {PackageState.FOR_REVIEW, PackageState.BLOCKED},
    PackageState.FOR_REVIEW: {PackageState.DONE, PackageState.DOING, PackageState.BLOCKED},
    PackageState.BLOCKED: {PackageState.PLANNED, PackageState.DOING},
    PackageState.DONE: set(),
}


def answers(run: PackageRun) -> Iterator[AnyPackageEvent]:
    """Everything that can happen when the decided action is carried out, and what comes late or from elsewhere."""
    yield from _foreign(run)
    yield from _job_events(run)
    if run.step is PackageStep.PREPARE:
        entrants = ENTRANTS if run.limits == CONTEST and not run.winning_agent else ()
        yield PackagePrepared("base", entrants, run.limits == DELTA, run.limits == AT_FORGE)
    elif run.step in (PackageStep.CHECK_ATTEMPT, PackageStep.COMPARE, PackageStep.SELECT_ATTEMPT):
        yield from _contest_events(run)
    elif run.step is PackageStep.HARVEST:
        yield Harvested(f"commit-{run.round}")
        yield Harvested(violations=("src/secret.py is out of scope",))
        yield Harvested()
        yield Harvested(run.previous.commit, unchanged=True)
    elif run.step is PackageStep.VALIDATE:
        yield Validated(run.commit)
        yield Validated(run.commit, ("test: 1 failed",))
        yield Validated(run.commit, ("test: 1 failed",), alike="k")
    elif run.step in (PackageStep.PUBLISH, PackageStep.AWAIT, PackageStep.MERGE):
        yield from _merge_events(run)
    elif run.step is PackageStep.CLEAN:
        yield CheckoutsRemoved()
    elif run.state is PackageState.BLOCKED:
        yield PackageResolved("mended")


def _merge_events(run: PackageRun) -> Iterator[AnyPackageEvent]:
    """What can come of a merge, here or at a forge."""
    if run.step is PackageStep.PUBLISH:
        yield PackagePublished(1, "https://forge/1", run.commit)
        yield PackagePublished(1, "https://forge/1", "another-commit")
    else:
        yield PackageMerged("merge")
        yield PackageNotMerged("conflict in a.py")
    if run.step is not PackageStep.MERGE:
        yield PackageHeld("it was closed", "reopen it")
    if run.step is PackageStep.AWAIT and not run.pull_request.remarks:
        yield PackageRemarksReceived((AcceptedRemark("1", "", "please do"),))


def _contest_events(run: PackageRun) -> Iterator[AnyPackageEvent]:
    """An attempt that passes, fails, strays, is empty, or was checked on another commit; every choice, and no other."""
    for number in range(len(ENTRANTS) + 1):
        harvested = Harvested(f"commit-{number}")
        if run.step is PackageStep.CHECK_ATTEMPT:
            yield AttemptChecked(number, harvested, Validated(harvested.commit))
            yield AttemptChecked(
                number, harvested, Validated(harvested.commit, ("test: 1 failed",))
            )
            yield AttemptChecked(number, harvested, Validated("another-commit"))
            yield AttemptChecked(
                number, Harvested(violations=("src/secret.py is out of scope",)), Validated("")
            )
            yield AttemptChecked(number, Harvested())
        elif run.step is PackageStep.COMPARE and not run.open_jobs:
            yield AttemptsCompared(number)
        else:
            yield AttemptSelected(number)


def _job_events(run: PackageRun) -> Iterator[AnyPackageEvent]:
    """A job of each that may start, and every end of each that is open, in whatever order they come."""
    if run.step in AGENT_STEPS:
        yield from (started(action) for action in decide_package_actions(run))
    if run.step is PackageStep.REVIEW and not run.open_jobs:
        kinds = (False, True) if run.review.can_review_delta else (False,)
        yield from (Reviewed(verdict, "findings", delta) for verdict in Verdict for delta in kinds)
    yield from (
        PackageJobEnded(job.job, end, "why", last_seen=SEEN)
        for job in run.open_jobs
        for end in JobEndKind
    )


def started(action: PackageAction) -> PackageJobStarted:
    index = action.pending.agent_index
    return PackageJobStarted(
        f"{action.step}-{action.round}-{index}", action.step, action.round, index
    )


def _foreign(run: PackageRun) -> Iterator[AnyPackageEvent]:
    yield from (PackageJobEnded("another-job", end) for end in JobEndKind)
    yield from (
        PackageJobStarted("again", job.role, job.round, job.agent_index) for job in run.open_jobs
    )
    yield from (PackageJobStarted("nobody's", role, run.round, 7) for role in AGENT_STEPS)
    yield Validated("another-commit")


def applied(run: PackageRun, event: AnyPackageEvent) -> PackageRun:
    """The run after an event, its rounds counted from a person's last answer: nothing is decided by the number."""
    after = apply_package_event(run, event)
    return msgspec.structs.replace(after, round=after.round - after.rounds_before, rounds_before=0)


def reachable(limits: PackageLimits) -> dict[PackageRun, Path]:
    """Every state that any sequence of events leads to, with one sequence that does. Resolving starts afresh once."""
    found: dict[PackageRun, Path] = {PackageRun(limits=limits): ()}
    todo = list(found)
    while todo:
        run = todo.pop()
        for event in answers(run):
            after = applied(run, event)
            if after not in found:
                found[after] = (*found[run], event)
                todo.append(after)
    return found


@pytest.fixture(
    params=[
        PackageLimits(2, 1, 1, 1, 1),
        PackageLimits(2, 1, 2, 0, 0),
        PackageLimits(1, 0, 2, 1, 0),
        PackageLimits(3, 0, 1, 0, 2),
        CONTEST,
        DELTA,
        AT_FORGE,
    ],
    ids=str,
    scope="module",
)
def states(request: pytest.FixtureRequest) -> dict[PackageRun, Path]:
    return reachable(request.param)


@pytest.mark.demand("D5.a", "D7.g")
def test_a_package_is_done_only_with_all_its_evidence_on_one_commit(
    states: dict[PackageRun, Path],
) -> None:
    done = [path for run, path in states.items() if run.state is PackageState.DONE]
    assert done
    for path in done:
        last = path[max(n for n, event in enumerate(path) if isinstance(event, Harvested)) :]
        harvested, validated, *review, merged = [
            event for event in last if not isinstance(event, CheckoutsRemoved)
        ]
        assert isinstance(harvested, Harvested)
        assert not harvested.violations
        assert validated == Validated(harvested.commit)
        last_review = [event for event in review if isinstance(event, Reviewed)][-1]
        assert last_review.verdict is Verdict.PASS
        assert not last_review.delta or next(iter(states)).limits == DELTA, (
            "the last review is one of the whole"
        )
        assert merged == PackageMerged("merge")


@pytest.mark.demand("X7.i")
def test_at_a_forge_a_package_is_for_review_and_done_only_with_a_pull_request_of_its_commit(
    states: dict[PackageRun, Path],
) -> None:
    for run, path in states.items():
        if next(iter(states)).limits == AT_FORGE and run.state in (
            PackageState.FOR_REVIEW,
            PackageState.DONE,
        ):
            assert run.pull_request.published is not None
            assert run.pull_request.published.commit == run.commit
            assert PackagePublished(1, "https://forge/1", run.commit) in path


def test_a_contest_takes_an_attempt_that_passed_whenever_there_is_one(
    states: dict[PackageRun, Path],
) -> None:
    for run in states:
        if run.step is PackageStep.SELECT_ATTEMPT:
            best = next(one for one in run.contest.attempts if one.number == run.contest.selected)
            assert best.passed or not run.contest.candidates
            assert not best.failure, "an attempt that came to nothing is never taken"
        if run.step is PackageStep.COMPARE:
            assert len(run.contest.candidates) > 1
    assert any(run.winning_agent and run.state is PackageState.DONE for run in states) == (
        next(iter(states)).limits == CONTEST
    )


@pytest.mark.demand("D5.a", "D5.b", "D5.c", "D5.d")
def test_a_package_changes_its_state_only_as_allowed(states: dict[PackageRun, Path]) -> None:
    for run in states:
        for event in answers(run):
            after = apply_package_event(run, event)
            assert after.state is run.state or after.state in MOVES[run.state], (run, event)


@pytest.mark.demand("D5.e")
def test_no_event_of_an_agent_leads_to_done_or_to_review(states: dict[PackageRun, Path]) -> None:
    for run in states:
        for event in answers(run):
            if isinstance(event, PackageJobStarted | PackageJobEnded):
                after = apply_package_event(run, event)
                assert after.state is run.state or after.state is PackageState.BLOCKED


def test_what_comes_late_or_from_elsewhere_changes_nothing(states: dict[PackageRun, Path]) -> None:
    for run in states:
        for event in _foreign(run):
            assert apply_package_event(run, event) == run


def test_no_state_is_a_dead_end(states: dict[PackageRun, Path]) -> None:
    """Every unfinished state moves on, whatever the outcome, and the end can be reached from everywhere."""
    after = {run: {applied(run, event) for event in answers(run)} - {run} for run in states}
    finished = {
        run for run in states if run.state is PackageState.DONE and run.step is PackageStep.STOP
    }
    assert all(after[run] for run in states.keys() - finished)
    safe = set(finished)
    while grown := {run for run in states.keys() - safe if after[run] & safe}:
        safe |= grown
    assert safe == states.keys()


@pytest.mark.demand("D12.c")
def test_rounds_and_retries_stay_within_their_limits(states: dict[PackageRun, Path]) -> None:
    for run in states:
        assert run.round <= run.limits.rounds
        assert all(owed.retries <= run.limits.retries for owed in run.pending)
        assert all(owed.pauses <= run.limits.pauses for owed in run.pending)
        assert all(owed.losses <= run.limits.losses for owed in run.pending)


@pytest.mark.demand("D11.a", "D11.b")
def test_what_is_to_be_done_next_is_never_in_work_already(states: dict[PackageRun, Path]) -> None:
    for run in states:
        busy = [job.agent_index for job in run.open_jobs]
        assert len(set(busy)) == len(busy) <= max(run.limits.agents, len(run.contest.entrants))
        if run.step in AGENT_STEPS:
            offered = [action.pending.agent_index for action in decide_package_actions(run)]
            assert not set(offered) & set(busy)
            assert sorted(offered + busy) == [owed.agent_index for owed in run.pending]


def test_a_round_ends_only_when_every_job_of_it_has(states: dict[PackageRun, Path]) -> None:
    for run in states:
        assert not run.open_jobs or run.step in AGENT_STEPS or run.state is PackageState.BLOCKED


@pytest.mark.demand("W5.a")
def test_jobs_that_nobody_saw_the_end_of_cost_no_try(states: dict[PackageRun, Path]) -> None:
    for run in states:
        after = run
        for job in run.open_jobs:
            after = apply_package_event(
                after,
                PackageJobEnded(job.job, JobEndKind.LOST, "the dispatcher died", last_seen=SEEN),
            )
        if (
            after.state is not PackageState.BLOCKED
            and after.contest.attempts == run.contest.attempts
        ):  # else it was lost too often
            uncounted = tuple(msgspec.structs.replace(owed, losses=0) for owed in after.pending)
            before = tuple(msgspec.structs.replace(owed, losses=0) for owed in run.pending)
            assert uncounted == before
            assert msgspec.structs.replace(after, pending=run.pending) == msgspec.structs.replace(
                run, open_jobs=()
            )


@pytest.mark.demand("W5.a")
def test_losses_recorded_before_they_were_counted_change_nothing(
    states: dict[PackageRun, Path],
) -> None:
    """Journals of before fold as they did, however often a job was lost in them."""
    for run in states:
        after = run
        for job in run.open_jobs:
            after = apply_package_event(
                after, PackageJobEnded(job.job, JobEndKind.LOST, "the dispatcher died")
            )
        assert after == msgspec.structs.replace(run, open_jobs=())


@pytest.mark.demand("W5.a", "D10.b")
@pytest.mark.parametrize("losses", [0, 1, 3])
def test_a_job_that_is_lost_too_often_blocks_its_package_and_a_person_lets_it_try_again(
    losses: int,
) -> None:
    def lose(run: PackageRun, number: int) -> PackageRun:
        started = apply_package_event(run, PackageJobStarted(f"j{number}", "implement", run.round))
        return apply_package_event(
            started,
            PackageJobEnded(f"j{number}", JobEndKind.LOST, "the dispatcher died", last_seen=SEEN),
        )

    run = fold_package_events([PackagePrepared("b")], PackageLimits(losses=losses))
    for number in range(losses):
        run = lose(run, number)
        assert (run.state, run.step) == (PackageState.DOING, PackageStep.IMPLEMENT)
    run = lose(run, losses)
    assert (run.state, run.step) == (PackageState.BLOCKED, PackageStep.STOP)
    assert (
        run.blocker.reason
        == f"the agent's run was lost {losses + 1} times; the last time: the dispatcher died"
    )
    assert run.blocker.remediation
    again = apply_package_event(
        apply_package_event(run, PackageResolved("more memory")), PackagePrepared("b")
    )
    assert again.pending == (PendingWork(),), "losses are counted anew"


@pytest.mark.demand("D10.b")
def test_a_blocked_package_says_why_and_what_to_do(states: dict[PackageRun, Path]) -> None:
    blocked = [run for run in states if run.state is PackageState.BLOCKED]
    assert blocked
    for run in blocked:
        assert run.blocker.reason
        assert run.blocker.remediation


def test_the_journal_alone_tells_where_a_package_stands(states: dict[PackageRun, Path]) -> None:
    for run, path in states.items():
        told = fold_package_events(path, run.limits)
        assert applied(told, PackageJobEnded("nobody's", JobEndKind.DONE)) == run


@pytest.mark.demand("D12.b")
def test_findings_go_back_to_the_next_round() -> None:
    path = [
        PackagePrepared("b"),
        PackageJobStarted("j", "implement", 1),
        PackageJobEnded("j", JobEndKind.DONE),
        Harvested("c"),
        Validated("c"),
    ]
    path += [
        PackageJobStarted("r", "review", 1),
        PackageJobEnded("r", JobEndKind.DONE),
        Reviewed(Verdict.NEEDS_CHANGES, "name is wrong"),
    ]
    run = fold_package_events(path, PackageLimits())
    assert (run.state, run.step, run.round, run.findings) == (
        PackageState.DOING,
        PackageStep.IMPLEMENT,
        2,
        "name is wrong",
    )


@pytest.mark.demand("D12.c")
def test_after_a_persons_answer_all_rounds_are_there_again_and_their_numbers_go_on() -> None:
    run, seen = PackageRun(limits=PackageLimits(rounds=2)), []
    for event in (PackagePrepared("b"), *[PackageResolved("mended"), PackagePrepared("b")] * 2):
        run = apply_package_event(run, event)
        while run.step is PackageStep.IMPLEMENT:
            seen.append((run.round, run.last_round))
            run = apply_package_event(
                apply_package_event(run, PackageJobStarted("j", "implement", run.round)),
                PackageJobEnded("j", JobEndKind.DONE),
            )
            run = apply_package_event(run, Harvested())
    assert seen == [(1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (6, 6)]
    assert run.blocker.reason.startswith("all 2 review cycles are used up")


@pytest.mark.demand("D11.e")
def test_one_failing_agent_of_several_blocks_the_package() -> None:
    path = [
        PackagePrepared("b"),
        PackageJobStarted("j0", "implement", 1, 0),
        PackageJobEnded("j0", JobEndKind.DONE),
    ]
    path += [
        PackageJobStarted("j1", "implement", 1, 1),
        PackageJobEnded("j1", JobEndKind.FAILED, "exit code 1"),
    ]
    run = fold_package_events(path, PackageLimits(agents=2))
    assert (run.state, run.blocker.reason) == (PackageState.BLOCKED, "exit code 1")


@pytest.mark.demand("D11.e")
def test_what_the_others_do_after_one_has_failed_changes_nothing() -> None:
    path = [
        PackagePrepared("b"),
        PackageJobStarted("j0", "implement", 1, 0),
        PackageJobStarted("j1", "implement", 1, 1),
    ]
    blocked = fold_package_events(
        [*path, PackageJobEnded("j1", JobEndKind.FAILED, "exit code 1")], PackageLimits(agents=2)
    )
    assert [job.job for job in blocked.open_jobs] == ["j0"]
    for end in JobEndKind:
        after = apply_package_event(blocked, PackageJobEnded("j0", end, "another reason"))
        assert after == msgspec.structs.replace(blocked, open_jobs=())


@pytest.mark.demand("D10.a", "D11.b")
def test_each_agent_is_tried_and_asked_again_by_itself() -> None:
    path = [
        PackagePrepared("b"),
        PackageJobStarted("j0", "implement", 1, 0),
        PackageJobStarted("j1", "implement", 1, 1),
    ]
    run = fold_package_events(
        [
            *path,
            PackageJobEnded("j1", JobEndKind.UNREADABLE, "no answer"),
            PackageJobEnded("j0", JobEndKind.TRANSIENT, "net"),
        ],
        PackageLimits(2, 3, 2),
    )
    assert run.pending == (PendingWork(0, 1, False, "net"), PendingWork(1, 0, True, "no answer"))
    run = apply_package_event(
        apply_package_event(run, PackageJobStarted("j2", "implement", 1, 0)),
        PackageJobEnded("j2", JobEndKind.UNREADABLE, "no answer"),
    )
    assert (run.state, run.pending[0]) == (PackageState.DOING, PendingWork(0, 1, True, "no answer"))
    run = apply_package_event(
        apply_package_event(run, PackageJobStarted("j3", "implement", 1, 1)),
        PackageJobEnded("j3", JobEndKind.UNREADABLE, "still none"),
    )
    assert (run.state, run.blocker.reason) == (PackageState.BLOCKED, "still none")


def in_round_two(*first: AnyPackageEvent) -> PackageRun:
    """The run in which the second round's work was harvested, after a first one that ended with these events."""
    work = (
        PackageJobStarted("j", "implement", 1),
        PackageJobEnded("j", JobEndKind.DONE),
        Harvested("c1"),
    )
    again = (PackageJobStarted("k", "implement", 2), PackageJobEnded("k", JobEndKind.DONE))
    return fold_package_events([PackagePrepared("b"), *work, *first, *again], PackageLimits())


@pytest.mark.demand("R6.a")
def test_a_round_that_changes_nothing_stops_for_a_person_with_what_it_was_to_answer() -> None:
    run = in_round_two(Validated("c1", ("test: 1 of 3 failed",), alike="k"))
    assert run.previous.commit == "c1"
    after = apply_package_event(run, Harvested("c1", unchanged=True))
    assert after.state is PackageState.BLOCKED
    assert (
        after.blocker.reason
        == "the round changed nothing; findings to address: test: 1 of 3 failed"
    )
    asked_again = apply_package_event(
        apply_package_event(after, PackageResolved("look at the clock")), PackagePrepared("b")
    )
    assert (asked_again.previous.commit, asked_again.previous.failure_key) == (
        "",
        "",
    )  # after a person's answer all is open again


@pytest.mark.demand("R6.a")
def test_the_same_failure_twice_stops_for_a_person_and_another_one_does_not() -> None:
    run = apply_package_event(
        in_round_two(Validated("c1", ("test: 1 of 3 failed",), alike="k")), Harvested("c2")
    )
    again = apply_package_event(run, Validated("c2", ("test: 1 of 3 failed",), alike="k"))
    assert (again.state, again.round) == (PackageState.BLOCKED, 2)
    assert (
        again.blocker.reason
        == "the round failed in exactly the same way as the one before: test: 1 of 3 failed"
    )
    assert "show WPnn --evidence" in again.blocker.remediation
    other = apply_package_event(run, Validated("c2", ("test: 2 of 3 failed",), alike="other"))
    assert (other.state, other.round) == (PackageState.DOING, 3)


@pytest.mark.demand("R6.a")
def test_durations_and_addresses_make_no_other_failure_and_counts_and_names_do() -> None:
    one = failure_key("test: 1 of 3 failed\n<T at 0x7f10>\nRan 3 tests in 0.004s\n\n")
    assert one == failure_key("test: 1 of 3 failed\n<T at 0x7fa2>\nRan 3 tests in 12 s\n")
    assert one != failure_key("test: 2 of 3 failed\n<T at 0x7f10>\nRan 3 tests in 0.004s\n")


def test_a_journal_of_before_this_was_judged_is_read_as_it_was() -> None:
    first = Validated("c1", ("test: 1 of 3 failed",))
    run = apply_package_event(
        apply_package_event(in_round_two(first), Harvested("c1")),
        Validated("c1", ("test: 1 of 3 failed",)),
    )
    assert (run.state, run.round) == (PackageState.DOING, 3)
