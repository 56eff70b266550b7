"""Current specifications change with the code that a feature merges, and lose nothing silently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.core.machine.feature_events import NotMerged
from phasegate.core.specs.bindings import hash_target
from phasegate.core.specs.deltas import apply_deltas, read_deltas
from phasegate.core.specs.spec_file import compute_revision, parse_spec
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.engine.project.project import open_project_store
from support.feature_project import (
    BYE,
    DESCRIPTION,
    FILES,
    GREET,
    PASS,
    SLUG,
    FeatureProject,
    builds,
    document,
    file,
    make_feature_project,
    smooth,
    turn,
)
from support.mcp_client import McpClient

PHASES = WORKFLOWS["quick"]
CURRENT = """\
# Bye

## Requirements

### FR-BYE-001: Name

A farewell names the user.

#### Scenario: Ada

- **THEN** it says Ada

### FR-BYE-002

A farewell is short.
"""
START = compute_revision(parse_spec(CURRENT).requirements["FR-BYE-001"])
TEST = """\
import unittest
from bye import bye


class Says(unittest.TestCase):
    def test_it_names_the_user(self):
        "FR-BYE-001"
        self.assertIn('Ada', bye('Ada'))
"""
BUILDS = builds("WP01", file("bye.py", BYE), file("test_bye.py", TEST))


def spec(attributes: str, body: str) -> str:
    return (
        "<!-- spec-kitty: fr-count: 1 -->\n# Feature: say bye\n\n## Functional Requirements\n\n"
        f"<!-- sk:fr {attributes} -->\n{body}\n<!-- /sk:fr -->\n"
    )


def writes(text: str, **asks: object) -> dict[str, object]:
    steps = (document("proposal.md"), document("spec.md", text), document("tasks.md"), PASS)
    return turn("plan", *steps, **asks)


def make(folder: Path, current: str = CURRENT) -> FeatureProject:
    return make_feature_project(folder, files={**FILES, "specs/bye.md": current})


CHANGED = "A farewell names the user politely.\n\n#### Scenario: Ada\n\n- **THEN** it says Ada"


@pytest.mark.demand("L1.a", "L1.b")
def test_the_merge_that_brings_the_code_changes_the_requirement_and_binds_its_test(
    tmp_path: Path,
) -> None:
    made = make(tmp_path)
    made.play(
        writes(spec('id="FR-BYE-001" priority="high" change="modified"', CHANGED)),
        BUILDS,
        *smooth(PHASES),
    )
    done = made.call("run", "quick", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr

    (prompt, *_) = made.prompts("plan")
    assert "- FR-BYE-001 (specs/bye.md): Name" in prompt
    assert 'change="added"' in prompt
    text = made.show("main", "specs/bye.md")
    merged = parse_spec(text).requirements
    assert merged["FR-BYE-001"].text == "A farewell names the user politely."
    assert merged["FR-BYE-001"].title == "Name"
    assert merged["FR-BYE-002"] == parse_spec(CURRENT).requirements["FR-BYE-002"]
    assert [(one.kind, one.target) for one in merged["FR-BYE-001"].bindings] == [
        ("test", "test_bye.py::Says::test_it_names_the_user"),
        ("code", "bye.py::bye"),
    ]
    assert all(one.accepted for one in merged["FR-BYE-001"].bindings)
    # The commit that brings the code brings the text
    assert {"bye.py", "specs/bye.md"} <= set(
        made.git("diff", "--name-only", "main^1", "main").splitlines()
    )
    assert f'from="{START}"' in made.show(
        f"refs/phasegate/features/{SLUG}", f"kitty-specs/{SLUG}/spec.md"
    )
    assert made.audit_problems() == []


@pytest.mark.demand("L1.a")
def test_a_feature_without_changes_of_requirements_writes_no_specification(tmp_path: Path) -> None:
    made = make_feature_project(tmp_path)
    assert made.call("run", "quick", DESCRIPTION, "--merge").code == 0
    assert not [path for path in made.files_of("main") if path.startswith("specs/")]


@pytest.mark.demand("L1.b", "L1.c")
def test_two_features_that_change_one_requirement_are_reported_at_the_plan_and_never_overwrite(
    tmp_path: Path,
) -> None:
    made = make(tmp_path)
    second = "002-ask-for-manners"
    mine = CHANGED.replace("politely", "loudly")
    attributes = 'id="FR-BYE-001" priority="high" change="modified"'
    made.play(writes(spec(attributes, CHANGED)), BUILDS, *smooth(PHASES))
    assert made.call("run", "quick", DESCRIPTION).code == 0

    made.play(
        writes(spec(attributes, mine)),
        builds("WP01", file("bye.py", f"{BYE}# x\n"), file("test_bye.py", TEST)),
        *smooth(PHASES),
    )
    planned = made.call("run", "quick", "Ask for manners")
    assert planned.code == 0, planned.stderr
    for words in (f"FR-BYE-001: {SLUG} changes this requirement too", "politely", "loudly"):
        assert words in planned.stderr

    made.play(*smooth(PHASES))
    assert made.call("complete", "--feature", second).code == 0
    assert "loudly" in made.show("main", "specs/bye.md")

    before = made.git("rev-parse", "main")
    stopped = made.call("run", "--merge", "--feature", SLUG)
    (refused,) = [event for event in made.happened() if isinstance(event, NotMerged)]
    assert "FR-BYE-001: it was changed since" in refused.reason, stopped.stderr
    assert "loudly" in refused.reason
    assert "politely" in refused.reason
    assert made.git("rev-parse", "main") == before
    assert made.feature().workflow.stage is Stage.BLOCKED


@pytest.mark.demand("L1.d")
def test_a_change_that_would_lose_a_scenario_goes_back_to_its_author(tmp_path: Path) -> None:
    made = make(tmp_path)
    attributes = 'id="FR-BYE-001" priority="high" change="modified"'
    made.play(
        writes(spec(attributes, "A farewell names the user politely."), round=1),
        writes(spec(attributes, CHANGED), round=2),
        BUILDS,
        *smooth(PHASES),
    )
    done = made.call("run", "quick", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    assert "the change would lose: Ada" in made.prompts("plan")[1]
    assert "Scenario: Ada" in made.show("main", "specs/bye.md")


def test_a_current_requirement_that_is_worded_anew_without_a_change_goes_back_to_its_author(
    tmp_path: Path,
) -> None:
    made = make(tmp_path)
    silent = spec('id="FR-BYE-001" priority="high"', "- A farewell is loud.")
    made.play(
        writes(silent, round=1),
        writes(spec('id="FR-BYE-001" priority="high" change="modified"', CHANGED), round=2),
        BUILDS,
        *smooth(PHASES),
    )
    done = made.call("run", "quick", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    told = made.prompts("plan")[1]
    for words in ("FR-BYE-001: it is a current requirement of bye", "names the user.", "is loud"):
        assert words in told
    assert "politely" in made.show("main", "specs/bye.md")


TASKS = """\
# Tasks

- [ ] 2.1 Say bye
  - File: bye.py, test_bye.py
  - Spec: FR-BYE-001
  - Do: bye says bye to a user.
- [ ] 2.2 Describe it
  - File: docs.md
  - Spec: FR-BYE-002
  - Do: say how to use it.
- [ ] 2.3 Say hello
  - File: hello.md
  - Spec: FR-BYE-003
  - Do: say hello.
  - Depends: 2.1, 2.2
"""
THREE = "# Feature: say bye\n\n" + "".join(
    f'<!-- sk:fr id="FR-BYE-00{number}" priority="high" -->\n- {text}\n<!-- /sk:fr -->\n\n'
    for number, text in enumerate(("A farewell names", "It is described", "Hello is said"), 1)
)


@pytest.mark.demand("L2.a", "L2.b")
def test_an_amendment_repeats_only_the_package_of_its_requirement_and_is_merged_with_it(
    tmp_path: Path,
) -> None:
    made = make_feature_project(tmp_path)
    documents = (document("proposal.md"), document("spec.md", THREE), document("tasks.md", TASKS))
    made.play(
        turn("plan", *documents, PASS),
        BUILDS,
        builds("WP02", file("docs.md", "Call bye.\n")),
        builds("WP03", file("hello.md", "Hello.\n")),
        builds("WP04", file("docs.md", "Call bye, in two words.\n")),
        *smooth(PHASES),
    )
    assert made.call("run", "quick", DESCRIPTION).code == 0
    assert sorted(job.wp for job in made.jobs() if job.phase == "implement") == [
        "WP01",
        "WP02",
        "WP03",
    ]

    text = "It is described in two words"
    refused = made.call("amend", "FR-BYE-009", text, "--yes")
    assert (refused.code, "has no requirement FR-BYE-009" in refused.stderr) == (2, True)
    shown = made.call("amend", "FR-BYE-002", text, "--impact")
    for words in (
        "before: - It is described",
        f"after:  {text}",
        "task 2.2 Describe it",
        "done again: WP02 (DONE)",
        "stays: WP01 (DONE)",
        "stays: WP03 (DONE)",
        "at least 2 agent runs",
    ):
        assert words in shown.stdout, shown.stdout
    assert text not in made.show(f"feat/{SLUG}", f"kitty-specs/{SLUG}/spec.md")

    amended = made.call("amend", "FR-BYE-002", text, "--yes")
    assert amended.code == 0, amended.stderr
    assert amended.stdout.startswith("FR-BYE-002 is amended\n")
    done = made.call("run", "--merge")
    assert done.code == 0, done.stderr
    begun = [job.wp for job in made.jobs() if job.phase == "implement"]
    assert sorted(begun) == ["WP01", "WP02", "WP03", "WP04"], "only what the amendment concerns"
    assert f"FR-BYE-002 is amended: {text}" in made.prompts("implement")[-1]
    assert "Call bye." in made.prompts("implement")[-1], "the work so far"
    assert made.show("main", "docs.md") == "Call bye, in two words.\n"
    assert f"FR-BYE-002 is amended: {text}" in " ".join(
        made.git("log", "-1", "--format=%B", "main").split()
    )
    assert f"**FR-BYE-002**: {text}" in made.show("main", f"kitty-specs/{SLUG}/spec.md")
    assert made.audit_problems() == []


def test_the_work_of_a_package_that_an_amendment_replaces_is_handed_on(tmp_path: Path) -> None:
    made = make_feature_project(tmp_path)
    documents = (document("proposal.md"), document("spec.md", THREE), document("tasks.md", TASKS))
    made.play(
        turn("plan", *documents, PASS),
        BUILDS,
        builds("WP02", file("docs.md", "Call bye.\n")),
        builds("WP03", file("hello.md", "Hello.\n")),
        builds("WP04", file("docs.md", "Call bye, in two words.\n")),
        turn("review", {"verdict": "MAJOR_ISSUES"}, package="WP02"),
        *smooth(PHASES),
    )
    assert made.call("run", "quick", DESCRIPTION).code != 0
    assert made.call("amend", "FR-BYE-002", "It is described in two words", "--yes").code == 0
    assert made.call("run").code == 0
    shown = made.call("status").stdout
    assert "REPLACED 1" in shown
    assert "tasks: 3 of 3 completed" in shown
    assert "FOR_REVIEW 0" in shown
    assert "BLOCKED 0" in shown
    assert "WP02  REPLACED" in made.call("show", "WP02").stdout
    traced = made.call("trace").stdout
    assert "WP04" in traced
    assert "WP02" not in traced
    done = made.call("run", "--merge")
    assert done.code == 0, done.stderr
    assert "kept" not in done.stderr + done.stdout
    assert made.git("branch", "--list", "feat/*") == ""
    assert not any("WP02" in ref for ref in made.git("worktree", "list").splitlines())
    saved = made.git("for-each-ref", "--format=%(refname)", f"refs/phasegate/saved/{SLUG}-WP02")
    assert saved, "its work is not lost"

    prompts = {job.wp: made.prompt(job.id) for job in made.jobs() if job.phase == "implement"}
    assert "earlier-work.diff" in prompts["WP04"]
    assert "+Call bye." in prompts["WP04"]
    assert "+Hello." not in prompts["WP04"], "that package stays"
    assert not any("earlier-work.diff" in prompts[name] for name in ("WP01", "WP02", "WP03"))
    assert "also where an older text" in prompts["WP04"]
    assert "| WP02 | replaced |" in made.prompts("archive")[-1]
    assert "| WP04 | DONE |" in made.prompts("archive")[-1]


def test_the_work_of_a_package_is_handed_on_when_a_feature_goes_back(tmp_path: Path) -> None:
    made = make_feature_project(tmp_path)
    first = (document("proposal.md"), document("spec.md", THREE), document("tasks.md", TASKS))
    changed = document("tasks.md", TASKS.replace("say how to use it", "use two words"))
    made.play(
        turn("plan", *first, PASS, round=1),
        turn("plan", document("proposal.md"), changed, PASS, round=2),
        BUILDS,
        builds("WP02", file("docs.md", "Call bye.\n")),
        builds("WP03", file("hello.md", "Hello.\n")),
        builds("WP04", file("docs.md", "Call bye, in two words.\n")),
        turn("review", {"verdict": "MAJOR_ISSUES"}, package="WP02"),
        *smooth(PHASES),
    )
    blocked = made.call("run", "quick", DESCRIPTION)
    assert blocked.code == 1
    assert "WP02" in blocked.stderr, blocked.stderr
    assert made.call("back", "01", "it takes two words").code == 0
    done = made.call("run", "--merge")
    assert done.code == 0, done.stderr

    prompts = {job.wp: made.prompt(job.id) for job in made.jobs() if job.phase == "implement"}
    assert sorted(prompts) == ["WP01", "WP02", "WP03", "WP04"]
    assert "+Call bye." in prompts["WP04"].partition("earlier-work.diff")[2]
    assert {name: row.state for name, row in made.packages().items()} == {
        "WP01": "DONE",
        "WP02": "REPLACED",
        "WP03": "DONE",
        "WP04": "DONE",
    }
    assert made.git("branch", "--list", "feat/*") == ""


GREETING = """\
### FR-GREET-001: Greet

A greeting names the user.

- Test: `test_greet.py::Says::test_it_names_the_person` (accepted TEST)
- Code: `greet.py::greet` (accepted CODE)

### FR-GREET-002: Be short

A greeting is short.
"""


def make_greeting(folder: Path) -> FeatureProject:
    files = {path: str(text) for path, text in FILES.items()}
    test = hash_target("test_greet.py::Says::test_it_names_the_person", files)
    code = hash_target("greet.py::greet", files)
    text = GREETING.replace("TEST", test).replace("CODE", code)
    return make_feature_project(folder, files={**FILES, "specs/greet.md": text})


def commit(made: FeatureProject, path: str, content: str, subject: str) -> None:
    (made.root / path).write_text(content, encoding="utf-8")
    made.git("add", path)
    made.git("commit", "-qm", subject)


@pytest.mark.demand("L3.a", "L3.b")
def test_drift_names_the_commit_of_a_change_outside_of_a_feature_until_a_user_accepts_it(
    tmp_path: Path,
) -> None:
    made = make_greeting(tmp_path)
    assert made.call("drift", "--check").code == 0
    commit(made, "greet.py", f"# A comment\n\n{GREET}\n\ndef other():\n    pass\n", "Tidy")
    quiet = made.call("drift", "--check")
    assert (quiet.code, "0 of 2 requirements drifted" in quiet.stdout) == (0, True)
    assert "not watched: FR-GREET-002" in quiet.stdout

    commit(made, "greet.py", GREET.replace("Hello", "Hi"), "Hot fix")
    fix = made.git("rev-parse", "--short=12", "HEAD")
    commit(made, "README.md", "Another.\n", "Another change")
    found = made.call("drift", "--check")
    assert found.code == 1
    author = made.git("log", "-1", "--format=%an")
    assert (
        "FR-GREET-001  code greet.py::greet was changed since it was accepted: "
        f"{fix} Hot fix ({author})" in found.stdout
    )
    log = json.loads(made.call("drift", "--format", "sarif").stdout)
    assert [one["ruleId"] for one in log["runs"][0]["results"]] == ["FR-GREET-001"]
    assert made.call("drift", "--format", "github").stdout.startswith("::warning file=greet.py,")
    assert "changed since it was accepted" in made.call("show", "FR-GREET-001").stdout

    refused = made.call("drift", "accept", "FR-GREET-002", "why")
    assert (refused.code, "nothing of FR-GREET-002 has changed" in refused.stderr) == (4, True)
    assert made.call("drift", "accept", "FR-GREET-001", " ").code == 2
    accepted = made.call("drift", "accept", "FR-GREET-001", "Hi is right")
    assert (accepted.code, "commit specs/greet.md" in accepted.stdout) == (0, True)
    assert made.call("drift", "--check").code == 1, "control: not committed yet"
    made.git("commit", "-qam", "Accept")
    assert made.call("drift", "--check").code == 0
    with open_project_store(made.project) as store:
        (event,) = [one for one in store.events("") if one.kind == "drift.accepted"]
    assert b"Hi is right" in event.payload
    made.git("rm", "-q", "test_greet.py")
    made.git("commit", "-qm", "Remove the test")
    assert "test_it_names_the_person was removed" in made.call("drift").stdout
    assert made.audit_problems() == []


def test_a_binding_that_nobody_has_accepted_is_named_until_a_user_accepts_it(
    tmp_path: Path,
) -> None:
    text = "### FR-GREET-001\n\nShort.\n\n- Code: `greet.py::greet`\n- Test: `gone.py`\n"
    made = make_feature_project(tmp_path, files={**FILES, "specs/greet.md": text})
    found = made.call("drift", "--check")
    line = "FR-GREET-001  {} was never accepted, so not watched"
    assert line.format("code greet.py::greet") in found.stdout
    assert line.format("test gone.py") in found.stdout
    assert (found.code, "phasegate drift accept" in found.stdout) == (0, True)
    shown = made.call("show", "FR-GREET-001").stdout
    assert ("greet.py::greet: never accepted" in shown, "gone.py: missing" in shown) == (True, True)

    assert made.call("drift", "accept", "FR-GREET-001", "read it").code == 0
    made.git("commit", "-qam", "Accept")
    assert "code greet.py::greet" not in made.call("drift").stdout
    commit(made, "greet.py", GREET.replace("Hello", "Hi"), "Hot fix")
    assert made.call("drift", "--check").code == 1, "watched now"


@pytest.mark.demand("L1.e")
def test_a_pipeline_fails_for_a_requirement_without_a_passing_test_and_for_an_unknown_one(
    tmp_path: Path,
) -> None:
    made = make_greeting(tmp_path)
    check = ("trace", "--specs", "--check")
    failed = made.call(*check)
    assert (failed.code, "PROBLEM no test names it" in failed.stdout) == (1, True)
    test = "def test_short():\n    'FR-GREET-002'\n"
    commit(made, "test_short.py", test, "Test")
    assert made.call(*check).code == 0, "control"

    report = made.root / "report.xml"
    case = '<testcase classname="test_greet.Says" name="test_it_names_the_person"/>'
    other = '<testcase classname="test_short" name="test_short">{}</testcase>'
    report.write_text(f"<testsuite>{case}{other.format('')}</testsuite>")
    assert made.call(*check, "--junit", str(report)).code == 0
    report.write_text(f"<testsuite>{case}{other.format('<failure/>')}</testsuite>")
    red = made.call(*check, "--junit", str(report))
    assert (red.code, "test_short.py::test_short: failed" in red.stdout) == (1, True)
    report.write_text(f"<testsuite>{case}</testsuite>")
    assert "test_short: not run" in made.call(*check, "--junit", str(report)).stdout
    assert made.call("trace", "--junit", str(report)).code == 2

    commit(made, "test_short.py", f"{test}    'FR-GREET-009'\n", "Unknown")
    unknown = made.call(*check)
    assert unknown.code == 1
    assert "names FR-GREET-009, which no specification has" in unknown.stdout

    shown = made.call("show", "FR-GREET-001")
    assert "A greeting names the user." in shown.stdout
    assert "revision " in shown.stdout
    assert (
        made.command("show", "FR-GREET-001", "--json").json["requirement"]["capability"] == "greet"
    )
    with McpClient(made.root) as client:
        told = client.tool("explain", what="requirement", of="FR-GREET-001")["text"]
        assert "A greeting names the user." in told
        assert "requirements drifted" in client.tool("explain", what="drift")["text"]
    nothing = made.call("show", "FR-NONE-001")
    assert (nothing.code, "FR-NONE-001 is not in the current specifications" in nothing.stderr) == (
        2,
        True,
    )
    commit(made, "specs/greet.md", "### FR-A-1\n```\n", "Break it")
    assert made.call(*check).code == 1


@pytest.mark.demand("L3.c")
def test_existing_code_is_adopted_by_its_passing_tests_and_watched_from_then_on(
    tmp_path: Path,
) -> None:
    made = make_feature_project(tmp_path)
    commit(made, "greet.py", f"{GREET}\n\ndef shout(name):\n    return name\n", "Shout")
    report = made.root / "report.xml"
    case = '<testcase classname="test_greet.Says" name="test_it_names_the_person">{}</testcase>'
    report.write_text(f"<testsuite>{case.format('<failure/>')}</testsuite>")
    adopt = ("adopt", ".", "--junit", str(report), "--capability", "greet")
    red = made.call(*adopt)
    assert "does not pass: test_greet.py::Says::test_it_names_the_person" in red.stdout, red.stderr
    assert "0 requirements proposed" in red.stdout

    report.write_text(f"<testsuite>{case.format('')}</testsuite>")
    proposed = made.call(*adopt)
    assert "### FR-GREET-001: It names the person\n\nObserved:" in proposed.stdout
    assert "uncovered: greet.py::shout" in proposed.stdout
    assert not (made.root / "specs").exists(), "nothing is written before the user agrees"
    assert made.call(*adopt, "--write").code == 0
    made.git("add", "specs")
    made.git("commit", "-qm", "Adopt")
    assert made.call("drift", "--check").code == 0
    assert "0 requirements proposed" in made.call(*adopt).stdout, "nothing is adopted twice"
    commit(made, "greet.py", "def greet(name):\n    return name\n", "Change")
    assert made.call("drift", "--check").code == 1
    assert made.call("adopt", "nowhere", "--junit", str(report)).code == 2
    assert made.call("adopt", ".", "--junit", str(report), "--capability", "../x").code == 2


def test_the_id_of_a_removed_requirement_is_never_given_to_another_one(tmp_path: Path) -> None:
    made = make(tmp_path, "### FR-BYE-001\n\nOne.\n\n### FR-BYE-002\n\nTwo.\n")
    report = made.root / "report.xml"
    case = '<testcase classname="test_greet.Says" name="test_it_names_the_person"/>'
    report.write_text(f"<testsuite>{case}</testsuite>")
    adopt = ("adopt", "greet.py", "--junit", str(report), "--capability", "bye")
    assert "### FR-BYE-003: It names the person" in made.call(*adopt).stdout, "control"

    # A requirement that came and went on a branch that was merged
    made.git("checkout", "-qb", "side")
    commit(made, "specs/bye.md", "### FR-BYE-001\n\nOne.\n\n### FR-BYE-003\n\nNew.\n", "Add")
    commit(made, "specs/bye.md", "### FR-BYE-001\n\nOne.\n", "Remove")
    made.git("checkout", "-q", "main")
    commit(made, "README.md", "Another.\n", "Another change")
    made.git("merge", "-q", "--no-ff", "-m", "Merge", "side")
    proposed = made.call(*adopt)
    assert "### FR-BYE-004: It names the person" in proposed.stdout, proposed.stderr
    write(made, "openspec/changes/more/specs/bye/spec.md", CHANGE[: CHANGE.index("## MODIFIED")])
    assert 'id="FR-BYE-004"' in made.call("spec", "import", "--change", "more").stdout

    # Also if the whole specification is gone
    made.git("rm", "-q", "specs/bye.md")
    made.git("commit", "-qm", "Remove all")
    assert "### FR-BYE-004: It names the person" in made.call(*adopt).stdout


@pytest.mark.demand("L1.f")
def test_specifications_of_other_tools_are_imported_and_never_overwrite(tmp_path: Path) -> None:
    made = make_feature_project(tmp_path)
    assert made.call("spec", "import").code == 2
    texts = {
        "openspec/specs/auth/spec.md": "# Auth\n\n## Requirements\n\n### Requirement: Log in\n\nIt SHALL.\n",
        "specs/001-photo-album/spec.md": "# Album\n\n- **FR-001**: System MUST show photos\n",
    }
    for path, text in texts.items():
        (made.root / path).parent.mkdir(parents=True)
        (made.root / path).write_text(text, encoding="utf-8")
    done = made.call("spec", "import")
    assert done.code == 0, done.stderr
    assert "specs/auth.md: 1 requirements, 0 scenarios" in done.stdout
    album = made.root / "specs/photo-album.md"
    assert "### FR-PHOTO-ALBUM-001\n\nSystem MUST show photos" in album.read_text()
    assert made.call("spec", "import").code == 0, "the same again changes nothing"
    album.write_text("mine\n")
    refused = made.call("spec", "import")
    assert (refused.code, "already exists" in refused.stderr, album.read_text()) == (
        4,
        True,
        "mine\n",
    )


@pytest.mark.demand("L1.e")
def test_an_agent_can_check_a_proposed_change_before_it_asks_for_it(tmp_path: Path) -> None:
    made = make(tmp_path)
    block = '<!-- sk:fr id="FR-BYE-001" change="modified" -->\n{}\n<!-- /sk:fr -->'
    with McpClient(made.root) as client:

        def check(body: str) -> str:
            shown = client.tool("explain", what="proposal", text=block.format(body))
            return str(shown["text"])

        assert "PROBLEM FR-BYE-001: the change would lose: Ada" in check("Politely.")
        good = check(CHANGED)
        assert ("PROBLEM" in good, f'from="{START}"' in good) == (False, True)
        assert "states no change" in client.refusal("explain", what="proposal")
    assert made.git("status", "--porcelain") == ""


CHANGE = """\
## ADDED Requirements

### Requirement: Log out

It SHALL end the session.

## MODIFIED Requirements

### Requirement: Sign in

It SHALL ask twice.

#### Scenario: Ada

- **THEN** it says Ada

## REMOVED Requirements

### Requirement: Old

## RENAMED Requirements

- FROM: `### Requirement: Log in`
- TO: `### Requirement: Sign in`
"""


@pytest.mark.demand("L1.f")
def test_a_change_of_openspec_becomes_the_same_change_here(tmp_path: Path) -> None:
    made = make_feature_project(tmp_path)
    current = "# Auth\n\n### Requirement: Log in\n\nIt SHALL.\n\n#### Scenario: Ada\n\n- x\n"
    write(made, "openspec/specs/auth/spec.md", f"{current}\n### Requirement: Old\n\nOld.\n")
    write(made, "openspec/changes/twice/specs/auth/spec.md", CHANGE)
    early = made.call("spec", "import", "--change", "twice")
    assert (early.code, "no current requirement is named" in early.stderr) == (4, True)
    assert made.call("spec", "import", "--change", "../specs").code == 2
    assert made.call("spec", "import").code == 0
    made.git("add", "-A")
    made.git("commit", "-qm", "Import")

    shown = made.call("spec", "import", "--change", "twice").stdout
    write(made, "spec.md", shown)
    assert made.call("spec", "check", "spec.md").code == 0, made.call("spec", "check", "spec.md")
    specs = {"auth": parse_spec(made.show("main", "specs/auth.md"))}
    applied = apply_deltas(specs, read_deltas(shown))
    assert applied.problems == ()
    assert [
        (one.id, one.title, one.text) for one in applied.specs["auth"].requirements.values()
    ] == [
        ("FR-AUTH-001", "Sign in", "It SHALL ask twice."),
        ("FR-AUTH-003", "Log out", "It SHALL end the session."),
    ]
    write(made, "openspec/changes/twice/specs/auth/spec.md", CHANGE[CHANGE.index("## RENAMED") :])
    alone = made.call("spec", "import", "--change", "twice").stdout
    (renamed,) = read_deltas(alone)
    assert (renamed.requirement.title, renamed.requirement.text) == ("Sign in", "It SHALL.")


def write(made: FeatureProject, path: str, text: str) -> None:
    (made.root / path).parent.mkdir(parents=True, exist_ok=True)
    (made.root / path).write_text(text, encoding="utf-8")


@pytest.mark.demand("L1.f")
def test_requirements_of_spec_kit_in_tables_and_headings_are_imported(tmp_path: Path) -> None:
    made = make_feature_project(tmp_path)
    rows = "| ID | What | P |\n|---|---|---|\n| FR-01 | Show \\| hide | P0 |\n"
    text = f"# Album\n\n{rows}\n- **NFR-01**: Fast\n\n#### FR-002: Sort\n\nIt sorts.\n"
    write(made, "specs/001-album/spec.md", text)
    write(made, "specs/002-notes/spec.md", "# Notes\n\n- REQ one: it sorts.\n")
    shown = made.call("spec", "import").stdout
    assert "3 requirements" in shown
    (warning,) = [line for line in shown.splitlines() if line.startswith("WARNING")]
    assert "002-notes/spec.md has no requirement" in warning
    assert "- REQ one: it sorts." in (made.root / "specs/notes.md").read_text(), "nothing is lost"
    found = parse_spec((made.root / "specs/album.md").read_text()).requirements
    assert {id_: (one.title, one.text) for id_, one in found.items()} == {
        "FR-ALBUM-01": ("", "Show \\| hide\n\nP0"),
        "NFR-ALBUM-01": ("", "Fast"),
        "FR-ALBUM-002": ("Sort", "It sorts."),
    }


def test_features_of_agileplus_are_read_where_a_repository_has_only_those(tmp_path: Path) -> None:
    text = '<!-- agileplus: fr-count: 1 -->\n<!-- sk:fr id="FR-A-001" -->\n- X\n<!-- /sk:fr -->\n'
    path = "agileplus-specs/001-a/spec.md"
    made = make_feature_project(tmp_path, files={**FILES, path: text})
    assert "FR-A-001  X" in made.call("trace", "--feature", "001-a").stdout
    assert made.call("spec", "check", "agileplus-specs/001-a").code == 0
    (made.root / "kitty-specs").mkdir()
    assert made.call("trace", "--feature", "001-a").code == 2, "control"


def test_work_that_an_amendment_interrupts_is_handed_on(tmp_path: Path) -> None:
    made = make_feature_project(tmp_path)
    documents = (document("proposal.md"), document("spec.md", THREE), document("tasks.md", TASKS))
    unfinished = (
        file("docs.md", "Call bye.\n"),
        {"print": "The index must change too."},
        {"result": "blocked"},
    )
    made.play(
        turn("plan", *documents, PASS),
        BUILDS,
        turn("implement", *unfinished, package="WP02"),
        builds("WP04", file("docs.md", "Call bye, in two words.\n")),
        *smooth(PHASES),
    )
    assert made.call("run", "quick", DESCRIPTION).code != 0
    grounds = made.call("show").stdout
    assert "The implementer says:\n  WP02: The index must change too." in grounds
    assert "phasegate scope allow WP02 PATH" in grounds
    assert made.call("scope", "allow", "WP02", "index.md", "--reason", "it lists it").code == 0
    assert made.call("run").code != 0
    again = [made.prompt(job.id) for job in made.jobs() if job.wp == "WP02"]
    assert len(again) == 2, "unfinished work is not collected: its agent runs again"
    assert "index.md was added to the scope by" in again[1]
    assert "index.md was added" not in again[0]
    assert made.call("amend", "FR-BYE-002", "It is described in two words", "--yes").code == 0
    made.call("run")
    prompt = next(made.prompt(job.id) for job in made.jobs() if job.wp == "WP04")
    assert "earlier-work.diff" in prompt
    assert "+Call bye.\n" in prompt
