"""From one sentence to a merged branch with three real programs, and a round trip to each (W6, W7, D3.k)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from phasegate.record.audit import verify
from phasegate.rules.harnesses import ROWS
from support.feature_run import CONFIG, FILES, SLUG, FeatureRun
from support.git_project import make_repository
from support.real_agents import KEY, SUBJECTS, Subject, processes_tagged
from support.standin import Fail, Say, Script, Standin, Write
from support.trail_story import expect_stories, trails_of

FOLDER = f"kitty-specs/{SLUG}"
BYE = "def bye(name):\n    return f'Bye, {name}'\n"
TASKS = """\
# Tasks

- [ ] 2.1 Say bye
  - File: bye.py
  - Spec: FR-BYE-001
  - Do: bye says bye.
"""
SPEC = """\
# Spec
<!-- spec-kitty: fr-count=1 -->
<!-- sk:fr id="FR-BYE-001" priority="high" -->
It says bye.
<!-- /sk:fr -->
"""
PASS = Say("I have read it.\n\n<review>PASS</review>\n")
ROLES = {"plan": "claude", "implement": "claude", "challenge": "codex", "review": "codex", "archive": "gemini"}


def result(prompt: str) -> str:
    job = re.search(r"- job_id: (\S+)", prompt)
    assert job is not None, prompt[-2000:]
    fields = {"job_id": job[1], "wp_id": "WP01", "success": True, "status": "completed", "summary": "Done"}
    task = '<task_status id="2.1">COMPLETED</task_status>'
    return f"It is done.\n\n{task}\n\n```json\n{json.dumps(fields)}\n```\n"


SCRIPTS = (
    Script(
        (
            Write(f"{FOLDER}/proposal.md", "# Proposal\nSay bye.\n"),
            Write(f"{FOLDER}/spec.md", SPEC),
            Write(f"{FOLDER}/tasks.md", TASKS),
            PASS,
        ),
        about="Write the documents of phase 01-requirements",
    ),
    Script((PASS,), about="Challenge the documents of phase"),
    Script((PASS,), about="Review work package WP01|Review phase 08-code-review"),
    Script((Write("bye.py", BYE), Say(result)), about="Implement work package WP01"),
    Script((Write("CHANGELOG.md", "# Changelog\n- Bye.\n"), PASS), about="Archive the feature"),
)


def make_run(folder: Path, url: str, subjects: list[Subject], monkeypatch: pytest.MonkeyPatch) -> FeatureRun:
    """A repository whose agents are real programs; keys and addresses are in the person's environment."""
    tables = []
    for subject in subjects:
        configured = subject.configured(url)
        for name, value in configured.env.items():
            monkeypatch.setenv(name, value)
        command = f"command = {json.dumps(configured.command)}\n" if configured.command else ""
        table = f'[agents.{subject.program}]\nharness = "{subject.kind}"\ntimeout_s = 120\n'
        tables.append(f"{table}env = {json.dumps([*configured.env])}\n{command}")
    checks = CONFIG[CONFIG.index("[checks.python]") :]
    names = {subject.program for subject in subjects}
    roles = "".join(f'{role} = "{name}"\n' for role, name in ROLES.items() if name in names)
    run = FeatureRun(folder)
    make_repository(run.root, {**FILES, "phasegate.toml": f"{''.join(tables)}[roles]\n{roles}{checks}"})
    return run


@pytest.mark.demand("W6.a", "W7.a", "D3.a", "D3.b", "D3.c", "D13.j", "D13.k", "P5.a", "P7.b")
def test_three_real_programs_carry_a_feature_from_a_sentence_to_its_merge(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects = [SUBJECTS[kind] for kind in ("claude_code", "codex", "gemini")]
    with Standin(*SCRIPTS) as model:
        run = make_run(tmp_path, model.url, subjects, monkeypatch)
        begun = run.git("rev-parse", "main")
        done = run.run("run", "quick", "Say bye", "--merge")
    assert done.returncode == 0, done.stdout + done.stderr
    assert run.git("show", "main:bye.py") == BYE.strip()
    assert "Bye." in run.git("show", "main:CHANGELOG.md")
    jobs = run.jobs()
    assert [(job.phase, job.agent, job.outcome) for job in jobs] == [
        ("plan", "claude", "done"),
        ("challenge", "codex", "done"),
        ("implement", "claude", "done"),
        ("review", "codex", "done"),
        ("review", "codex", "done"),
        ("archive", "gemini", "done"),
    ]
    for job in jobs:
        prompt = (run.project.jobs / job.id / "prompt.xml").read_text(encoding="utf-8").strip()
        assert any(prompt in text for seen in model.seen for text in seen.strings), f"{job} was not told its prompt"
        assert job.tokens > 0
        assert processes_tagged(job.id) == []
    assert verify(run.project.location).problems == ()
    trails = trails_of(run.argv(), run.root)
    expect_stories(trails, run.root, begun, SLUG)
    assert any(entry["source"] == "reported" and entry["action"] == "write_file" for entry in trails[jobs[2].id])
    assert "spent: " in run.run("status").stdout


def word_in(prompt: str) -> str:
    found = re.findall(r"round-trip-[0-9a-f]+", prompt)
    return f"{found[-1]}\n<review>PASS</review>\n" if found else "there is no word"


@pytest.mark.demand("D3.k")
@pytest.mark.parametrize("subject", ["claude_code", "codex"], indirect=True)
def test_a_round_trip_reaches_the_model_and_comes_back(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Standin(Say(word_in)) as model:
        run = make_run(tmp_path, model.url, [subject], monkeypatch)
        done = run.run("agents", "test", subject.program, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    trip = json.loads(done.stdout)
    assert trip["ok"]
    assert trip["usage"]["input_tokens"] > 0
    assert KEY not in done.stdout


@pytest.mark.demand("D3.k")
def test_the_installed_programs_are_found_with_their_versions(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = json.loads((programs.parents[1] / "package.json").read_text())["dependencies"]
    run = make_run(tmp_path, "http://127.0.0.1:9", [*SUBJECTS.values()], monkeypatch)
    listed = run.run("agents", "--json")
    found = {one["name"]: one for one in json.loads(listed.stdout)["agents"]}
    for subject in SUBJECTS.values():
        one = found[subject.program]
        assert one["version"] == installed[ROWS[subject.kind].package], one
        assert one["sign_in"], one
        assert (one["can_start"], one["missing"]) == (True, [])
    assert not found["cursor-agent"]["can_start"]
    assert KEY not in listed.stdout


@pytest.mark.parametrize("subject", ["claude_code"], indirect=True)
def test_a_round_trip_with_a_refused_key_says_what_to_do(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Standin(Fail(401)) as model:
        run = make_run(tmp_path, model.url, [subject], monkeypatch)
        done = run.run("agents", "test", "claude")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "401" in done.stdout
    assert "what to do: sign in with" in done.stdout
