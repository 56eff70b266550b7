"""The commands of a job as MCP tools of real programs: a question is answered on the board and used in the work."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

import pytest

from phasegate.core.plan.work_package import PackageState
from support.board_client import BoardClient
from support.dispatch_project import FEATURE, DispatchProject, make_project
from support.real_agents import SUBJECTS, Subject, processes_tagged
from support.standin import Say, Script, Shell, Standin, Tool, Turn

FORM = "src/login.ts"
QUESTION, ANSWER = "Which greeting?", "so long 4711"
PASS = Say("I have read the change.\n\n<review>PASS</review>\n")
ACP = Subject(
    "acp",
    "opencode",
    lambda url: SUBJECTS["opencode"].configured(url)._replace(command=("opencode", "acp")),
)
PROGRAMS = {
    **{kind: SUBJECTS[kind] for kind in ("claude_code", "codex", "gemini", "opencode")},
    "acp": ACP,
}


def asks(text: str) -> Turn:
    """An implementer that asks a person, and puts the answer into its work."""
    if ANSWER not in text:
        return Tool("ask", {"question": QUESTION}) if text.count(QUESTION) < 5 else Say("Lost.")
    if f"() => '{ANSWER}'" not in text:
        return Shell(f"""echo "export const login = () => '{ANSWER}';" > {FORM}""")
    job = re.search(r"- job_id: (\S+)", text)
    assert job is not None
    fields = {
        "job_id": job[1],
        "wp_id": "WP01",
        "success": True,
        "status": "completed",
        "summary": "Done",
    }
    return Say(f"It is done.\n\n```json\n{json.dumps(fields)}\n```\n")


def project_of(
    subject: Subject, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> DispatchProject:
    configured = subject.configured(url)
    for name, value in configured.env.items():
        monkeypatch.setenv(name, value)
    # Of a model that codex knows it hides the tools of servers behind a search.
    command = [word.replace("gpt-5.5", "stub-model") for word in configured.command]
    lines = [
        f'harness = "{subject.kind}"',
        f"env = {json.dumps([*configured.env])}",
        "mcp_tools = true",
    ]
    lines += [f"command = {json.dumps(command)}"] if command else []
    return make_project(
        folder, harness="\n".join(lines), agent="timeout_s = 300", run="max_review_cycles = 1"
    )


def answer_on_the_board(project: DispatchProject) -> int:
    """As soon as somebody asks: the status of what the page answered."""
    until_s = time.monotonic() + 120
    while time.monotonic() < until_s:
        for one in project.program("status", "--json").json["waiting"]:
            if one["question"]:
                with BoardClient(project.root) as board:
                    assert QUESTION in board.get("/decisions").text
                    return board.post(f"/at/repo/answer/{one['question']}", text=ANSWER).status
    return 0


@pytest.mark.demand("X2.d")
@pytest.mark.parametrize("kind", sorted(PROGRAMS))
def test_a_question_of_a_real_program_is_answered_on_the_board_and_used_in_its_work(
    kind: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    answered: list[int] = []
    scripts = (
        Script((PASS,), about="Review work package WP01"),
        Script(asks, about="Implement work package WP01"),
    )
    with Standin(*scripts) as model:
        project = project_of(PROGRAMS[kind], tmp_path, model.url, monkeypatch)
        person = threading.Thread(target=lambda: answered.append(answer_on_the_board(project)))
        person.start()
        done = project.program("dispatch", "WP01", timeout_s=300)
        person.join()
    assert done.code == 0, done.stdout + done.stderr
    assert answered == [200]
    assert project.rows()["WP01"].state == PackageState.DONE
    assert ANSWER in project.git("show", f"{FEATURE}:{FORM}")
    assert all(processes_tagged(job.id) == [] for job in project.jobs())
