"""The example objects of the interface specification, verbatim: read and written by a real dispatch (D1, D7, D13)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from support.dispatch_project import FEATURE, SLUG, DispatchProject, make_project, package

EXAMPLES = Path(__file__).parents[1] / "fixtures/interface"
JOB = "3a6b8c9d-1e2f-4a5b-8c9d-1e2f4a5b8c9d"
CREATED = json.loads((EXAMPLES / "success.json").read_text())["artifacts"]["files_created"]
AGENT = """
import json, os, pathlib, sys
envelope, answer = json.load(sys.stdin), pathlib.Path(sys.argv[1]).read_text()
if os.environ["PHASEGATE_PHASE"] == "review":
    print("<review>PASS</review>")
else:
    for path in json.loads(sys.argv[2]):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_text("export {}\\n")
    document = pathlib.Path(envelope["prompt_path"]).read_text()
    pathlib.Path("src/seen.json").write_text(json.dumps({"envelope": envelope, "document": document}))
    print("It has come to an end.")
    print(answer.replace(sys.argv[3], envelope["job_id"]))
"""


def project_that_answers(tmp_path: Path, name: str, job: str = JOB) -> DispatchProject:
    """A project whose agent gives an example as it stands, with this job's id in the place of the example's."""
    program = tmp_path / "agent.py"
    program.write_text(AGENT)
    command = json.dumps(
        [sys.executable, str(program), str(EXAMPLES / f"{name}.json"), json.dumps(CREATED), job]
    )
    document = package(files=[*CREATED, "src/seen.json"]).partition("# Task")[0]
    document += (EXAMPLES / "WP01.md").read_text(encoding="utf-8")
    harness = f'harness = "command"\ncommand = {command}\ntimeout_s = 60'
    settings = "[evidence]\nenabled = false\n"
    return make_project(tmp_path, {"WP01": document}, harness=harness, run=settings)


@pytest.mark.demand("D1.a", "D2.d", "D7.f", "D7.j", "D13.a", "D13.j")
def test_the_examples_of_a_success_are_written_and_read_as_they_stand_and_its_words_shown(
    tmp_path: Path,
) -> None:
    project = project_that_answers(tmp_path, "success")
    done = project.command("dispatch", "WP01")
    assert done.code == 0, done.stdout + done.stderr
    seen: dict[str, Any] = json.loads(project.git("show", f"{FEATURE}:src/seen.json"))
    example = json.loads((EXAMPLES / "envelope.json").read_text())
    assert list(seen["envelope"]) == list(example)
    assert list(seen["envelope"]["config"]) == list(example["config"])
    assert {name: type(value) for name, value in seen["envelope"].items()} == {
        name: type(value) for name, value in example.items()
    }
    assert (seen["envelope"]["feature_slug"], seen["envelope"]["wp_id"]) == (SLUG, "WP01")
    assert (EXAMPLES / "WP01.md").read_text(encoding="utf-8").strip() in seen["document"]
    lines = {entry["action"]: entry for entry in reversed(project.trail(project.jobs()[0].id))}
    for text in (EXAMPLES / "audit.jsonl").read_text().splitlines():
        wanted = json.loads(text)
        line = lines[wanted["action"]]
        assert [name for name in line if name in wanted] == list(wanted), line
        assert {name: type(line[name]) for name in wanted} | {"duration_total_s": float} == {
            name: type(value) for name, value in wanted.items()
        } | {"duration_total_s": float}
    said = json.loads((EXAMPLES / "success.json").read_text())
    job = project.jobs()[0].id
    for shown in (
        project.command("status", "WP01"),
        project.command("show", "WP01"),
        project.command("show", job),
    ):
        assert shown.code == 0, shown.stderr
        for name in ("summary", "pr_url"):
            assert f"says, {name}: {said[name]}" in shown.stdout
        assert f"says, next_steps: {'; '.join(said['next_steps'])}" in shown.stdout
        assert "abc123def456" in shown.stdout
        assert "; observed: " in shown.stdout
    (words,) = project.command("status", "WP01", "--json").json[0]["said"]
    assert (words["job"], words["words"]["summary"]) == (job, said["summary"])
    assert words["differs"]


@pytest.mark.demand("D7.a", "D7.j", "D10.b")
@pytest.mark.parametrize("name", ["failure", "escalation"])
def test_a_failure_or_escalation_blocks_at_once_and_its_words_are_shown(
    tmp_path: Path, name: str
) -> None:
    project = project_that_answers(tmp_path, name)
    assert project.command("dispatch", "WP01").code == 1
    said = json.loads((EXAMPLES / f"{name}.json").read_text())
    assert [(job.phase, job.outcome) for job in project.jobs()] == [("implement", "blocked")]
    row = project.rows()["WP01"]
    assert (row.state, row.reason, row.remediation) == (
        "BLOCKED",
        said["blocked_reason"],
        said["remediation"],
    )
    for shown in (project.command("status", "WP01"), project.command("show", "WP01")):
        for words in ("error", "blocked_reason", "remediation"):
            assert f"says, {words}: {said[words]}" in shown.stdout


@pytest.mark.demand("D7.a")
def test_an_example_with_another_jobs_id_is_refused(tmp_path: Path) -> None:
    project = project_that_answers(tmp_path, "failure", job="never replaced")
    assert project.command("dispatch", "WP01").code == 1
    row = project.rows()["WP01"]
    assert (row.state, "AnotherJob" in row.reason) == ("BLOCKED", True), row
    assert len(project.jobs()) == 2, "it is asked for once more"
    assert "says, error" not in project.command("status", "WP01").stdout
