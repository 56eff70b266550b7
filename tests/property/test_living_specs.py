"""Nothing of a current specification is lost, whatever it holds."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from phasegate.core.specs.deltas import Change, Delta, apply_deltas
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

_LINES = st.sampled_from(
    [
        "# Title",
        "## Section",
        "### FR-A-001: One",
        "### FR-A-002",
        "### FR-B-003: Three",
        "#### Scenario: s",
        "#### Notes",
        "- Test: `tests/a.py::b`",
        "- Code: `src/a.py` (accepted 0123456789ab)",
        "Priority: high",
        "words",
        "  indented  ",
        "",
        "```",
        "~~~",
        "<!-- comment -->",
        "<!-- open",
    ]
)
_TEXTS = st.one_of(st.text(max_size=200), st.lists(_LINES, max_size=14).map("\n".join))
_WORDS = st.text("abc ", min_size=1, max_size=8).map(str.strip).filter(bool)
_BINDINGS = st.lists(
    st.builds(Binding, kind=st.sampled_from(["test", "code"]), target=st.just("a.py::b")),
    max_size=2,
).map(tuple)
_SCENARIOS = st.lists(
    st.builds(Scenario, name=_WORDS, text=_WORDS, bindings=_BINDINGS),
    max_size=3,
    unique_by=lambda one: one.name,
).map(tuple)


@st.composite
def _specs(draw: st.DrawFn) -> CapabilitySpec:
    numbers = draw(st.lists(st.integers(1, 9), max_size=5, unique=True))
    blocks = [
        CurrentRequirement(
            id=f"FR-A-{number}",
            title=draw(_WORDS),
            text=draw(_WORDS),
            scenarios=draw(_SCENARIOS),
            bindings=draw(_BINDINGS),
        )
        for number in numbers
    ]
    return CapabilitySpec(("# A", *blocks))


@given(_TEXTS)
def test_a_specification_is_the_same_after_it_was_written_and_read(text: str) -> None:
    with contextlib.suppress(MalformedSpec):
        spec = parse_spec(text)
        written = render_spec(spec)
        assert parse_spec(written) == spec
        assert render_spec(parse_spec(written)) == written
        # No word is lost
        assert sorted(written.split()) == sorted(text.split())


@given(_specs(), st.data())
def test_a_change_touches_no_other_requirement_and_an_outdated_one_touches_nothing(
    spec: CapabilitySpec, data: st.DataObject
) -> None:
    assert parse_spec(render_spec(spec)) == spec
    if not spec.requirements:
        return
    target = data.draw(st.sampled_from([*spec.requirements.values()]))
    delta = Delta(
        change=data.draw(st.sampled_from([Change.MODIFIED, Change.REMOVED])),
        requirement=CurrentRequirement(
            id=target.id, text=data.draw(_WORDS), scenarios=data.draw(_SCENARIOS)
        ),
        start=data.draw(st.sampled_from([compute_revision(target), "", "000000000000"])),
        capability="a",
    )
    applied = apply_deltas({"a": spec}, [delta])
    after = applied.specs["a"].requirements
    others = {id_: one for id_, one in spec.requirements.items() if id_ != target.id}
    assert {id_: one for id_, one in after.items() if id_ != target.id} == others

    kept = {one.name for one in delta.requirement.scenarios}
    loses = any(one.name not in kept for one in target.scenarios)
    is_current = delta.start == compute_revision(target)
    is_refused = not is_current or (delta.change is Change.MODIFIED and loses)
    assert bool(applied.problems) == is_refused
    if is_refused:
        assert applied.specs == {"a": spec}


_ORDERS = st.lists(
    st.tuples(st.sampled_from([*Change]), st.integers(1, 5), st.integers(1, 5), _WORDS),
    max_size=12,
)


@given(_ORDERS)
def test_after_any_changes_the_specs_are_the_sum_of_those_that_were_not_refused(
    orders: list[tuple[Change, int, int, str]],
) -> None:
    specs: dict[str, CapabilitySpec] = {}
    decided: dict[str, str] = {}
    for change, number, other, text in orders:
        id_, was = f"FR-A-{number}", ""
        if change is Change.RENAMED:
            id_, was = f"FR-A-{other}", f"FR-A-{number}"
        current = specs.get("a", CapabilitySpec()).requirements
        target = current.get(was or id_)
        start = compute_revision(target) if target else ""
        requirement = CurrentRequirement(id=id_, text=text)
        delta = Delta(change=change, requirement=requirement, start=start, capability="a", was=was)
        applied = apply_deltas(specs, [delta])
        if applied.problems:
            assert applied.specs == specs
            continue
        # Written and read again, as between two merges
        specs = {name: parse_spec(render_spec(one)) for name, one in applied.specs.items()}
        decided.pop(was or id_, None)
        if change is not Change.REMOVED:
            decided[id_] = text

    found = specs.get("a", CapabilitySpec()).requirements
    assert {id_: one.text for id_, one in found.items()} == decided
