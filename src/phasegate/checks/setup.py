"""Set up a checkout: install the project's dependencies before its checks.

A cached result is used if there is one, otherwise the first candidate after which tests are found.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from phasegate.checks.evidence import CheckOutcome, CheckResult, not_requested_check, passed_check
from phasegate.checks.excerpt import to_one_line
from phasegate.checks.plan import CommandPlan, CommandResult, Purpose
from phasegate.checks.setup_cache import CachedSetup, SetupCache, remove_added_files
from phasegate.checks.snapshot import TreeSnapshot
from phasegate.core.detection.model import SetupCandidate
from phasegate.core.machine.retry import Fault

# Minimum ratio of collected tests to test functions; parametrised tests only increase it
MIN_COLLECTED_RATIO = 0.5
_COLLECTED_SUMMARY = re.compile(
    r"^(?:=+ )?(?:(\d+)(?:/\d+)? tests? collected|(no) tests collected)(?:[^,\n]*)?(?:, (\d+)"
    r" errors?)?",
    re.M,
)
_PYTEST_COMMAND = re.compile(r"\bpytest\b")


class CollectedTests(NamedTuple):
    """The result of a test collection, without running the tests."""

    tests: int
    errors: int

    def is_sufficient_for(self, test_functions: int | None) -> bool:
        """Return True if these tests show that the setup succeeded.

        There must be no collection errors, and not far fewer tests than test functions.
        """
        if not self.tests:
            return test_functions == 0 and not self.errors
        return not self.errors and (
            test_functions is None or self.tests >= MIN_COLLECTED_RATIO * test_functions
        )


def build_collect_command(test_command: str) -> str:
    """Return the command that collects the tests of a test command; empty if there is none.

    Project settings can make the runner too quiet to print the number of tests. Passing `-v` twice
    prevents that.
    """
    simple = not re.search(r"&&|\|\||;", test_command)
    if _PYTEST_COMMAND.search(test_command) and simple:
        return f"{test_command} --collect-only -q"
    return ""


def parse_collected_tests(ran: CommandResult) -> CollectedTests | None:
    """Parse the output of a test collection, or return None if it contains no result."""
    found = [*_COLLECTED_SUMMARY.finditer(f"{ran.stdout}\n{ran.stderr}")]

    if not found:
        listed = len(re.findall(r"^\S+\.py::\S", ran.stdout, re.M))
        listed += sum(
            int(number) for number in re.findall(r"^\S+\.py: (\d{1,7})$", ran.stdout, re.M)
        )
        if listed:
            return CollectedTests(listed, 0 if ran.exit_status == 0 else 1)
        return None

    last = found[-1]
    return CollectedTests(int(last[1] or 0), int(last[3] or 0))


MAX_CANDIDATES = 12
# A setup prints this for each package that it could not install but does not need
NOT_INSTALLED_PREFIX = "not installed: "


class SetupCacheSlot(NamedTuple):
    """The cache, and the key of the result for this checkout's base."""

    cache: SetupCache
    key: str
    # True if the tree is the base itself, which no agent wrote
    may_fill: bool = False


class SetupResult(NamedTuple):
    """The result of a setup. `collected` is None if no tests were collected with it."""

    check: CheckResult
    candidate: SetupCandidate
    collected: CollectedTests | None = None


class _SetupAttempt(NamedTuple):
    position: int
    candidate: SetupCandidate
    check: CheckResult
    collected: CollectedTests | None

    @property
    def rank(self) -> tuple[bool, int, int]:
        installed = self.check.outcome is not CheckOutcome.FAILED
        return installed, self.collected.tests if self.collected else 0, -self.position


class SetupContext(NamedTuple):
    """The inputs of a setup."""

    plan: CommandPlan
    checkout: Path
    initial_files: TreeSnapshot
    # Arguments: purpose and command line
    run: Callable[[str, str], CommandResult]
    check_from_status: Callable[[str, str, CommandResult], CheckResult]


def run_setup(context: SetupContext, cache_slot: SetupCacheSlot | None) -> SetupResult:
    """Set up a checkout: try the candidates in order.

    If a candidate fails, or too few tests are found after it, the next one is tried.
    """
    candidates = context.plan.setups or (
        SetupCandidate(context.plan.commands.get(Purpose.SETUP, "")),
    )
    began_s = time.monotonic()

    if (
        cache_slot is not None
        and (entry := cache_slot.cache.restore(cache_slot.key, context.checkout)) is not None
    ):
        return _result_from_cache(candidates, entry, time.monotonic() - began_s)

    tries: list[_SetupAttempt] = []
    for place, candidate in enumerate(candidates[:MAX_CANDIDATES]):
        if tries:
            remove_added_files(context.checkout, context.initial_files)

        tries.append(_try_candidate(context, place, candidate))
        if _is_acceptable(tries[-1], context.plan) or _is_hopeless(tries[-1]):
            break

    best = _choose_best(context, tries)
    if (
        best.check.outcome is not CheckOutcome.FAILED
        and cache_slot is not None
        and cache_slot.may_fill
    ):
        about = CachedSetup(
            run=best.candidate.command,
            summary=best.check.summary,
            checkout="",
            notes=best.check.notes,
            duration_s=best.check.duration_s or 0.0,
        )

        cache_slot.cache.store_entry(cache_slot.key, context.checkout, context.initial_files, about)

    return SetupResult(best.check, best.candidate, best.collected)


def _result_from_cache(
    candidates: tuple[SetupCandidate, ...], entry: CachedSetup, duration_s: float
) -> SetupResult:
    """Return the result of a setup whose files were restored from the cache."""
    candidate = next(
        (one for one in candidates if one.command == entry.run), SetupCandidate(entry.run)
    )
    if not candidate.command:
        return SetupResult(not_requested_check(Purpose.SETUP, entry.summary), candidate)

    check = passed_check(
        Purpose.SETUP, "restored from the cache", [f"command: {candidate.command}", *entry.notes]
    )
    return SetupResult(replace(check, duration_s=duration_s), candidate)


def _try_candidate(
    context: SetupContext, position: int, candidate: SetupCandidate
) -> _SetupAttempt:
    """Run one setup command and collect the tests that it makes available."""
    if candidate.command:
        ran = context.run(Purpose.SETUP, candidate.command)
        check = context.check_from_status(Purpose.SETUP, candidate.command, ran)
        left_out = [
            to_one_line(line, 400)
            for line in ran.stdout.splitlines()
            if line.startswith(NOT_INSTALLED_PREFIX)
        ]
        check = replace(check, notes=(*check.notes, *left_out[:20]))
    else:
        check = not_requested_check(
            Purpose.SETUP, candidate.why or "the project has no such command"
        )

    if candidate.why and candidate.command:
        check = replace(check, notes=(*check.notes, f"chosen for: {candidate.why}"))
    if check.outcome is CheckOutcome.FAILED:
        return _SetupAttempt(position, candidate, check, None)
    return _SetupAttempt(position, candidate, check, _collect_tests(context, candidate))


def _collect_tests(context: SetupContext, candidate: SetupCandidate) -> CollectedTests | None:
    line = build_collect_command(
        candidate.test_command or context.plan.commands.get(Purpose.TEST, "")
    )
    if not line or not context.plan.test_functions:
        # There are no tests, or no command that can collect them
        return None

    ran = context.run("collect", line)
    return parse_collected_tests(ran) or CollectedTests(0, 1)


def _is_acceptable(attempt: _SetupAttempt, plan: CommandPlan) -> bool:
    if attempt.check.outcome is CheckOutcome.FAILED:
        return False
    return attempt.collected is None or attempt.collected.is_sufficient_for(plan.test_functions)


def _is_hopeless(attempt: _SetupAttempt) -> bool:
    """Return True if the next candidate would fail too, because the network is unavailable."""
    return attempt.check.outcome is CheckOutcome.FAILED and attempt.check.fault in (
        Fault.NETWORK,
        Fault.RATE_LIMIT,
    )


def _choose_best(context: SetupContext, attempts: list[_SetupAttempt]) -> _SetupAttempt:
    """Return the attempt that found the most tests.

    If other attempts ran after it, its setup is run again.
    """
    best = max(attempts, key=lambda one: one.rank)
    others = [one for one in attempts if one is not best]
    if best is not attempts[-1]:
        remove_added_files(context.checkout, context.initial_files)
        if best.check.outcome is not CheckOutcome.FAILED and best.candidate.command:
            context.run(Purpose.SETUP, best.candidate.command)

    notes = (*best.check.notes, *(_describe_attempt(one) for one in others))
    return best._replace(check=replace(best.check, notes=notes))


def _describe_attempt(attempt: _SetupAttempt) -> str:
    if attempt.check.outcome is CheckOutcome.FAILED:
        what = attempt.check.summary
    elif attempt.collected:
        what = f"{attempt.collected.tests} tests found, {attempt.collected.errors} errors"
    else:
        what = ""

    purpose = attempt.candidate.why or attempt.candidate.command
    return to_one_line(f"also tried, for {purpose}: {what}".strip(), 400)
