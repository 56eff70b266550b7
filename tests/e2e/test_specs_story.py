"""Six months of one capability: what applies at the end is the sum of what was decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.core.specs.spec_file import parse_spec
from phasegate.core.workflow.phase_transitions import Stage
from support.dispatch_project import Turn, turn
from support.feature_project import (
    FILES,
    PASS,
    FeatureProject,
    builds,
    document,
    file,
    make_feature_project,
)

JUDGES = (turn("challenge", PASS), turn("review", PASS), turn("archive", PASS))
TASKS = """\
# Tasks

- [ ] 2.1 Do it
  - File: part{number}.py, test_part{number}.py
  - Spec: {id}
  - Do: what the requirement says.
"""
TEST = """\
import unittest
from part{number} import part{number}


class Part{number}(unittest.TestCase):
    def test_part(self):
        "{id}"
        self.assertEqual(part{number}(), {number})
"""


class Story:
    """Runs features one after another, or up to their merge."""

    def __init__(self, made: FeatureProject) -> None:
        self.made = made
        self._number = 0

    def play(self, number: int, id_: str, change: str, body: str, package: str = "WP01") -> None:
        self.made.play(*_turns(number, id_, change, body, package), *JUDGES)

    def run(self, id_: str, change: str, body: str, *options: str) -> str:
        self._number += 1
        number = self._number
        self.play(number, id_, change, body)
        done = self.made.call("run", "quick", f"Part {number}", *options)
        assert done.code == 0, done.stderr
        return f"{number:03}-part-{number}"

    def merge(self, id_: str, change: str, body: str) -> str:
        slug = self.run(id_, change, body, "--merge")
        assert self.made.feature(slug).workflow.stage is Stage.COMPLETED
        return slug

    def texts(self) -> dict[str, str]:
        spec = parse_spec(self.made.show("main", "specs/bye.md"))
        return {id_: one.text for id_, one in spec.requirements.items()}


def _turns(number: int, id_: str, change: str, body: str, package: str) -> tuple[Turn, Turn]:
    spec = (
        f'# Feature: part {number}\n\n<!-- sk:fr id="{id_}" {change} -->\n{body}\n<!-- /sk:fr -->\n'
    )
    plan = turn(
        "plan",
        document("proposal.md"),
        document("spec.md", spec),
        document("tasks.md", TASKS.format(number=number, id=id_)),
        PASS,
    )
    code = f"def part{number}():\n    return {number}\n"
    test = TEST.format(number=number, id=id_)
    if package != "WP01":
        code += f"\n\ndef again{number}():\n    return -{number}\n"
        test = test.replace(f"import part{number}", f"import again{number}, part{number}", 1)
        test += (
            f'\n    def test_again(self):\n        "{id_}"\n'
            f"        self.assertEqual(again{number}(), -{number})\n"
        )
    files = (file(f"part{number}.py", code), file(f"test_part{number}.py", test))
    return plan, builds(package, *files)


@pytest.mark.long
@pytest.mark.demand("L1.a", "L1.b", "L2.b", "L3.a")
def test_after_twelve_features_the_specs_are_the_sum_of_what_was_decided(tmp_path: Path) -> None:
    made = make_feature_project(tmp_path, files={**FILES, "specs/README.txt": "Not a spec.\n"})
    story = Story(made)
    added = 'change="added"'
    for number in range(1, 5):
        story.merge(f"FR-BYE-00{number}", added, f"Text {number}.\n\n#### Scenario: s{number}\n\nx")

    # A change, and one that drops a scenario on purpose
    modified = 'change="modified"'
    story.merge("FR-BYE-001", modified, "Text 1b.\n\n#### Scenario: s1\n\ny")
    story.merge("FR-BYE-001", modified, "- Removes scenario: s1\n\nText 1c.")

    # Two at once on one requirement: the second is refused until a user has decided
    body = "{}\n\n#### Scenario: s2\n\nx"
    first = story.run("FR-BYE-002", modified, body.format("Mine."))
    second = story.run("FR-BYE-002", modified, body.format("Theirs."))
    story.play(8, "FR-BYE-002", modified, body.format("Theirs."))
    assert made.call("complete", "--feature", second).code == 0
    story.play(7, "FR-BYE-002", modified, body.format("Mine."))
    assert made.call("complete", "--feature", first).code == 1
    assert story.texts()["FR-BYE-002"] == "Theirs."
    assert made.feature(first).workflow.stage is Stage.BLOCKED
    assert made.call("amend", "FR-BYE-002", "Both.", "--yes", "--feature", first).code == 0
    story.play(7, "FR-BYE-002", modified, body.format("Mine."), "WP02")
    done = made.call("run", "--merge", "--feature", first)
    assert done.code == 0, done.stderr
    assert story.texts()["FR-BYE-002"] == "Both."

    # A removal, a rename, an amendment before the merge
    story.merge("FR-BYE-003", 'change="removed"', "Nobody uses it.")
    story.merge("FR-BYE-014", 'change="renamed" was="FR-BYE-004"', "")
    amended = story.run("FR-BYE-005", added, "Text 5.")
    assert made.call("amend", "FR-BYE-005", "Text 5b.", "--yes").code == 0
    story.play(11, "FR-BYE-005", added, "Text 5.", "WP02")
    assert made.call("run", "--merge").code == 0
    assert made.feature(amended).workflow.stage is Stage.COMPLETED

    story.merge("FR-BYE-007", added, "Text 7.")

    # A hot fix outside of any feature
    assert made.call("drift", "--check").code == 0, made.call("drift").stdout
    made.git("checkout", "-q", "main")
    made.git("reset", "-q", "--hard")
    (made.root / "part5.py").write_text("def part5():\n    return 2 + 3\n")
    made.git("commit", "-qam", "Hot fix")
    found = made.call("drift", "--check")
    assert (found.code, "FR-BYE-001  code part5.py::part5 was changed" in found.stdout) == (1, True)
    story.merge("FR-BYE-006", added, "Text 6.")
    assert made.call("drift", "--check").code == 1, "a feature accepts only what it changes"
    made.git("reset", "-q", "--hard")
    assert made.call("drift", "accept", "FR-BYE-001", "it is right").code == 0
    made.git("commit", "-qam", "Accept")
    assert made.call("drift", "--check").code == 0

    assert story.texts() == {
        "FR-BYE-001": "Text 1c.",
        "FR-BYE-002": "Both.",
        "FR-BYE-014": "Text 4.",
        "FR-BYE-005": "Text 5b.",
        "FR-BYE-006": "Text 6.",
        "FR-BYE-007": "Text 7.",
    }
    # Code that was there before is adopted, with its test that passes
    case = '<testcase classname="test_greet.Says" name="test_it_names_the_person"/>'
    (made.root / "report.xml").write_text(f"<testsuite>{case}</testsuite>")
    options = ("--junit", str(made.root / "report.xml"), "--capability", "bye", "--write")
    adopted = made.call("adopt", "greet.py", *options)
    assert adopted.code == 0, adopted.stderr
    made.git("add", "specs")
    made.git("commit", "-qm", "Adopt")
    traced = made.call("trace", "--specs", "--check")
    assert (traced.code, "7 requirements: no problems" in traced.stdout) == (0, True)
    assert made.call("drift", "--check").code == 0

    assert made.audit_problems() == []
