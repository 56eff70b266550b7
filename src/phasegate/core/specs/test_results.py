"""Find the result of a bound test in a JUnit report, which most test runners can write."""

from __future__ import annotations

from typing import NamedTuple
from xml.etree import ElementTree

from phasegate.core.specs.gherkin import GHERKIN
from phasegate.core.specs.spec_file import MalformedSpec


class JUnitCase(NamedTuple):
    """One test case of a report."""

    owner: str
    name: str
    outcome: str


def parse_junit(text: str) -> tuple[JUnitCase, ...]:
    """Return the test cases of a report; raise MalformedSpec if it cannot be read."""
    if "<!DOCTYPE" in text:
        raise MalformedSpec("the report has a document type, which no test runner writes")
    try:
        # No entity can be defined without a document type
        root = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError as error:
        raise MalformedSpec(f"the report is not XML: {error}") from error

    results = []
    for case in root.iter("testcase"):
        children = {child.tag for child in case}
        outcome = "passed"
        if children & {"failure", "error"}:
            outcome = "failed"
        elif "skipped" in children:
            outcome = "skipped"
        name = case.get("name", "").partition("[")[0]
        results.append(JUnitCase(case.get("classname", ""), name, outcome))
    return tuple(results)


def find_outcome(target: str, results: tuple[JUnitCase, ...]) -> str:
    """Return the outcome of a bound test: all of its cases must have passed."""
    path, _, inside = target.partition("::")
    *classes, name = inside.split("::")
    module = path.rpartition(".")[0].replace("/", ".")
    owner = ".".join((module, *classes))
    # Runners of Gherkin name the owner by the feature's title, which the target does not have
    is_gherkin = path.endswith(GHERKIN)
    owners = (owner, path, "::".join((path, *classes)))
    outcomes = {
        one.outcome
        for one in results
        if (not inside and (_is_tail(one.owner, module, path) or f"{module}." in f"{one.owner}."))
        or (is_gherkin and inside and one.name == inside)
        or (inside and _is_tail(one.name, name) and _is_tail(one.owner, *owners))
    }
    if not outcomes:
        return "not run"
    return min(outcomes - {"passed"}, default="passed")


def _is_tail(text: str, *tails: str) -> bool:
    """Return whether a name is one of these, or ends with it after a separator."""
    return any(
        text == tail or (text.endswith(tail) and text[: -len(tail)].endswith((".", "/", " ", ":")))
        for tail in tails
    )
