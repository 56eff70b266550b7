"""spec-kitty's annotations are read, checked, and authoritative (D15)."""

from __future__ import annotations

import pytest

from phasegate.core.plan.requirements import Priority, Requirement, read_spec

# The example of the dispatch specification, with the count of what it shows.
EXAMPLE = """<!-- spec-kitty: validated -->
<!-- spec-kitty: fr-count: 2 -->
<!-- spec-kitty: fr-coverage: 100% -->
# Feature: User Authentication

## Functional Requirements

<!-- sk:fr id="FR-AUTH-001" priority="high" -->
- Users can register with email/password
<!-- /sk:fr -->

<!-- sk:fr id="FR-AUTH-002" priority="high" -->
- Users can log in and receive a JWT token
<!-- /sk:fr -->
"""


def _codes(text: str) -> list[tuple[int, str]]:
    return [(found.line, found.code) for found in read_spec(text).findings]


@pytest.mark.demand("D15.a")
def test_the_example_of_the_specification_is_read() -> None:
    spec = read_spec(EXAMPLE)
    assert spec.requirements == (
        Requirement("FR-AUTH-001", "Users can register with email/password", 8, Priority.HIGH),
        Requirement("FR-AUTH-002", "Users can log in and receive a JWT token", 12, Priority.HIGH),
    )
    assert spec.annotated
    assert spec.findings == ()


@pytest.mark.demand("D15.b")
@pytest.mark.parametrize("count", ["0", "1", "3", "5", "02x", "", "-2", "two"])
def test_a_count_that_is_not_true_is_reported(count: str) -> None:
    found = _codes(EXAMPLE.replace("fr-count: 2", f"fr-count: {count}"))
    assert found == [(2, "false-count" if count.isdigit() else "bad-annotation")]


@pytest.mark.demand("D15.b")
@pytest.mark.parametrize("coverage", ["100", "101%", "x%", "", "-5%", "1000%", "50 %"])
def test_a_coverage_that_is_no_percentage_is_reported(coverage: str) -> None:
    assert _codes(EXAMPLE.replace("100%", coverage)) == [(3, "bad-annotation")]


@pytest.mark.demand("D15.b")
def test_a_coverage_that_is_not_true_is_reported() -> None:
    scenarios = (
        EXAMPLE + "\n### Scenario: Registering (FR-AUTH-001)\n\n- **WHEN** x\n- **THEN** y\n"
    )
    (found,) = read_spec(scenarios).findings
    assert (found.line, found.code) == (3, "false-coverage")
    assert "1 of 2 requirements" in found.message
    assert _codes(scenarios.replace("100%", "50%")) == []
    assert _codes(scenarios + "### Scenario: Logging in (FR-AUTH-002)\n") == []


@pytest.mark.demand("D15.c")
def test_an_id_that_is_only_listed_does_not_count_beside_annotations() -> None:
    spec = read_spec(
        EXAMPLE + "\n- **FR-AUTH-003:** Users can log out\n- FR-AUTH-001 is explained above\n"
    )
    assert [requirement.id for requirement in spec.requirements] == ["FR-AUTH-001", "FR-AUTH-002"]
    assert [(found.line, found.code) for found in spec.findings] == [(16, "unannotated-id")]


@pytest.mark.demand("D15.c")
def test_without_annotations_ids_are_taken_from_headings_lists_and_tables() -> None:
    spec = read_spec(
        "# Spec\n### FR-AUTH-001: Register\n- **FR-AUTH-002:** Log in\n- [ ] FR-AUTH-003 — Log out\n"
        "1. `FR-AUTH-004` Reset\n| FR-005 | Table | high |\n- NFR-001: Fast\n- UTF-8 is used, see FR-AUTH-009\n"
        "- **FR-AUTH-002:** again\n"
    )
    assert [requirement.id for requirement in spec.requirements] == [
        "FR-AUTH-001",
        "FR-AUTH-002",
        "FR-AUTH-003",
        "FR-AUTH-004",
        "FR-005",
        "NFR-001",
    ]
    assert not spec.annotated
    assert not any(requirement.annotated for requirement in spec.requirements)
    assert spec.requirements[1].text == "Log in"


OPEN, CLOSE = '<!-- sk:fr id="FR-A-001" priority="high" -->', "<!-- /sk:fr -->"


@pytest.mark.demand("D15.b")
@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (f"{OPEN}\n- a\n{CLOSE}\n{OPEN}\n- b\n{CLOSE}\n", ["duplicate-id"]),
        (f"{OPEN}\n- a\n", ["unclosed-annotation"]),
        (f"- a\n{CLOSE}\n", ["stray-annotation"]),
        (f"{OPEN}\n- a\n{OPEN.replace('001', '002')}\n- b\n{CLOSE}\n", ["nested-annotation"]),
        (f"{OPEN}\n{CLOSE}\n", ["empty-requirement"]),
        (f"{OPEN.replace('high', 'urgent')}\n- a\n{CLOSE}\n", ["unknown-priority"]),
        (f"{OPEN.replace('FR-A-001', 'first')}\n- a\n{CLOSE}\n", ["bad-id"]),
        (f"{OPEN.replace('FR-A-001', 'fr-a-001')}\n- a\n{CLOSE}\n", ["bad-id"]),
        (f'<!-- sk:fr priority="high" -->\n- a\n{CLOSE}\n', ["bad-annotation", "bad-id"]),
        (f"<!-- sk:fr id=FR-A-001 -->\n- a\n{CLOSE}\n", ["bad-annotation", "stray-annotation"]),
        (f'<!-- sk:fr id="FR-A-001" id="FR-A-002" -->\n- a\n{CLOSE}\n', ["bad-annotation"]),
        (f'<!-- sk:fr id="FR-A-001" owner="me" -->\n- a\n{CLOSE}\n', ["bad-annotation"]),
        ("<!-- sk:frr -->\n", ["bad-annotation"]),
        ("<!-- spec-kitty: certified -->\n", ["unknown-annotation"]),
        ("<!-- spec-kitty: validated -->\n", ["false-count"]),
        (
            f"<!-- spec-kitty: validated -->\n<!-- spec-kitty: validated -->\n{OPEN}\n- a\n{CLOSE}\n",
            ["duplicate-annotation"],
        ),
        (f"- text {OPEN}\n", ["stray-annotation"]),
        (f"    {OPEN}\n", ["stray-annotation"]),
        (f"{OPEN}\n- **FR-B-002:** a\n{CLOSE}\n", ["wrong-id"]),
    ],
)
def test_each_broken_annotation_has_a_name(text: str, codes: list[str]) -> None:
    assert sorted(code for _, code in _codes(text)) == sorted(codes)


@pytest.mark.parametrize(
    "text",
    [
        f"```markdown\n{OPEN}\n- a\n{CLOSE}\n```\n",
        f"~~~\n{OPEN}\n- a\n{CLOSE}\n~~~\n",
        f"<!--\n{OPEN}\n",
        f"Agents treat `{OPEN}` as authoritative.\n",
        f"<!-- guide: write\n{OPEN}",
    ],
)
def test_an_annotation_that_is_only_shown_is_no_annotation(text: str) -> None:
    spec = read_spec(text)
    assert spec.requirements == ()
    assert spec.findings == ()


def test_the_text_of_a_requirement_is_without_bullet_and_id() -> None:
    spec = read_spec(f"{OPEN}\n- **FR-A-001:** The form\n  must close.\n\n- And open.\n{CLOSE}\n")
    assert spec.requirements[0].text == "The form must close. And open."
    assert spec.findings == ()
