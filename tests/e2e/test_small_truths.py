"""What is said is so: of templates, deliverables, coverage, other agents' files, and of blocks on a terminal."""

from __future__ import annotations

import ast
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.core.prompt.document import UnifiedPrompt
from phasegate.errors import MalformedPrompt
from support.dispatch_project import approves, implements, make_project, package, turn
from support.feature_project import BLOCK, DESCRIPTION, MENU, make_feature_project, smooth
from support.quick_dispatch import FIRST, SECOND, two_agents_two_rounds


@pytest.mark.demand("T1.b", "T1.i")
def test_the_fallback_of_a_template_is_seen_with_v_and_an_agent_of_ones_own_is_told_from_the_schema(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path)
    told = project.program("-v", "template", "show", "GEMINI", "archive")
    assert told.code == 0
    assert "no template GEMINI-archive.md" in told.stderr
    assert "BASE-archive.md is used instead" in told.stderr
    assert project.command("template", "show", "GEMINI", "archive").stderr == ""
    own = tmp_path / "AIDER-plan.md"
    own.write_text("{{TASKS}}\n")
    about = project.command("template", "metadata", str(own), "--json").json
    assert about["schema"].startswith("AIDER is not in the published schema")
    base = tmp_path / "CLAUDE-plan.md"
    base.write_text("{{TASKS}}\n")
    assert project.command("template", "metadata", str(base), "--json").json.keys() == {
        "agent",
        "phase",
        "variables",
    }


@pytest.mark.demand("D8.l")
def test_deliverables_that_were_there_are_called_unchanged_and_no_coverage_is_asked_for_by_zero(
    tmp_path: Path,
) -> None:
    there = package(files=["src/services/auth.ts"], checks={"test": "true", "coverage_min": 0})
    project = make_project(tmp_path, {"WP01": there}, run="max_review_cycles = 1")
    project.play(turn("implement", {"result": "success"}), approves())
    project.command("dispatch", "WP01")
    assert "unchanged: src/services/auth.ts" in project.rows()["WP01"].reason
    assert "not there" not in project.rows()["WP01"].reason
    coverage = package(checks={"test": "python3 -m unittest -q check_sources", "coverage_min": 0})
    second = make_project(tmp_path / "two", {"WP01": coverage})
    second.play(implements("src/login.ts"), approves())
    assert second.command("dispatch", "WP01").code == 0


@pytest.mark.demand("D8.l", "D11.b")
def test_a_file_of_another_agent_is_called_that_agents(tmp_path: Path) -> None:
    script = f"""
mkdir -p src
echo mine > {FIRST}
echo theirs > {SECOND}
echo '{{"job_id": "'$AGILEPLUS_JOB_ID'", "wp_id": "WP01", "success": true, "status": "completed"}}'
"""
    project = two_agents_two_rounds(tmp_path, script=script)
    assert project.command("dispatch", "WP01").code == 1
    assert "the file belongs to agent 1" in project.rows()["WP01"].reason


@pytest.mark.demand("N7.h", "N7.j", "N12.a")
@pytest.mark.parametrize("with_live_lines", [False, True])
def test_on_a_terminal_only_the_last_block_is_printed_and_as_its_bytes(
    tmp_path: Path, with_live_lines: bool
) -> None:
    flow = '[workflows.two]\nphases = ["01-requirements", "03-architecture"]\n'
    project = make_feature_project(tmp_path, config=flow)
    project.play(*smooth(("01-requirements", "03-architecture")))
    reading, writing = pty.openpty()
    argv = [sys.executable, "-m", "phasegate", "run", "two", DESCRIPTION]
    env = {**os.environ, "TERM": "xterm"}
    env.pop("NO_COLOR", None)
    stderr = writing if with_live_lines else subprocess.DEVNULL
    with subprocess.Popen(argv, cwd=project.root, stdout=writing, stderr=stderr, env=env) as run:
        os.close(writing)
        shown = b""
        while True:
            try:
                data = os.read(reading, 65536)
            except OSError:  # the end of a terminal that nobody writes to any more
                break
            if not data:
                break
            shown += data
    os.close(reading)
    assert run.returncode == 0
    text = shown.decode().replace("\r\n", "\n")
    assert text.count(MENU) == 1  # a pipe gets three: the beginning, and two gates
    assert len(BLOCK.findall(text)) == 1, "the seed's own expression finds it"
    assert text.rstrip().endswith("---")
    assert ("\x1b[2K" in text) is with_live_lines, "the control: live lines were drawn and erased"


@pytest.mark.demand("D10.c")
def test_every_variable_is_on_its_page_and_an_unknown_one_is_told_with_the_nearest(
    tmp_path: Path,
) -> None:
    home = Path(__file__).parents[2]
    name = re.compile(r"\b(?:PHASEGATE|AGILEPLUS)_[A-Z][A-Z_]*[A-Z]\b")
    sources = (home / "src/phasegate").rglob("*.py")
    nodes = (
        node for path in sources for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )
    texts = [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    found = {one for text in texts for one in name.findall(text)}
    page = (home / "docs/reference/environment.md").read_text(encoding="utf-8")
    assert "AGILEPLUS_AGENT_TIMEOUT" in found
    assert {one for one in found if one not in page} == set()
    project = make_project(tmp_path)
    told = project.program("config", "show", env={"AGILEPLUS_AGENT_TIMEOUTS": "5"})
    assert told.code == 0
    assert "did you mean `AGILEPLUS_AGENT_TIMEOUT`?" in told.stderr


@pytest.mark.demand("P1.a")
def test_a_prompt_without_instructions_is_refused_when_it_is_made() -> None:
    with pytest.raises(MalformedPrompt):
        UnifiedPrompt("s", [], None)  # type: ignore[arg-type]
    assert UnifiedPrompt("s", (), "Add login").instructions == "Add login"


@pytest.mark.demand("D8.e")
def test_the_reviewer_is_told_of_a_commit_that_got_the_name_of_its_package_from_us(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path)
    steps = [
        {"write": "src/login.ts", "content": "x\n"},
        {"commit": "Do it my way"},
        {"result": "success"},
    ]
    project.play(turn("implement", *steps), approves())
    assert project.command("dispatch", "WP01").code == 0
    assert "WP01: Do it my way" in project.git("log", "--format=%s", "feat/001-user-login")
    review = project.prompt(project.jobs()[-1].id)
    assert "did not name the package in the messages of these commits" in review
    assert "WP01: Do it my way" in review
