"""Shell completion, completed by a real shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.interfaces.cli.main import run_command
from support.dispatch_project import SLUG, make_project

BIN = Path(sys.executable).parent
COMPLETE = """
eval "$(phasegate completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_phasegate_completion phasegate
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(folder: Path, *words: str) -> list[str]:
    """What bash offers after these words, the last of which is being typed."""
    environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    command = ["bash", "--norc", "-c", COMPLETE, "bash", *words]
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")


def test_bash_completes_a_command(tmp_path: Path) -> None:
    assert completed(tmp_path, "phasegate", "bl") == ["block"]


def test_bash_completes_subcommands_options_and_their_values(tmp_path: Path) -> None:
    assert completed(tmp_path, "phasegate", "agent-file", "") == [
        "check",
        "install",
        "list",
        "sync",
    ]
    assert completed(tmp_path, "phasegate", "block", "check", "--k") == ["--kind"]
    assert completed(tmp_path, "phasegate", "block", "check", "--kind", "st") == ["status"]
    assert completed(tmp_path, "phasegate", "completion", "f") == ["fish"]


def test_bash_completes_names_of_the_repository(tmp_path: Path) -> None:
    project = make_project(tmp_path, run='[workflows.release]\nphases = ["08-code-review"]')
    assert completed(project.root, "phasegate", "run", "f") == ["feature", "fix", "full-lifecycle"]
    assert completed(project.root, "phasegate", "run", "re") == ["release"]
    assert completed(project.root, "phasegate", "run", "--agent", "a") == ["actor"]
    assert completed(project.root, "phasegate", "status", "--feature", "") == [SLUG]
    assert completed(project.root, "phasegate", "dispatch", "W") == ["WP01"]


def test_where_no_names_are_known_bash_is_offered_none(tmp_path: Path) -> None:
    (tmp_path / "phasegate.toml").write_text("[broken")
    for words in (("run", "--agent", ""), ("status", "--feature", ""), ("dispatch", "")):
        assert completed(tmp_path, "phasegate", *words) == []


def test_bash_is_offered_nothing_for_what_does_not_exist(tmp_path: Path) -> None:
    assert completed(tmp_path, "phasegate", "zzz") == []


@pytest.mark.parametrize(
    ("shell", "sign"), [("zsh", "#compdef phasegate\n"), ("fish", "--command phasegate ")]
)
def test_other_shells_get_their_scripts(
    shell: str, sign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert sign in script
    assert f"_PHASEGATE_COMPLETE={shell}_complete" in script


def test_an_unknown_shell_is_an_error_that_names_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


def test_the_help_says_where_to_put_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", "--help"]) == 0
    assert "~/.config/fish/completions/phasegate.fish" in capsys.readouterr().out
