"""`phasegate mcp`: a feature from its start to its merge through the server, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.core.machine.feature_events import CompletionRequested, Started
from phasegate.engine.journal.entries import FEATURE_STEP, read_feature_step
from phasegate.interfaces.mcp.jsonrpc import MAX_LINE_BYTES
from support.feature_run import (
    DESCRIPTION,
    SCENARIO,
    SLUG,
    TYPE,
    FeatureRun,
    Turn,
    make_feature_run,
)
from support.mcp_client import HANDSHAKE, MODERN, McpClient, accepts_blindly, confirms, declines

ERAS = [HANDSHAKE, MODERN]
SLOW: Turn = {"phase": "plan", "steps": [{"sleep_s": 600}]}
LARGEST_LIST = 6_000


@pytest.fixture
def run(tmp_path: Path) -> FeatureRun:
    return make_feature_run(tmp_path)


def waited_for(client: McpClient, cursor: int) -> tuple[list[str], dict[str, object]]:
    """All lines until nobody works on the feature any more, and where it stands then."""
    lines: list[str] = []
    while True:
        found = client.tool("wait", after=cursor, seconds=45)
        lines += found["lines"]
        cursor = found["cursor"]
        if not found["more"] and found["now"]["standing"] != "working":
            return lines, found["now"]


@pytest.mark.demand("X2.a")
def test_a_feature_goes_from_its_start_to_its_merge_and_a_person_confirms_the_merge(
    run: FeatureRun,
) -> None:
    """In the newest version of the protocol; a confirmed order in each version: see below."""
    run.play(*SCENARIO)
    with McpClient(run.root, version=MODERN, person=confirms) as client:
        started = client.tool("start", type=TYPE, description=DESCRIPTION)
        assert started["now"]["orders"] == ["run", "escalate", "cancel"]
        cursor = client.tool("run")["cursor"]
        lines, now = waited_for(client, cursor)
        assert (now["standing"], now["orders"]) == (
            "waiting",
            ["run", "back", "complete", "escalate", "cancel"],
        )
        assert len(lines) == len({*lines})
        assert any("review: PASS" in line for line in lines)
        assert not (run.root / "bye.py").exists()
        told = {
            what: client.tool("explain", what=what, of="WP01")["text"]
            for what in ("diff", "prompt", "evidence")
        }
        assert ("+def bye(name)" in told["diff"], "<prompt>" in told["prompt"]) == (True, True)
        assert "python3 -S -m unittest -q check" in told["evidence"]
        assert "FR-BYE-001" in client.tool("explain", what="trace")["text"]
        decided = client.tool("decide", order="complete")
        assert decided["now"]["stage"] != "completed"
        _, now = waited_for(client, cursor)
        assert now["stage"] == "completed"
        assert "tester 1.2 asks to archive the feature and MERGE it" in client.asked[0]
    assert (run.root / "bye.py").exists()
    with run.reader() as reader:
        events = [
            read_feature_step(one.payload)
            for one in reader.events(SLUG)
            if one.kind == FEATURE_STEP
        ]
    orders = [event for event in events if isinstance(event, Started | CompletionRequested)]
    assert [(order.by.door, order.by.agent) for order in orders] == [("mcp", "tester 1.2")] * 2


@pytest.mark.demand("X2.a")
@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(
    ("person", "why"),
    [
        (None, "tester 1.2 does not support questions to the user"),
        (declines, "the answer was decline"),
        (accepts_blindly, "no user has read the question"),
    ],
)
def test_what_no_person_confirms_is_not_done_and_is_on_record(
    version: str, person: object, why: str, run: FeatureRun
) -> None:
    run.command("start", TYPE, DESCRIPTION)
    with McpClient(run.root, version=version, person=person) as client:  # type: ignore[arg-type]
        assert "back needs a phase" in client.refusal("decide", order="back", text="x")
        assert "does not allow back now" in client.refusal(
            "decide", order="back", phase="06", text="x"
        )
        said = client.refusal("decide", order="cancel", text='it is "late"')
        assert why in said
        assert f"phasegate cancel --reason 'it is \"late\"' --feature {SLUG}" in said
        journal = client.call("resources/read", {"uri": f"phasegate://feature/{SLUG}/journal"})
        assert "tester 1.2 asked by MCP for: phasegate cancel" in journal["contents"][0]["text"]
        assert client.tool("status", feature=SLUG)["now"]["stage"] == "working"
    with McpClient(
        run.root, version=version, person=confirms
    ) as client:  # the control: a person does
        client.tool("decide", order="cancel", text="it is late")
        assert client.tool("status", feature=SLUG)["now"]["stage"] == "cancelled"
        assert (
            client.tool("wait", after=0)["now"]["stage"] == "cancelled"
        )  # who follows it hears of its end


@pytest.mark.demand("X2.a")
def test_an_answer_counts_once_and_for_the_question_that_was_asked(run: FeatureRun) -> None:
    run.command("start", TYPE, DESCRIPTION)
    with McpClient(run.root, version=MODERN, person=confirms) as client:
        ask = {"name": "decide", "arguments": {"order": "escalate", "text": "look"}}
        asked = client.exchange("tools/call", ask)["result"]
        answers = {
            key: confirms(one["params"]["message"]) for key, one in asked["inputRequests"].items()
        }
        reply = {"inputResponses": answers, "requestState": asked["requestState"]}
        other = {"name": "decide", "arguments": {"order": "cancel", "text": "look"}, **reply}
        assert client.exchange("tools/call", other)["result"][
            "isError"
        ]  # asked about another order
        assert client.exchange("tools/call", {**ask, **reply})["result"][
            "isError"
        ]  # and the answer is spent
        made_up = {"inputResponses": answers, "requestState": "made-up"}
        assert client.exchange("tools/call", {**ask, **made_up})["result"]["isError"]
        assert client.tool("status", feature=SLUG)["now"]["stage"] == "working"
        client.tool("decide", order="escalate", text="look")  # the control
        assert client.tool("status", feature=SLUG)["now"]["stage"] == "blocked"


@pytest.mark.demand("X2.a")
@pytest.mark.parametrize(("policy", "stage"), [("never", "working"), ("agent", "blocked")])
def test_the_configuration_says_who_may_decide_and_no_agent_ends_a_feature(
    policy: str, stage: str, run: FeatureRun
) -> None:
    run.command("start", TYPE, DESCRIPTION)
    with McpClient(run.root, env={"PHASEGATE_MCP__DECISIONS": policy}) as client:
        escalated = client.call(
            "tools/call", {"name": "decide", "arguments": {"order": "escalate", "text": "look"}}
        )
        assert bool(escalated.get("isError")) == (policy == "never")
        assert client.tool("status", feature=SLUG)["now"]["stage"] == stage
        assert client.refusal("decide", order="cancel", text="done").startswith("not done: ")
        assert client.tool("status", feature=SLUG)["now"]["stage"] == stage


@pytest.mark.demand("W4.k", "W4.j", "X2.a")
def test_a_person_takes_a_feature_back_through_the_server_too(run: FeatureRun) -> None:
    run.play(*SCENARIO)
    # Until the first gate; the next phase has not begun then
    run.command("run", TYPE, DESCRIPTION, "--step")
    run.command("run", "--step")
    run.command("advance")
    with McpClient(run.root, person=confirms) as client:
        now = client.tool(
            "decide", order="back", phase="requirements", text="be polite", feature="001"
        )["now"]
        assert (now["phase"], now["stage"]) == ("01-requirements", "working")
        assert "return the feature to an earlier phase, requirements" in client.asked[0]
        assert "text to record: be polite" in client.asked[0]
        run.command("start", TYPE, "Another")
        assert (
            f"several features are active\nhint: choose with the argument `feature`: {SLUG}"
            in client.refusal("run")
        )


@pytest.mark.demand("X2.a")
def test_a_cancelled_wait_ends_and_a_client_that_goes_leaves_the_run_alone(run: FeatureRun) -> None:
    run.play(SLOW)
    with McpClient(run.root) as client:
        client.tool("start", type=TYPE, description=DESCRIPTION)
        begun = client.tool("run")
        client.tool("wait", after=begun["cursor"], seconds=45)  # until something has happened
        here = client.tool("status")["cursor"]
        waiting = client.begin(
            "tools/call", {"name": "wait", "arguments": {"after": here, "seconds": 45}}
        )
        client.send({"method": "notifications/cancelled", "params": {"requestId": waiting}})
        assert client.tool("status", feature=SLUG)["now"]["standing"] == "working"
        assert "already running" in client.refusal("run")
        client.begin("tools/call", {"name": "wait", "arguments": {"after": here, "seconds": 45}})
    assert client.process.returncode == 0  # it did not wait for the open call
    stopped = json.loads(run.run("stop", "--json").stdout)
    assert [one["pid"] for one in stopped["processes"]] == [begun["pid"]]


HOSTILE = {
    "a path that climbs": (
        "artifact",
        {"action": "read", "feature": SLUG, "path": "../../etc/passwd"},
    ),
    "an option for a path": (
        "artifact",
        {"action": "write", "feature": SLUG, "path": "-rf", "content": "x"},
    ),
    "an option for a slug": (
        "artifact",
        {"action": "write", "feature": "-x", "path": "a.md", "content": "x"},
    ),
    "a slug that climbs": ("artifact", {"action": "read", "feature": "..", "path": "a.md"}),
    "git's own folder": (
        "artifact",
        {"action": "write", "feature": ".git", "path": "config", "content": "x"},
    ),
    "an order that is not due": ("decide", {"order": "complete", "feature": SLUG}),
    "an unknown feature": ("run", {"feature": "999-none"}),
    "an option for a feature": ("run", {"feature": "--merge"}),
    "no description": ("start", {"type": "feature", "description": "  "}),
    "an unknown type": ("start", {"type": "--detach", "description": "x"}),
    "a job that climbs": ("status", {"job": "../../x"}),
}


@pytest.mark.demand("X2.a")
def test_hostile_arguments_are_refused_as_at_the_command_line(run: FeatureRun) -> None:
    run.command("start", TYPE, DESCRIPTION)
    with McpClient(run.root, person=confirms) as client:
        for what, (tool, arguments) in HOSTILE.items():
            assert client.refusal(tool, **arguments), what
        for name, arguments in {
            "merge": {"merge": True},
            "step": {"step": "yes"},
            "feature": {"feature": ["x"]},
            "long": {"feature": "x" * 10_000},
        }.items():
            answer = client.exchange("tools/call", {"name": "run", "arguments": arguments})
            text = answer["result"]["content"][0]["text"]
            assert answer["result"]["isError"] is True, name
            assert "the arguments are: feature" in text, (
                "a tool error, so that the model can mend it"
            )
        unknown = client.refusal("explain", what="decision")
        assert "what (answer, diff, " in unknown, "with the values to choose from"
        for uri in (
            "phasegate://feature/../x",
            f"phasegate://feature/{SLUG}/..%2F..%2Fx",
            "file:///etc/passwd",
            "",
        ):
            assert "error" in client.exchange("resources/read", {"uri": uri}), uri
        client.tool(
            "artifact", action="write", feature=SLUG, path="WP01/notes.md", content="hello"
        )  # the control
        assert (
            client.tool("artifact", action="read", feature=SLUG, path="WP01/notes.md")["text"]
            == "hello"
        )
    assert {path.name for path in run.root.parent.iterdir()} == {"repo", "scenario.json"}


@pytest.mark.demand("X2.a")
def test_lines_that_are_no_messages_get_an_error_each_and_harm_nothing(run: FeatureRun) -> None:
    with McpClient(run.root) as client:
        for line, code in {
            b"{": -32700,
            b"[]": -32600,
            b'{"id": 5, "method": "ping"}': -32600,
            b'{"jsonrpc": "2.0", "id": null, "method": "ping"}': -32600,
            b'{"jsonrpc": "2.0", "id": 900, "method": "ping", "params": []}': -32600,
            b"[" * 100_000: -32600,
            b" " * (MAX_LINE_BYTES + 10) + b"{}": -32600,
        }.items():
            client.write(line + b"\n")
            assert client.read()["error"]["code"] == code, line[:60]
        assert client.exchange("no/such", {})["error"]["code"] == -32601
        assert client.exchange("tools/call", {"name": "rm"})["error"]["code"] == -32602
        assert client.call("ping") == {}


@pytest.mark.demand("X2.a")
def test_a_client_gets_the_version_that_it_speaks_or_the_newest_that_is_known(
    run: FeatureRun,
) -> None:
    with McpClient(run.root, version="2025-11-25") as client:
        assert client.hello["protocolVersion"] == "2025-11-25"
    with McpClient(run.root, version="1999-01-01") as client:
        assert client.hello["protocolVersion"] == "2025-11-25"
        unknown = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}}
        error = client.exchange("tools/list", unknown)["error"]
        assert (error["code"], MODERN in error["data"]["supported"]) == (-32022, True)
    with McpClient(run.root, version=MODERN) as client:
        found = client.call("server/discover")
        assert (found["supportedVersions"][0], found["resultType"], found["ttlMs"]) == (
            MODERN,
            "complete",
            0,
        )


@pytest.mark.demand("X2.a")
def test_the_list_of_tools_is_small_and_its_hints_are_true(run: FeatureRun) -> None:
    with McpClient(run.root) as client:
        tools = client.call("tools/list")["tools"]
        assert len(json.dumps(tools, separators=(",", ":"))) < LARGEST_LIST
        hints = {tool["name"]: tool["annotations"] for tool in tools}
        prompts = client.call("prompts/list")["prompts"]
        said = client.call(
            "prompts/get", {"name": "specify", "arguments": {"wish": "a login form"}}
        )
    reading = {name for name, hint in hints.items() if hint["readOnlyHint"]}
    assert reading == {"status", "wait", "explain"}
    assert {name for name, hint in hints.items() if hint["destructiveHint"]} == {"decide", "stop"}
    assert {name for name, hint in hints.items() if hint["openWorldHint"]} == {"run"}
    assert [prompt["name"] for prompt in prompts] == ["specify", "unblock"]
    assert "I want: a login form" in said["messages"][0]["content"]["text"]


@pytest.mark.demand("X2.a")
@pytest.mark.parametrize("agent", ["claude", "codex", "cursor", "gemini", "opencode", "qwen"])
def test_install_shows_the_change_first_and_remove_leaves_nothing_behind(
    agent: str, run: FeatureRun
) -> None:
    before = {*run.root.rglob("*")}
    refused = run.command("mcp", "install", agent)
    assert (refused.code, "no terminal to confirm on" in refused.stderr) == (2, True)
    assert {*run.root.rglob("*")} == before
    installed = run.command("mcp", "install", agent, "--yes")
    assert (installed.code, "+" in installed.stdout, "written" in installed.stdout) == (
        0,
        True,
        True,
    )
    assert "unchanged" in run.command("mcp", "install", agent, "--yes").stdout
    assert "removed" in run.command("mcp", "remove", agent, "--yes").stdout
    assert {*run.root.rglob("*")} == before


@pytest.mark.demand("X2.a")
def test_what_stands_beside_our_entry_stays_and_another_of_our_name_is_refused(
    run: FeatureRun,
) -> None:
    settings, own = (
        run.root / ".codex/config.toml",
        '# mine\nmodel = "x"\n[mcp_servers.other]\ncommand = "o"\n',
    )
    settings.parent.mkdir()
    settings.write_text(own)
    run.command("mcp", "install", "codex", "--yes")
    assert (
        settings.read_text()
        == f'{own}\n[mcp_servers.phasegate]\ncommand = "phasegate"\nargs = ["mcp"]\n'
    )
    run.command("mcp", "remove", "codex", "--yes")
    assert settings.read_text() == own
    (run.root / ".mcp.json").write_text('{"mcpServers": {"phasegate": {"command": "mine"}}}')
    for order in ("install", "remove"):
        refused = run.command("mcp", order, "claude", "--yes")
        assert (refused.code, "already exists with other values" in refused.stderr) == (2, True)
