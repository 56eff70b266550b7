"""Drafts of requirements from an agent's proposal for existing code."""

from __future__ import annotations

import pytest

from phasegate.core.specs.characterize import (
    Proposal,
    ProposedRequirement,
    draft_characterized,
    name_test_file,
    select_slice,
)
from phasegate.core.specs.spec_file import CapabilitySpec

CODE = {"greet.py": "def greet(name):\n    return f'Hello, {name}'\n"}
TEST_FILE = "tests/test_adopted_greet.py"
TESTS = """\
from greet import greet


def test_it_greets():
    assert greet("Ann") == "Hello, Ann"


def test_it_runs():
    greet("Ann")
"""


def _proposal(*tests: str) -> Proposal:
    requirements = tuple(
        ProposedRequirement(
            title=f"Says {test or 'nothing'}", text="People are greeted.", test=test
        )
        for test in tests
    )
    return Proposal(requirements, TESTS)


def test_the_id_of_a_removed_requirement_is_not_given_again() -> None:
    drafted = draft_characterized(
        capability="greet",
        proposal=_proposal("test_it_greets"),
        test_file=TEST_FILE,
        code=CODE,
        current=CapabilitySpec(),
        find_outcome=lambda _: "passed",
        used=("FR-GREET-001",),
    )
    assert [*drafted.spec.requirements] == ["FR-GREET-002"]
    assert drafted.passing == ("test_it_greets",)


@pytest.mark.parametrize(
    ("test", "outcome", "kind"),
    [
        ("test_it_greets", "passed", "passing"),
        ("test_it_greets", "failed", "failing"),
        ("test_it_runs", "passed", "inferred"),
        ("", "passed", "inferred"),
    ],
)
def test_a_requirement_is_observed_only_with_a_passing_test_that_asserts(
    test: str, outcome: str, kind: str
) -> None:
    drafted = draft_characterized(
        capability="greet",
        proposal=_proposal(test),
        test_file=TEST_FILE,
        code=CODE,
        current=CapabilitySpec(),
        find_outcome=lambda _: outcome,
    )
    found = {name for name in ("passing", "failing", "inferred") if getattr(drafted, name)}
    assert found == {kind}
    assert ("test_it_runs" in drafted.tests) is False
    assert bool(drafted.tests) is (kind == "passing")


def test_a_slice_is_of_one_language_and_leaves_what_is_too_large() -> None:
    code = {**CODE, "wave.py": "def wave():\n    return 1\n", "wave.js": "export function w() {}\n"}
    assert select_slice(code, CapabilitySpec(), 1000) == (("greet.py", "wave.py"), ("wave.js",))
    assert select_slice(code, CapabilitySpec(), 10) == (("greet.py",), ("wave.py", "wave.js"))


def test_a_new_test_file_is_beside_the_tests_and_replaces_none() -> None:
    tests = ["tests/test_greet.py"]
    first = name_test_file("greet", "src/greet.py", tests, tests)
    assert first == "tests/test_adopted_greet.py"
    second = name_test_file("greet", "src/greet.py", [*tests, first], tests)
    assert second == "tests/test_adopted_greet_2.py"
