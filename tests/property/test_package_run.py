"""No sequence of events makes a package DONE without its evidence, and none leaves it stuck."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from phasegate.rules.answer_words import Verdict
from phasegate.rules.package_run import (
    Cleaned,
    End,
    Happened,
    Harvested,
    JobEnded,
    JobStarted,
    Limits,
    Merged,
    NotMerged,
    Prepared,
    Resolved,
    Reviewed,
    Run,
    Step,
    Validated,
    apply,
    decide,
    fold,
)
from phasegate.rules.work_package import MOVES, State

Path = tuple[Happened, ...]


def answers(run: Run) -> Iterator[Happened]:
    """Everything that can happen when the decided action is carried out, and what comes late or from elsewhere."""
    action = decide(run)
    yield from _foreign(run)
    if action.step is Step.PREPARE:
        yield Prepared("base")
    elif action.step in (Step.IMPLEMENT, Step.REVIEW):
        yield from _job_events(run)
    elif action.step is Step.HARVEST:
        yield Harvested(f"commit-{run.round}")
        yield Harvested(violations=("src/secret.py is out of scope",))
        yield Harvested()
    elif action.step is Step.VALIDATE:
        yield Validated(run.commit)
        yield Validated(run.commit, ("test: 1 failed",))
    elif action.step is Step.MERGE:
        yield Merged("merge")
        yield NotMerged("conflict in a.py")
    elif action.step is Step.CLEAN:
        yield Cleaned()
    elif run.state is State.BLOCKED:
        yield Resolved("mended")


def _job_events(run: Run) -> Iterator[Happened]:
    action = decide(run)
    if run.open_job is None:
        yield JobStarted(f"{action.step}-{run.round}-{action.agent_index}", action.step, run.round, action.agent_index)
        if action.step is Step.REVIEW:
            yield from (Reviewed(verdict, "findings") for verdict in Verdict)
    else:
        yield from (JobEnded(run.open_job.job, end, "why") for end in End)


def _foreign(run: Run) -> Iterator[Happened]:
    yield from (JobEnded("another-job", end) for end in End)
    yield Validated("another-commit")


def reachable(limits: Limits) -> dict[Run, Path]:
    """Every state that any sequence of events leads to, with one sequence that does. Resolving starts afresh once."""
    found: dict[Run, Path] = {Run(limits=limits): ()}
    todo = list(found)
    while todo:
        run = todo.pop()
        for event in answers(run):
            after = apply(run, event)
            if after not in found:
                found[after] = (*found[run], event)
                todo.append(after)
    return found


@pytest.fixture(params=[Limits(2, 1, 1), Limits(2, 1, 2), Limits(1, 0, 1), Limits(3, 0, 1)], ids=str, scope="module")
def states(request: pytest.FixtureRequest) -> dict[Run, Path]:
    return reachable(request.param)


@pytest.mark.demand("D5.a", "D7.g")
def test_a_package_is_done_only_with_all_its_evidence_on_one_commit(states: dict[Run, Path]) -> None:
    done = [path for run, path in states.items() if run.state is State.DONE]
    assert done
    for path in done:
        last = path[max(n for n, event in enumerate(path) if isinstance(event, Harvested)) :]
        harvested, validated, *review, merged = [event for event in last if not isinstance(event, Cleaned)]
        assert isinstance(harvested, Harvested)
        assert not harvested.violations
        assert validated == Validated(harvested.commit)
        assert Reviewed(Verdict.PASS, "findings") in review
        assert merged == Merged("merge")


@pytest.mark.demand("D5.a", "D5.b", "D5.c", "D5.d")
def test_a_package_changes_its_state_only_as_allowed(states: dict[Run, Path]) -> None:
    for run in states:
        for event in answers(run):
            after = apply(run, event)
            assert after.state is run.state or after.state in MOVES[run.state], (run, event)


@pytest.mark.demand("D5.e")
def test_no_event_of_an_agent_leads_to_done_or_to_review(states: dict[Run, Path]) -> None:
    for run in states:
        for event in answers(run):
            if isinstance(event, JobStarted | JobEnded):
                after = apply(run, event)
                assert after.state is run.state or after.state is State.BLOCKED


def test_what_comes_late_or_from_elsewhere_changes_nothing(states: dict[Run, Path]) -> None:
    for run in states:
        for event in _foreign(run):
            assert apply(run, event) == run


def test_no_state_is_a_dead_end(states: dict[Run, Path]) -> None:
    """Every unfinished state moves on, whatever the outcome, and the end can be reached from everywhere."""
    after = {run: {apply(run, event) for event in answers(run)} - {run} for run in states}
    finished = {run for run in states if run.state is State.DONE and run.step is Step.STOP}
    assert all(after[run] for run in states.keys() - finished)
    safe = set(finished)
    while grown := {run for run in states.keys() - safe if after[run] & safe}:
        safe |= grown
    assert safe == states.keys()


@pytest.mark.demand("D12.c")
def test_rounds_and_retries_stay_within_their_limits(states: dict[Run, Path]) -> None:
    for run in states:
        assert run.round <= run.limits.rounds
        assert run.retries <= run.limits.retries


@pytest.mark.demand("D10.b")
def test_a_blocked_package_says_why_and_what_to_do(states: dict[Run, Path]) -> None:
    blocked = [run for run in states if run.state is State.BLOCKED]
    assert blocked
    for run in blocked:
        assert run.reason
        assert run.remediation


def test_the_journal_alone_tells_where_a_package_stands(states: dict[Run, Path]) -> None:
    for run, path in states.items():
        assert fold(path, run.limits) == run


@pytest.mark.demand("D12.b")
def test_findings_go_back_to_the_next_round() -> None:
    path = [Prepared("b"), JobStarted("j", "implement", 1), JobEnded("j", End.DONE), Harvested("c"), Validated("c")]
    path += [JobStarted("r", "review", 1), JobEnded("r", End.DONE), Reviewed(Verdict.NEEDS_CHANGES, "name is wrong")]
    run = fold(path, Limits())
    assert (run.state, run.step, run.round, run.findings) == (State.DOING, Step.IMPLEMENT, 2, "name is wrong")


@pytest.mark.demand("D11.e")
def test_one_failing_agent_of_several_blocks_the_package() -> None:
    path = [Prepared("b"), JobStarted("j0", "implement", 1, 0), JobEnded("j0", End.DONE)]
    path += [JobStarted("j1", "implement", 1, 1), JobEnded("j1", End.FAILED, "exit code 1")]
    run = fold(path, Limits(agents=2))
    assert (run.state, run.reason) == (State.BLOCKED, "exit code 1")
