"""`phasegate adopt --agent`: an agent proposes requirements with tests, and their runs decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.core.specs.characterize import name_test_file, select_slice
from phasegate.core.specs.spec_file import parse_spec
from support.dispatch_project import turn
from support.feature_project import FeatureProject, make_feature_project

CODE = """\
def shout(name):
    return name.upper() + '!'


def whisper(name):
    return name.lower()


def hum():
    return 'hm'
"""
REQUIREMENTS = """\
```toml
[[requirements]]
title = "Shouts a name"
text = "A name is returned in capital letters with an exclamation mark."
scenario = "- **WHEN** Ada is shouted\\n- **THEN** it is ADA!"
test = "Voices::test_shout"
[[requirements]]
title = "Whispers reversed"
text = "A whispered name is reversed."
test = "Voices::test_whisper"
[[requirements]]
title = "Never hums twice"
text = "Humming has no other result."
[[requirements]]
title = "Hums"
text = "Humming says hm."
test = "Voices::test_vacuous"
```
"""
TESTS = """
```python
import unittest

from voices import hum, shout, whisper


class Voices(unittest.TestCase):
    def test_shout(self):
        self.assertEqual(shout('Ada'), 'ADA!')

    def test_whisper(self):
        self.assertEqual(whisper('Ada'), 'adA')

    def test_vacuous(self):
        hum()
```
"""


def played(tmp_path: Path, answer: str) -> FeatureProject:
    made = make_feature_project(tmp_path)
    (made.root / "voices.py").write_text(CODE, encoding="utf-8")
    made.git("add", "voices.py")
    made.git("commit", "-qm", "Voices")
    look = {"run": ["sh", "-c", "echo x > new.txt"]}
    made.play(turn("review", look, {"print": answer}, {"verdict": "PASS"}))
    return made


@pytest.mark.demand("L3.c")
def test_requirements_of_an_agent_are_kept_by_what_their_tests_show(tmp_path: Path) -> None:
    made = played(tmp_path, REQUIREMENTS + TESTS)
    adopt = ("adopt", "voices.py", "--capability", "voices", "--agent", "actor")
    before = made.git("status", "--porcelain")
    proposed = made.call(*adopt, "--json")
    assert proposed.code == 0, proposed.stderr
    assert made.git("status", "--porcelain") == before, "nothing is written before the user agrees"
    shown = proposed.json
    assert shown["failing"] == ["Whispers reversed"]
    assert shown["inferred"] == ["Never hums twice", "Hums"]
    assert shown["uncovered"] == ["voices.py::whisper", "voices.py::hum"]
    assert "exclamation mark.\n\nObserved:" in shown["text"]
    assert "no other result.\n\nInferred" in shown["text"]
    assert "Whispers" not in shown["text"]

    done = made.call(*adopt, "--yes")
    assert done.code == 0, done.stderr
    written = (made.root / "test_adopted_voices.py").read_text()
    assert ("test_shout" in written, "test_whisper" in written) == (True, False)
    spec = parse_spec((made.root / "specs/voices.md").read_text()).requirements
    (scenario,) = spec["FR-VOICES-001"].scenarios
    assert [one.target for one in scenario.bindings] == [
        "test_adopted_voices.py::Voices::test_shout"
    ]
    assert not spec["FR-VOICES-002"].all_bindings
    made.git("add", "-A")
    made.git("commit", "-qm", "Adopt")
    assert made.call("drift", "--check").code == 0
    (made.root / "voices.py").write_text(CODE.replace("upper", "title"), encoding="utf-8")
    made.git("commit", "-qam", "Change")
    assert "FR-VOICES-001" in made.call("drift", "--check").stdout
    again = made.call(*adopt)
    assert (again.code, "has requirements" in again.stderr) == (2, True)


@pytest.mark.demand("L3.c")
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("Nothing found.", "one TOML block"),
        ("```toml\nrequirements = []\n```\n", "no requirements"),
        ("```toml\n[[requirements]]\ntitle = 1\ntext = ''\n```\n", "Expected `str`"),
        (
            "```toml\n[[requirements]]\ntitle = 'A'\ntext = '### FR-Y-001: B'\n```\n",
            "headings or bindings",
        ),
    ],
)
def test_an_answer_that_cannot_be_used_writes_nothing(
    tmp_path: Path, answer: str, told: str
) -> None:
    made = played(tmp_path, answer)
    done = made.call("adopt", ".", "--capability", "x", "--agent", "actor", "--yes")
    assert (done.code, told in done.stderr) == (4, True), done.stderr
    assert not (made.root / "specs").exists()


@pytest.mark.demand("L3.c")
def test_a_specification_with_uncommitted_changes_is_not_overwritten(tmp_path: Path) -> None:
    made = played(tmp_path, REQUIREMENTS + TESTS)
    (made.root / "specs").mkdir()
    (made.root / "specs/voices.md").write_text("mine\n", encoding="utf-8")
    adopt = ("adopt", "voices.py", "--capability", "voices", "--agent", "actor")
    assert made.call(*adopt, "--yes").code == 4
    assert (made.root / "specs/voices.md").read_text() == "mine\n"
    assert not (made.root / "test_adopted_voices.py").exists()
    assert made.call("adopt", "voices.py").code == 2


@pytest.mark.demand("L3.c")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("unittest.TestCase.assertEqual = lambda *_: None", "changed how tests are run"),
        ("import nothing_like_this", "reported no test"),
    ],
)
def test_tests_that_cannot_be_trusted_are_refused(tmp_path: Path, line: str, told: str) -> None:
    tests = TESTS.replace("import unittest\n", f"import unittest\n{line}\n")
    made = played(tmp_path, REQUIREMENTS + tests)
    done = made.call("adopt", "voices.py", "--capability", "v", "--agent", "actor", "--yes")
    assert (done.code, told in done.stderr) == (4, True), (done.stdout, done.stderr)
    assert not (made.root / "specs").exists()


def test_big_folders_go_in_slices_of_one_language() -> None:
    body = "def run():\n    return 1\n"
    code = {"a/z.ts": "x", "a/two.py": body, "a/one.py": body, "a/empty.py": ""}
    empty = parse_spec("")
    assert select_slice(code, empty, 1) == (("a/one.py",), ("a/two.py", "a/z.ts"))
    assert select_slice(code, empty, 999) == (("a/one.py", "a/two.py"), ("a/z.ts",))
    done = parse_spec("### FR-A-001\n\nx\n\n- Code: `a/one.py::run`\n")
    assert select_slice(code, done, 1) == (("a/two.py",), ("a/z.ts",))


def test_the_test_file_is_new_and_in_the_nearest_folder_with_tests() -> None:
    tests = ["api/tests/test_a.py", "web/tests/test_b.py", "web/tests/test_c.py", "t/a.test.ts"]
    assert name_test_file("log-in", "api/x.py", tests, tests) == "api/tests/test_adopted_log_in.py"
    taken = [*tests, "web/tests/test_adopted_x.py"]
    assert name_test_file("x", "web/x.py", taken, tests) == "web/tests/test_adopted_x_2.py"
    assert name_test_file("x", "src/x.ts", tests, tests) == "t/adopted-x.test.ts"
    assert name_test_file("x", "src/x.py", (), ()) == "tests/test_adopted_x.py"
