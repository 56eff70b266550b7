"""The tutorial, done as it says: its commands in a repository of its own, and what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import SandboxLevel
from support.dispatch_project import Done

FOLDER = Path(__file__).parents[2] / "docs/tutorial"
PAGE = (FOLDER / "first-feature.md").read_text(encoding="utf-8")


def shown(command: str) -> str:
    """What the page shows below a command, up to the next one or the end of the block."""
    found = re.search(rf"^\$ {re.escape(command)}\n(.*?)(?=^\$ |^```)", PAGE, re.S | re.M)
    assert found, command
    return found[1]


def block_with(text: str) -> str:
    """The code block of the page that holds a text."""
    return next(
        block for block in re.findall(r"```(?:toml)?\n(.*?)```", PAGE, re.S) if text in block
    )


def same(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{12}\b", "COMMIT", text)


def shell(script: str, folder: Path, env: Mapping[str, str]) -> Done:
    merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(
        ["sh", "-ec", script], cwd=folder, text=True, timeout=300, env=env, **merged
    )  # type: ignore[call-overload]
    return Done(done.returncode, done.stdout, "")


@pytest.mark.demand("W4.b", "W6.c")
@pytest.mark.skipif(
    not probe_level(SandboxLevel.OFFLINE).is_supported,
    reason="the transcript is of a machine with a sandbox: without one, that is told",
)
def test_the_tutorial_goes_as_it_says(tmp_path: Path) -> None:
    scenario, programs = tmp_path / "stand-in.toml", tmp_path / "bin"
    # Nobody interrupts this one, so nobody needs the time for it.
    scenario.write_text(
        (FOLDER / "stand-in.toml").read_text(encoding="utf-8").replace("sleep_s = 6", "sleep_s = 0")
    )
    programs.mkdir()
    (programs / "claude").write_text("#!/bin/sh\nexit 1\n")
    (programs / "claude").chmod(0o755)
    names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    path = f"{programs}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    env = {
        **os.environ,
        **dict.fromkeys(names, "Ada"),
        "PATH": path,
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    # An own repository needs no word about trust.
    del env["PHASEGATE_TRUST"]
    made = shell(f"{block_with('mkdir tally')}\nphasegate init", tmp_path, env)
    written, _, rest = shown("phasegate init").partition("...\n")
    assert (made.code, written in made.stdout, rest in made.stdout) == (0, True, True), made
    root = tmp_path / "tally"
    assert shell(block_with("git add phasegate.toml"), root, env).code == 0

    checked = shell("phasegate check", root, env)
    lines = re.sub(r"\(\d\.\d s\)", "(0.1 s)", checked.stdout)
    assert (checked.code, shown("phasegate check").strip(".\n") in lines) == (0, True), checked

    env |= {
        "PHASEGATE_AGENTS__CLAUDE__HARNESS": "scripted",
        "PHASEGATE_AGENTS__CLAUDE__SCENARIO": str(scenario),
    }
    first = 'phasegate run quick "Add the average of the prices"'
    stopped = shell(first, root, env)
    assert (stopped.code, stopped.stdout) == (1, shown(first))
    assert (
        "what is the average of no prices?" in stopped.stdout
    )  # a person is shown what to decide on
    for command in ("phasegate show 1", "phasegate show 01-requirements --evidence"):
        assert "spec.md: what is the average of no prices?" in shell(command, root, env).stdout
    for command in ("phasegate status", 'phasegate resolve "No prices: raise a ValueError"'):
        assert shell(command, root, env) == Done(0, shown(command), "")
    went_on = shell("phasegate run", root, env)
    end = PAGE[PAGE.index("GATE-08 PASSED") :].partition("```")[0]
    assert (went_on.code, went_on.stdout.endswith(end)) == (0, True), went_on
    merged = shell("phasegate complete", root, env)
    assert (merged.code, same(merged.stdout)) == (0, same(shown("phasegate complete")))
    assert (
        shell(
            "python3 -m unittest && phasegate audit verify && phasegate trace --check", root, env
        ).code
        == 0
    )
    assert shell("git status --short", root, env) == Done(0, "", "")
