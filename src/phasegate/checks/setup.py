"""The setup of a checkout: the kept result where there is one, else the first candidate after which tests are found."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.checks.evidence import Check, Outcome, not_asked, passed
from phasegate.checks.excerpt import excerpt, one_line
from phasegate.checks.plan import CommandRan, Plan, Purpose
from phasegate.checks.setup_cache import KeptSetup, SetupCache, remove_added
from phasegate.checks.snapshot import Snapshot
from phasegate.core.detection.model import SetupCandidate
from phasegate.core.machine.retry import Fault

FEW = 0.5  # of the test functions; parametrised tests make more of one function, never fewer
_COLLECTED = re.compile(
    r"^(?:=+ )?(?:(\d+)(?:/\d+)? tests? collected|(no) tests collected)(?:[^,\n]*)?(?:, (\d+) errors?)?", re.M
)
_PYTEST = re.compile(r"\bpytest\b")


class Collected(NamedTuple):
    """What a runner found without running it."""

    tests: int
    errors: int

    def is_enough_for(self, functions: int | None) -> bool:
        """Whether the setup can be called good: something was collected, all of it, and not far less than there is."""
        if not self.tests:
            return functions == 0 and not self.errors
        return not self.errors and (functions is None or self.tests >= FEW * functions)


def collecting(test: str) -> str:
    """The command that collects what this test command would run; empty where there is none.

    Settings of the project can make it so quiet that it does not say how many: `-v` twice undoes that.
    """
    simple = not re.search(r"&&|\|\||;", test)
    return f"{test} --collect-only -q" if _PYTEST.search(test) and simple else ""


def read_collected(ran: CommandRan) -> Collected | None:
    """What a collection said; None if it said nothing, which is no proof."""
    found = [*_COLLECTED.finditer(f"{ran.stdout}\n{ran.stderr}")]
    if not found:
        listed = len(re.findall(r"^\S+\.py::\S", ran.stdout, re.M))
        listed += sum(int(number) for number in re.findall(r"^\S+\.py: (\d{1,7})$", ran.stdout, re.M))
        return Collected(listed, 0 if ran.exit_status == 0 else 1) if listed else None
    last = found[-1]
    return Collected(int(last[1] or 0), int(last[3] or 0))


MOST_TRIES = 12
LEFT_OUT = "not installed: "  # what a setup says of something that it does without


class SetupPlace(NamedTuple):
    """The cache, and the name under which the result of this checkout's base lies there."""

    cache: SetupCache
    key: str
    fills: bool = False  # this tree is the base itself, which no agent wrote


class SetUp(NamedTuple):
    """What came of it. `found` says how many tests the runner collects, where it was asked."""

    check: Check
    candidate: SetupCandidate
    found: Collected | None = None


class _Try(NamedTuple):
    place: int
    candidate: SetupCandidate
    check: Check
    found: Collected | None

    @property
    def worth(self) -> tuple[bool, int, int]:
        installed = self.check.outcome is not Outcome.FAILED
        return installed, self.found.tests if self.found else 0, -self.place


class SetupGround(NamedTuple):
    """What a setup works on."""

    plan: Plan
    checkout: Path
    before: Snapshot
    run: Callable[[str, str], CommandRan]  # purpose, command line
    judge: Callable[[str, str, CommandRan], Check]


def set_up(ground: SetupGround, kept: SetupPlace | None) -> SetUp:
    """Set a checkout up. What fails, and what leaves no test to be found, is followed by the next candidate."""
    candidates = ground.plan.setups or (SetupCandidate(ground.plan.commands.get(Purpose.SETUP, "")),)
    began_s = time.monotonic()
    if kept is not None and (entry := kept.cache.restore(kept.key, ground.checkout)) is not None:
        return _from_cache(candidates, entry, time.monotonic() - began_s)
    tries: list[_Try] = []
    for place, candidate in enumerate(candidates[:MOST_TRIES]):
        if tries:
            remove_added(ground.checkout, ground.before)
        tries.append(_tried(ground, place, candidate))
        if _is_good(tries[-1], ground.plan) or _is_hopeless(tries[-1]):
            break
    best = _best(ground, tries)
    if best.check.outcome is not Outcome.FAILED and kept is not None and kept.fills:
        about = KeptSetup(
            best.candidate.run, best.check.summary, "", notes=best.check.notes, duration_s=best.check.duration_s or 0.0
        )
        kept.cache.keep(kept.key, ground.checkout, ground.before, about)
    return SetUp(best.check, best.candidate, best.found)


def _from_cache(candidates: tuple[SetupCandidate, ...], entry: KeptSetup, duration_s: float) -> SetUp:
    candidate = next((one for one in candidates if one.run == entry.run), SetupCandidate(entry.run))
    if not candidate.run:
        return SetUp(not_asked(Purpose.SETUP, entry.summary), candidate)
    check = passed(Purpose.SETUP, "taken from the cache", [f"command: {candidate.run}", *entry.notes])
    return SetUp(msgspec.structs.replace(check, duration_s=duration_s), candidate)


def _tried(ground: SetupGround, place: int, candidate: SetupCandidate) -> _Try:
    if candidate.run:
        ran = ground.run(Purpose.SETUP, candidate.run)
        check = ground.judge(Purpose.SETUP, candidate.run, ran)
        left_out = [one_line(line, 400) for line in ran.stdout.splitlines() if line.startswith(LEFT_OUT)]
        check = msgspec.structs.replace(check, notes=(*check.notes, *left_out[:20]))
    else:
        check = not_asked(Purpose.SETUP, candidate.why or "the project has no such command")
    if candidate.why and candidate.run:
        check = msgspec.structs.replace(check, notes=(*check.notes, f"chosen for: {candidate.why}"))
    if check.outcome is Outcome.FAILED:
        return _Try(place, candidate, check, None)
    return _Try(place, candidate, check, _collected(ground, candidate))


def _collected(ground: SetupGround, candidate: SetupCandidate) -> Collected | None:
    line = collecting(candidate.test or ground.plan.commands.get(Purpose.TEST, ""))
    if not line or not ground.plan.test_functions:
        return None  # nothing to be found, or nobody to ask
    ran = ground.run("collect", line)
    return read_collected(ran) or Collected(0, 1)


def _is_good(one: _Try, plan: Plan) -> bool:
    if one.check.outcome is Outcome.FAILED:
        return False
    return one.found is None or one.found.is_enough_for(plan.test_functions)


def _is_hopeless(one: _Try) -> bool:
    """Without a network the next candidate would fail as well."""
    return one.check.outcome is Outcome.FAILED and one.check.fault in (Fault.NETWORK, Fault.RATE_LIMIT)


def _best(ground: SetupGround, tries: list[_Try]) -> _Try:
    """The last try where it is good; else the one that finds most tests, set up once more if others came after it."""
    best = max(tries, key=lambda one: one.worth)
    others = [one for one in tries if one is not best]
    if best is not tries[-1]:
        remove_added(ground.checkout, ground.before)
        if best.check.outcome is not Outcome.FAILED and best.candidate.run:
            ground.run(Purpose.SETUP, best.candidate.run)
    notes = (*best.check.notes, *(_told(one) for one in others))
    return best._replace(check=msgspec.structs.replace(best.check, notes=notes))


def _told(one: _Try) -> str:
    what = (
        one.check.summary
        if one.check.outcome is Outcome.FAILED
        else f"{one.found.tests} tests found, {one.found.errors} errors"
        if one.found
        else ""
    )
    last = excerpt(one.check.excerpt).strip().rpartition("\n")[2] if one.check.outcome is Outcome.FAILED else ""
    return one_line(f"also tried, for {one.candidate.why or one.candidate.run}: {what} {last}".strip(), 400)
