"""The programs of a checkout are for the job's own commands, not for what starts the agent (R5)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from phasegate.agents.checkout_tools import pinned, place_tools


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.demand("R5.e")
def test_an_agent_s_program_and_its_interpreter_are_those_of_the_person(tmp_path: Path) -> None:
    person = program(tmp_path / "person/agent", "#!/usr/bin/env -S sh -e\necho agent\n").parent
    path = f"{person}:/usr/bin:/bin"
    shell = shutil.which("sh", path=path)
    assert pinned(("agent", "--now"), path, tmp_path) == (shell, "-e", str(person / "agent"), "--now")
    assert pinned(("sh", "-c", "true"), path, tmp_path) == (shell, "-c", "true")
    assert pinned(("no-such-agent",), path, tmp_path) == ("no-such-agent",)
    binary = program(tmp_path / "person/empty", "")
    assert pinned(("empty",), path, tmp_path) == (str(binary),)


@pytest.mark.demand("R5.a")
def test_a_tool_is_started_where_it_lies(tmp_path: Path) -> None:
    tool = program(tmp_path / "a folder's/.venv/bin/where", '#!/bin/sh\necho "$0" "$@"\n')
    place_tools(tmp_path / "tools", [tool])
    done = subprocess.run([tmp_path / "tools/where", "a b"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{tool} a b\n"
