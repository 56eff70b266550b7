"""A package in two rounds with each real program, seen by a person at a terminal: the line, the log, the reviews."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pexpect
import pytest

from phasegate.core.plan.work_package import PackageState
from support.dispatch_project import FEATURE, DispatchProject, make_project
from support.real_agents import SUBJECTS, Subject, processes_tagged
from support.standin import Say, Script, Shell, Standin, Turn, Write

FORM = "src/login.ts"
LONG = "".join(f"export const line{n} = {n};\n" for n in range(400))
MORE = "export const more = 1;"
FINDING = "1. [major] more is missing"
LOOKED = "echo looked at it"
WAIT_S = 400.0
COUNTS_AT_ITS_END_ONLY = ("codex", "gemini")


def result(prompt: str) -> str:
    """The JSON result of the job that the prompt names."""
    job = re.search(r"- job_id: (\S+)", prompt)
    assert job is not None, prompt[-2000:]
    fields = {
        "job_id": job[1],
        "wp_id": "WP01",
        "success": True,
        "status": "completed",
        "summary": "Done",
    }
    return f"The form is there.\n\n```json\n{json.dumps(fields)}\n```\n"


class Person:
    """Somebody who looks at the work before the agent ends its first turn."""

    def __init__(self) -> None:
        self.has_looked = threading.Event()

    def awaited(self, prompt: str) -> str:
        self.has_looked.wait(WAIT_S)
        return result(prompt)

    def scripts(self) -> tuple[Script, ...]:
        first = (Shell(LOOKED), Write(FORM, LONG), Say(self.awaited))
        second = (Shell(f"echo '{MORE}' >> {FORM}"), Say(result))
        return (
            Script(_reviewed, about="Review work package WP01"),
            Script(second, about=re.escape(FINDING)),
            Script(first, about="Implement work package WP01"),
        )


def _reviewed(text: str) -> Turn:
    good = MORE in text
    return Say(
        f"I have read it.\n{'' if good else FINDING}\n\n<review>{'PASS' if good else 'NEEDS_CHANGES'}</review>\n"
    )


def project_of(
    subject: Subject, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> DispatchProject:
    configured = subject.configured(url)
    for name, value in configured.env.items():
        monkeypatch.setenv(name, value)
    lines = [f'harness = "{subject.kind}"', f"env = {json.dumps([*configured.env])}"]
    lines += [f"command = {json.dumps(configured.command)}"] if configured.command else []
    return make_project(folder, harness="\n".join(lines), agent="timeout_s = 300")


def look_at_the_work(project: DispatchProject, subject: Subject, person: Person) -> str:
    """Dispatch on a terminal; in the middle of the first turn line and log are looked at. Gives what was drawn."""
    argv = ["-m", "phasegate", "dispatch", "WP01"]
    env = {**os.environ, "TERM": "xterm-256color"}
    size, root = (24, 160), str(project.root)
    with pexpect.spawn(
        sys.executable,
        argv,
        cwd=root,
        env=env,
        encoding="utf-8",
        timeout=WAIT_S,
        dimensions=size,
        use_poll=True,
    ) as terminal:
        tokens = "" if subject.kind in COUNTS_AT_ITS_END_ONLY else r"  \d[\d.k]* tokens"
        terminal.expect(rf"implement by actor  \d+:\d\d  write {FORM}{tokens}")
        follow_the_log(project, person)
        terminal.expect(pexpect.EOF)
        return str(terminal.before)


def follow_the_log(project: DispatchProject, person: Person) -> None:
    argv = [sys.executable, "-m", "phasegate", "show", "WP01", "--log", "--follow"]
    with subprocess.Popen(argv, cwd=project.root, stdout=subprocess.PIPE, text=True) as show:
        assert show.stdout is not None
        live = [
            *iter(show.stdout.readline, f"> write {FORM}\n")
        ]  # up to that line, while the agent waits for us
        assert any(line.startswith("> $ ") and LOOKED in line for line in live)
        assert "  | looked at it\n" in live
        person.has_looked.set()
        rest = show.stdout.read()
    assert "The form is there.\n" in rest
    assert re.search(r"^= [\d.k]+ tokens read, \d+ written", rest, re.MULTILINE)


def every_log_is_a_transcript(project: DispatchProject) -> None:
    said = {"implement": "The form is there.", "review": "I have read it."}
    for job in project.jobs():
        told = project.command("show", job.id, "--log").stdout.partition("\non stderr:\n")[0]
        assert said[job.phase] in told.splitlines(), told
        assert re.search(r"^= [\d.k]+ tokens read, \d+ written", told, re.MULTILINE), told
        assert not re.search(r"^\? |\"type\": ?\"", told, re.MULTILINE), (
            told
        )  # nothing of the protocol is left


def the_second_review_saw_the_changes(project: DispatchProject, model: Standin) -> None:
    reviews = [job for job in project.jobs() if job.phase == "review"]
    assert [(job.round, job.outcome) for job in reviews] == [(1, "done"), (2, "done")]
    prompts = [project.prompt(job.id).strip() for job in reviews]
    for prompt in prompts:
        arrived = (text.replace("&#64;", "@") for seen in model.seen for text in seen.strings)
        assert any(prompt in text for text in arrived), "it was not told its prompt"
    whole, delta = prompts
    assert "line17 = 17" in whole
    assert f"+{MORE}" in delta
    assert FINDING in delta
    assert "phasegate-change.diff" in delta
    assert "line17 = 17" not in delta
    package = project.command("show", "WP01", "--json").json["package"]
    assert package["saved_tokens"] > 1000


@pytest.mark.demand("D3.a", "W4.a")
@pytest.mark.parametrize("subject", sorted(SUBJECTS), indirect=True)
def test_two_rounds_are_seen_live_told_as_transcripts_and_reviewed_by_what_changed(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person()
    with Standin(*person.scripts()) as model:
        project = project_of(subject, tmp_path, model.url, monkeypatch)
        drawn = look_at_the_work(project, subject, person)
    assert project.rows()["WP01"].state == PackageState.DONE, drawn
    assert project.git("show", f"{FEATURE}:{FORM}") == f"{LONG}{MORE}"
    every_log_is_a_transcript(project)
    the_second_review_saw_the_changes(project, model)
    assert project.audit_problems() == []
    assert all(processes_tagged(job.id) == [] for job in project.jobs())
