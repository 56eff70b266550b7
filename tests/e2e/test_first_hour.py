"""What people do in their first hour with it: wrong words, wrong places, a reader that goes away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pexpect
import pytest

from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.interfaces.cli.commands import COMMANDS
from phasegate.interfaces.cli.main import app
from support.dispatch_project import Done, turn
from support.entry import phasegate
from support.feature_project import (
    APPROVES,
    ARCHIVES,
    PASS,
    FeatureProject,
    make_feature_project,
    plans,
)
from support.git_project import git, make_repository

PHASES = ("01-requirements", "08-code-review")
DOCUMENTS = ("proposal.md", "spec.md")
NOTE = '[workflows.note]\nphases = ["01-requirements", "08-code-review"]\n'


@pytest.fixture
def project(tmp_path: Path) -> FeatureProject:
    made = make_feature_project(tmp_path, config=NOTE)
    made.play(plans("01-requirements", PHASES), *APPROVES, ARCHIVES)
    return made


def in_bash(folder: Path, script: str) -> Done:
    command = [
        "bash",
        "-c",
        f"phasegate() {{ '{sys.executable}' -m phasegate \"$@\"; }}; set -o pipefail; {script}",
    ]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.demand("W6.c")
@pytest.mark.parametrize("streams", ["2>said", "2>&1"])
def test_a_run_goes_on_when_its_reader_has_gone(project: FeatureProject, streams: str) -> None:
    done = in_bash(project.root, f'phasegate run note "Say why" {streams} | head -1')
    assert done.code == 0, done
    said = project.root / "said"
    assert "Traceback" not in done.stderr + (said.read_text() if said.exists() else "")
    assert project.command("status", "--json").json["workflow"]["phase"] == PHASES[-1]


@pytest.mark.parametrize("command", ["config show", "start note why", "--help", "run --help"])
def test_a_reader_that_goes_early_is_no_failure(project: FeatureProject, command: str) -> None:
    done = in_bash(project.root, f"phasegate {command} | true")
    assert (done.code, "Traceback" in done.stderr) == (0, False)


def test_a_closed_stdout_does_not_stop_a_run(project: FeatureProject) -> None:
    assert in_bash(project.root, 'phasegate run note "Say why" >&-').code == 0


def test_a_sentence_alone_starts_the_default_workflow(project: FeatureProject) -> None:
    project.command("run", "Add a login form", "--step")
    status = project.command("status", "--json")
    assert '"type":"feature"' in status.stdout.replace(" ", "")
    assert "add-a-login-form" in status.stdout


def test_words_without_quotes_are_refused_with_the_remedy(project: FeatureProject) -> None:
    done = project.command("run", "feature", "Add", "a", "login", "form")
    assert (done.code, "quote text" in done.stderr) == (2, True)
    assert "in quotes" not in project.command("demo", "x").stderr


def test_bytes_that_are_no_text_are_recorded_as_such(project: FeatureProject) -> None:
    begun = in_bash(project.root, r"phasegate start note $'caf\xe9 cr\xc3\xa8me'")
    assert begun.code == 0, begun
    assert project.command("status", "--json").json["workflow"]["description"] == "caf\ufffd crème"
    for order in ("escalate $'\\xff'", "resolve $'\\xff'", "cancel --reason $'\\xff'"):
        assert in_bash(project.root, f"phasegate {order}").code == 0
    assert project.command("audit", "verify").code == 0


def test_a_bare_repository_is_called_one(project: FeatureProject, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    git(tmp_path, "clone", "--bare", "-q", str(project.root), str(bare))
    for command in ("init", "status", "run", "audit verify"):
        done = in_bash(bare, f"phasegate {command}")
        assert (done.code, "is a bare repository" in done.stderr, "git clone" in done.stderr) == (
            2,
            True,
            True,
        )


@pytest.mark.demand("D10.d")
def test_a_linked_worktree_is_shown_the_settings_that_hold(
    project: FeatureProject, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    git(project.root, "worktree", "add", "-q", "-b", "side", str(linked))
    (linked / "phasegate.toml").write_text("[run]\nparallel = 7\n")
    assert in_bash(linked, "phasegate config path").stdout.strip() == str(
        project.root / "phasegate.toml"
    )
    assert "run.parallel = 2" in in_bash(linked, "phasegate config show").stdout
    begun = in_bash(linked, "phasegate start note why")
    assert "the feature starts from side" in begun.stderr
    assert str(project.root) in begun.stderr, "where its record and its settings are"
    assert "linked" not in project.command("start", "note", "why").stderr


def test_what_is_empty_is_said(project: FeatureProject) -> None:
    project.command("start", "note", "why")
    project.command("cancel", "--reason", "no")
    assert project.command("package", "list").stdout == "no work packages are loaded\n"
    assert project.command("worktree", "list").stdout == "no package is ready\n"
    assert project.command("package", "list", "--json").json == []


@pytest.mark.demand("W4.b")
def test_status_names_every_workflow_that_has_not_ended(project: FeatureProject) -> None:
    for what in ("one", "two", "three"):
        project.command("start", "note", what)
    project.command("cancel", "--reason", "no", "--feature", "002-two")
    told = "also stopped: 001-one, 01-requirements; continue: phasegate run --feature 001-one\n"
    assert told in project.command("status").stdout
    others = project.command("status", "--json").json["others"]
    assert [(card["feature"], card["standing"]) for card in others] == [("001-one", "stopped")]
    assert "also stopped" not in project.command("status", "--feature", "001-one").stdout


def test_nothing_on_record_is_said(project: FeatureProject) -> None:
    assert (
        project.command("audit", "verify").stdout
        == "note: nothing has been recorded in this repository yet\n"
    )
    assert project.command("resolve", "nothing").code == 4  # which makes the store
    assert project.command("audit", "verify").stdout == "nothing is recorded yet\n"


def test_an_empty_list_names_what_was_looked_for(project: FeatureProject) -> None:
    assert (
        project.command("audit", "show", "--feature", "009-nope").stdout
        == "no trails for 009-nope\n"
    )


def test_a_prompt_is_whole_or_not_written(project: FeatureProject) -> None:
    done = project.command(
        "prompt", "show", "--agent", "claude", "--phase", "plan", "--file", "nope", "Do it"
    )
    assert (done.code, done.stdout, "cannot read nope" in done.stderr) == (2, "", True)


def test_what_takes_long_says_what_it_waits_for(tmp_path: Path) -> None:
    slow = tmp_path / "codex"
    slow.write_text("#!/bin/sh\nsleep 3\necho 1.2.3\n")
    slow.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "TERM": "xterm"}
    terminal = pexpect.spawn(
        sys.executable,
        ["-m", "phasegate", "agents"],
        cwd=str(tmp_path),
        env=env,
        encoding="utf-8",
        timeout=60,
    )
    terminal.expect("reading the versions of the agents  0:0[0-9]")
    terminal.expect(r"\x1b\[2K\x1b\[1A\r\ncodex ")  # wiped before the answer


PATHS = """
[agents.strict]
harness = "scripted"
scenario = "../scenario.json"
template = "STRICT"
[paths]
project_file = "docs/agents.md"
templates = "prompts"
features = "specs"
worktrees = "trees"
"""


@pytest.mark.demand("T1.a", "D10.d")
def test_paths_lie_where_the_settings_say(tmp_path: Path) -> None:
    project = make_feature_project(tmp_path, config=NOTE + PATHS)
    for name, text in {
        "docs/agents.md": "Speak plainly.",
        "prompts/STRICT-review.md": "Be strict.",
    }.items():
        (project.root / name).parent.mkdir()
        (project.root / name).write_text(text)
    git(project.root, "add", "--all")
    git(project.root, "commit", "-q", "-m", "Say where things are")
    writes = turn(
        "plan",
        *({"write": f"specs/{{feature_slug}}/{name}", "content": "x"} for name in DOCUMENTS),
        PASS,
    )
    project.play(writes, *APPROVES)
    assert project.command("run", "note", "Say why", "--agent", "strict").code == 0
    prompts = [path.read_text() for path in (project.root / ".phasegate/jobs").glob("*/prompt.xml")]
    assert [text for text in prompts if "Speak plainly." in text and "Planning: writer" in text]
    assert [text for text in prompts if "Be strict." in text]
    assert project.command("template", "show", "strict", "review").stdout == "Be strict.\n"
    assert (
        "Speak plainly."
        in project.command("prompt", "show", "--agent", "claude", "--phase", "plan", "Do").stdout
    )
    project.command(
        "artifact", "write", "--feature", "001-say-why", "--relative-path", "x.md", "--content", "y"
    )
    assert (
        "specs/001-say-why/x.md  1 bytes  in the record\n"
        in project.command("artifact", "list").stdout
    )
    assert git(project.root, "status", "--short").strip() == ""


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield (*path, name), command


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*one, id=" ".join(one[0])) for one in commands(app)]
)
def test_every_help_page_has_an_example(path: tuple[str, ...], command: click.Command) -> None:
    assert f"phasegate {' '.join(path)}" in (command.help or "")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_help_page_cuts_a_sentence_off(name: str) -> None:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    assert "...\n" not in command.get_help(click.Context(command)).partition("\n")[2]


def test_help_names_every_workflow() -> None:
    for name in ("run", "start"):
        command = app.get_command(click.Context(app), name)
        assert command is not None
        assert all(type_ in (command.help or "") for type_ in WORKFLOWS)


def test_a_folder_where_a_file_is_meant_and_names_of_nothing_are_told_as_such(
    project: FeatureProject,
) -> None:
    (project.root / "adir").mkdir()
    project.start("note", "Say why")
    (project.root / "kitty-specs/001-say-why/sub").mkdir(parents=True)
    (project.root / "agentd/project.md").mkdir(parents=True)
    artifact = ("artifact", "read", "--feature", "001", "--relative-path", "sub")
    refusals = {
        ("block", "check", "adir"): "adir is a folder, not a file",
        (
            "artifact",
            "write",
            "--feature",
            "001-say-why",
            "--relative-path",
            "x",
            "--file",
            "adir",
        ): "adir is a folder",
        artifact: "artifact sub: it is a folder, not a file",
        ("template", "lint", "adir"): "no templates found in adir",
        ("show", "adir"): "'adir' is neither a package nor a phase",
        ("show", "wp1"): "there is no WP01",
        ("show", "requirments"): "did you mean `requirements`?",
        ("package", "list", "--feature", "nope"): "there is no recorded feature nope",
        ("worktree", "list", "--feature", "nope"): "there is no recorded feature nope",
    }
    for command, said in refusals.items():
        done = project.call(*command)
        assert (done.code, said in done.stderr, "hint: " in done.stderr) == (2, True, True), (
            command,
            done,
        )
    project.scenario.unlink()
    project.scenario.mkdir()
    done = project.call("run")
    assert (done.code, "is a folder, not a file" in done.stderr) == (2, True)
    shown = project.command("prompt", "show", "--agent", "claude", "--phase", "plan", "Do")
    assert (shown.code, "agentd/project.md is a folder, not a file" in shown.stderr) == (
        2,
        True,
    ), shown


def test_a_run_without_a_sign_in_is_refused_before_anything_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repository(tmp_path / "repo", {"README.md": "Empty.\n"}).root
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    refused = phasegate("run", "quick", "Say bye", cwd=root)
    assert (refused.code, "claude cannot run: neither a sign-in nor a key" in refused.stderr) == (
        2,
        True,
    )
    assert phasegate("status", "--json", cwd=root).json["workflow"] is None
    assert git(root, "branch", "--list", "feat/*") == ""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "dummy")
    accepted = phasegate("run", "quick", "Say bye", cwd=root)  # the control: it fails as an agent
    assert "cannot work" not in accepted.stderr
    assert phasegate("status", "--json", cwd=root).json["workflow"] is not None


def test_one_option_before_the_command_and_the_branch_name_the_feature(
    project: FeatureProject,
) -> None:
    for what in ("one", "two"):
        project.command("start", "note", what)
    refused = project.call("escalate", "why")
    assert (refused.code, "several features are active" in refused.stderr) == (4, True)
    assert project.call("--feature", "001", "escalate", "look at it").code == 0
    first = project.call("--feature", "001", "status", "--json").json["workflow"]
    assert (first["feature"], first["stage"]) == ("001-one", "blocked")
    git(project.root, "checkout", "-q", "-B", "feat/001-one")
    assert project.call("status", "--json").json["workflow"]["feature"] == "001-one"
    assert project.call("resolve", "looked").code == 0, "the branch names it"
    assert "001-one" in project.call("show").stdout.splitlines()[0]
    git(project.root, "checkout", "-q", "main")
    shown = project.call("next", "--feature", "001", "--json").json
    assert shown["items"]


def test_a_misspelt_phase_is_named_and_a_reason_needs_no_option(project: FeatureProject) -> None:
    project.command("run", "note", "Say why")
    refused = project.call("back", "requirments", "why")
    assert (refused.code, "did you mean `requirements`?" in refused.stderr) == (4, True)
    assert project.call("cancel").code == 2
    assert project.call("cancel", "it is late").code == 0


def test_init_looks_again_and_names_the_lines_to_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repository(tmp_path / "repo", {"README.md": "Empty.\n"}).root
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    first = phasegate("init", cwd=root)
    assert "no agent program was found" in first.stdout + first.stderr
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    kept = (root / "phasegate.toml").read_text()
    again = phasegate("init", cwd=root)
    assert '  | harness = "claude_code"' in again.stdout
    assert "no agent program was found" not in again.stdout + again.stderr
    assert (root / "phasegate.toml").read_text() == kept
    (root / "phasegate.toml").write_text(f'{kept}\n[agents.claude]\nharness = "claude_code"\n')
    assert "configures no agent" not in phasegate("init", cwd=root).stderr


def test_agents_shows_what_is_installed_first_and_the_rest_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    done = phasegate("agents", cwd=tmp_path)
    assert "not installed: claude, codex" in done.stdout
    assert len(done.stdout.splitlines()) < 5
    assert "npm install -g" in phasegate("agents", "--all", cwd=tmp_path).stdout
