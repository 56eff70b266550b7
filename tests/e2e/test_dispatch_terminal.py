"""What `dispatch` shows while it works: one line on a real pseudo-terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import re
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from support.dispatch_project import FILES, DispatchProject, approves, implements, make_project
from support.quick_dispatch import two_agents_two_rounds
from support.sandboxed import eventually, processes_with

WIPE = "\r\x1b[2K"
HANGS = "cat > /dev/null\nsleep 600\n:\n"  # the shell stays: its command line tells that it runs


def start(
    project: DispatchProject, term: str = "xterm-256color", columns: int = 100
) -> pexpect.spawn[str]:
    return pexpect.spawn(
        sys.executable,
        ["-m", "phasegate", "dispatch", "WP01"],
        cwd=str(project.root),
        env={**os.environ, "TERM": term},
        encoding="utf-8",
        timeout=60,
        dimensions=(24, columns),
    )


@pytest.fixture
def opened() -> Iterator[list[pexpect.spawn[str]]]:
    terminals: list[pexpect.spawn[str]] = []
    yield terminals
    for terminal in terminals:
        terminal.close(force=True)


def on_screen(written: str) -> list[str]:
    """The lines that are left on a terminal: each wipe takes back what stands in the last one."""
    # After a wipe it goes up and feeds a line, so that the next text begins after a line feed
    text = written.replace("\x1b[1A\r\n", "").replace("\r\n", "\n")
    lines = [line.rpartition("\x1b[2K")[2] for line in text.split("\n")]
    assert not any("\x1b" in line for line in lines), lines
    return lines


def test_a_terminal_has_one_line_kept_up_to_date_and_nothing_of_it_stays(
    tmp_path: Path, opened: list[pexpect.spawn[str]]
) -> None:
    project = two_agents_two_rounds(tmp_path)
    terminal = start(project)
    opened.append(terminal)
    terminal.expect(pexpect.EOF)
    written = terminal.before or ""
    line = r"WP01  DOING  round 1/5  implement by actor \(agent 0\), actor \(agent 1\)  0:\d\d"
    assert re.search(re.escape(WIPE) + line, written)
    assert re.search(r"WP01  FOR_REVIEW  round 2/5  review by actor  0:\d\d", written)
    left = on_screen(written)
    assert not any("round 1/5  " in one for one in left), "the line itself is wiped"
    assert "WP01: round 2, review by actor" in left
    assert left[-2].startswith("WP01 DONE: feat/001-user-login-WP01 at ")
    assert sum("PROJECT_CONTEXT" in one for one in left) == 1, "six agents, one note"


def test_a_narrow_terminal_gets_as_much_of_the_line_as_fits(
    tmp_path: Path, opened: list[pexpect.spawn[str]]
) -> None:
    terminal = start(two_agents_two_rounds(tmp_path), columns=30)
    opened.append(terminal)
    terminal.expect(pexpect.EOF)
    drawn = re.findall(r"\r\x1b\[2K(WP01  [^\r\n]*)", terminal.before or "")
    assert drawn
    assert max(map(len, drawn)) == 29


def test_the_line_shows_what_an_agent_did_last(
    tmp_path: Path, opened: list[pexpect.spawn[str]]
) -> None:
    terminal = start(
        two_agents_two_rounds(tmp_path, script=f"echo 'I read the plan'\n{HANGS}"), columns=120
    )
    opened.append(terminal)
    terminal.expect(r"implement by actor \(agent 0\), actor \(agent 1\)  0:\d\d  I read the plan")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)


def test_ctrl_c_ends_the_agents_and_leaves_the_terminal_as_it_was(
    tmp_path: Path, opened: list[pexpect.spawn[str]]
) -> None:
    project = two_agents_two_rounds(tmp_path, script=HANGS)
    terminal = start(project)
    opened.append(terminal)
    before = termios.tcgetattr(terminal.fileno())
    terminal.expect(r"implement by actor \(agent 0\), actor \(agent 1\)")
    assert eventually(lambda: len(processes_with(str(project.scenario))) >= 2)
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    written = terminal.before or ""
    after = termios.tcgetattr(terminal.fileno())
    terminal.close()
    assert terminal.exitstatus == 130
    assert after == before
    assert on_screen(written)[-3:] == [
        "WP01: stopped; dispatch it again to continue",
        "",
        "",
    ]
    assert "\x1b[?25l" not in written, "the cursor was never hidden"
    assert "Traceback" not in written
    assert eventually(lambda: processes_with(str(project.scenario)) == [])
    assert [job.outcome for job in project.jobs()] == ["lost", "lost"]


def test_elsewhere_there_are_plain_lines(tmp_path: Path, opened: list[pexpect.spawn[str]]) -> None:
    (tmp_path / "pipe").mkdir()
    piped = two_agents_two_rounds(tmp_path / "pipe").command("dispatch", "WP01", "--json")
    assert (piped.code, piped.json["state"]) == (0, "DONE")
    assert "\x1b" not in piped.stderr
    assert "WP01 DOING -> FOR_REVIEW\n" in piped.stderr
    (tmp_path / "dumb").mkdir()
    terminal = start(two_agents_two_rounds(tmp_path / "dumb"), term="dumb")
    opened.append(terminal)
    terminal.expect(pexpect.EOF)
    assert "\x1b" not in (terminal.before or "")


@pytest.mark.demand("R4.e")
def test_a_setup_that_takes_its_time_is_shown_with_a_clock(
    tmp_path: Path, opened: list[pexpect.spawn[str]]
) -> None:
    project = make_project(
        tmp_path, run='\n[checks.python]\nsetup = "sleep 2"\n', files={**FILES, "setup.cfg": ""}
    )
    project.play(implements("src/login.ts"), approves())
    terminal = start(project, columns=120)
    opened.append(terminal)
    terminal.expect(r"setup running, 0:0\d")
    terminal.expect(pexpect.EOF)
    assert not any("running" in line for line in on_screen(terminal.before or ""))
