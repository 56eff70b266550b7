"""Whole dispatches of implementers that weaken tests, beside a reviewer that only says PASS."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phasegate.core.plan.work_package import PackageState
from support.dispatch_project import (
    DispatchProject,
    Step,
    approves,
    make_project,
    package,
    turn,
)

CODE = "def add(a, b):\n    return a + b\n"
TESTS = """\
import unittest

from calc import add


class Adding(unittest.TestCase):
    def test_adds(self):
        self.assertEqual(add(2, 3), 5)
"""
SUB = CODE + "\n\ndef sub(a, b):\n    return a - b\n"
SUB_TESTS = TESTS.replace("import add", "import add, sub") + (
    "\n    def test_subtracts(self):\n        self.assertEqual(sub(5, 3), 2)\n"
)
FILES = {"calc.py": CODE, "test_calc.py": TESTS}
COMMIT, SUCCESS = {"commit": "{wp_id}: Do it"}, {"result": "success"}


def project_for(
    folder: Path, code: str, tests: str, *reviews: dict[str, object]
) -> DispatchProject:
    """A package of one requirement, with an implementer that writes these two files."""
    document = package(
        files=["calc.py", "test_calc.py"],
        test="python3 -m unittest",
        deliverables={"code": ["calc.py"], "tests": ["test_calc.py"]},
        requirements=["FR-CALC-002"],
    )
    made = make_project(folder, {"WP01": document}, files=FILES)
    steps: list[Step] = [
        {"write": "calc.py", "content": code},
        {"write": "test_calc.py", "content": tests},
        COMMIT,
        SUCCESS,
    ]
    made.play(
        turn("implement", *steps, round=1), turn("implement", SUCCESS), *(reviews or (approves(),))
    )
    return made


@pytest.mark.demand("E1.a")
def test_an_honest_package_is_done_and_its_page_says_which_tests_notice_the_change(
    tmp_path: Path,
) -> None:
    project = project_for(tmp_path, SUB, SUB_TESTS)
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    page = project.command("show", "WP01", "--evidence").stdout
    assert "FR-CALC-002: noticed by test_calc.py::Adding.test_subtracts" in page
    assert page.index("Requirements") < page.index("- tests bite: passed")
    measured = sorted((project.root / ".phasegate" / "strength").iterdir())
    assert len(measured) == 1


@pytest.mark.demand("E1.a", "E1.b")
def test_a_lost_test_blocks_the_package_until_the_user_accepts_it_by_name(tmp_path: Path) -> None:
    project = project_for(tmp_path, SUB, SUB_TESTS.replace("test_adds", "check_adds"))
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert "lost test: test_calc.py:7: test_calc.py::Adding.test_adds passed" in report.reason
    [finding] = set(re.findall(r"E-[0-9a-f]{6}", report.reason))

    refused = project.command("evidence", "accept", "WP01", "E-000000", "--reason", "no")
    assert (refused.code, finding in refused.stderr) == (2, True)
    done = project.command("evidence", "accept", "WP01", finding, "--reason", "it was wrong")
    assert done.code == 0, done.stderr
    assert project.dispatch().state is PackageState.DONE
    page = project.command("show", "WP01", "--evidence").stdout
    assert "Accepted by the user" in page
    assert "it was wrong" in page
    assert project.audit_problems() == []


@pytest.mark.demand("E1.b")
def test_a_review_that_passes_without_an_answer_to_a_finding_does_not_count(tmp_path: Path) -> None:
    loosened = SUB_TESTS.replace("assertEqual(add(2, 3), 5)", "assertTrue(add(2, 3))")
    project = project_for(tmp_path / "silent", SUB, loosened)
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert "the review passed without an answer to E-" in report.reason
    assert "loosened assertion" in report.reason
    assert [job.phase for job in project.jobs()] == ["implement", "review", "review"]
    # The assertion is weaker by its text, and the test notices less when it is run
    first, second = sorted({*re.findall(r"E-[0-9a-f]{6}", report.reason)})
    assert "Your PASS counts only if" in project.prompt(project.jobs()[1].id)

    answers = turn(
        "review",
        {"print": f"{first}: any sum but 0 is enough here\n{second}: the same assertion"},
        {"verdict": "PASS"},
    )
    answered = project_for(tmp_path / "answered", SUB, loosened, answers)
    assert answered.dispatch().state is PackageState.DONE


@pytest.mark.demand("E1.a")
def test_a_rewritten_script_that_is_the_test_command_has_to_be_answered_for(tmp_path: Path) -> None:
    document = package(
        files=["calc.py", "run.py"], test="python3 run.py", deliverables={"code": ["calc.py"]}
    )
    script = f"{TESTS}\n\nif __name__ == '__main__':\n    unittest.main()\n"
    weak = script.replace("self.assertEqual(add(2, 3), 5)", "self.assertTrue(add(2, 3))")
    reasons = {}
    pages = {}
    for name, written in {"rewritten": weak, "kept": script}.items():
        files = {"calc.py": CODE, "run.py": script}
        project = make_project(tmp_path / name, {"WP01": document}, files=files)
        steps: list[Step] = [
            {"write": "calc.py", "content": SUB},
            {"write": "run.py", "content": written},
            COMMIT,
            SUCCESS,
        ]
        project.play(turn("implement", *steps, round=1), turn("implement", SUCCESS), approves())
        reasons[name] = project.dispatch().reason
        pages[name] = project.command("show", "WP01", "--evidence").stdout
    assert "code outside of the tests lost an assertion: self.assertEqual" in reasons["rewritten"]
    assert "changes the test command: run.py: the test command runs it" in pages["rewritten"]
    assert "changes the test command" not in pages["kept"]
    assert "lost an assertion" not in pages["kept"]


@pytest.mark.demand("E1.c")
def test_a_summary_that_the_tests_print_themselves_does_not_pass_the_manifest(
    tmp_path: Path,
) -> None:
    forged = (
        "import os, sys\nsys.stderr.write('Ran 2 tests in 0.01s\\n\\nOK\\n')\nsys.stderr.flush()\n"
        "os._exit(0)\n"
    )
    project = project_for(tmp_path, "def add(a, b):\n    return 0\n", forged)
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert "the test runner was ended before it finished: 0 tests had passed" in report.reason


@pytest.mark.demand("E1.c")
def test_code_that_replaces_the_assertions_of_the_runner_does_not_pass_the_manifest(
    tmp_path: Path,
) -> None:
    patched = SUB.replace("a + b", "a + b + 1") + (
        "\n\nfrom importlib import import_module\n"
        "import_module('esac.tsettinu'[::-1]).TestCase.assertEqual = lambda *a: None\n"
    )
    report = project_for(tmp_path, patched, SUB_TESTS).dispatch()
    assert report.state is PackageState.BLOCKED
    assert "replaced functions of the test runner: unittest.case.TestCase.assertEqual" in (
        report.reason
    )


# Fails in every other run. The commands of one check share a home folder.
EVERY_OTHER = """\
import pathlib
import unittest


class Sometimes(unittest.TestCase):
    def test_flaky(self):
        count = pathlib.Path.home() / "NAME"
        runs = int(count.read_text()) + 1 if count.exists() else 1
        count.write_text(str(runs))
        self.assertEqual(runs % 2, 0)
"""


@pytest.mark.demand("E3.a")
def test_a_test_that_flakes_on_the_base_is_quarantined_and_an_implementers_own_one_rejects(
    tmp_path: Path,
) -> None:
    flaky = {**FILES, "test_old.py": EVERY_OTHER.replace("NAME", "old")}
    document = package(
        files=["calc.py", "test_calc.py"],
        test="python3 -m unittest",
        requirements=["FR-CALC-002"],
    )
    project = make_project(tmp_path / "old", {"WP01": document}, files=flaky)
    steps = [
        {"write": "calc.py", "content": SUB},
        {"write": "test_calc.py", "content": SUB_TESTS},
        COMMIT,
        SUCCESS,
    ]
    project.play(turn("implement", *steps, round=1), turn("implement", SUCCESS), approves())
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    shown = project.command("check").stdout
    assert "quarantined: test_old.py::Sometimes.test_flaky: passed" in shown

    own = make_project(tmp_path / "own", {"WP01": document}, files=FILES)
    steps[1] = {
        "write": "test_calc.py",
        "content": SUB_TESTS + EVERY_OTHER.replace("NAME", "own").partition("\n\n\n")[2],
    }
    steps[1]["content"] = "import pathlib\n" + steps[1]["content"]
    own.play(turn("implement", *steps, round=1), turn("implement", SUCCESS), approves())
    report = own.dispatch()
    assert report.state is PackageState.BLOCKED
    assert "1 of 3 tests failed" in report.reason
    assert "quarantined" not in own.command("check").stdout
