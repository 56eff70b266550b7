"""The command line as a person meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from phasegate.interfaces.cli.commands import COMMANDS
from phasegate.interfaces.cli.main import MAIN_COMMANDS
from support import entry
from support.git_project import make_repository

GOOD = "---\nSUGGESTED NEXT STEPS:\n  [1] Go on\n  [2] Show workflow status\n---\n"


def phasegate(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "phasegate", *arguments]
    return subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=60)


def imported_by(code: str, cwd: Path) -> set[str]:
    """The top-level modules that are loaded after running some code in a fresh interpreter."""
    script = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}}, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.demand("N13.b")
def test_importing_phasegate_loads_no_third_party_module(tmp_path: Path) -> None:
    extra = imported_by("import phasegate", tmp_path) - imported_by("pass", tmp_path)
    assert extra == {"phasegate", "__future__"}


@pytest.mark.demand("N13.b")
def test_the_hook_loads_little_besides_itself(tmp_path: Path) -> None:
    (tmp_path / ".isdlc").mkdir()
    (tmp_path / ".isdlc/state.json").write_text(
        '{"active_workflow": {"phases": ["01-a"], "current_phase_index": 0}}'
    )
    run = (
        "sys.argv = ['phasegate', 'next']\nfrom phasegate.__main__ import main\nassert main() == 0"
    )
    extra = imported_by(run, tmp_path) - imported_by("pass", tmp_path)
    # Built in, and so for nothing; some interpreters have it from their start.
    assert extra - {"errno", "gc"} == {"phasegate", "__future__", "_json"}


@pytest.mark.demand("X8.e")
def test_no_command_without_a_bucket_loads_a_client_for_one_and_none_that_only_shows(
    tmp_path: Path,
) -> None:
    make_repository(tmp_path / "repo", {"a.txt": "a\n"})
    run = "import io, contextlib\nfrom phasegate.interfaces.cli.main import run_command\n"
    run += "with contextlib.redirect_stdout(io.StringIO()): run_command({!r})"
    words = (["start", "quick", "Say bye"], ["audit", "verify"], ["status"], ["config"])
    for arguments in words:
        assert not {"obstore", "temporalio"} & imported_by(run.format(arguments), tmp_path / "repo")
    (tmp_path / "repo/phasegate.toml").write_text('[storage]\nendpoint = "http://127.0.0.1:9"\n')
    for arguments in words[1:]:
        assert not {"obstore", "temporalio"} & imported_by(run.format(arguments), tmp_path / "repo")
    # Every command's page, and those that look: in one process, since none of them may.
    (tmp_path / "repo/phasegate.toml").write_text("")
    looks = "import io, contextlib\nfrom phasegate.interfaces.cli.commands import COMMANDS\nfrom phasegate.interfaces.cli.main import run_command\n"
    looks += "asked = [[name, '--help'] for name in COMMANDS] + [line.split() for line in {!r}.splitlines()]\n"
    looks += "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
    looks += "    for arguments in asked: run_command(arguments)\n"
    lines = "status --json\nshow WP01\npackage list\nplan show\nworktree list\naudit show\nboard list\nspec check\n"
    assert not {"obstore", "temporalio"} & imported_by(looks.format(lines), tmp_path / "repo")
    (tmp_path / "repo/phasegate.toml").write_text('[storage]\nendpoint = "http://127.0.0.1:9"\n')
    loaded = imported_by(run.format(["start", "quick", "Say hi"]), tmp_path / "repo")
    assert "obstore" in loaded, "control"
    assert "temporalio" not in loaded


@pytest.mark.demand("N8.k", "N8.l")
@pytest.mark.parametrize(
    "state", ["{", "", "[1,", '{"a": }', '{"active_workflow": nul}', "\ufeff{}", "NaN", "[" * 9999]
)
def test_a_malformed_state_is_silent_in_a_process_of_its_own(state: str, tmp_path: Path) -> None:
    """In this process `json` is loaded, and the scanner inside it behaves better."""
    (tmp_path / ".isdlc").mkdir()
    (tmp_path / ".isdlc/state.json").write_text(state)
    shown = phasegate("next", cwd=tmp_path)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")


def test_every_command_has_help(tmp_path: Path) -> None:
    for name, (_, _, line) in COMMANDS.items():
        shown = entry.phasegate(name, "--help", cwd=tmp_path)
        assert shown.code == 0, name
        assert shown.stdout.startswith(f"Usage: phasegate {name}")
        assert line.endswith(".")


def test_the_first_help_page_has_fourteen_commands_and_help_all_has_every_one(
    tmp_path: Path,
) -> None:
    first = phasegate("--help", cwd=tmp_path).stdout
    everything = phasegate("help", "--all", cwd=tmp_path).stdout
    for name, (_, _, line) in COMMANDS.items():
        assert f"  {name} " in everything
        assert line.split()[0] in everything
        assert (f"\n  {name} " in first) == (name in MAIN_COMMANDS)
    assert len(MAIN_COMMANDS) == 14
    assert phasegate("help", "run", cwd=tmp_path).stdout.startswith("Usage: phasegate run")


def test_a_group_without_a_subcommand_shows_or_lists(tmp_path: Path) -> None:
    assert phasegate("config", cwd=tmp_path).stdout.startswith("run.")
    listed = phasegate("template", "--json", cwd=tmp_path)
    assert listed.returncode == 0
    assert json.loads(listed.stdout)
    helped = phasegate("otel", cwd=tmp_path)
    assert (helped.returncode, helped.stdout[:21]) == (0, "Usage: phasegate otel")


def test_with_json_an_error_is_an_object_too(tmp_path: Path) -> None:
    shown = phasegate("package", "show", "--nonsense", "--json", cwd=tmp_path)
    assert json.loads(shown.stdout) == {
        "error": "no such option '--nonsense'",
        "hint": "phasegate package show --help",
        "exit_code": 2,
    }
    assert "phasegate: no such option" in shown.stderr


def test_without_a_terminal_the_bare_command_shows_help(tmp_path: Path) -> None:
    shown = phasegate(cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("Usage: phasegate")


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [("blok", "block"), ("stat", "status"), ("merge", "complete"), ("version", "--version")],
)
def test_an_unknown_command_is_met_with_the_right_one(
    tmp_path: Path, typed: str, suggested: str
) -> None:
    shown = phasegate(typed, cwd=tmp_path)
    assert shown.returncode == 2
    assert f"did you mean: phasegate {suggested}" in shown.stderr


def test_a_good_block_is_accepted(tmp_path: Path) -> None:
    assert phasegate("block", "check", cwd=tmp_path, stdin=GOOD).returncode == 0
    (tmp_path / "answer.txt").write_text(GOOD)
    assert phasegate("block", "check", "answer.txt", cwd=tmp_path).returncode == 0


def test_a_bad_block_is_refused_with_a_line_for_each_rule(tmp_path: Path) -> None:
    shown = phasegate(
        "block", "check", cwd=tmp_path, stdin=GOOD.replace("[2]", "[3]").replace("\n", "\r\n")
    )
    assert shown.returncode == 1
    assert [line.split(":")[0] for line in shown.stdout.splitlines()] == ["numbering", "crlf"]


def test_the_blocks_errors_are_given_to_programs(tmp_path: Path) -> None:
    shown = phasegate("block", "check", "--kind", "status", "--json", cwd=tmp_path, stdin=GOOD)
    assert shown.returncode == 1
    assert json.loads(shown.stdout) == {"kind": "status", "ok": False, "errors": ["menu-in-status"]}


def test_a_file_that_cannot_be_read_is_named_with_a_hint(tmp_path: Path) -> None:
    shown = phasegate("block", "check", "missing.txt", cwd=tmp_path)
    assert shown.returncode == 2
    assert "missing.txt" in shown.stderr
    assert "hint:" in shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--event", "nonsense"),
        ("--phase",),
        ("--phase", "x", "--event", "blocker"),
        ("extra",),
        ("--nonsense",),
    ],
)
def test_wrong_arguments_of_next_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    shown = phasegate("next", *arguments, cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith("phasegate: ")
    assert "hint: phasegate" in shown.stderr


def test_next_has_help_and_json(tmp_path: Path) -> None:
    assert "Examples:" in phasegate("next", "--help", cwd=tmp_path).stdout
    shown = phasegate("next", "--event", "workflow-cancelled", "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["items"] == ["Start a new feature", "View project status"]


def test_the_version_is_told(tmp_path: Path) -> None:
    assert phasegate("--version", cwd=tmp_path).stdout.startswith("phasegate 0.")


def in_bash(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f"phasegate() {{ '{sys.executable}' -m phasegate \"$@\"; }}; {script}"]
    return subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "command",
    [
        "next --event blocker",
        "next --event workflow-completed",
        "--help",
        "agent-file list",
        "config show",
    ],
)
def test_a_full_disk_is_said_in_words(tmp_path: Path, command: str) -> None:
    (tmp_path / ".isdlc").mkdir()
    (tmp_path / ".isdlc/state.json").write_text(
        '{"active_workflow": {"phases": ["01-a"], "current_phase_index": 0}}'
    )
    shown = in_bash(f"phasegate {command} > /dev/full", tmp_path)
    assert shown.returncode == 3
    assert shown.stderr.startswith("phasegate: cannot write")
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    "command", ["next --event workflow-completed", "agent-file list", "config show", ""]
)
def test_a_closed_stdout_is_no_error(tmp_path: Path, command: str) -> None:
    shown = in_bash(f"phasegate {command} >&-", tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")


def test_a_closed_stdin_is_said_in_words(tmp_path: Path) -> None:
    shown = in_bash("phasegate block check <&-", tmp_path)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "hint: pass a readable file" in shown.stderr
    assert in_bash("phasegate <&-", tmp_path).stdout.startswith("Usage: phasegate")


@pytest.mark.parametrize("before", [[], ["next"], ["block", "check", "x"], ["next", "--event"]])
def test_what_was_typed_does_not_steer_the_terminal(tmp_path: Path, before: list[str]) -> None:
    terminal = pexpect.spawn(
        sys.executable,
        ["-m", "phasegate", *before, "\x1b[31mred"],
        cwd=str(tmp_path),
        encoding="utf-8",
        timeout=30,
    )
    terminal.expect(pexpect.EOF)
    assert "red" in (terminal.before or "")
    assert "\x1b" not in (terminal.before or "")


def test_a_person_at_a_terminal_is_told_what_is_waited_for(tmp_path: Path) -> None:
    terminal = pexpect.spawn(
        sys.executable,
        ["-m", "phasegate", "block", "check"],
        cwd=str(tmp_path),
        encoding="utf-8",
        timeout=30,
    )
    terminal.expect("end the input with Ctrl-D")
    terminal.sendline("Done.")
    terminal.sendeof()
    terminal.expect("no-block")
