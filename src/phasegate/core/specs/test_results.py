"""Find the result of a bound test in a JUnit report, which most test runners can write."""

from __future__ import annotations

from typing import NamedTuple
from xml.etree import ElementTree

from phasegate.core.specs.gherkin import GHERKIN, find_feature_title
from phasegate.core.specs.spec_file import MalformedSpec


class JUnitCase(NamedTuple):
    """One test case of a report."""

    owner: str
    name: str
    outcome: str
    # Of the tests, where the runner writes it
    file: str = ""


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
    cases = [(suite, case) for suite in root.iter() for case in suite.findall("testcase")]
    for suite, case in cases:
        children = {child.tag for child in case}
        outcome = "passed"
        if children & {"failure", "error"}:
            outcome = "failed"
        elif "skipped" in children:
            outcome = "skipped"
        name = case.get("name", "").partition("[")[0]
        owner = case.get("classname", "") or suite.get("name", "")
        results.append(JUnitCase(owner, name, outcome, case.get("file", "")))
    return tuple(results)


def find_outcome(target: str, results: tuple[JUnitCase, ...], text: str = "") -> str:
    """Return the outcome of a bound test: all of its cases must have passed.

    `text` is the content of its file: runners of Gherkin name only the title of the feature.
    """
    path, _, inside = target.partition("::")
    *classes, name = inside.split("::")
    module = path.rpartition(".")[0].replace("/", ".")
    owner = ".".join((module, *classes))
    is_gherkin = path.endswith(GHERKIN)
    owners = (owner, path, "::".join((path, *classes)))
    outcomes = {
        one.outcome
        for one in results
        if (not inside and (_is_tail(one.owner, module, path) or f"{module}." in f"{one.owner}."))
        or (is_gherkin and inside and one.name == inside and _is_of_feature(one, path, text))
        or (inside and _is_tail(one.name, name) and _is_tail(one.owner, *owners))
    }
    if not outcomes:
        return "not run"
    return min(outcomes - {"passed"}, default="passed")


def _is_of_feature(case: JUnitCase, path: str, text: str) -> bool:
    """Return whether a scenario belongs to a Gherkin file, by its file or its feature's title."""
    if case.file:
        return _is_tail(path, case.file) or _is_tail(case.file, path)

    title = find_feature_title(text)
    module = path.removesuffix(GHERKIN).replace("/", ".")
    # behave writes the name of the file, then the title
    owner = case.owner.removesuffix(f".{title}") if title else case.owner
    return owner in (title, path) or _is_tail(module, owner) or _is_tail(owner, module)


def _is_tail(text: str, *tails: str) -> bool:
    """Return whether a name is one of these, or ends with it after a separator."""
    return any(
        text == tail or (text.endswith(tail) and text[: -len(tail)].endswith((".", "/", " ", ":")))
        for tail in tails
    )
