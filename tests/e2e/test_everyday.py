"""Small things of every day: documents on a branch, a view that is kept up to date, a log that tells the story."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from support.feature_project import APPROVES, ARCHIVES, FeatureProject, make_feature_project, plans

PHASES = ("01-requirements", "08-code-review")
NOTE = '[workflows.note]\nphases = ["01-requirements", "08-code-review"]\n'
SLUG = "001-say-why"


@pytest.fixture
def project(tmp_path: Path) -> FeatureProject:
    made = make_feature_project(tmp_path, config=NOTE)
    made.play(plans("01-requirements", PHASES), *APPROVES, ARCHIVES)
    return made


@pytest.fixture
def opened() -> Iterator[list[pexpect.spawn[str]]]:
    terminals: list[pexpect.spawn[str]] = []
    yield terminals
    for terminal in terminals:
        terminal.close(force=True)


def in_terminal(folder: Path, *arguments: str, rows: int = 40) -> pexpect.spawn[str]:
    env = {**os.environ, "TERM": "xterm-256color"}
    argv = ["-m", "phasegate", *arguments]
    return pexpect.spawn(
        sys.executable,
        argv,
        cwd=str(folder),
        env=env,
        encoding="utf-8",
        timeout=60,
        dimensions=(rows, 100),
    )


@pytest.mark.demand("W4.a")
def test_the_documents_of_a_feature_in_work_are_listed_and_read_from_its_branch(
    project: FeatureProject,
) -> None:
    assert project.call("run", "note", "Say why").code == 0
    assert not (project.root / "kitty-specs").exists(), "nothing is in the person's checkout yet"
    listed = project.call("artifact", "list").stdout
    assert f"kitty-specs/{SLUG}/spec.md" in listed
    assert f"on feat/{SLUG}" in listed
    assert project.command(
        "artifact", "read", "--feature", "001", "--relative-path", "spec.md"
    ).stdout == project.show(f"feat/{SLUG}", f"kitty-specs/{SLUG}/spec.md")
    project.call(
        "artifact", "write", "--feature", SLUG, "--relative-path", "spec.md", "--content", "mine"
    )
    assert (
        project.command("artifact", "read", "--feature", SLUG, "--relative-path", "spec.md").stdout
        == "mine"
    )
    rows = project.call("artifact", "list", "--feature", "001", "--json").json["artifacts"]
    assert {row["path"]: row["branch"] for row in rows}["spec.md"] == f"feat/{SLUG}"
    assert project.show(f"feat/{SLUG}", f"kitty-specs/{SLUG}/spec.md") == "mine"
    assert not (project.root / "kitty-specs").exists()
    gone = project.command("artifact", "read", "--feature", SLUG, "--relative-path", "nothing.md")
    assert (gone.code, "artifact list" in gone.stderr) == (2, True)


@pytest.mark.demand("W4.a")
def test_status_is_kept_up_to_date_on_a_terminal(
    project: FeatureProject, opened: list[pexpect.spawn[str]]
) -> None:
    refused = project.command("status", "--watch")
    assert (refused.code, "needs a terminal" in refused.stderr) == (2, True)
    project.start("note", "Say why")
    opened.append(terminal := in_terminal(project.root, "status", "--watch"))
    terminal.expect_exact("no process is working on it")
    assert project.call("escalate", "ask Ada").code == 0
    terminal.expect_exact("why: ask Ada")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    assert "why: ask Ada" in (terminal.before or ""), "the last picture stays"


def test_a_view_that_is_higher_than_the_terminal_is_cut(
    project: FeatureProject, opened: list[pexpect.spawn[str]]
) -> None:
    project.start("note", "Say why")
    opened.append(terminal := in_terminal(project.root, "status", "--watch", rows=5))
    terminal.expect(r"\.\.\. and \d+ more lines")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)


@pytest.mark.demand("W6.f")
def test_a_log_of_stdout_alone_tells_the_whole_story(
    project: FeatureProject, tmp_path: Path
) -> None:
    command = (
        f'"{sys.executable}" -m phasegate run note "Say why" > "{tmp_path}/out" 2> "{tmp_path}/err"'
    )
    assert os.system(f'cd "{project.root}" && {command}') == 0
    out, err = (tmp_path / "out").read_text(), (tmp_path / "err").read_text()
    for line in (
        "01-requirements: round 1, plan by actor",
        "GATE-01 PASSED",
        "then: phasegate complete",
    ):
        assert out.count(f"{line}\n") == 1, out
    assert err.count("01-requirements: round 1, plan by actor\n") == 1
    assert out.rstrip().endswith("---"), "the block is the last thing of all"
    both = f'"{sys.executable}" -m phasegate run > "{tmp_path}/both" 2>&1'
    assert os.system(f'cd "{project.root}" && {both}') == 0
    assert (tmp_path / "both").read_text().count("then: phasegate complete\n") == 1


def test_a_demo_that_is_broken_off_names_no_command_for_a_folder_that_is_gone(
    tmp_path: Path, opened: list[pexpect.spawn[str]]
) -> None:
    opened.append(terminal := in_terminal(tmp_path, "demo"))
    terminal.expect_exact("round 1, plan by")
    assert "linked worktree" not in (terminal.before or "")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    assert "is stopped" in (terminal.before or "")
    assert "then: " not in (terminal.before or "")


ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.demand("W6.f")
def test_an_ascii_terminal_never_gets_a_traceback(tmp_path: Path) -> None:
    """What cannot be printed is in a description, a document and a reason; the run itself is made there too."""
    project = make_feature_project(tmp_path)
    why = "Grüße – 你好"
    assert project.program("run", "quick", why, env=ASCII).code == 0
    assert project.program("escalate", why, env=ASCII).code == 0
    commands = (
        "status",
        "status --all",
        "status WP01",
        "status --feature 001",
        "show WP01 --prompt",
        "show 06 --diff",
        "show 01 --answer",
        "package show WP01",
        "plan show",
        "trace",
        "audit show --chain",
        "artifact list",
        "template show claude plan",
        "nonsense-ü",
        "show ü",
        "--help",
    )
    for command in commands:
        done = project.program(*command.split(), env=ASCII)
        assert done.code in (0, 1, 2), (command, done)
        assert "Traceback" not in done.stderr, (command, done.stderr)
    assert "Gr\\xfc\\xdfe" in project.program("status", env=ASCII).stdout
    assert why in project.command("status").stdout, "the control: what is recorded is whole"


@pytest.mark.long
def test_a_kept_demo_verifies_afterwards_as_it_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "phasegate", "demo", "--keep", str(tmp_path / "kept")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done
    assert "linked worktree" not in done.stderr
    look_around = done.stdout.rpartition("To inspect it: ")[2].strip()
    verify = f'{look_around} && "{sys.executable}" -m phasegate audit verify'
    verified = subprocess.run(["sh", "-c", verify], capture_output=True, text=True, timeout=60)
    assert (verified.returncode, verified.stdout.startswith("verified: ")) == (0, True), verified
