"""Runs of the ACP agent of the tests: by our client, and by a reference client that allows everything."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from phasegate.agents.acp.events import AcpSessionConfig
from phasegate.agents.port import (
    AgentConfig,
    AgentEvent,
    AgentReport,
    AgentTask,
    EventKind,
    FinishedRun,
    Launch,
    get_harness,
)
from support.agents import carry_out, read
from support.tasks import make_task

AGENT = Path(__file__).with_name("acp_agent.py")


class Ran(NamedTuple):
    """What one run brought, as the harness reads it."""

    events: list[AgentEvent]
    report: AgentReport
    finished: FinishedRun

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if event.kind is EventKind.NOTICE]

    @property
    def files(self) -> list[str]:
        return [event.path for event in self.events if event.kind is EventKind.FILE]


def agent_command(behaviour: str, argument: object = "") -> tuple[str, ...]:
    """The command line of the agent of the tests; what is no text is given as JSON."""
    text = argument if isinstance(argument, str) else json.dumps(argument)
    return (sys.executable, str(AGENT), behaviour, *([text] if text else []))


def acp_task(repository: Path, command: Iterable[str], scope: Iterable[str] = ()) -> AgentTask:
    task = make_task(
        repository, AgentConfig("tested", command=tuple(command)), kind="acp", scope=scope
    )
    return msgspec.structs.replace(task, sandboxed=True)


def acp_launch(task: AgentTask, handshake_s: float = 30.0) -> Launch:
    """The launch of a task, with less patience than the product has."""
    launch = get_harness("acp").launch(task)
    assert isinstance(launch.stdin, bytes)
    order = msgspec.json.decode(launch.stdin, type=AcpSessionConfig)
    order = msgspec.structs.replace(order, handshake_s=handshake_s, cancel_s=1.0, close_s=1.0)
    return msgspec.structs.replace(launch, stdin=msgspec.json.encode(order))


def run_agent(
    repository: Path,
    behaviour: str,
    argument: object = "",
    scope: Iterable[str] = (),
    handshake_s: float = 30.0,
) -> Ran:
    """Run the agent of the tests as the harness has it run."""
    task = acp_task(repository, agent_command(behaviour, argument), scope)
    finished = carry_out(acp_launch(task, handshake_s), repository)
    return Ran(*read(get_harness("acp"), task, finished), finished)


def run_unprotected(repository: Path, behaviour: str, argument: object = "") -> None:
    """The same agent with a client that allows whatever is asked and writes wherever it is told to."""
    command = agent_command(behaviour, argument)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=repository
    ) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        _send(agent, 1, "initialize", protocolVersion=1, clientCapabilities={})
        _send(agent, 2, "session/new", cwd=str(repository), mcpServers=[])
        _send(agent, 3, "session/prompt", sessionId="s1", prompt=[{"type": "text", "text": "go"}])
        for line in agent.stdout:
            message = json.loads(line)
            if message.get("id") == 3 and "method" not in message:
                agent.stdin.close()
                return
            if "method" in message and "id" in message:
                _reply(agent, message)


def _send(agent: subprocess.Popen[str], number: int, method: str, **params: object) -> None:
    assert agent.stdin is not None
    print(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}),
        file=agent.stdin,
        flush=True,
    )


def _reply(agent: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert agent.stdin is not None
    params: dict[str, Any] = message["params"]
    result: dict[str, object] = {}
    if message["method"] == "session/request_permission":
        allowing = [
            option["optionId"] for option in params["options"] if option["kind"].startswith("allow")
        ]
        result = {"outcome": {"outcome": "selected", "optionId": allowing[0]}}
    elif message["method"] == "fs/write_text_file":
        Path(params["path"]).parent.mkdir(parents=True, exist_ok=True)
        Path(params["path"]).write_text(params["content"])
    elif message["method"] == "fs/read_text_file":
        result = {"content": Path(params["path"]).read_text()}
    print(
        json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}),
        file=agent.stdin,
        flush=True,
    )
