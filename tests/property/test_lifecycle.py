"""No sequence of steps brings a workflow into a forbidden state."""

from __future__ import annotations

import json

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from phasegate import next_steps
from phasegate.core.workflow.gate import GateOutcome, GateResult
from phasegate.core.workflow.phase_transitions import (
    Refusal,
    Stage,
    Workflow,
    WorkflowOrRefusal,
    advance,
    apply_gate,
    build_own_state,
    build_state_view,
    cancel,
    choose_workflow,
    complete,
    escalate,
    go_back,
    resolve,
    retry,
    start,
)
from phasegate.core.workflow.workflow_phases import WORKFLOWS

LIMIT = 3


class Life(RuleBasedStateMachine):
    """Takes any step at any time and keeps its own account of which gates have passed."""

    @initialize(type_=st.sampled_from(sorted(WORKFLOWS)))
    def begin(self, type_: str) -> None:
        step = start([], "001-login", type_, WORKFLOWS[type_])
        assert isinstance(step, Workflow)
        self.now = step
        self.passed: set[int] = set()
        self.at, self.rounds = -1, dict[int, int]()

    def take(self, step: WorkflowOrRefusal) -> bool:
        if isinstance(step, Refusal):
            assert step.reason
            return False
        self.before, self.now = self.now, step
        return True

    @rule(outcome=st.sampled_from(GateOutcome))
    def check_gate(self, outcome: GateOutcome) -> None:
        reasons = () if outcome is GateOutcome.PASSED else ("test failed",)
        if self.take(apply_gate(self.now, GateResult(outcome, reasons), LIMIT)):
            assert self.before.stage in {Stage.WORKING, Stage.GATE_FAILED}
            if outcome is GateOutcome.PASSED:
                self.passed.add(self.now.index)
            else:
                assert self.now.reason
                assert self.now.stage is not Stage.GATE_PASSED
            if (
                outcome is GateOutcome.FAILED
                and self.before.round - self.before.rounds_before >= LIMIT
            ):
                assert self.now.stage is Stage.BLOCKED

    @rule()
    def go_on(self) -> None:
        if self.take(advance(self.now)):
            assert self.before.index in self.passed
            assert self.now.index == self.before.index + 1

    @rule()
    def try_again(self) -> None:
        if self.take(retry(self.now)):
            assert self.before.stage is Stage.GATE_FAILED
            assert self.now.round == self.before.round + 1

    @rule(why=st.sampled_from(["", "  ", "unsure"]))
    def ask_a_person(self, why: str) -> None:
        if self.take(escalate(self.now, why)):
            assert why.strip()
            assert self.now.stage is Stage.BLOCKED
            assert (self.now.blocked_at is Stage.GATE_PASSED) == (
                self.before.stage is Stage.GATE_PASSED
            )

    @rule(how=st.sampled_from(["", "fixed the key"]))
    def be_resolved(self, how: str) -> None:
        if self.take(resolve(self.now, how)):
            assert how
            assert self.before.stage is Stage.BLOCKED
            assert self.now.stage is self.before.blocked_at
            assert self.now.stage is not Stage.GATE_PASSED or self.now.index in self.passed
            again = self.now.stage is Stage.WORKING
            assert self.now.round == self.before.round + again, "no number comes twice in a phase"

    @rule(position=st.integers(0, 12), why=st.sampled_from(["", "too slow"]))
    def be_sent_back(self, position: int, why: str) -> None:
        phases = self.now.phases
        if self.take(go_back(self.now, phases[position % len(phases)], why)):
            assert why
            assert self.now.index < self.before.index
            assert (self.now.stage, self.now.reason) == (Stage.WORKING, "")
            self.passed = set(range(self.now.index))

    @rule(reason=st.sampled_from(["", " ", "no longer wanted"]))
    def be_cancelled(self, reason: str) -> None:
        if self.take(cancel(self.now, reason)):
            assert reason.strip()

    @rule()
    def finish(self) -> None:
        if self.take(complete(self.now)):
            assert self.passed == set(range(len(self.now.phases)))

    @invariant()
    def no_number_of_a_round_comes_twice_in_a_phase(self) -> None:
        """Also after a phase was left and entered again."""
        last = self.rounds.get(self.now.index, 0)
        assert self.now.round >= last
        if self.now.index != self.at:
            assert self.now.round > last
        self.at = self.now.index
        self.rounds[self.now.index] = self.now.round

    @invariant()
    def the_round_stays_within_the_limit(self) -> None:
        assert 1 <= self.now.round - self.now.rounds_before <= LIMIT

    @invariant()
    def every_phase_behind_us_passed_its_gate(self) -> None:
        assert set(range(self.now.index)) <= self.passed

    @invariant()
    def an_ended_workflow_stays_ended(self) -> None:
        if not self.now.is_active:
            steps = [
                advance(self.now),
                retry(self.now),
                escalate(self.now, "x"),
                resolve(self.now, "x"),
            ]
            steps += [cancel(self.now, "x"), complete(self.now)]
            steps += [apply_gate(self.now, GateResult(outcome), LIMIT) for outcome in GateOutcome]
            assert all(isinstance(step, Refusal) for step in steps)

    @invariant()
    def an_active_workflow_is_never_stuck(self) -> None:
        if self.now.is_active:
            steps = [advance(self.now), retry(self.now), resolve(self.now, "x"), complete(self.now)]
            steps.append(apply_gate(self.now, GateResult(GateOutcome.PASSED), LIMIT))
            assert any(isinstance(step, Workflow) for step in steps)

    @invariant()
    def the_view_is_read_by_the_hook(self) -> None:
        view = json.loads(json.dumps(build_state_view(self.now)))
        assert (next_steps(view) is not None) == self.now.is_active
        if self.now.is_active:
            statuses = view["active_workflow"]["phase_status"]
            # A blocker behind a passed gate does not undo the gate
            passed = (self.now.stage, self.now.blocked_at)
            assert set(statuses.values()) <= {"pending", "in_progress", "completed"}
            assert [key for key, value in statuses.items() if value == "completed"] == list(
                self.now.phases[: self.now.index + (Stage.GATE_PASSED in passed)]
            )


@pytest.mark.demand("W3.d", "W3.e", "W4.a", "W4.b", "W4.c", "W2.a", "W2.d")
def test_no_sequence_of_steps_reaches_a_forbidden_state() -> None:
    run_state_machine_as_test(Life)


@pytest.mark.demand("W4.e")
def test_a_feature_has_one_active_workflow() -> None:
    first = start([], "001-login", "fix", WORKFLOWS["fix"])
    assert isinstance(first, Workflow)
    assert isinstance(start([first], "001-login", "quick", WORKFLOWS["quick"]), Refusal)
    assert isinstance(start([first], "002-logout", "quick", WORKFLOWS["quick"]), Workflow)
    ended = cancel(first, "not now")
    assert isinstance(ended, Workflow)
    assert isinstance(start([ended], "001-login", "quick", WORKFLOWS["quick"]), Workflow)


@pytest.mark.demand("W4.f", "W4.g")
def test_an_order_is_about_the_feature_asked_for_or_the_only_one_in_work() -> None:
    one, two, gone = (
        Workflow(name, "quick", WORKFLOWS["quick"]) for name in ("001-a", "002-b", "003-c")
    )
    ended = cancel(gone, "not now")
    assert isinstance(ended, Workflow)
    every = [one, two, ended]
    assert choose_workflow(every, "001-a") == one
    assert choose_workflow(every, "002-b") == two
    assert choose_workflow([one, ended], None) == one
    assert choose_workflow(every, "002") == two, "a prefix of one feature"
    for refused in (
        choose_workflow(every, "003-c"),
        choose_workflow(every, "00"),
        choose_workflow(every, None),
        choose_workflow([ended], None),
    ):
        assert isinstance(refused, Refusal)
        assert refused.hint


def test_a_workflow_that_cannot_work_does_not_start() -> None:
    refused = start([], "001-login", "mine", ("06",))
    assert isinstance(refused, Refusal)
    assert "06-implementation" in refused.reason


@pytest.mark.demand("W2.a")
def test_the_view_has_the_fields_of_the_read_contract() -> None:
    view = build_state_view(Workflow("001-login", "fix", WORKFLOWS["fix"]))["active_workflow"]
    assert isinstance(view, dict)
    assert list(view) == [
        "type",
        "phases",
        "current_phase",
        "current_phase_index",
        "artifact_folder",
        "phase_status",
    ]


@pytest.mark.demand("W1.i")
def test_the_view_of_a_workflow_of_ones_own_carries_its_noun() -> None:
    workflow = Workflow("001-x", "spike", ("01-requirements",), noun="question")
    view = build_state_view(workflow)
    own = build_own_state(workflow)
    block = next_steps(view, event="workflow-initialized", own_state=own)
    assert "Describe your question" in str(block)
