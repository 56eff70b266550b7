"""The menu on a real pseudo-terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.storage.row_events import workflow_changed_event
from phasegate.storage.rows import WorkflowRow
from support.record import FEATURE, TS, make_repository, open_record

ACTIVE = {
    "active_workflow": {
        "type": "feature",
        "phases": list(WORKFLOWS["feature"]),
        "current_phase_index": 3,
    }
}
PROMPT = r"Choose 1-\d, or q to quit: "
Open = Callable[..., "pexpect.spawn[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.fixture
def menu(project: Path) -> Iterator[Open]:
    """Starts `phasegate` on a terminal of its own, and ends what the test leaves behind."""
    opened: list[pexpect.spawn[str]] = []

    def start(below: str = ".", **variables: str) -> pexpect.spawn[str]:
        environ = {**os.environ, "TERM": "xterm-256color", **variables}
        command = [sys.executable, "-m", "phasegate"]
        options = {
            "cwd": str(project / below),
            "env": environ,
            "encoding": "utf-8",
            "codec_errors": "replace",
            "timeout": 30,
        }
        opened.append(pexpect.spawn(command[0], command[1:], **options))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close(force=True)


def ended(terminal: pexpect.spawn[str]) -> tuple[str, int | None]:
    """What was still said, and the exit code."""
    terminal.expect(pexpect.EOF)
    rest = terminal.before or ""
    terminal.close()
    return rest.replace("\r\n", "\n"), terminal.exitstatus


def shown(terminal: pexpect.spawn[str]) -> str:
    terminal.expect(PROMPT)
    return (terminal.before or "").replace("\r\n", "\n")


def configured(project: Path) -> None:
    (project / "phasegate.toml").write_text("")


def active(project: Path, stage: str = "") -> None:
    configured(project)
    (project / ".isdlc").mkdir()
    (project / ".isdlc/state.json").write_text(json.dumps(ACTIVE))
    own = {"current_phase_index": 3, "stage": stage or "working"}
    (project / ".isdlc/phasegate.json").write_text(json.dumps(own))


def with_code(project: Path) -> None:
    (project / "src").mkdir()
    (project / "src/main.py").write_text("print()\n")


SITUATIONS: dict[str, tuple[Callable[[Path], object], str, list[str]]] = {
    "new": (
        lambda project: None,
        "not set up yet, no code here",
        ["Set Up This Repository", "Help"],
    ),
    "with code": (
        with_code,
        "not set up yet, code found",
        ["Set Up This Repository", "Discover Existing Code"],
    ),
    "idle": (
        configured,
        "no workflow is active",
        [
            "New Feature",
            "Fix",
            "Run Tests",
            "Generate Tests",
            "Full Lifecycle",
            "View Status",
            "Upgrade",
        ],
    ),
    "active": (
        active,
        "feature: Phase 03 - Architecture",
        ["Continue", "Gate Check", "View Status", "Escalate", "Cancel"],
    ),
    "blocked": (
        lambda project: active(project, "blocked"),
        "feature: Phase 03 - Architecture, waits for you",
        ["Resolve", "Continue", "Gate Check", "View Status", "Escalate", "Cancel"],
    ),
}


@pytest.mark.demand("N11.a", "N11.b", "N11.c", "N11.d", "N11.e")
@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_situation_has_its_menu_and_no_block_follows(
    situation: str, project: Path, menu: Open
) -> None:
    prepare, title, labels = SITUATIONS[situation]
    prepare(project)
    terminal = menu()
    box = shown(terminal)
    assert re.match(rf"\+-+\+\n\| PHASEGATE - {title} *\|\n\+-+\+\n", box)
    assert [
        label for label in labels if re.search(rf"^\|  \d\) {label}\b.*\|$", box, re.MULTILINE)
    ] == labels
    terminal.sendline("q")
    rest, code = ended(terminal)
    assert code == 0
    assert "SUGGESTED NEXT STEPS" not in box + rest


def test_a_choice_whose_command_exists_is_run(project: Path, menu: Open) -> None:
    with_code(project)
    terminal = menu()
    shown(terminal)
    terminal.sendline("2")
    rest, code = ended(terminal)
    assert "$ phasegate agent-file install ./.claude/agents\n" in rest
    assert code == 0
    assert (project / ".claude/agents/discover-orchestrator.md").is_file()


def test_from_a_folder_below_agent_files_go_to_the_root(project: Path, menu: Open) -> None:
    with_code(project)
    terminal = menu(below="src")
    shown(terminal)
    terminal.sendline("2")
    rest, code = ended(terminal)
    assert "$ phasegate agent-file install ../.claude/agents\n" in rest
    assert code == 0
    assert (project / ".claude/agents/discover-orchestrator.md").is_file()
    assert not (project / "src/.claude").exists()


def test_help_is_a_choice(menu: Open) -> None:
    terminal = menu()
    shown(terminal)
    terminal.sendline("4")
    rest, code = ended(terminal)
    assert "Usage: phasegate" in rest
    assert code == 0


def test_a_new_feature_is_started_with_what_was_typed_and_nothing_else(
    project: Path, menu: Open
) -> None:
    configured(project)
    terminal = menu()
    shown(terminal)
    terminal.sendline("1")
    terminal.expect("Describe your feature: ")
    terminal.sendline("Add a \x1b[31mlogin; rm -rf .")
    rest, code = ended(terminal)
    assert "$ phasegate start feature 'Add a [31mlogin; rm -rf .'\n" in rest
    assert code != 0  # there is no agent here


def test_cancelling_asks_for_the_reason(project: Path, menu: Open) -> None:
    active(project)
    terminal = menu()
    shown(terminal)
    terminal.sendline("5")
    terminal.expect("Why is the workflow cancelled: ")
    terminal.sendline("not needed")
    assert "phasegate cancel --reason 'not needed'" in ended(terminal)[0]


def test_without_a_description_nothing_is_started(project: Path, menu: Open) -> None:
    configured(project)
    terminal = menu()
    shown(terminal)
    terminal.sendline("2")
    terminal.expect("Describe your bug: ")
    terminal.sendline("")
    rest, code = ended(terminal)
    assert "Nothing was done." in rest
    assert code == 0


def test_wrong_input_is_asked_again_and_not_for_ever(menu: Open) -> None:
    terminal = menu()
    for wrong in ["9", "x", "-1", "1 1", "\u00e9\u0661"]:
        shown(terminal)
        terminal.sendline(wrong)
        terminal.expect("Enter one of the numbers.")
    rest, code = ended(terminal)
    assert "No valid choice: the menu ends." in rest
    assert code == 2


def test_after_a_wrong_answer_a_right_one_still_counts(menu: Open) -> None:
    terminal = menu()
    shown(terminal)
    terminal.sendline("99")
    shown(terminal)
    terminal.sendline("4")
    assert "Usage: phasegate" in ended(terminal)[0]


def leave_by_enter(terminal: pexpect.spawn[str]) -> None:
    terminal.sendline("")


def leave_by_end_of_input(terminal: pexpect.spawn[str]) -> None:
    terminal.sendeof()


@pytest.mark.parametrize("leave", [leave_by_enter, leave_by_end_of_input])
def test_enter_and_end_of_input_leave_politely(
    leave: Callable[[pexpect.spawn[str]], None], menu: Open
) -> None:
    terminal = menu()
    shown(terminal)
    leave(terminal)
    rest, code = ended(terminal)
    assert code == 0
    assert "Traceback" not in rest


def test_an_interrupt_leaves_with_130_and_without_a_traceback(menu: Open) -> None:
    terminal = menu()
    shown(terminal)
    terminal.sendintr()
    rest, code = ended(terminal)
    assert code == 130
    assert "Traceback" not in rest
    assert rest.endswith("\n")


@pytest.mark.parametrize(
    "variables", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, {"TERM": "xterm-256color"}]
)
def test_the_menu_sends_no_colour_codes(
    variables: dict[str, str], project: Path, menu: Open
) -> None:
    configured(project)
    terminal = menu(**variables)
    box = shown(terminal)
    terminal.sendline("q")
    assert "\x1b" not in box + ended(terminal)[0]


def test_bytes_that_are_no_text_are_a_wrong_answer(menu: Open) -> None:
    terminal = menu()
    shown(terminal)
    os.write(terminal.child_fd, b"\xff\xfe\n")
    terminal.expect("Enter one of the numbers.")
    terminal.sendline("q")
    assert ended(terminal)[1] == 0


def test_without_a_terminal_the_short_help_is_shown(project: Path) -> None:
    configured(project)
    done = subprocess.run(
        [sys.executable, "-m", "phasegate"],
        cwd=project,
        capture_output=True,
        text=True,
        input="1\n",
    )
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: phasegate")
    assert "Choose" not in done.stdout


def test_outside_of_a_repository_no_setup_is_offered(project: Path, menu: Open) -> None:
    (project / ".git").rmdir()
    rest, code = ended(menu())
    assert (code, "1)" in rest) == (2, False)
    assert "is not in a git repository" in rest
    assert "git init" in rest


def test_the_menu_of_a_blocked_workflow_gives_the_reason(
    tmp_path: Path, menu: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    location = make_repository(tmp_path)
    active(location.root, "blocked")
    row = WorkflowRow(FEATURE, "quick", "x", "main", "01-a", 0, "blocked", 1, "no\x1b answer", "")
    with open_record(location) as store:
        store.append_unconditionally(FEATURE, TS, [workflow_changed_event(row)])

    terminal = menu("repository")
    assert "+\nwhy: no\\x1b answer\n" in shown(terminal)
    terminal.sendline("q")
    assert ended(terminal)[1] == 0
