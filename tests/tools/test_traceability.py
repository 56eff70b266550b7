"""The traceability tool refuses what is wrong or stale, and finds every form of mark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "traceability.py"
DEMANDS = """
[N10]
title = "Tenth"
a = "one | two"

[N2]
title = "Second"
a = "first clause"
b = "second clause"
"""


class Project:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "docs").mkdir()
        self.demands(DEMANDS)

    def demands(self, text: str) -> None:
        (self.root / "docs" / "demands.toml").write_text(text, encoding="utf-8")

    def tests(self, text: str, name: str = "unit/test_x.py") -> None:
        path = self.root / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import pytest\n{text}", encoding="utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(TOOL), "--root", str(self.root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def document(self) -> str:
        result = self.run()
        assert result.returncode == 0, result.stderr
        return (self.root / "docs" / "TRACEABILITY.md").read_text(encoding="utf-8")

    def refusal(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.returncode == 1, result.stdout
        assert "Traceback" not in result.stderr
        return result.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("arguments", [(), ("--check",)])
@pytest.mark.parametrize("clause", ["N2.c", "N3.a", "N2", "n2.a", ""])
def test_a_mark_that_names_an_unknown_clause_is_refused(
    project: Project, clause: str, arguments: tuple[str, ...]
) -> None:
    project.tests(f"@pytest.mark.demand('N2.a', {clause!r})\ndef test_one(): ...\n")
    assert f"tests/unit/test_x.py::test_one names {clause}" in project.refusal(*arguments)


def test_a_missing_document_is_refused(project: Project) -> None:
    assert "make traceability" in project.refusal("--check")


def test_a_stale_document_is_refused_and_left_alone(project: Project) -> None:
    before = project.document()
    assert project.run("--check").returncode == 0
    project.tests("@pytest.mark.demand('N2.a')\ndef test_one(): ...\n")
    assert "is stale" in project.refusal("--check")
    assert (project.root / "docs" / "TRACEABILITY.md").read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    "demands",
    [
        "[N1]\na = 'no title'\n",
        "[N1]\ntitle = 'no clause'\n",
        "[N1]\ntitle = 'gap'\na = 'x'\nc = 'x'\n",
        "[N1]\ntitle = 'long key'\naa = 'x'\n",
        "[N1]\ntitle = 'empty'\na = ' '\n",
        "[N1]\ntitle = 'number'\na = 1\n",
        "[N01]\ntitle = 'zero'\na = 'x'\n",
        "[Q1]\ntitle = 'unknown section'\na = 'x'\n",
        "N1 = 'no table'\n",
        "[N1\n",
    ],
)
def test_malformed_demands_are_refused(project: Project, demands: str) -> None:
    project.demands(demands)
    assert "demands.toml" in project.refusal("--check")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("@pytest.mark.demand('N2.a')\ndef helper(): ...\n", "reaches no test"),
        ("CASES = [pytest.param(1, marks=pytest.mark.demand('N2.a'))]\n", "reaches no test"),
        ("CLAUSE = 'N2.a'\n@pytest.mark.demand(CLAUSE)\ndef test_one(): ...\n", "plain strings"),
        ("@pytest.mark.demand()\ndef test_one(): ...\n", "one or more clause ids"),
        ("def test_one(:\n", "cannot be parsed"),
    ],
)
def test_a_mark_that_cannot_be_attributed_is_refused(
    project: Project, source: str, reason: str
) -> None:
    project.tests(source)
    assert reason in project.refusal()


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("@pytest.mark.demand('N2.b')\ndef test_one(): ...\n", "test_one"),
        ("@pytest.mark.demand('N2.b')\nasync def test_one(): ...\n", "test_one"),
        (
            "@pytest.mark.demand('N2.b')\nclass TestIt:\n    def test_one(self): ...\n",
            "TestIt::test_one",
        ),
        (
            "class TestIt:\n    pytestmark = pytest.mark.demand('N2.b')\n    def test_one(self): ...\n",
            "TestIt::test_one",
        ),
        ("pytestmark = pytest.mark.demand('N2.b')\ndef test_one(): ...\n", "test_one"),
        (
            "pytestmark = [pytest.mark.slow, pytest.mark.demand('N2.b')]\ndef test_one(): ...\n",
            "test_one",
        ),
        (
            "@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.demand('N2.b'))])\n"
            "def test_one(n): ...\n",
            "test_one",
        ),
        (
            "CASES = [pytest.param(1, marks=[pytest.mark.demand('N2.b')])]\n"
            "@pytest.mark.parametrize('n', CASES)\ndef test_one(n): ...\n",
            "test_one",
        ),
    ],
)
def test_every_form_of_mark_is_found(project: Project, source: str, test: str) -> None:
    project.tests(source)
    assert (
        f"| N2.b | second clause | rules only: `tests/unit/test_x.py::{test}` |"
        in project.document()
    )


def test_an_untested_clause_is_listed_open_and_counted(project: Project) -> None:
    project.tests("@pytest.mark.demand('N2.b')\ndef test_one(): ...\n")
    text = project.document()
    assert "| N2.a | first clause | open |" in text
    counts = "0 of 3 clauses (0 %) are shown by a whole run, 0 through the entry, "
    assert f"{counts}1 rules only, 2 open." in text


@pytest.mark.parametrize(
    "folder", ["agents", "board", "contract", "crash", "e2e", "fleet", "forges", "hostile"]
)
def test_only_a_test_through_the_products_entry_shows_a_clause_and_it_is_named_first(
    project: Project, folder: str
) -> None:
    for inside in ("unit", "property", "tools", "docs"):
        project.tests(
            "@pytest.mark.demand('N2.a', 'N2.b')\ndef test_it(): ...\n",
            name=f"{inside}/test_{inside}.py",
        )
    assert "0 through the entry, 2 rules only, 1 open." in project.document()
    project.tests(
        "@pytest.mark.demand('N2.b')\ndef test_it(): ...\n", name=f"{folder}/test_entry.py"
    )
    text = project.document()
    assert "1 through the entry, 1 rules only, 1 open." in text
    assert "| N2.a | first clause | rules only: `tests/docs/" in text
    assert f"| N2.b | second clause | entry: `tests/{folder}/test_entry.py::test_it`, " in text


RUNS = "    assert project.command('run', 'quick').stdout\n"


@pytest.mark.parametrize(
    ("source", "level"),
    [
        (f"def test_it(project):\n{RUNS}", "whole run"),
        (f"def helper(project):\n{RUNS}def test_it(project):\n    helper(project)\n", "whole run"),
        (f"@pytest.fixture\ndef ran(project):\n{RUNS}def test_it(ran): ...\n", "whole run"),
        ("def test_it(project):\n    assert project.dispatch().reason\n", "whole run"),
        # A run that nobody looks at, a key of a scenario, another command
        ("def test_it(project):\n    project.command('run', 'quick')\n", "entry"),
        ("def test_it(project):\n    assert project.play({'run': 'x'}).stdout\n", "entry"),
        ("def test_it(project):\n    assert project.command('status').stdout\n", "entry"),
        (f"def helper(project):\n{RUNS}def test_it(project): ...\n", "entry"),
    ],
)
def test_a_whole_run_is_told_from_other_tests_through_the_entry(
    project: Project, source: str, level: str
) -> None:
    marked = source.replace("def test_it", "@pytest.mark.demand('N2.a')\ndef test_it")
    project.tests(marked, name="e2e/test_x.py")
    text = project.document()
    assert f"| N2.a | first clause | {level}: `tests/e2e/test_x.py::test_it` |" in text
    share = "1 of 3 clauses (33 %)" if level == "whole run" else "0 of 3 clauses (0 %)"
    assert f"{share} are shown by a whole run" in text
    # The same test behind the entry shows a rule only.
    (project.root / "tests/e2e/test_x.py").unlink()
    project.tests(marked, name="unit/test_x.py")
    assert "| N2.a | first clause | rules only: " in project.document()


def test_at_most_three_tests_are_named(project: Project) -> None:
    project.tests(
        "pytestmark = pytest.mark.demand('N2.a')\n"
        + "".join(f"def test_{n}(): ...\n" for n in "edcba")
    )
    row = next(line for line in project.document().splitlines() if line.startswith("| N2.a "))
    assert [f"::test_{n}`" in row for n in "abcde"] == [True, True, True, False, False]
    assert row.endswith("+2 more |")


def test_demands_are_in_natural_order_and_pipes_are_escaped(project: Project) -> None:
    text = project.document()
    assert text.index("### N2 Second") < text.index("### N10 Tenth")
    assert "one \\| two" in text


def test_the_same_input_gives_the_same_bytes(project: Project) -> None:
    project.tests("@pytest.mark.demand('N2.a', 'N2.b')\ndef test_one(): ...\n")
    project.tests("@pytest.mark.demand('N2.a')\ndef test_two(): ...\n", name="unit/test_a.py")
    assert project.document() == project.document()
