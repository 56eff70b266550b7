"""How many tests a setup makes runnable: what the runner collects, held against the test functions in the tree."""

from __future__ import annotations

import re
from typing import NamedTuple

from phasegate.checks.plan import Ran

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


def read_collected(ran: Ran) -> Collected | None:
    """What a collection said; None if it said nothing, which is no proof."""
    found = [*_COLLECTED.finditer(f"{ran.stdout}\n{ran.stderr}")]
    if not found:
        listed = len(re.findall(r"^\S+\.py::\S", ran.stdout, re.M))
        listed += sum(int(number) for number in re.findall(r"^\S+\.py: (\d{1,7})$", ran.stdout, re.M))
        return Collected(listed, 0 if ran.exit_status == 0 else 1) if listed else None
    last = found[-1]
    return Collected(int(last[1] or 0), int(last[3] or 0))
