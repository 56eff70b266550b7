"""An amendment changes one requirement, whatever its text is."""

from __future__ import annotations

import pytest

from phasegate.core.specs.amend import amend_spec
from phasegate.core.specs.spec_file import MalformedSpec

SPEC = """\
# Feature: x

<!-- sk:fr id="FR-A-001" -->
- One
<!-- /sk:fr -->

<!-- sk:fr id="FR-A-002" -->
- Two
<!-- /sk:fr -->
"""


@pytest.mark.parametrize(
    "text",
    [
        "New\n<!-- /sk:fr -->\nmore",
        'New\n<!-- sk:fr id="FR-A-003" -->',
        "New\n\n### FR-A-003: More",
        "New\n```\nopen",
        "New <!-- open",
    ],
)
def test_a_text_that_would_change_another_requirement_is_refused(text: str) -> None:
    with pytest.raises(MalformedSpec):
        amend_spec(SPEC, "FR-A-001", text)


@pytest.mark.parametrize(
    "text", ["- New", "* New", "New\n\n#### Scenario: s\n\n- x", "```\n### code\n```"]
)
def test_a_text_that_stays_inside_replaces_the_old_one(text: str) -> None:
    amended = amend_spec(SPEC, "FR-A-001", text)
    assert amended is not None
    assert amended.before == "- One"
    assert amended.text == SPEC.replace("- One", text)


@pytest.mark.parametrize("mark", ["- ", "* ", "-   ", ""])
def test_the_list_mark_of_the_old_text_stays(mark: str) -> None:
    spec = SPEC.replace("- One", f"{mark}One")
    amended = amend_spec(spec, "FR-A-001", "New")
    assert amended is not None
    assert amended.text == SPEC.replace("- One", f"{mark}New")
