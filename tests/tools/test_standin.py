"""The stand-in model itself: it says what it was told to say in each protocol, and keeps what it was sent."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any

import pytest

from support.standin import Cut, Fail, Hang, Say, Script, Shell, Standin, Turn, Write

PROMPT = 'é <b> "quoted" \\ \n'
FUNCTION = {"type": "function", "function": {"name": "write"}}
ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": (
        "/v1/messages?beta=true",
        {"tools": [{"name": "Write"}], "messages": [{"content": PROMPT}]},
    ),
    "responses": (
        "/v1/responses",
        {"tools": [{"type": "custom", "name": "apply_patch"}], "input": [{"text": PROMPT}]},
    ),
    "chat": (
        "/v1/chat/completions",
        {"tools": [FUNCTION], "messages": [{"role": "user", "content": PROMPT}]},
    ),
    "gemini": (
        "/v1beta/models/m:streamGenerateContent?alt=sse",
        {
            "tools": [{"functionDeclarations": [{"name": "write_file"}]}],
            "contents": [{"role": "user", "parts": [{"text": PROMPT}]}],
        },
    ),
}
RESULTS = {
    "anthropic": ("messages", {"content": [{"type": "tool_result"}]}),
    "responses": ("input", {"type": "custom_tool_call_output"}),
    "chat": ("messages", {"role": "tool", "content": "done"}),
    "gemini": ("contents", {"role": "user", "parts": [{"functionResponse": {}}]}),
}


def ask(
    model: Standin, kind: str, *, results: int = 0, stream: bool = True
) -> tuple[int, dict[str, str], str]:
    path, body = ASKS[kind]
    if kind == "gemini" and not stream:
        path = path.replace("streamGenerateContent?alt=sse", "generateContent")
    name, answered = RESULTS[kind]
    full = {**body, "stream": stream, name: [*body[name], *[answered] * results]}
    connection = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=30)
    try:
        connection.request("POST", path, json.dumps(full))
        response = connection.getresponse()
        return (
            response.status,
            {key.lower(): value for key, value in response.headers.items()},
            response.read().decode(),
        )
    finally:
        connection.close()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
@pytest.mark.parametrize("kind", ASKS)
def test_turns_follow_the_tool_results_of_the_conversation(kind: str, stream: bool) -> None:
    with Standin(Write("a.txt", "text"), Say("all done")) as model:
        first, second = (ask(model, kind, results=number, stream=stream)[2] for number in (0, 1))
    assert "a.txt" in first
    assert "all done" in second
    assert all(PROMPT in seen.strings for seen in model.seen)


@pytest.mark.parametrize("kind", ASKS)
def test_failures_have_their_status_and_may_pass(kind: str) -> None:
    with Standin(Fail(429, retry_after_s=7, times=2), Say("fine")) as model:
        answers = [ask(model, kind) for _ in range(3)]
    assert [status for status, _, _ in answers] == [429, 429, 200]
    assert answers[0][1]["retry-after"] == "7"
    assert "fine" in answers[2][2]


@pytest.mark.parametrize("kind", ASKS)
def test_a_cut_is_noticed_by_whoever_reads(kind: str) -> None:
    with Standin(Cut()) as model, pytest.raises(http.client.IncompleteRead):
        ask(model, kind)


def _ask_in_vain(model: Standin) -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        ask(model, "chat")


def test_a_hang_lasts_until_it_is_told_to_let_go() -> None:
    with Standin(Hang()) as model:
        asking = threading.Thread(target=_ask_in_vain, args=(model,))
        asking.start()
        assert model.hanging.wait(30)
        assert asking.is_alive()
        model.let_go.set()
        asking.join(30)
        assert not asking.is_alive()


def test_each_conversation_has_its_script_and_a_tool_that_is_not_offered_is_not_called() -> None:
    turns: list[Turn | Script] = [Script((Shell("id"),), about="quoted"), Say("another")]
    with Standin(*turns) as model:
        assert "There is no tool for that." in ask(model, "chat")[2]
