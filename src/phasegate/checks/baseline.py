"""What failed before the work began, so that old failures are told from new ones.

An old failure is still a failure: a package that is to mend a red test must not pass while it is red. It is only called
by its name, with another remedy. A person can decide otherwise: `Plan.accept_already_failing`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from phasegate.checks.evidence import Check, Outcome
from phasegate.checks.excerpt import listed
from phasegate.checks.runner_output import TestRun

_NUMBER = re.compile(r"[0-9]+")


class Baseline(msgspec.Struct, frozen=True):
    """What the same commands said about the tree that the work started from."""

    failing_tests: frozenset[str] = frozenset()
    tests_executed: int = 0
    failed: Mapping[str, str] = {}  # purpose: excerpt of the output

    def new_failures(self, run: TestRun) -> list[str]:
        return [name for name in run.failing if name not in self.failing_tests]

    def old_failures(self, run: TestRun) -> list[str]:
        return [name for name in run.failing if name in self.failing_tests]


def baseline_of(checks: Iterable[Check]) -> Baseline:
    """The baseline from the checks of the tree that the work starts from."""
    checks = tuple(checks)
    tests = next((check.tests for check in checks if check.tests is not None), None)
    return Baseline(
        failing_tests=frozenset(tests.failing) if tests else frozenset(),
        tests_executed=tests.executed if tests else 0,
        failed={check.name: check.excerpt for check in checks if check.outcome is Outcome.FAILED},
    )


def compared(check: Check, baseline: Baseline | None) -> Check:
    """A check with notes on what is old about its failure; the outcome stays as it is."""
    if baseline is None:
        return check
    notes = [*_test_notes(check, baseline)] if check.tests else [*_output_notes(check, baseline)]
    return msgspec.structs.replace(check, notes=(*check.notes, *notes))


def _test_notes(check: Check, baseline: Baseline) -> Iterable[str]:
    assert check.tests is not None
    if check.outcome is Outcome.FAILED and (old := baseline.old_failures(check.tests)):
        yield f"already failing before the work began: {listed(old)}"
    if check.outcome is Outcome.FAILED and (new := baseline.new_failures(check.tests)):
        yield f"new: {listed(new)}"
    if check.tests.executed < baseline.tests_executed:
        yield f"{check.tests.executed} tests ran, {baseline.tests_executed} before the work began: were some taken out?"


def _output_notes(check: Check, baseline: Baseline) -> Iterable[str]:
    before = baseline.failed.get(check.name)
    if check.outcome is not Outcome.FAILED or before is None:
        return
    known = frozenset(_numberless(line) for line in before.split("\n"))
    new = [line for line in check.excerpt.split("\n") if line.strip() and _numberless(line) not in known]
    yield "already failing before the work began"
    if new:
        yield f"not in its output then: {listed(new)}"


def _numberless(line: str) -> str:
    """The same finding a few lines further down is the same finding."""
    return _NUMBER.sub("#", line.strip())
