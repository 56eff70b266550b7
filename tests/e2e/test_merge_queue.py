"""Features that are ready merge one after the other, each tested on top of the one before."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.core.machine.feature_events import SentBack
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from support.dispatch_project import turn
from support.feature_project import (
    DESCRIPTION,
    PASS,
    SLUG,
    TEST,
    builds,
    file,
    make_feature_project,
    smooth,
)

# What the second feature asks of everybody: it passes where nobody says bye.
POLITE = """\
import pathlib
import unittest


class Polite(unittest.TestCase):
    def test_who_says_bye_is_polite(self):
        bye = pathlib.Path("bye.py")
        self.assertTrue(not bye.exists() or "# politely" in bye.read_text(), "bye.py is not polite")
"""
SECOND = "002-ask-for-manners"
ASKS = (
    builds("WP01", file("test_polite.py", POLITE)),
    builds("WP02", file("manners.md", "Be polite.\\n")),
)
MANNERS = builds(
    "WP03", {"run": ["sh", "-c", 'grep -q "not polite" WP03.md && echo "# politely" >> bye.py']}
)


@pytest.mark.demand("X7.j")
def test_the_offender_of_a_red_combination_is_named_sent_back_and_merged_when_it_is_right(
    tmp_path: Path,
) -> None:
    made = make_feature_project(tmp_path)
    phases = WORKFLOWS["quick"]
    made.play(MANNERS, *smooth(phases))
    assert made.call("run", "quick", DESCRIPTION).code == 0
    tasks = [{**one, "steps": _of_second(one["steps"])} for one in smooth(phases)]
    made.play(*ASKS, *tasks)
    second = made.call("run", "quick", "Ask for manners", "--merge")
    assert second.code == 0, second.stderr
    assert made.feature(SECOND).workflow.stage is Stage.COMPLETED, "the other one goes on"
    made.play(MANNERS, *smooth(phases))
    first = made.call("run", "--merge", "--feature", SLUG)
    assert first.code == 0, first.stderr
    (sent,) = [event for event in made.happened() if isinstance(event, SentBack)]
    assert SECOND in sent.reason
    assert "bye.py is not polite" in sent.findings
    assert made.packages()["WP03"].state == "DONE"
    assert "# politely" in made.show("main", "bye.py")
    assert "test_polite.py" in made.files_of("main")
    assert made.audit_problems() == []


@pytest.mark.demand("X7.j")
def test_status_tells_early_which_features_change_the_same_files_and_whether_they_conflict(
    tmp_path: Path,
) -> None:
    made = make_feature_project(tmp_path)
    slugs = [made.start("quick", text) for text in ("Say bye", "Greet well", "Stand apart")]
    for slug, content in zip(slugs, ("a = 1\n", "a = 2\n", ""), strict=True):
        made.git("checkout", "-q", "-b", f"feat/{slug}", "main")
        name = "greet.py" if content else "apart.py"
        (made.root / name).write_text(content)
        made.git("add", name)
        made.git("commit", "-qm", slug)
    made.git("checkout", "-q", "main")
    told = made.call("status")
    assert "001 and 002 both change greet.py: they conflict in greet.py" in told.stdout, told
    assert "003 and" not in told.stdout
    assert "and 003" not in told.stdout


GOODBYE = "def bye(name):\n    return f'Goodbye, {name}'\n"
BOTH = "def bye(name):\n    return f'Bye and goodbye, {name}'\n"
MERGES = builds(
    "WP03",
    {"run": ["sh", "-c", "grep -q 'Apply this change' WP03.md && grep -q \"+.*'Bye, \" WP03.md"]},
    file("bye.py", BOTH),
)


def test_a_conflict_is_announced_at_the_plan_and_solved_by_an_agent_before_a_user_is_asked(
    tmp_path: Path,
) -> None:
    made = make_feature_project(tmp_path)
    phases = WORKFLOWS["quick"]
    assert made.call("run", "quick", DESCRIPTION).code == 0
    archives = turn("archive", file("CHANGELOG.md", "# Changelog\n\n- Goodbye.\n"), PASS)
    says_goodbye = builds(
        "WP01", file("bye.py", GOODBYE), file("test_bye.py", TEST.format(module="bye"))
    )
    made.play(says_goodbye, archives, *smooth(phases))
    second = made.call("run", "quick", "Ask for manners", "--merge")
    assert second.code == 0, second.stderr
    assert f"{SLUG} is planned to change the same files: bye.py" in second.stderr
    made.play(MERGES, *smooth(phases))
    first = made.call("run", "--merge", "--feature", SLUG)
    assert first.code == 0, first.stderr
    (sent,) = [event for event in made.happened() if isinstance(event, SentBack)]
    assert f"changed the same lines: bye.py; merged since it started: {SECOND}" in sent.reason
    assert "git merge main" in sent.remediation
    assert made.show("main", "bye.py") == BOTH
    changelog = made.show("main", "CHANGELOG.md")
    assert "- Goodbye.\n" in changelog
    assert "- People are told bye.\n" in changelog
    assert made.audit_problems() == []


def _of_second(steps: object) -> object:
    """The second feature plans another file than the first one."""
    assert isinstance(steps, list)
    return [
        {
            **step,
            "content": str(step["content"])
            .replace("bye.py, test_bye.py", "test_polite.py")
            .replace("docs.md", "manners.md"),
        }
        if "content" in step
        else step
        for step in steps
    ]
