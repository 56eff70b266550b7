"""`phasegate agents` with real programs of two versions: the tested one, and one that is older."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from phasegate.core.agents.harnesses import HARNESSES
from support.fake_programs import make_machine

OLDER = Path(
    os.environ.get("PHASEGATE_TEST_OLDER_AGENTS", "")
)  # set where the fixture `programs` skips nothing


@pytest.mark.demand("D3.k")
def test_a_program_that_is_older_than_tested_is_named_with_the_command_that_updates_it(
    programs: Path, tmp_path: Path
) -> None:
    node, row = shutil.which("node"), HARNESSES["gemini"]
    assert node is not None
    machine = make_machine(tmp_path)
    (machine.programs / "node").symlink_to(os.path.realpath(node))
    gemini = machine.programs / "gemini"
    gemini.symlink_to(programs / "gemini")
    fresh = machine.program("agents").stdout
    gemini.unlink()
    gemini.symlink_to(OLDER / "gemini")
    told = machine.program("agents").stdout
    assert (
        f"0.60.0, older than tested ({row.tested_version}): npm install -g @google/gemini-cli@latest\n"
        in told
    )
    assert "older than tested" not in fresh
    assert re.search(r"\d, (newer than )?tested", fresh), fresh
