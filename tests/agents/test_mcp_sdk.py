"""`phasegate mcp` with the client of the official SDK at the other end, in every version that it speaks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from phasegate.interfaces.mcp.server import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from support.feature_run import (
    DESCRIPTION,
    SCENARIO,
    SLUG,
    TYPE,
    FeatureRun,
    Turn,
    make_feature_run,
)

pytest.importorskip("mcp", reason="the SDK is not installed: run `make test-agents`")
import anyio
import mcp.client.session
from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult

BLOCKS: Turn = {
    "phase": "implement",
    "package": "WP01",
    "round": 1,
    "steps": [{"print": "BLOCKER: which language?"}],
}
SLOW: Turn = {"phase": "plan", "steps": [{"sleep_s": 600}]}
TOOLS = ["status", "wait", "explain", "start", "run", "stop", "decide", "artifact"]


class Person:
    """Somebody who reads what they are asked, and types the word."""

    def __init__(self, answer: str = "accept") -> None:
        self.answer, self.asked = answer, list[str]()

    async def __call__(self, _context: object, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        found = re.search(r'Type "(\w+)" to confirm', params.message)
        assert found is not None
        content = {"confirm": found[1]} if self.answer == "accept" else None
        return ElicitResult(action=self.answer, content=content)


Talk = Callable[[Client], Awaitable[None]]


def talk(
    run: FeatureRun, version: str, person: Person | None, say: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connect as the SDK does, in this version, and say it."""
    if (
        version in HANDSHAKE_VERSIONS
    ):  # it asks for the newest of them; older clients asked for theirs
        monkeypatch.setattr(mcp.client.session, "LATEST_HANDSHAKE_VERSION", version)
    # The SDK passes only a few variables of ours to a server.
    server = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "phasegate", "mcp"],
        cwd=run.root,
        env={"PHASEGATE_TRUST": "1"},
    )
    mode = "legacy" if version in HANDSHAKE_VERSIONS else "auto"

    async def connected() -> None:
        with anyio.fail_after(300):
            async with Client(server, mode=mode, elicitation_callback=person, cache=None) as client:
                assert client.protocol_version == version
                await say(client)

    anyio.run(connected)


async def tool(client: Client, name: str, **arguments: object) -> dict[str, Any]:
    """What a tool found. The SDK itself holds the answer against the schema that was listed for it."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    assert result.structured_content is not None
    return result.structured_content


async def waited(client: Client, cursor: int) -> dict[str, Any]:
    """Where the feature stands when nobody works on it any more."""
    while True:
        found = await tool(client, "wait", after=cursor, seconds=45)
        cursor = found["cursor"]
        if not found["more"] and found["now"]["standing"] != "working":
            now: dict[str, Any] = found["now"]
            return now


@pytest.fixture
def run(tmp_path: Path) -> FeatureRun:
    return make_feature_run(tmp_path)


@pytest.mark.demand("X2.a")
@pytest.mark.parametrize("version", [HANDSHAKE_VERSIONS[-1], *MODERN_VERSIONS])
def test_a_feature_is_started_blocked_decided_by_a_person_and_merged(
    version: str, run: FeatureRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.play(BLOCKS, *SCENARIO)
    person = Person()

    async def say(client: Client) -> None:
        await client.list_tools()
        await tool(client, "start", type=TYPE, description=DESCRIPTION)
        cursor = (await tool(client, "run"))["cursor"]
        now = await waited(client, cursor)
        assert (now["stage"], "which language?" in now["reason"]) == ("blocked", True), now
        assert "which language?" in (await tool(client, "explain", what="findings"))["text"]
        person.answer = "decline"
        refused = await client.call_tool("decide", {"order": "resolve", "text": "English"})
        assert (refused.is_error, "the answer was decline" in refused.content[0].text) == (
            True,
            True,
        )
        person.answer = "accept"
        assert (await tool(client, "decide", order="resolve", text="English"))["now"][
            "stage"
        ] == "working"
        cursor = (await tool(client, "run"))["cursor"]
        now = await waited(client, cursor)
        assert "complete" in now["orders"], now
        await tool(client, "decide", order="complete")
        assert (await waited(client, cursor))["stage"] == "completed"

    talk(run, version, person, say, monkeypatch)
    assert (run.root / "bye.py").exists()
    assert [asked.splitlines()[0].partition(" asks to ")[0] for asked in person.asked] == [
        "mcp 0.1.0"
    ] * 3


@pytest.mark.demand("X2.a")
@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, *MODERN_VERSIONS])
def test_every_version_lists_reads_refuses_and_cancels_alike(
    version: str, run: FeatureRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.play(SLOW)

    async def say(client: Client) -> None:
        listed = await client.list_tools()
        assert [one.name for one in listed.tools] == TOOLS
        await tool(client, "start", type=TYPE, description=DESCRIPTION)
        cursor = (await tool(client, "run"))["cursor"]
        await tool(client, "wait", after=cursor, seconds=45)
        here = (await tool(client, "status"))["cursor"]
        with anyio.move_on_after(
            1
        ) as scope:  # the SDK tells the server that it does not wait any longer
            await client.call_tool("wait", {"after": here + 1000, "seconds": 45})
        assert scope.cancelled_caught
        assert (await tool(client, "status", feature=SLUG))["now"]["standing"] == "working"
        refused = await client.call_tool(
            "artifact", {"action": "read", "feature": SLUG, "path": "../../etc/passwd"}
        )
        assert refused.is_error
        wrong = await client.call_tool("run", {"merge": True})
        assert wrong.is_error
        assert "merge" in wrong.content[0].text
        resources = await client.list_resources()
        journal = await client.read_resource(next(one.uri for one in resources.resources))
        assert "Say bye" in journal.contents[0].text
        prompts = await client.list_prompts()
        assert [one.name for one in prompts.prompts] == ["specify", "unblock"]
        assert (await client.get_prompt("specify", {"wish": "a login form"})).messages
        refused = await client.call_tool("decide", {"order": "cancel", "text": "x"})
        assert "does not support questions to the user" in refused.content[0].text
        assert (await tool(client, "stop"))["ended"]

    talk(run, version, None, say, monkeypatch)
    assert (
        subprocess.run(run.argv("status"), cwd=run.root, capture_output=True, timeout=60).returncode
        == 0
    )
