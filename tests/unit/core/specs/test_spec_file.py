"""Current specifications are read and written without loss."""

from __future__ import annotations

import pytest

from phasegate.core.specs.deltas import read_deltas
from phasegate.core.specs.spec_file import (
    Binding,
    CapabilitySpec,
    CurrentRequirement,
    MalformedSpec,
    Scenario,
    compute_revision,
    parse_spec,
    render_spec,
)

TEXT = """\
---
audience: [agents]
---
# Auth

Who may come in.

## Requirements

### FR-AUTH-001: Log in
Priority: high

People log in with an email address.

- Test: `tests/test_login.py::test_log_in` (accepted 3f2a9c1d20ab)
- Code: `src/login.py::log_in`

#### Scenario: Wrong password

- **WHEN** the password is wrong
- **THEN** the form says so

- Test: `tests/test_login.py::test_wrong`

### FR-AUTH-002

```
### FR-AUTH-999: an example, not a requirement
```

## Not here

Sessions.
"""


def test_a_specification_is_read_and_written_as_it_was() -> None:
    spec = parse_spec(TEXT)
    assert render_spec(spec) == TEXT
    assert [*spec.requirements] == ["FR-AUTH-001", "FR-AUTH-002"]
    assert spec.requirements["FR-AUTH-001"] == CurrentRequirement(
        id="FR-AUTH-001",
        title="Log in",
        text="People log in with an email address.",
        priority="high",
        scenarios=(
            Scenario(
                "Wrong password",
                "- **WHEN** the password is wrong\n- **THEN** the form says so",
                (Binding("test", "tests/test_login.py::test_wrong"),),
            ),
        ),
        bindings=(
            Binding("test", "tests/test_login.py::test_log_in", "3f2a9c1d20ab"),
            Binding("code", "src/login.py::log_in"),
        ),
    )
    assert len(spec.requirements["FR-AUTH-001"].all_bindings) == 3
    assert spec.blocks[-1] == "## Not here\n\nSessions."


@pytest.mark.parametrize(
    "text", ["### FR-A-1\n```\nopen", "### FR-A-1\n<!-- open", "### FR-A-1\n\n### FR-A-1"]
)
def test_what_cannot_be_read_without_guessing_is_refused(text: str) -> None:
    with pytest.raises(MalformedSpec):
        parse_spec(text)


def test_a_revision_is_that_of_the_words_not_of_the_layout_or_the_tests() -> None:
    one = CurrentRequirement(id="FR-A-1", text="a b", scenarios=(Scenario("s", "t"),))
    assert compute_revision(one) == compute_revision(
        CurrentRequirement(
            id="FR-A-2",
            text="a\n  b",
            scenarios=(Scenario("s", "t", (Binding("test", "x"),)),),
            bindings=(Binding("test", "y"),),
        )
    )
    others = (
        CurrentRequirement(id="FR-A-1", text="a c", scenarios=(Scenario("s", "t"),)),
        CurrentRequirement(id="FR-A-1", text="a b", scenarios=(Scenario("s", "u"),)),
        CurrentRequirement(id="FR-A-1", text="a b"),
        CurrentRequirement(id="FR-A-1", title="a", text="b", scenarios=(Scenario("s", "t"),)),
    )
    assert len({compute_revision(one), *map(compute_revision, others)}) == 5


def test_an_overlong_line_is_text_and_is_read_in_linear_time() -> None:
    blanks = " " * 1_000_000
    for line in (f"### FR-A-1{blanks}x", f"###{blanks}", f"- Test: `a`{blanks}x"):
        assert parse_spec(line).requirements == {}
    annotation = f"<!-- sk:fr{blanks}x"
    scenario = f"### Scenario: {'(A-1A-1' * 200} (FR-A-1)"
    removal = f"- Removes scenario: {blanks}x"
    text = f'<!-- sk:fr id="FR-A-1" change="added" -->\n{removal}\n<!-- /sk:fr -->\n{scenario}\n'
    assert len(read_deltas(text)) == 1
    assert read_deltas(f'{annotation}\n<!-- sk:fr change="x" -->') == ()


def test_an_empty_file_has_no_requirements() -> None:
    assert parse_spec("") == CapabilitySpec()
