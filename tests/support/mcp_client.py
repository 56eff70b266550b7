"""A client of the MCP server that speaks its lines by hand, in either era, with a person behind it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

MODERN = "2026-07-28"
HANDSHAKE = "2025-06-18"
_KEY = "io.modelcontextprotocol/"
Answer = dict[str, Any]
Person = Callable[[str], Answer]


def confirms(message: str) -> Answer:
    """A person who reads the question and types its word."""
    found = re.search(r'Type "(\w+)" to confirm', message)
    assert found is not None, message
    return {"action": "accept", "content": {"confirm": found[1]}}


def accepts_blindly(_message: str) -> Answer:
    """A program that answers by itself: it fills in what the schema asks for."""
    return {"action": "accept", "content": {"confirm": "yes"}}


def declines(_message: str) -> Answer:
    return {"action": "decline"}


class McpClient:
    """One server process, started as an agent program starts it. Without a person it cannot ask."""

    def __init__(
        self,
        root: Path,
        *,
        version: str = HANDSHAKE,
        person: Person | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.asked: list[str] = []
        self.progress: list[str] = []
        self._version, self._person, self._last = version, person, 0
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "phasegate", "mcp"],
            cwd=root,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.hello: Answer = {}
        if version != MODERN:
            about = {"name": "tester", "version": "1.2"}
            given = {
                "protocolVersion": version,
                "clientInfo": about,
                "capabilities": self._abilities(),
            }
            self.hello = self.call("initialize", given)
            self.send({"method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        streams = [
            stream
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr)
            if stream
        ]
        streams[0].close()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
            for stream in streams[1:]:
                stream.close()

    def tool(self, name: str, **arguments: object) -> Any:
        """What a tool found; its error is an error here."""
        result = self.call("tools/call", {"name": name, "arguments": arguments})
        assert not result.get("isError"), result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    def refusal(self, name: str, **arguments: object) -> str:
        """What a tool says when it refuses."""
        result = self.call("tools/call", {"name": name, "arguments": arguments})
        assert result.get("isError"), result
        return str(result["content"][0]["text"])

    def call(self, method: str, params: Answer | None = None) -> Answer:
        """The result of a request; with the later era a question is answered by calling again."""
        given = {**(params or {})}
        for _ in range(3):
            answer = self.exchange(method, given)
            assert "error" not in answer, answer
            result: Answer = answer["result"]
            if result.get("resultType") != "input_required":
                return result
            answers = {
                key: self._reply(request["params"])
                for key, request in result["inputRequests"].items()
            }
            given = {**given, "inputResponses": answers, "requestState": result["requestState"]}
        raise AssertionError("asked again and again")

    def exchange(self, method: str, params: Answer) -> Answer:
        """Send a request; the message that answers it. Questions on the way are answered by the person."""
        id_ = self.begin(method, params)
        while True:
            message = self.read()
            if message.get("id") == id_ and "method" not in message:
                return message
            self._take(message)

    def begin(self, method: str, params: Answer) -> int:
        """Send a request, and wait for nothing."""
        self._last += 1
        if self._version == MODERN:
            meta = {
                f"{_KEY}protocolVersion": MODERN,
                f"{_KEY}clientInfo": {"name": "tester", "version": "1.2"},
                f"{_KEY}clientCapabilities": self._abilities(),
                "progressToken": self._last,
            }
            params = {**params, "_meta": meta}
        self.send({"id": self._last, "method": method, "params": params})
        return self._last

    def send(self, message: Answer) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self) -> Answer:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the server has gone"
        message: Answer = json.loads(line)
        return message

    def _take(self, message: Answer) -> None:
        if message.get("method") == "notifications/progress":
            self.progress.append(message["params"]["message"])
        elif message.get("method") == "elicitation/create":
            self.send({"id": message["id"], "result": self._reply(message["params"])})

    def _reply(self, params: Answer) -> Answer:
        self.asked.append(params["message"])
        assert self._person is not None
        return self._person(params["message"])

    def _abilities(self) -> Answer:
        return {"elicitation": {"form": {}}} if self._person else {}
