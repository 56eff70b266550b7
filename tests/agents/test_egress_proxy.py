"""Each real program at level `offline`: it works through the proxy, reaches nothing else, and its key is not there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from phasegate.sandbox.request import SandboxLevel
from support.dispatch_project import FEATURE, DispatchProject, Done, make_project, package
from support.real_agents import COPILOT, KEY, SUBJECTS, Subject
from support.sandboxed import need
from support.standin import Say, Script, Shell, Standin, Write

# Run by the program's own shell. The key is written backwards here: the prompt is in the program's memory.
LOOK = """
import glob, os, re, socket
key, mine, found = "{backwards}"[::-1].encode(), f"/proc/{{os.getpid()}}/", []
def holds(path):
    try:
        with open(path, "rb") as file:
            return key in file.read(50_000_000)
    except (OSError, OverflowError):
        return False
def memory(folder):
    try:
        with open(folder + "maps") as maps, open(folder + "mem", "rb", 0) as mem:
            for start, end in re.findall("^([0-9a-f]+)-([0-9a-f]+) rw", maps.read(), re.M):
                mem.seek(int(start, 16))
                if key in mem.read(min(int(end, 16) - int(start, 16), 100_000_000)):
                    return True
    except (OSError, ValueError, OverflowError):
        pass
    return False
others = [f"/proc/{{pid}}/" for pid in os.listdir("/proc") if pid.isdigit() and f"/proc/{{pid}}/" != mine]
found += [path for folder in others for path in (folder + "environ", folder + "cmdline") if holds(path)]
found += [folder + "mem" for folder in others if memory(folder)]
home = [os.path.join(at, name) for at, _, names in os.walk(os.environ["HOME"]) for name in names]
found += [path for path in home if os.path.isfile(path) and holds(path)]
for host, port in (("127.0.0.1", {port}), ("192.0.2.1", 80), ("example.com", 443)):
    try:
        socket.create_connection((host, port), 3).close()
        found.append(f"{{host}}:{{port}}")
    except OSError:
        pass
try:
    with socket.create_connection(("127.0.0.1", 3128), 3) as proxy:
        proxy.sendall(b"CONNECT other.test:443 HTTP/1.1\\r\\n\\r\\n")
        found += [] if proxy.recv(100).startswith(b"HTTP/1.1 403") else ["other.test"]
except OSError:
    pass
os.makedirs("src", exist_ok=True)
open("src/found.txt", "w").write("looked\\n" + "\\n".join(found))
"""
FORM = "src/login.ts"
REVIEW = Script(
    (Say("I have read the change.\n\n<review>PASS</review>\n"),), about="Review work package WP01"
)
COMMIT = Shell("git add src && git commit -q -m 'WP01: Write the login form'")


def result(prompt: str) -> str:
    job = re.search(r"- job_id: (\S+)", prompt)
    assert job is not None, prompt[-2000:]
    return json.dumps(
        {
            "job_id": job[1],
            "wp_id": "WP01",
            "success": True,
            "status": "completed",
            "summary": "Done",
        }
    )


def dispatched(
    subject: Subject, folder: Path, monkeypatch: pytest.MonkeyPatch, run: str, agent: str = ""
) -> tuple[DispatchProject, Standin, Done]:
    """A package done by the program, whose shell looks for the key and for ways out."""
    with Standin() as model:
        port = model.url.rpartition(":")[2]
        look = Shell(
            f"python3 - <<'LOOKEND'\n{LOOK.format(backwards=KEY[::-1], port=port)}\nLOOKEND"
        )
        work = Script(
            (Write(FORM, "export const login = 1;\n"), look, COMMIT, Say(result)),
            about="Implement work",
        )
        model.scripts = [REVIEW, work]
        configured = subject.configured(model.url)
        for name, value in configured.env.items():
            monkeypatch.setenv(name, value)
        lines = [
            f'harness = "{subject.kind}"',
            f"env = {json.dumps([*configured.env])}",
            "timeout_s = 300",
            agent,
        ]
        lines += [f"command = {json.dumps(configured.command)}"] if configured.command else []
        documents = {"WP01": package(file_scope=["src/"])}
        project = make_project(
            folder, documents, harness="\n".join(lines), run=f"max_review_cycles = 1\n{run}"
        )
        return project, model, project.program("dispatch", "WP01", timeout_s=400)


def check_offline(subject: Subject, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need(SandboxLevel.OFFLINE)
    project, model, done = dispatched(subject, folder, monkeypatch, 'sandbox = "offline"')
    assert done.code == 0, done.stdout + done.stderr
    assert project.git("show", f"{FEATURE}:src/found.txt") == "looked"
    assert any(KEY in value for seen in model.seen for value in seen.headers.values())
    trail = project.trail(project.jobs()[0].id)
    hosts = {(one["host"], one["allowed"]) for one in trail if one["action"] == "reach_host"}
    assert {(model.url.removeprefix("http://"), True), ("other.test:443", False)} <= hosts


@pytest.mark.demand("X6.b", "X6.c")
def test_a_real_program_works_at_offline_reaches_nothing_else_and_does_not_hold_its_key(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_offline(subject, tmp_path, monkeypatch)


@pytest.mark.demand("X6.b", "X6.c")
@pytest.mark.parametrize("other", [SUBJECTS["qwen"], COPILOT], ids=lambda other: other.kind)
def test_programs_that_need_a_newer_node_do_so_too(
    node22: None, other: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_offline(other, tmp_path, monkeypatch)


def test_the_control_where_a_person_opens_the_network_the_key_is_found(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(SandboxLevel.WORKTREE)
    agent = 'allowed_hosts = ["*"]'
    project, model, done = dispatched(
        SUBJECTS["claude_code"], tmp_path, monkeypatch, 'sandbox = "worktree"', agent
    )
    assert done.code == 0, done.stdout + done.stderr
    found = project.git("show", f"{FEATURE}:src/found.txt")
    assert "environ" in found
    assert model.url.removeprefix("http://") in found
