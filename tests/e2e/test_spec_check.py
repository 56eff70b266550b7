"""`spec check` and `trace` on the annotated specification of the interface: as it stands, and with mistakes (D15)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.dispatch_project import FILES, SLUG, make_project, package
from support.entry import phasegate

# The example of the dispatch specification, with the count of what it shows.
EXAMPLE = """<!-- spec-kitty: validated -->
<!-- spec-kitty: fr-count: 2 -->
<!-- spec-kitty: fr-coverage: 100% -->
# Feature: User Authentication

## Functional Requirements

<!-- sk:fr id="FR-AUTH-001" priority="high" -->
- Users can register with email/password
<!-- /sk:fr -->

<!-- sk:fr id="FR-AUTH-002" priority="low" -->
- Users can log in and receive a JWT token
<!-- /sk:fr -->
"""
SCENARIO = "\n### Scenario: Registering (FR-AUTH-001)\n\n- **WHEN** x\n- **THEN** y\n"


def found(folder: Path, text: str) -> tuple[int, list[tuple[int, str]]]:
    (folder / "spec.md").write_text(text, encoding="utf-8")
    done = phasegate("spec", "check", "spec.md", "--json", cwd=folder)
    return done.code, [(one["line"], one["code"]) for one in done.json["findings"]]


@pytest.mark.demand("D15.a", "D15.b")
def test_each_annotation_is_read_and_a_false_or_broken_one_is_reported(tmp_path: Path) -> None:
    assert found(tmp_path, EXAMPLE) == (0, [])
    mistakes = {
        (1, "unknown-annotation"): ("validated", "valdated"),
        (2, "false-count"): ("fr-count: 2", "fr-count: 3"),
        (2, "bad-annotation"): ("fr-count: 2", "fr-count: two"),
        (3, "bad-annotation"): ("100%", "101%"),
        (8, "unknown-priority"): ('priority="high"', 'priority="urgent"'),
        (8, "bad-id"): ('id="FR-AUTH-001"', 'id="nonsense"'),
        (12, "duplicate-id"): ('id="FR-AUTH-002"', 'id="FR-AUTH-001"'),
    }
    for expected, (right, wrong) in mistakes.items():
        code, told = found(tmp_path, EXAMPLE.replace(right, wrong))
        assert (code, expected in told) == (1, True), (wrong, told)
    assert found(tmp_path, EXAMPLE + SCENARIO) == (1, [(3, "false-coverage")])
    assert found(tmp_path, EXAMPLE.replace("100%", "50%") + SCENARIO) == (0, [])


@pytest.mark.demand("D15.a", "D15.b", "D15.c")
def test_the_annotated_ids_are_the_requirements_and_no_other_counts(tmp_path: Path) -> None:
    text = EXAMPLE + "\n- **FR-AUTH-003:** Users can log out\n"
    files = {**FILES, f"kitty-specs/{SLUG}/spec.md": text}
    plan = {
        "WP01": package(requirements=["FR-AUTH-001"]),
        "WP02": package("WP02", requirements=["FR-AUTH-003"]),
    }
    root = make_project(tmp_path, plan, files=files).root
    told = {one["id"]: one for one in phasegate("trace", "--json", cwd=root).json["requirements"]}
    assert {id_: (one["priority"], one["packages"]) for id_, one in told.items()} == {
        "FR-AUTH-001": ("high", ["WP01"]),
        "FR-AUTH-002": ("low", []),
    }
    done = phasegate("spec", "check", f"kitty-specs/{SLUG}", "--json", cwd=root)
    codes = {one["code"] for one in done.json["findings"]}
    assert (done.code, codes >= {"unannotated-id", "unknown-requirement", "uncovered"}) == (
        1,
        True,
    ), codes
