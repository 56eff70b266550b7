"""tools/without_bubblewrap.py: the command sees a machine without it, and nothing else is changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools.without_bubblewrap import linked_without

ROOT = Path(__file__).parents[2]
ASK = (
    "import shutil, sys; print(shutil.which('bwrap'), shutil.which('git') is not None); sys.exit(7)"
)


@pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed: there is nothing to hide"
)
def test_the_command_finds_no_bubblewrap_and_its_exit_status_is_kept() -> None:
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True)
    assert asked.stdout.split()[0] != "None", "control: it is here"
    argv = [sys.executable, "-m", "tools.without_bubblewrap", sys.executable, "-c", ASK]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.split(), done.returncode) == (["None", "True"], 7), done.stderr
    assert shutil.which("bwrap") is not None


def test_a_path_of_links_has_every_program_but_the_one_and_the_first_wins(tmp_path: Path) -> None:
    for place, names in (("one", ("bwrap", "git")), ("two", ("git", "sh"))):
        (tmp_path / place).mkdir()
        for name in names:
            (tmp_path / place / name).write_text(f"#!/bin/sh\necho {place}\n")
            (tmp_path / place / name).chmod(0o755)
    path = linked_without(
        os.pathsep.join(map(str, (tmp_path / "one", tmp_path / "two", "/nowhere"))),
        tmp_path / "bin",
    )
    found = {name: shutil.which(name, path=path) for name in ("bwrap", "git", "sh")}
    assert found["bwrap"] is None
    said = {
        name: subprocess.check_output([program], text=True).strip()
        for name, program in found.items()
        if program
    }
    assert said == {"git": "one", "sh": "two"}
