"""Requirements are bound to tests that name them and to code that these tests name."""

from __future__ import annotations

import json

import pytest

from phasegate.core.specs.adopt import draft_requirements
from phasegate.core.specs.amend import amend_spec
from phasegate.core.specs.bindings import (
    add_bindings,
    extract_bound_text,
    find_named_code,
    find_named_tests,
    hash_bound_text,
    hash_target,
    set_accepted,
)
from phasegate.core.specs.layouts import convert_openspec, convert_speckit
from phasegate.core.specs.sarif import SpecFinding, build_sarif, render_annotation
from phasegate.core.specs.spec_file import Binding, MalformedSpec, parse_spec
from phasegate.core.specs.test_results import find_outcome, parse_junit

TESTS = '''\
"""Tests of the login."""


class Login:
    def test_names_it(self):
        "FR-AUTH-001"
        assert log_in("Ada")

    def test_fr_auth_002_logs_out(self):
        assert log_out()


# FR-AUTH-003
def test_other():
    assert log_in
'''


def test_a_test_belongs_to_the_requirement_that_it_names() -> None:
    found = [(one.requirement, one.target) for one in find_named_tests("tests/t.py", TESTS)]
    assert found == [
        ("FR-AUTH-001", "tests/t.py::Login::test_names_it"),
        ("FR-AUTH-002", "tests/t.py::Login::test_fr_auth_002_logs_out"),
        ("FR-AUTH-003", "tests/t.py"),
    ]
    script = "test('logs in (FR-AUTH-001)', () => { expect(1).toBe(1) })\n"
    (one,) = find_named_tests("a.test.ts", script)
    assert one.target == "a.test.ts::logs in (FR-AUTH-001)"
    assert extract_bound_text(one.target, script) == one.text


def test_code_belongs_to_the_requirement_whose_test_names_it_if_the_feature_changed_it() -> None:
    before = "def log_out():\n    return 1\n"
    after = before + (
        "\n\ndef log_in(name):\n    return name\n\n\nclass Box:\n    def log_in(self):\n        pass\n"
    )
    (test,) = [one for one in find_named_tests("t.py", TESTS) if one.target.endswith("names_it")]
    assert find_named_code(test.text, "src/login.py", before, after) == ("src/login.py::log_in",)
    assert find_named_code("import { x } from './login'", "src/login.ts", "", "x") == (
        "src/login.ts",
    )
    assert find_named_code("nothing", "src/login.ts", "", "x") == ()


def test_comments_and_blank_lines_are_no_change_and_code_is() -> None:
    one = "    def f():\n        return 1\n"
    other = "def f(\n):\n\n    # why\n    return 1"
    assert hash_bound_text(one, "a.py") == hash_bound_text(other, "a.py")
    assert hash_bound_text(one) != hash_bound_text("def f():\n    return 2")
    assert hash_bound_text("if a:\n    b\nc") != hash_bound_text("if a:\n    b\n    c")
    assert hash_target("x.py::f", {"x.py": "def g(): pass"}) == ""
    assert hash_target("x.py", {}) == ""


def test_bindings_are_added_once_accepted_and_removed_with_what_they_name() -> None:
    spec = parse_spec("### FR-A-001\n\nText.\n\n#### Scenario: s\n\n- Test: `t.py::a`\n")
    found = {"FR-A-001": [("test", "t.py::a"), ("test", "t.py::b"), ("code", "x.py::f")]}
    bound = add_bindings(spec, found)
    assert add_bindings(bound, found) == bound
    accepted = set_accepted(
        bound, {("FR-A-001", "t.py::a"): "1" * 12, ("FR-A-001", "x.py::f"): ""}
    ).requirements["FR-A-001"]
    assert accepted.all_bindings == (
        Binding("test", "t.py::b"),
        Binding("test", "t.py::a", "1" * 12),
    )


def test_a_test_passes_only_if_all_of_its_cases_passed() -> None:
    results = parse_junit(
        '<testsuites><testsuite><testcase classname="tests.t.Login" name="test_a[1]"/>'
        '<testcase classname="tests.t.Login" name="test_a[2]"><failure/></testcase>'
        '<testcase classname="tests.t.Login" name="test_b"/>'
        '<testcase classname="tests.t" name="test_c"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    assert find_outcome("tests/t.py::Login::test_a", results) == "failed"
    assert find_outcome("tests/t.py::Login::test_b", results) == "passed"
    assert find_outcome("tests/t.py::test_c", results) == "skipped"
    assert find_outcome("tests/t.py::test_b", results) == "not run"
    assert find_outcome("tests/t.py", results) == "failed"


@pytest.mark.parametrize(
    "text", ["not xml", '<!DOCTYPE x [<!ENTITY a "b">]><testsuite>&a;</testsuite>']
)
def test_a_report_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(MalformedSpec):
        parse_junit(text)


def test_findings_are_written_for_code_scanning_and_as_annotations() -> None:
    finding = SpecFinding("FR-A-001", "a,b.py", 3, "100% changed\nagain")
    log = json.loads(json.dumps(build_sarif([finding, finding], "1")))
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["FR-A-001"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("a,b.py", 3)
    assert render_annotation(finding) == (
        "::warning file=a%2Cb.py,line=3::FR-A-001: 100%25 changed%0Aagain"
    )


def test_code_is_adopted_in_slices_without_taking_an_id_twice() -> None:
    code = {"src/login.py": "def log_in(name): pass\n\ndef log_out(): pass\n\ndef reset(): pass\n"}
    current = parse_spec("### FR-AUTH-001\n\nStated.\n")
    ask = {"capability": "auth", "code": code, "tests": {"tests/t.py": TESTS}}
    draft = draft_requirements(**ask, current=current, passes=lambda _: True, limit=1)
    assert [*draft.spec.requirements] == ["FR-AUTH-002"]
    assert draft.spec.requirements["FR-AUTH-002"].title == "Names it"
    assert draft.left == ("tests/t.py::Login::test_fr_auth_002_logs_out", "tests/t.py::test_other")
    assert draft.uncovered == ("src/login.py::reset",)

    red = draft_requirements(**ask, current=draft.spec, passes=lambda _: False, limit=9)
    assert (red.spec.blocks, red.failing) == ((), draft.left)


SPEC = """\
<!-- sk:fr id="FR-A-001" change="modified" from="000000000000" -->
- Old text

#### Scenario: s

- **THEN** x
<!-- /sk:fr -->
"""


def test_an_amendment_replaces_the_text_keeps_the_scenarios_and_starts_from_the_current_text() -> (
    None
):
    amended = amend_spec(SPEC, "FR-A-001", "New text", "111111111111")
    assert amended is not None
    assert amended.before == "- Old text"
    assert amended.text == SPEC.replace("Old text", "New text").replace("0" * 12, "1" * 12)
    listed = amend_spec("- **FR-A-001**: Old\n- **FR-A-002**: Other\n", "FR-A-001", "New\ntext")
    assert listed is not None
    assert listed == ("- **FR-A-001**: New text\n- **FR-A-002**: Other\n", "Old")
    assert amend_spec(SPEC, "FR-A-002", "x") is None
    assert amend_spec("```\n- FR-A-001: x\n```\n", "FR-A-001", "y") is None


def test_specifications_of_openspec_keep_every_word_and_get_ids() -> None:
    text = (
        "# Auth Specification\n\n## Purpose\n\nWho may enter.\n\n## Requirements\n"
        "### Requirement: Log in\nThe system SHALL log in.\n\n#### Scenario: Wrong\n"
        "- **WHEN** wrong\n- **THEN** says so\n\n```\n### Requirement: Example\n```\n\n"
        "### Requirement: FR-AUTH-007: Log out\nIt SHALL log out.\n\n## Notes\n\nMore.\n"
    )
    converted = convert_openspec(text, "user-auth")
    requirements = parse_spec(converted).requirements
    assert [*requirements] == ["FR-USER-AUTH-001", "FR-AUTH-007"]
    assert requirements["FR-USER-AUTH-001"].title == "Log in"
    assert [one.name for one in requirements["FR-USER-AUTH-001"].scenarios] == ["Wrong"]
    assert "## Notes\n\nMore." in converted
    back = converted.replace("### FR-USER-AUTH-001:", "### Requirement:").replace(
        "### FR-AUTH-007:", "### Requirement: FR-AUTH-007:"
    )
    assert back.split() == text.split()


def test_requirements_of_spec_kit_get_the_name_of_their_feature() -> None:
    text = (
        "# Feature Specification: Album\n\n### User Story 1 - See photos (Priority: P1)\n\nStory.\n"
        "\n## Requirements\n\n### Functional Requirements\n\n"
        "- **FR-001**: System MUST show photos\n- **FR-002**: System MUST sort them\n\n"
        "## Success Criteria\n\n- **SC-001**: Fast\n"
    )
    converted = convert_speckit(text, "photo-album")
    requirements = parse_spec(converted).requirements
    assert {id_: one.text for id_, one in requirements.items()} == {
        "FR-PHOTO-ALBUM-001": "System MUST show photos",
        "FR-PHOTO-ALBUM-002": "System MUST sort them",
    }
    assert "### User Story 1 - See photos (Priority: P1)\n\nStory." in converted
    assert "- **SC-001**: Fast" in converted


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("a.py", "f(\n    *one,\n)", "f(\n    *two,\n)"),
        ("a.py", 'x = """\n# one\n"""', 'x = """\n# two\n"""'),
        ("a.c", "#define A 1", "#define A 2"),
        ("a.c", "*p = 1;", "*p = 2;"),
        ("a.js", "--one;", "--two;"),
        ("a.js", "f('// one')", "f('// two')"),
    ],
)
def test_a_line_that_only_looks_like_a_comment_counts(path: str, before: str, after: str) -> None:
    assert hash_bound_text(before, path) != hash_bound_text(after, path)
    assert hash_bound_text(before, path) == hash_bound_text(f"\n{before}\n\n", path)


CLASS = """\
class Box(Base):
    @property
    def size(self):
        return 1

    @size.setter
    def size(self, value):
        pass


if FAST:
    def pack():
        return 1
"""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Box", "(Base)", "(Other)"),
        ("Box::size", "return 1\n\n    @size", "return 2\n\n    @size"),
        ("Box::size", "value):\n        pass", "value):\n        self.x = 1"),
        ("pack", "        return 1\n", "        return 2\n"),
    ],
)
def test_each_definition_of_a_name_and_the_head_of_a_class_are_watched(
    name: str, old: str, new: str
) -> None:
    before = hash_target(f"a.py::{name}", {"a.py": CLASS})
    assert old in CLASS
    assert before
    changed = CLASS[::-1].replace(old[::-1], new[::-1], 1)[::-1]
    assert hash_target(f"a.py::{name}", {"a.py": changed}) not in ("", before)
    assert hash_target(f"a.py::{name}", {"a.py": f"import x\n{CLASS}"}) == before


def test_the_result_of_another_test_is_not_taken() -> None:
    case = '<testcase classname="{}" name="{}"/>'
    cases = (("t.my_test_a", "test_b"), ("t.test_a", "my_test_b"), ("t.test_ab", "test_c"))
    report = "".join(case.format(*one) for one in cases)
    results = parse_junit(f"<testsuite>{report}</testsuite>")
    assert find_outcome("test_a.py::test_b", results) == "not run"
    assert find_outcome("t/test_a.py", results) == "passed", "control"
    assert find_outcome("t/test_a.py::test_c", results) == "not run"
    assert find_outcome("test_ab.py::test_c", results) == "passed", "control"


GHERKIN = """\
@FR-AUTH-001
Feature: Log in
  Background:
    Given a user

  Scenario: Right password
    When they log in
    Then they see "Scenario: x"

  @slow @FR-AUTH-002
  Scenario Outline: Wrong password
    Then it fails:
      \"\"\"
      @FR-AUTH-009
      Scenario: not one
      \"\"\"

  Rule: Lock
    @FR-AUTH-003
    Example: Third time
      Then it is locked
"""


def test_scenarios_of_gherkin_are_tests_of_the_requirements_in_their_tags() -> None:
    found = find_named_tests("features/login.feature", GHERKIN)
    named: dict[str, list[str]] = {}
    for one in found:
        named.setdefault(one.target.partition("::")[2], []).append(one.requirement)
    assert named == {
        "Right password": ["FR-AUTH-001"],
        "Wrong password": ["FR-AUTH-001", "FR-AUTH-002", "FR-AUTH-009"],
        "Third time": ["FR-AUTH-001", "FR-AUTH-003"],
    }


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("they log in", "they sign in", {"Right password"}),
        ("a user", "an admin", {"Right password", "Wrong password", "Third time"}),
        ("it is locked", "it is open", {"Third time"}),
        ("  Rule: Lock", "  # why\n\n  Rule: Lock", set[str]()),
    ],
)
def test_a_scenario_drifts_with_its_steps_and_its_background(
    old: str, new: str, changed: set[str]
) -> None:
    names = ("Right password", "Wrong password", "Third time")
    path = "features/login.feature"
    assert old in GHERKIN

    def hash_all(text: str) -> list[str]:
        return [hash_target(f"{path}::{name}", {path: text}) for name in names]

    before, after = hash_all(GHERKIN), hash_all(GHERKIN.replace(old, new))
    assert all(before)
    pairs = zip(names, before, after, strict=True)
    assert {name for name, one, other in pairs if one != other} == changed


def test_a_title_of_javascript_with_a_full_stop_is_found_again() -> None:
    text = "it('adds 1.5 FR-A-1', () => { expect(add(1, 0.5)).toBe(1.5) })"
    (one,) = find_named_tests("a.test.js", text)
    assert hash_target(one.target, {"a.test.js": text})


def test_the_result_of_a_scenario_is_found_in_the_report_of_its_runner() -> None:
    case = '<testcase classname="{}" name="Right password"/>'
    target = "features/login.feature::Right password"
    for owner in ("login.Log in", "features.login.Log in", "features/login.feature", "Log in"):
        results = parse_junit(f"<testsuite>{case.format(owner)}</testsuite>")
        assert find_outcome(target, results, GHERKIN) == "passed", owner
    other = parse_junit('<testsuite><testcase classname="x" name="Wrong password"/></testsuite>')
    assert find_outcome(target, other, GHERKIN) == "not run"


@pytest.mark.parametrize(
    "owner",
    [
        'classname="Sign up"',
        'classname="features.signup.Sign up"',
        'classname="signup.Log in"',
        'classname="Log in" file="features/signup.feature"',
        'classname="features/signup.feature"',
        "",
    ],
)
def test_the_result_of_the_same_scenario_in_another_file_is_not_taken(owner: str) -> None:
    case = '<testcase {} name="Right password">{}</testcase>'
    target = "features/login.feature::Right password"
    other = case.format(owner, "")
    results = parse_junit(f"<testsuite>{other}</testsuite>")
    assert find_outcome(target, results, GHERKIN) == "not run"
    own = case.format('classname="Log in" file="features/login.feature"', "<failure/>")
    results = parse_junit(f"<testsuite>{other}{own}</testsuite>")
    assert find_outcome(target, results, GHERKIN) == "failed"
    suite = f'<testsuite name="Log in">{case.format("", "")}</testsuite>'
    assert find_outcome(target, parse_junit(suite), GHERKIN) == "passed", "control"
