"""No sequence of events passes a gate without its evidence, completes a workflow without its gates, or gets stuck."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.display.event_lines import list_allowed_orders
from phasegate.core.display.status import derive_standing, list_waiting_orders
from phasegate.core.machine.feature_events import (
    AnyFeatureEvent,
    Completed,
    FeatureLimits,
    GateChecked,
    JobEnded,
    JobStarted,
    PackageEnded,
    WentBack,
)
from phasegate.core.machine.feature_machine import apply_feature_event, decide_feature_actions
from phasegate.core.machine.feature_outcomes import list_workable_packages
from phasegate.core.machine.feature_state import ROLE_BY_STEP, Feature, Step
from phasegate.core.machine.package_events import JobEndKind
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.core.workflow.phases import PhaseWork
from support.feature_model import ORDERS, World, after, anything, begin, is_earned, key, outcomes

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow

P, K, R, C = PhaseWork.PLANNING, PhaseWork.PACKAGES, PhaseWork.REVIEW, PhaseWork.COMMANDS
SMALL = FeatureLimits(revisions=2, retries=1, parallel=2, pauses=1, losses=1)
SMALLEST = FeatureLimits(revisions=1, retries=0, parallel=1, pauses=0, losses=0)


class Case(NamedTuple):
    works: tuple[PhaseWork, ...]
    limits: FeatureLimits
    type: str = "feature"


CASES = [
    *(Case((work,), SMALL) for work in PhaseWork),
    Case((C,), SMALLEST, "test-run"),
    Case((C, R), SMALLEST, "test-run"),
    Case((P, K), SMALLEST),
    Case((K, R), FeatureLimits(2, 0, 1, 0, 0)),
    pytest.param(Case((K, C), FeatureLimits(2, 0, 1, 0, 0)), marks=pytest.mark.long),
    Case((P, K, R), SMALLEST),
]


class Space(NamedTuple):
    """Every world that any sequence of any events leads to, and which leads to which by the engine's own work."""

    worlds: dict[bytes, World]
    ways: dict[bytes, set[bytes]]
    moved_while_stopped: list[
        tuple[World, AnyFeatureEvent]
    ]  # by something that is no order of a person

    def __iter__(self) -> Iterator[Feature]:  # type: ignore[override]
        return (world.feature for world in self.worlds.values())


def explore(first: World) -> Space:
    """Search breadth-first; each step is checked on the way."""
    space = Space({key(first): first}, {key(first): set()}, [])
    todo = [key(first)]
    while todo:
        name = todo.pop()
        world = space.worlds[name]
        for then, is_work in _steps(space, world):
            other = key(then)
            if is_work:
                space.ways[name].add(other)
            if other not in space.worlds:
                space.worlds[other], space.ways[other] = then, set()
                todo.append(other)
    return space


def _steps(space: Space, world: World) -> Iterator[tuple[World, bool]]:
    feature = world.feature
    stopped = not feature.workflow.is_active or feature.workflow.stage is Stage.BLOCKED
    for events, is_work in ((outcomes(feature), True), (anything(feature), False)):
        for event in events:
            then = after(world, event)
            if then is None:
                continue
            check_step(world, event, then)
            if stopped and event not in ORDERS:
                space.moved_while_stopped.append((world, event))
            yield then, is_work


def check_step(world: World, event: AnyFeatureEvent, then: World) -> None:
    """What must hold of every single step."""
    before, now = world.feature.workflow, then.feature.workflow
    if now.stage is Stage.GATE_PASSED and before.stage not in (Stage.GATE_PASSED, Stage.BLOCKED):
        assert isinstance(event, GateChecked), event
        assert is_earned(world, event), (world, event)
    if now.index > before.index:
        assert before.stage is Stage.GATE_PASSED
        assert now.index == before.index + 1
    if now.index < before.index:
        assert isinstance(event, WentBack), event
        assert not world.account.merged
        assert (then.feature.verdict, then.feature.commands, then.feature.attested) == (
            None,
            {},
            "",
        )
    if now.stage is Stage.COMPLETED and before.stage is not Stage.COMPLETED:
        assert isinstance(event, Completed)
        assert world.account.passed >= len(now.phases)
        assert not now.merges or (world.account.archived and world.account.merged)


@pytest.fixture(
    params=CASES, ids=lambda case: f"{'-'.join(case.works)}-{case.limits.revisions}", scope="module"
)
def space(request: pytest.FixtureRequest) -> Space:
    case = request.param
    return explore(begin(case.works, case.limits, case.type))


@pytest.mark.demand("W3.b", "W3.f")
def test_no_sequence_of_events_passes_a_gate_without_its_evidence(space: Space) -> None:
    """The steps were checked while the space was searched; here: gates passed in it, and gates stopped."""
    assert {Stage.GATE_PASSED, Stage.BLOCKED} <= {feature.workflow.stage for feature in space}


@pytest.mark.demand("W4.d")
def test_no_sequence_of_events_completes_a_workflow_without_all_its_gates_and_its_merge(
    space: Space,
) -> None:
    done = [
        world for world in space.worlds.values() if world.feature.workflow.stage is Stage.COMPLETED
    ]
    assert done
    for world in done:
        assert world.account.passed >= len(world.feature.plan)


@pytest.mark.demand("D5.e")
def test_a_package_is_done_only_where_its_own_end_says_so(space: Space) -> None:
    for world in space.worlds.values():
        done = {
            name for name, state in world.feature.packages.items() if state is PackageState.DONE
        }
        assert done <= world.account.done


@pytest.mark.demand("W6.c")
def test_there_is_always_something_to_do_and_it_leads_on(space: Space) -> None:
    """What a fresh process decides is never nothing, and some outcome of it changes where the feature stands."""
    for name, world in space.worlds.items():
        assert decide_feature_actions(world.feature), world
        assert space.ways[name] - {name} or not world.feature.workflow.is_active, world


@pytest.mark.demand("W6.c")
def test_the_end_can_be_reached_from_everywhere(space: Space) -> None:
    """By what the engine does and a person's `resolve` alone, without a cancellation."""
    back: dict[bytes, set[bytes]] = {name: set() for name in space.worlds}
    for name, others in space.ways.items():
        for other in others:
            back[other].add(name)
    todo = [
        name
        for name, world in space.worlds.items()
        if world.feature.workflow.stage is Stage.COMPLETED
    ]
    safe = set(todo)
    while todo:
        new = back[todo.pop()] - safe
        safe |= new
        todo += new
    stuck = [
        world
        for name, world in space.worlds.items()
        if world.feature.workflow.is_active and name not in safe
    ]
    assert not stuck, stuck[0]


@pytest.mark.demand("W5.b", "W5.c")
def test_what_is_late_or_from_another_job_changes_nothing(space: Space) -> None:
    for feature in space:
        foreign: list[AnyFeatureEvent] = [
            JobEnded("foreign", end, verdict=Verdict.PASS) for end in JobEndKind
        ]
        foreign += [
            PackageEnded("WP77", PackageState.DONE),
            PackageEnded("WP77", PackageState.BLOCKED),
        ]
        foreign += [
            PackageEnded(name, PackageState.BLOCKED)
            for name in feature.packages
            if is_done(feature, name)
        ]
        for event in foreign:
            assert apply_feature_event(feature, event) == feature


def is_done(feature: Feature, package: str) -> bool:
    return feature.packages[package] is PackageState.DONE


@pytest.mark.demand("W4.b", "W3.g")
def test_nothing_but_an_order_of_a_person_moves_a_blocked_or_ended_workflow(space: Space) -> None:
    assert not space.moved_while_stopped


@pytest.mark.demand("W6.f")
def test_a_blocked_workflow_says_why_and_what_to_do(space: Space) -> None:
    for feature in space:
        if feature.workflow.stage is Stage.BLOCKED:
            assert feature.workflow.reason
            assert feature.remediation, feature


@pytest.mark.demand("W4.a")
def test_the_orders_that_status_tells_from_a_row_are_those_that_are_taken(space: Space) -> None:
    waiting = [feature for feature in space if is_waiting(feature)]
    assert waiting
    for feature in waiting:
        assert list_waiting_orders(
            str(feature.workflow.stage), feature.workflow.index, feature.merged
        ) == list_allowed_orders(feature)


def is_waiting(feature: Feature) -> bool:
    workflow = feature.workflow
    return (
        derive_standing(workflow.stage, is_last_phase=workflow.is_last_phase, has_worker=False)
        == "waiting"
    )


@pytest.mark.demand("W3.d", "W3.e")
def test_rounds_and_retries_stay_within_their_limits(space: Space) -> None:
    for feature in space:
        assert feature.workflow.round <= feature.limits.revisions
        assert feature.archive_round <= feature.limits.revisions
        assert feature.retries <= feature.limits.retries
        assert feature.losses <= feature.limits.losses


@pytest.mark.demand("D5.f")
def test_no_package_begins_before_those_that_it_waits_for_and_no_more_than_the_limit_at_once(
    space: Space,
) -> None:
    for feature in space:
        if feature.workflow.stage is not Stage.WORKING or feature.todo[:1] != (Step.PACKAGES,):
            continue
        running = {name for name, state in feature.packages.items() if state is PackageState.DOING}
        for action in decide_feature_actions(feature, running):
            assert len(running) + len(action.packages) <= max(feature.limits.parallel, len(running))
            for name in action.packages:
                assert name in list_workable_packages(feature)
                assert all(
                    feature.packages[other] is PackageState.DONE for other in feature.needs[name]
                )


@pytest.mark.parametrize("work", list(PhaseWork))
def test_the_account_that_gates_are_held_against_says_no_where_nothing_was_shown(
    work: PhaseWork,
) -> None:
    """The control: a rule that passed this gate would be found out."""
    world = begin((work,), SMALL)
    assert not is_earned(world, GateChecked(world.feature.phase.artifacts))


class AnyFeature(RuleBasedStateMachine):
    """Longer workflows and larger limits than can be searched whole, driven by chance."""

    @initialize(
        works=st.lists(st.sampled_from(list(PhaseWork)), min_size=1, max_size=4, unique=True),
        limits=st.builds(FeatureLimits, st.integers(1, 3), st.integers(0, 2), st.integers(1, 3)),
        type_=st.sampled_from(["feature", "test-run"]),
    )
    def start(self, works: list[PhaseWork], limits: FeatureLimits, type_: str) -> None:
        self.world = begin(tuple(works), limits, type_)

    def _take(self, event: AnyFeatureEvent) -> None:
        then = after(self.world, event)
        if then is not None:
            check_step(self.world, event, then)
            self.world = then

    @rule(data=st.data())
    def the_engine_works(self, data: st.DataObject) -> None:
        events = list(outcomes(self.world.feature))
        if events:
            self._take(data.draw(st.sampled_from(events)))

    @rule()
    def the_engine_works_well(self) -> None:
        """Leads further than chance would."""
        feature = self.world.feature
        step = decide_feature_actions(feature)[0].step
        if step in ROLE_BY_STEP:
            job = feature.open_job
            started = JobStarted("job", ROLE_BY_STEP[step])
            self._take(
                started if job is None else JobEnded(job.job, JobEndKind.DONE, verdict=Verdict.PASS)
            )
        elif events := list(outcomes(feature)):
            self._take(events[0] if step is not Step.GATE else GateChecked(feature.phase.artifacts))

    @rule(data=st.data())
    def anything_comes(self, data: st.DataObject) -> None:
        self._take(data.draw(st.sampled_from(anything(self.world.feature))))

    @invariant()
    def something_is_decided(self) -> None:
        assert decide_feature_actions(self.world.feature)


@pytest.mark.demand("W3.f", "W6.c")
def test_the_same_promises_hold_on_random_long_ways() -> None:
    steps = settings(max_examples=40, stateful_step_count=50, deadline=None)
    run_state_machine_as_test(AnyFeature, settings=steps)
