"""Programs that speak as qwen was recorded and as cursor is documented give a review in a dispatch (D3).

The others run as real programs in tests/agents; these two could not be run everywhere.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support.agent_streams import FOLDER
from support.dispatch_project import implements, make_project

# What the documentation of each asks for, so that it runs without a person and tells what it does as JSON lines.
HEADLESS = {
    "cursor": ["-p", "--output-format stream-json"],
    "qwen": ["-o stream-json"],
}
PROGRAM = """
import pathlib, re, sys
sys.stderr.write("ASKED " + " ".join(sys.argv[2:]) + "\\n")
sys.stderr.write("GIVEN " + sys.stdin.readline())
sys.stdout.write(re.sub(r"```json.*?```(?:\\\\n)?", "", pathlib.Path(sys.argv[1]).read_text()))  # no result is due
"""


@pytest.mark.demand("D3.d", "D3.f")
@pytest.mark.parametrize("kind", HEADLESS)
def test_a_review_by_a_program_that_speaks_as_documented_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name in ("CURSOR_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "a-dummy-key-for-nobody")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = json.dumps([sys.executable, str(program), str(FOLDER / kind / "ok.jsonl")])
    roles = f'[agents.judge]\nharness = "{kind}"\ncommand = {command}\n[roles]\nreview = "judge"\n'
    project = make_project(tmp_path, agent=roles)
    project.play(implements("src/login.ts"))
    done = project.command("dispatch", "WP01")
    assert done.code == 0, done.stdout + done.stderr
    job = project.jobs()[-1]
    assert (job.phase, job.outcome, project.rows()["WP01"].state) == ("review", "done", "DONE")
    told = (project.project.jobs_folder / job.id / "stderr.log").read_text()
    for words in HEADLESS[kind]:
        assert f" {words} " in told.partition("ASKED")[2].partition("\n")[0] + " "
    assert "GIVEN <prompt>" in told, "the prompt is on its stdin"
    written = [
        Path(line["path"]).name for line in project.trail(job.id) if line["action"] == "write_file"
    ]
    assert "hello.txt" in written, "what it tells live is in its trail"
