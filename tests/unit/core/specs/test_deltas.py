"""A change of a requirement is applied to the text that its author has read, or not at all."""

from __future__ import annotations

import pytest

from phasegate.core.specs.deltas import (
    Change,
    apply_deltas,
    find_delta_conflicts,
    find_restatements,
    guess_capability,
    read_deltas,
    stamp_deltas,
)
from phasegate.core.specs.spec_file import (
    MalformedSpec,
    compute_revision,
    parse_spec,
    render_spec,
)

CURRENT = """\
# Auth

## Requirements

### FR-AUTH-001: Log in

People log in.

- Test: `tests/test_login.py`

#### Scenario: Wrong password

- **THEN** the form says so

#### Scenario: No password

- **THEN** the form asks for it
"""
SPECS = {"auth": parse_spec(CURRENT)}
START = compute_revision(SPECS["auth"].requirements["FR-AUTH-001"])
KEPT = "#### Scenario: Wrong password\n\nx\n\n#### Scenario: No password\n\ny\n"


def _block(attributes: str, body: str = "Text.") -> str:
    return f"<!-- sk:fr {attributes} -->\n{body}\n<!-- /sk:fr -->\n"


def _codes(text: str) -> list[str]:
    return [problem.code for problem in apply_deltas(SPECS, read_deltas(text)).problems]


def test_a_requirement_without_a_change_is_no_delta() -> None:
    assert read_deltas(_block('id="FR-AUTH-001" priority="high"')) == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (_block('id="FR-AUTH-001" priority="high"', "- People log in twice."), True),
        (_block('id="FR-AUTH-001"', f"People log in.\n\n{KEPT}"), True),
        ("# A\n\n- **FR-AUTH-001**: People log in twice.\n", True),
        (_block('id="FR-AUTH-001"', "- **FR-AUTH-001**:  People log\n in."), False),
        (_block('id="FR-AUTH-001"', CURRENT[CURRENT.index("People") :]), False),
        ("# A\n\n- FR-AUTH-001\n", False),
        (_block('id="FR-AUTH-001" change="modified"', "Text."), False),
        (_block('id="FR-AUTH-002"', "Text."), False),
    ],
)
def test_another_text_of_a_current_requirement_without_a_change_is_a_problem(
    text: str, found: bool
) -> None:
    problems = [*find_restatements(text, SPECS)]
    assert [one.code for one in problems] == ["restated"] * found
    for one in problems:
        assert "People log in." in one.current
        assert "### FR-AUTH-001" in one.proposed


def test_an_added_requirement_is_appended_with_its_listed_scenarios() -> None:
    text = (
        _block('id="FR-AUTH-002" priority="low" change="added"', "- **FR-AUTH-002**: Log out.")
        + "\n## Acceptance Scenarios\n\n### Scenario: Twice (FR-AUTH-002)\n\n- **THEN** nothing\n"
        + "\n## Out of Scope\n"
    )
    applied = apply_deltas(SPECS, read_deltas(text))
    assert not applied.problems
    assert render_spec(applied.specs["auth"]) == CURRENT + (
        "\n### FR-AUTH-002\nPriority: low\n\nLog out.\n\n"
        "#### Scenario: Twice\n\n- **THEN** nothing\n"
    )
    new = apply_deltas({}, read_deltas(text)).specs["auth"]
    assert render_spec(new).startswith("# Auth\n\n## Requirements\n\n### FR-AUTH-002\n")


def test_a_modified_requirement_keeps_its_tests_and_its_place() -> None:
    text = _block(f'id="FR-AUTH-001" change="modified" from="{START}"', f"Mail only.\n\n{KEPT}")
    applied = apply_deltas(SPECS, read_deltas(text))
    assert not applied.problems
    new = applied.specs["auth"].requirements["FR-AUTH-001"]
    assert (new.title, new.text, new.bindings[0].target) == (
        "Log in",
        "Mail only.",
        "tests/test_login.py",
    )
    assert [one.text for one in new.scenarios] == ["x", "y"]


def test_a_change_of_a_text_that_was_changed_since_is_refused_with_both_texts() -> None:
    first = _block(f'id="FR-AUTH-001" change="modified" from="{START}"', f"One.\n\n{KEPT}")
    second = _block(f'id="FR-AUTH-001" change="modified" from="{START}"', f"Two.\n\n{KEPT}")
    after = apply_deltas(SPECS, read_deltas(first)).specs
    refused = apply_deltas(after, read_deltas(second))
    assert refused.specs == after
    (problem,) = refused.problems
    assert problem.code == "stale"
    assert "One." in problem.describe()
    assert "Two." in problem.describe()

    now = compute_revision(after["auth"].requirements["FR-AUTH-001"])
    rebased = apply_deltas(after, read_deltas(second.replace(START, now)))
    assert rebased.specs["auth"].requirements["FR-AUTH-001"].text == "Two."


def test_a_scenario_is_lost_only_on_purpose() -> None:
    start = f'id="FR-AUTH-001" change="modified" from="{START}"'
    body = "Mail only.\n\n#### Scenario: Wrong password\n\nx"
    assert _codes(_block(start, body)) == ["lost-scenario"]
    assert _codes(_block(start, f"- Removes scenario: No password\n{body}")) == []


@pytest.mark.parametrize(
    ("attributes", "codes"),
    [
        ('id="FR-AUTH-001" change="added"', ["exists"]),
        ('id="FR-AUTH-009" change="modified" from="000000000000"', ["unknown"]),
        ('id="FR-AUTH-009" change="removed" from="000000000000"', ["unknown"]),
        ('id="FR-AUTH-001" change="removed"', ["no-start"]),
        ('id="FR-AUTH-001" change="removed" from="000000000000"', ["stale"]),
        (f'id="FR-AUTH-001" change="removed" from="{START}"', []),
        (f'id="FR-AUTH-001" change="renamed" was="FR-AUTH-001" from="{START}"', ["exists"]),
    ],
)
def test_a_change_that_does_not_fit_is_refused(attributes: str, codes: list[str]) -> None:
    assert _codes(_block(attributes)) == codes


def test_a_removed_requirement_is_gone_and_a_renamed_one_keeps_its_words() -> None:
    removed = _block(f'id="FR-AUTH-001" change="removed" from="{START}"', "Nobody uses it.")
    assert apply_deltas(SPECS, read_deltas(removed)).specs["auth"].requirements == {}

    renamed = _block(f'id="FR-AUTH-011" change="renamed" was="FR-AUTH-001" from="{START}"', "")
    applied = apply_deltas(SPECS, read_deltas(renamed))
    assert not applied.problems
    assert render_spec(applied.specs["auth"]) == CURRENT.replace("FR-AUTH-001", "FR-AUTH-011")


@pytest.mark.parametrize(
    "attributes",
    [
        'id="FR-AUTH-001" change="improved"',
        'id="auth" change="added"',
        'id="FR-AUTH-001" change="added" capability="../etc"',
        'id="FR-AUTH-001" change="renamed"',
    ],
)
def test_a_change_that_cannot_be_read_is_refused(attributes: str) -> None:
    with pytest.raises(MalformedSpec):
        read_deltas(_block(attributes))


def test_a_change_that_is_not_closed_is_refused() -> None:
    opened = '<!-- sk:fr id="FR-AUTH-001" change="added" -->\nText.\n'
    for text in (opened, opened + _block('id="FR-AUTH-002"')):
        with pytest.raises(MalformedSpec, match="line 1 is not closed"):
            read_deltas(text)


def test_a_change_without_a_start_gets_the_revision_that_its_author_saw() -> None:
    text = _block('id="FR-AUTH-001" change="modified"') + _block('id="FR-AUTH-2" change="added"')
    stamped = stamp_deltas(text, SPECS)
    assert f'change="modified" from="{START}" -->' in stamped
    assert stamp_deltas(stamped, {}) == stamped
    assert [delta.start for delta in read_deltas(stamped)] == [START, ""]


def test_two_open_features_that_change_one_requirement_are_reported_with_both_texts() -> None:
    mine = read_deltas(_block('id="FR-AUTH-001" change="modified"', "Mine."))
    other = read_deltas(_block('id="FR-AUTH-001" change="removed"', "Theirs."))
    (found,) = find_delta_conflicts(mine, {"002-x": other})
    assert "002-x changes this requirement too" in found.describe()
    assert "Mine." in found.describe()
    assert "Theirs." in found.describe()
    apart = read_deltas(_block('id="FR-AUTH-002" change="added"'))
    assert not [*find_delta_conflicts(mine, {"002-x": apart})]
    renamed = read_deltas(_block('id="FR-AUTH-002" change="renamed" was="FR-AUTH-009"'))
    (taken,) = find_delta_conflicts(apart, {"002-x": renamed})
    assert taken.requirement == "FR-AUTH-002"


def test_the_capability_is_the_one_that_the_id_names() -> None:
    assert guess_capability("FR-AUTH-001") == "auth"
    assert guess_capability("FR-USER-DATA-7") == "user-data"
    assert guess_capability("FR-001") == "general"
    stated = read_deltas(_block('id="FR-001" change="added" capability="login"'))
    assert (stated[0].capability, stated[0].change) == ("login", Change.ADDED)


SCENARIOS = "\n\n#### Scenario: Wrong password\n\n{}\n"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("New text." + SCENARIOS.format("- **THEN** no"), None),
        (SCENARIOS.format("- **THEN** no"), "lost-text"),
        ("New text." + SCENARIOS.format(""), "lost-scenario"),
        ("", "lost-text"),
        ("New text.\n\n### FR-AUTH-009: Other\n\nMore.", "bad-heading"),
        ("New text.\n\n## Section\n\nMore.", "bad-heading"),
    ],
)
def test_a_change_loses_and_adds_nothing_silently(body: str, code: str | None) -> None:
    current = "### FR-AUTH-001\n\nText." + SCENARIOS.format("- **THEN** x")
    specs = {"auth": parse_spec(current)}
    start = compute_revision(specs["auth"].requirements["FR-AUTH-001"])
    text = _block(f'id="FR-AUTH-001" change="modified" from="{start}"', body)
    applied = apply_deltas(specs, read_deltas(text))
    assert [one.code for one in applied.problems] == ([code] if code else [])


def test_one_of_two_scenarios_of_the_same_name_is_not_lost_silently() -> None:
    twice = "#### Scenario: s\n\nOne.\n\n#### Scenario: s\n\nTwo.\n"
    specs = {"auth": parse_spec(f"### FR-AUTH-001\n\nText.\n\n{twice}")}
    start = compute_revision(specs["auth"].requirements["FR-AUTH-001"])
    attributes = f'id="FR-AUTH-001" change="modified" from="{start}"'
    kept = read_deltas(_block(attributes, f"New.\n\n{twice}"))
    assert not apply_deltas(specs, kept).problems, "control"
    lost = read_deltas(_block(attributes, "New.\n\n#### Scenario: s\n\nTwo."))
    assert [one.code for one in apply_deltas(specs, lost).problems] == ["lost-scenario"]
