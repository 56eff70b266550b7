"""`phasegate mcp` with real programs at the other end: the Inspector, and agents that a person works in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

import pytest

from phasegate.core.machine.feature_events import Started
from phasegate.engine.journal.entries import FEATURE_STEP, read_feature_step
from support.feature_run import (
    DESCRIPTION,
    SCENARIO,
    SLUG,
    TYPE,
    FeatureRun,
    Turn,
    make_feature_run,
)
from support.real_agents import KEY
from support.standin import Say, Script, Standin, Tool
from support.standin import Turn as ModelTurn

SERVER = (sys.executable, "-P", "-m", "phasegate", "mcp")
BLOCKS: Turn = {
    "phase": "implement",
    "package": "WP01",
    "round": 1,
    "steps": [{"print": "BLOCKER: which language?"}],
}
MOST_CALLS = 60
LARGEST_LIST = 6_000
STOPPED = '"standing": "stopped", "orders": ["run"]'
WAITS, MERGED = "It waits for a person.", "It is merged."


class Client(NamedTuple):
    """A program that a person works in, without a person: how it is called, and what it says when it is asked."""

    name: str
    argv: Callable[[str, Path], list[str]]
    env: Callable[[str], dict[str, str]]
    why_not: str


def _claude(_url: str, home: Path) -> list[str]:
    settings = home / "mcp.json"
    settings.write_text(
        json.dumps({"mcpServers": {"phasegate": {"command": SERVER[0], "args": [*SERVER[1:]]}}})
    )
    given = (
        "--strict-mcp-config",
        "--mcp-config",
        str(settings),
        "--allowedTools",
        "mcp__phasegate",
    )
    return [
        "claude",
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--setting-sources",
        "user",
        *given,
    ]


def _codex(url: str, _home: Path) -> list[str]:
    provider = f'model_providers.standin={{name="s",base_url="{url}/v1",env_key="STANDIN_KEY",wire_api="responses"}}'
    words = f"command={json.dumps(SERVER[0])},args={json.dumps(SERVER[1:])}"
    # Codex passes only a few variables to a server.
    server = f'mcp_servers.phasegate={{{words},env={{PHASEGATE_TRUST="1"}},required=true}}'
    approved = 'mcp_servers.phasegate.default_tools_approval_mode="approve"'
    given = ('model_provider="standin"', provider, 'model="stub-model"', server, approved)
    return [
        "codex",
        "exec",
        "--json",
        "--skip-git-repo-check",
        *(word for one in given for word in ("-c", one)),
        "-",
    ]


def _gemini(_url: str, home: Path) -> list[str]:
    server = {"command": SERVER[0], "args": [*SERVER[1:]], "trust": True}
    auth = {"auth": {"selectedType": "gemini-api-key"}}
    (home / ".gemini").mkdir(exist_ok=True)
    settings = {
        "mcpServers": {"phasegate": server},
        "security": auth,
        "privacy": {"usageStatisticsEnabled": False},
    }
    (home / ".gemini/settings.json").write_text(json.dumps(settings))
    return ["gemini", "-o", "stream-json", "-m", "gemini-2.5-flash", "--approval-mode", "yolo"]


CLIENTS = {
    one.name: one
    for one in (
        Client(
            "claude",
            _claude,
            lambda url: {
                "ANTHROPIC_API_KEY": KEY,
                "ANTHROPIC_BASE_URL": url,
                "ENABLE_TOOL_SEARCH": "false",
            },
            "the answer was cancel",
        ),
        Client("codex", _codex, lambda _url: {"STANDIN_KEY": KEY}, "the answer was decline"),
        Client(
            "gemini",
            _gemini,
            lambda url: {
                "GEMINI_API_KEY": KEY,
                "GOOGLE_GEMINI_BASE_URL": url,
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
                "GEMINI_CLI_NO_RELAUNCH": "true",
            },
            "does not support questions to the user",
        ),
    )
}


def drives(text: str) -> ModelTurn:
    """What an agent does with the tools that carries a feature on, by what they answered so far."""
    text = text.replace("\\", "")

    def last(pattern: str) -> tuple[int, str]:
        found = [*re.finditer(pattern, text)]
        return (found[-1].start(), found[-1].group(1)) if found else (-1, "")

    if text.count('"cursor"') > MOST_CALLS or text.count("hint: ") > 5:
        return Say("Lost.")
    stands, orders = last(r'"standing"\s*:\s*"(\w+)"'), last(r'"orders"\s*:\s*\[(.*?)\]')[1]
    if stands[0] < 0:
        return Tool("start", {"type": TYPE, "description": DESCRIPTION})
    if last("(not done): ")[0] > stands[0]:
        return Say(WAITS)
    if stands[1] == "working" or last(r'"(pid)"\s*:')[0] > stands[0]:
        return Tool("wait", {"after": int(last(r'"cursor"\s*:\s*(\d+)')[1]), "seconds": 45})
    if last(r'"stage"\s*:\s*"(\w+)"')[1] == "completed":
        return Say(MERGED)
    if "complete" in orders or "resolve" in orders:
        order = "complete" if "complete" in orders else "resolve"
        return Tool("decide", {"order": order, "text": "English"})
    return Tool("run", {})


def environment(client: Client, programs: Path, url: str) -> dict[str, str]:
    """A home of its own, a dummy key, the stand-in's address; nothing else of this machine."""
    gits = {name: value for name, value in os.environ.items() if name.startswith("GIT_")}
    path = f"{programs}:/usr/local/bin:/usr/bin:/bin"
    own = {"PATH": path, "HOME": os.environ["HOME"], "LANG": "C.UTF-8", "PHASEGATE_TRUST": "1"}
    return {**own, **gits, **client.env(url)}


def use(client: Client, run: FeatureRun, programs: Path, model: Standin, prompt: str) -> str:
    """Let the program work on a prompt where no person is; all that it printed."""
    argv, env = (
        client.argv(model.url, Path(os.environ["HOME"])),
        environment(client, programs, model.url),
    )
    done = subprocess.run(
        argv, cwd=run.root, env=env, input=prompt, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def confirm(message: str) -> dict[str, object]:
    """What a person answers who reads the question."""
    found = re.search('Type "(\\w+)" to confirm', message)
    assert found is not None, message
    return {"action": "accept", "content": {"confirm": found[1]}}


class Talk:
    """A program that is talked to line by line, with a person who answers what it asks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.asked = process, list[str]()

    def send(self, message: dict[str, object]) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{json.dumps(message)}\n")
        self.process.stdin.flush()

    def answer(self, message: str) -> dict[str, object]:
        self.asked.append(message)
        return confirm(message)

    def heard(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout
        return map(json.loads, self.process.stdout)


def talk_to_claude(talk: Talk, prompt: str) -> None:
    talk.send(
        {
            "type": "control_request",
            "request_id": "1",
            "request": {"subtype": "initialize", "hooks": None},
        }
    )
    said = {"role": "user", "content": prompt}
    talk.send({"type": "user", "message": said, "parent_tool_use_id": None, "session_id": ""})
    for message in talk.heard():
        if message["type"] == "control_request":
            given = {
                "request_id": message["request_id"],
                "response": talk.answer(message["request"]["message"]),
            }
            talk.send({"type": "control_response", "response": {"subtype": "success", **given}})
        if message["type"] == "result":
            return


def talk_to_codex(talk: Talk, prompt: str) -> None:
    about = {"name": "tester", "title": "tester", "version": "1"}
    talk.send(
        {"id": 1, "method": "initialize", "params": {"clientInfo": about, "capabilities": {}}}
    )
    talk.send({"method": "initialized"})
    talk.send(
        {
            "id": 2,
            "method": "thread/start",
            "params": {"approvalPolicy": "on-request", "sandbox": "read-only"},
        }
    )
    for message in talk.heard():
        if message.get("id") == 2:
            start = {
                "threadId": message["result"]["thread"]["id"],
                "input": [{"type": "text", "text": prompt}],
            }
            talk.send({"id": 3, "method": "turn/start", "params": start})
        elif message.get("method") == "mcpServer/elicitation/request":
            talk.send({"id": message["id"], "result": talk.answer(message["params"]["message"])})
        elif message.get("method") == "turn/completed":
            return


TALKS = {
    "claude": (lambda argv: [*argv, "--input-format", "stream-json"], talk_to_claude),
    "codex": (lambda argv: [argv[0], *argv[4:-1], "app-server"], talk_to_codex),
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeatureRun:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # of the person, and so of their program
    made = make_feature_run(tmp_path)
    made.play(BLOCKS, *SCENARIO)
    return made


def begun_by(run: FeatureRun) -> tuple[str, str]:
    with run.reader() as reader:
        events = [
            read_feature_step(one.payload)
            for one in reader.events(SLUG)
            if one.kind == FEATURE_STEP
        ]
    by = next(event for event in events if isinstance(event, Started)).by
    return by.door, by.agent


@pytest.mark.demand("X2.a")
@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_an_agent_program_drives_a_feature_and_cannot_decide_without_a_person(
    name: str, programs: Path, run: FeatureRun
) -> None:
    client = CLIENTS[name]
    with Standin(Script(drives)) as model:
        assert WAITS in use(client, run, programs, model, "Carry it out.")
        told = model.questions[-1].text.replace("\\", "")
        assert client.why_not in told
        assert "which language?" in told
        assert f'phasegate resolve "English" --feature {SLUG}' in told
        assert run.run("resolve", "English", "--feature", SLUG).returncode == 0  # the person does
        if name not in TALKS:  # the others do the rest below
            prompt = f"Go on with {SLUG}. It was resolved: {STOPPED}"
            assert WAITS in use(client, run, programs, model, prompt)
            assert not (run.root / "bye.py").exists()
            assert run.run("complete", "--feature", SLUG).returncode == 0
            assert (run.root / "bye.py").exists()
    door, agent = begun_by(run)
    assert (door, name in agent) == ("mcp", True)


@pytest.mark.demand("X2.a")
@pytest.mark.parametrize("name", sorted(TALKS))
def test_a_person_who_is_asked_in_their_program_decides_and_the_feature_is_merged(
    name: str, programs: Path, run: FeatureRun
) -> None:
    client, (interactive, talk_to) = CLIENTS[name], TALKS[name]
    with Standin(Script(drives)) as model:
        argv = interactive(client.argv(model.url, Path(os.environ["HOME"])))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        env = environment(client, programs, model.url)
        with subprocess.Popen(argv, cwd=run.root, env=env, text=True, **pipes) as process:
            alarm = Timer(200, process.kill)
            alarm.start()
            talk = Talk(process)
            try:
                talk_to(talk, "Carry it out.")
            finally:
                alarm.cancel()
                process.kill()
        assert drives(model.questions[-1].text) == Say(MERGED)
    assert [asked.partition(" asks to ")[2].partition(" ")[0] for asked in talk.asked] == [
        "mark",
        "archive",
    ]
    assert (run.root / "bye.py").exists()


INSPECTOR = ("mcp-inspector", "--cli")


@pytest.mark.demand("X2.a")
@pytest.mark.usefixtures("node22")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_finds_nothing_to_object_to(
    era: str, programs: Path, run: FeatureRun
) -> None:
    def inspect(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = environment(CLIENTS["gemini"], programs, "http://127.0.0.1:9")
        argv = [*INSPECTOR, "--protocol-era", era, *arguments, "--", *SERVER]
        return subprocess.run(
            argv, cwd=run.root, env=env, capture_output=True, text=True, timeout=100
        )

    strict = inspect("--method", "tools/list", "--strict")
    assert strict.returncode == 0, strict.stdout + strict.stderr
    listed = json.loads(strict.stdout)["tools"]
    assert len(json.dumps(listed, separators=(",", ":"))) < LARGEST_LIST
    given = ("--tool-arg", f"type={TYPE}", "--tool-arg", f"description={DESCRIPTION}")
    started = inspect("--method", "tools/call", "--tool-name", "start", *given)
    assert started.returncode == 0, started.stdout + started.stderr
    assert json.loads(started.stdout)["structuredContent"]["now"]["feature"] == SLUG
    for method in ("resources/list", "prompts/list", "resources/templates/list"):
        assert inspect("--method", method).returncode == 0
    hostile = (
        "--tool-arg",
        "action=read",
        "--tool-arg",
        "path=../../etc/passwd",
        "--tool-arg",
        f"feature={SLUG}",
    )
    refused = inspect("--method", "tools/call", "--tool-name", "artifact", *hostile)
    assert "isError" in refused.stdout
