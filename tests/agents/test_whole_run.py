"""From one sentence to a merged branch with three real programs, and a round trip to each (W6, W7, D3.k)."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

import pexpect
import pytest

from phasegate.core.agents.harnesses import HARNESSES, INSTALLABLE_HARNESSES
from phasegate.storage.verify_audit import verify_audit
from support.feature_run import CONFIG, FILES, SLUG, FeatureRun
from support.git_project import make_repository
from support.real_agents import KEY, SUBJECTS, Subject, processes_tagged
from support.standin import Fail, Say, Script, Shell, Standin, Write
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
THOUGHT = "a-secret-thought"
PASS = Say(f"<thought>{THOUGHT}</thought>\nI have read it.\n\n<review>PASS</review>\n")
RUNS_TESTS = Shell("python3 -S -m unittest -q check")
WAIT_S = 400.0
ROLES = {
    "plan": "claude",
    "implement": "claude",
    "challenge": "codex",
    "review": "codex",
    "archive": "gemini",
}


# What only the template of this agent and phase says.
OWN_TEMPLATES = {
    ("plan", "claude"): "# Planning: writer\n",
    ("implement", "claude"): "# Implementation: work package, for Claude Sonnet\n",
    ("challenge", "codex"): "You MUST output &lt;review&gt;PASS&lt;/review&gt; or",
    ("review", "codex"): "for Codex\n",
    ("archive", "gemini"): "# Archive",
}


def result(prompt: str, status: str = "COMPLETED") -> str:
    job = re.search(r"- job_id: (\S+)", prompt)
    assert job is not None, prompt[-2000:]
    fields = {
        "job_id": job[1],
        "wp_id": "WP01",
        "success": True,
        "status": "completed",
        "summary": "Done",
    }
    task = f'<task_status id="2.1">{status}</task_status>'
    return f"It is done.\n\n{task}\n\n```json\n{json.dumps(fields)}\n```\n"


WRITING = "Write the documents of phase 01-requirements"
FINDING = "tasks.md has no tasks"  # what the critic lets pass


def scripts(has_looked: threading.Event) -> tuple[Script, ...]:
    """The plan is wrong at first; the implementer waits at its end until somebody has looked at it."""
    documents = {
        "proposal.md": "# Proposal\nSay bye.\n",
        "spec.md": SPEC,
        "tasks.md": "# Tasks\n\nSay bye.\n",
    }
    mended = Shell(f"cat > {FOLDER}/tasks.md <<'END'\n{TASKS}END")

    def looked_at(prompt: str) -> str:
        has_looked.wait(WAIT_S)
        return result(prompt)

    return (
        Script((mended, PASS), about=f"{WRITING}(?s:.)*{FINDING}|{FINDING}(?s:.)*{WRITING}"),
        Script(
            (*(Write(f"{FOLDER}/{name}", text) for name, text in documents.items()), PASS),
            about=WRITING,
        ),
        Script((PASS,), about="Challenge the documents of phase"),
        Script((PASS,), about="Review work package WP01|Review phase 08-code-review"),
        Script(
            (Write("bye.py", BYE), RUNS_TESTS, Say(looked_at)), about="Implement work package WP01"
        ),
        Script((Write("CHANGELOG.md", "# Changelog\n- Bye.\n"), PASS), about="Archive the feature"),
    )


def make_run(
    folder: Path, url: str, subjects: list[Subject], monkeypatch: pytest.MonkeyPatch
) -> FeatureRun:
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
    make_repository(
        run.root, {**FILES, "phasegate.toml": f"{''.join(tables)}[roles]\n{roles}{checks}"}
    )
    return run


def seen_at_a_terminal(run: FeatureRun, has_looked: threading.Event) -> str:
    """A run to its merge on a terminal, whose live line is looked at while the implementer waits for that."""
    argv, env = (
        run.argv("run", "quick", "Say bye", "--merge"),
        {**os.environ, "TERM": "xterm-256color"},
    )
    with pexpect.spawn(
        argv[0],
        argv[1:],
        cwd=str(run.root),
        env=env,
        encoding="utf-8",
        timeout=WAIT_S,
        dimensions=(24, 160),
        use_poll=True,
    ) as terminal:
        # The test run is its last action: the line stays until somebody has looked. An earlier action may not be drawn.
        terminal.expect(
            r"WP01  implement by claude  \d+:\d\d  [^\r\n]*unittest -q check  \d+ tokens"
        )
        drawn = str(terminal.before)
        has_looked.set()
        terminal.expect(pexpect.EOF)
        return f"{drawn}{terminal.before}"


@pytest.mark.demand("W6.a", "W7.a", "D3.a", "D3.b", "D3.c", "D13.j", "D13.k", "P5.a", "P7.b")
def test_three_real_programs_carry_a_feature_from_a_sentence_to_its_merge(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects = [SUBJECTS[kind] for kind in ("claude_code", "codex", "gemini")]
    has_looked = threading.Event()
    with Standin(*scripts(has_looked)) as model:
        run = make_run(tmp_path, model.url, subjects, monkeypatch)
        begun = run.git("rev-parse", "main")
        drawn = seen_at_a_terminal(run, has_looked)
    assert "completed" in drawn
    assert run.git("show", "main:bye.py") == BYE.strip()
    assert "Bye." in run.git("show", "main:CHANGELOG.md")
    jobs = run.jobs()
    assert [(job.phase, job.agent, job.outcome) for job in jobs] == [
        ("plan", "claude", "done"),
        ("challenge", "codex", "done"),
        ("plan", "claude", "done"),
        ("challenge", "codex", "done"),
        ("implement", "claude", "done"),
        ("review", "codex", "done"),
        ("archive", "gemini", "done"),
    ]
    assert (
        f"GATE-01 FAILED: plan of tasks failed; {FINDING}" in drawn
    )  # told to the person as to the agent
    assert FINDING in (run.project.jobs_folder / jobs[2].id / "prompt.xml").read_text(
        encoding="utf-8"
    )
    for job in jobs:
        prompt = (
            (run.project.jobs_folder / job.id / "prompt.xml").read_text(encoding="utf-8").strip()
        )
        assert any(prompt in text for seen in model.seen for text in seen.strings), (
            f"{job} was not told its prompt"
        )
        assert OWN_TEMPLATES[job.phase, job.agent] in prompt, job
        assert THOUGHT not in prompt, "thoughts of earlier agents are filtered out"
        assert job.tokens > 0
        assert processes_tagged(job.id) == []
    raw = (run.project.jobs_folder / jobs[1].id / "stdout.log").read_text(encoding="utf-8")
    assert THOUGHT in raw, "the control"
    assert THOUGHT not in run.run("show", jobs[1].id, "--log").stdout
    assert verify_audit(run.project.location).problems == ()
    trails = trails_of(run.root)
    expect_stories(trails, run.root, begun, SLUG, f"refs/phasegate/features/{SLUG}")
    assert any(
        entry["source"] == "reported" and entry["action"] == "write_file"
        for entry in trails[jobs[4].id]
    )
    told = [entry for entry in trails[jobs[4].id] if entry["source"] == "reported"]
    assert {entry["actor"] for entry in told} == {"agent:claude-code"}
    (tested,) = [entry for entry in told if entry["action"] == "run_tests"]
    assert "unittest -q check" in tested["command"]
    assert (tested["exit_code"], tested["duration_ms"] > 0) == (0, True)
    assert "spent: " in run.run("status").stdout


@pytest.mark.demand("P6.a", "P6.b", "W3.g")
@pytest.mark.parametrize("answer", ["FAILED", "MAJOR_ISSUES"])
def test_a_failed_task_and_major_issues_of_real_programs_stop_the_feature(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    subjects = [SUBJECTS[kind] for kind in ("claude_code", "codex")]
    documents = {"proposal.md": "# Proposal\nSay bye.\n", "spec.md": SPEC, "tasks.md": TASKS}
    status = "FAILED" if answer == "FAILED" else "COMPLETED"
    major = Say("It sends names to strangers.\n\n<review>MAJOR_ISSUES</review>\n")
    with Standin(
        Script(
            (*(Write(f"{FOLDER}/{name}", text) for name, text in documents.items()), PASS),
            about=WRITING,
        ),
        Script((PASS,), about="Challenge the documents of phase"),
        Script((major,), about="Review work package WP01"),
        Script(
            (Write("bye.py", BYE), Say(lambda prompt: result(prompt, status))),
            about="Implement work package WP01",
        ),
    ) as model:
        run = make_run(tmp_path, model.url, subjects, monkeypatch)
        done = run.run("run", "quick", "Say bye", "--merge")
    assert done.returncode == 1, done.stdout + done.stderr
    (package,) = run.reader().packages(SLUG)
    assert package.state == "BLOCKED"
    reason = "2.1" if answer == "FAILED" else "MAJOR_ISSUES"
    assert reason in package.reason, package
    assert [job.phase for job in run.jobs()].count("review") == (answer == "MAJOR_ISSUES")
    assert run.git("log", "--format=%s", "main").count("\n") == 0, "nothing was merged"


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


def watched(names: Iterable[str], folder: Path) -> Path:
    """Beside the real programs, scripts of their names that leave a file behind and go on as the program."""
    (folder / "bin").mkdir()
    for name in names:
        script = folder / "bin" / name
        script.write_text(
            f'#!/bin/sh\n: > {folder}/started-{name}\nexec {shutil.which(name)} "$@"\n'
        )
        script.chmod(0o755)
    return folder / "bin"


@pytest.mark.demand("D3.k")
def test_a_program_with_neither_a_sign_in_nor_a_key_is_not_started(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [
        row.default_agent for row in INSTALLABLE_HARNESSES.values() if shutil.which(row.program)
    ] + ["kimi"]
    assert {"claude", "codex", "gemini", "opencode", "qwen", "copilot"} <= {*names}
    monkeypatch.setenv("PATH", f"{watched(names, tmp_path)}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "empty"))
    run = FeatureRun(tmp_path)
    make_repository(
        run.root,
        {**FILES, "phasegate.toml": '[agents.kimi]\nharness = "acp"\n[run]\nsandbox = "none"\n'},
    )
    for name in names:
        done = run.run("agents", "test", name)
        assert done.returncode == 2, done
        assert f"{name} was not started: neither a sign-in nor a key was found" in done.stderr
        assert not (tmp_path / f"started-{name}").exists()
    with Standin(Say(word_in)) as model:  # the control: with a key it is
        for variable, value in SUBJECTS["claude_code"].configured(model.url).env.items():
            monkeypatch.setenv(variable, value)
        assert run.run("agents", "test", "claude").returncode == 0
    assert (tmp_path / "started-claude").exists()


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
        assert one["version"] == installed[HARNESSES[subject.kind].npm_package], one
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
