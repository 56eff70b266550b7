"""ACP agents that ask for too much, or do not keep to the protocol: refused before it happens, and never a hang.

Each attack is first made on a client that allows everything: there it succeeds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from phasegate.agents.port import Ending, EventKind, get_harness
from support.acp_runs import Ran, acp_launch, acp_task, agent_command, run_agent, run_unprotected
from support.agents import carry_out, reported

SCOPE = ("src/login.ts", "docs/")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkout"
    for name in ("src", "docs", ".git"):
        (folder / name).mkdir(parents=True)
    (folder / "README.md").write_text("as it was\n")
    (folder / ".git/config").write_text("as it was\n")
    (folder / "docs/away").symlink_to(tmp_path)
    (folder / "docs/readme").symlink_to(folder / "README.md")
    (tmp_path / "elsewhere").mkdir()
    return folder


def contents(folder: Path) -> Mapping[str, str]:
    """Every file there is, for one look before and one after."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    ours = ("WP01.md", "prompt.xml", "spec.md", "plan.md")  # what the task itself puts there
    return {
        str(path.relative_to(folder)): path.read_text() for path in found if path.name not in ours
    }


OUTSIDE = {
    "out of scope": "README.md",
    "absolute elsewhere": "{tmp}/elsewhere/stolen.txt",
    "traversal": "docs/../README.md",
    "traversal out": "docs/../../elsewhere/stolen.txt",
    "through a linked folder": "docs/away/elsewhere/stolen.txt",
    "through a linked file": "docs/readme",
    "git directory": ".git/config",
    "git directory in another spelling": "docs/.GIT/config",
    "twin of a listed file": "SRC/LOGIN.TS",
    "like the checkout by its beginning": "{repository}-other/src/login.ts",
}


@pytest.mark.demand("D3.g", "D6.a")
@pytest.mark.parametrize("way", ["asks", "through_client"])
def test_a_write_outside_is_refused_before_it_happens(
    repository: Path, tmp_path: Path, way: str
) -> None:
    paths = [path.format(tmp=tmp_path, repository=repository) for path in OUTSIDE.values()]
    steps: list[object] = [{"path": path, "content": "x\n"} for path in paths]
    if way == "through_client":
        steps = [["fs/write_text_file", step] for step in steps]
    before = contents(tmp_path)
    ran = run_agent(repository, way, steps, SCOPE)
    assert contents(tmp_path) == before
    assert (
        ran.report.ending is Ending.COMPLETED
    )  # refused is not failed: the agent can go on without it
    assert len(ran.notices) == len(paths), ran.notices
    assert all("refused" in notice for notice in ran.notices)
    run_unprotected(repository, way, steps)
    assert [Path(repository, path).read_text() for path in paths] == ["x\n"] * len(paths)


@pytest.mark.demand("D3.g", "D6.a")
def test_a_write_in_scope_is_allowed_and_made(repository: Path) -> None:
    steps = [{"path": "src/login.ts"}, {"path": "docs/a/b.md"}, {"path": "package-lock.json"}]
    ran = run_agent(repository, "asks", steps, SCOPE)
    assert all((repository / step["path"]).read_text() == "written\n" for step in steps)
    assert ran.files == ["src/login.ts", "docs/a/b.md", "package-lock.json"]
    assert not ran.notices


SLY = {
    "a diff elsewhere, a harmless location": {
        "kind": "edit",
        "locations": [{"path": "{repository}/src/login.ts"}],
        "content": [{"type": "diff", "path": "{repository}/README.md", "newText": "x"}],
    },
    "a diff in what calls itself a read": {
        "kind": "read",
        "content": [{"type": "diff", "path": "{repository}/README.md", "newText": "x"}],
    },
    "another path in the tool's own input": {
        "kind": "edit",
        "locations": [{"path": "{repository}/src/login.ts"}],
        "rawInput": {"file_path": "README.md"},
    },
    "changes by path in the tool's own input": {
        "kind": "edit",
        "locations": [{"path": "{repository}/src/login.ts"}],
        "rawInput": {"changes": {"{repository}/README.md": {}}},
    },
    "no path at all": {"kind": "edit", "locations": []},
    "no kind at all": {"kind": None, "locations": []},
    "a kind that nobody knows": {"kind": "improve"},
    "another mode": {"kind": "switch_mode", "locations": []},
    "fetching": {"kind": "fetch", "locations": []},
    "a read elsewhere": {"kind": "read", "locations": [{"path": "/etc/passwd"}]},
}


@pytest.mark.demand("D3.g")
@pytest.mark.parametrize("announced", [False, True], ids=["asked", "announced before"])
def test_what_is_unknown_or_says_two_things_is_refused(repository: Path, announced: bool) -> None:
    calls = json.loads(json.dumps(SLY).replace("{repository}", str(repository)))
    steps = [
        {
            "path": f"{name}.txt",
            "call": call,
            "says_no_path": "locations" in call,
            "announced": announced,
        }
        for name, call in calls.items()
    ]
    ran = run_agent(repository, "asks", steps, (*SCOPE, *(f"{name}.txt" for name in SLY)))
    assert [name for name in SLY if (repository / f"{name}.txt").exists()] == []
    assert len(ran.notices) == len(SLY), ran.notices
    run_unprotected(repository, "asks", steps)
    assert [name for name in SLY if not (repository / f"{name}.txt").exists()] == []


def test_without_a_sandbox_no_command_is_allowed(repository: Path) -> None:
    call = {"kind": "execute", "title": "npm test", "rawInput": {"command": "npm test"}}
    argument = [{"path": "ran.txt", "call": call, "says_no_path": True}]
    task = acp_task(repository, agent_command("asks", argument), SCOPE)
    unsandboxed = msgspec.structs.replace(task, sandboxed=False)
    report = reported(
        get_harness("acp"), unsandboxed, carry_out(acp_launch(unsandboxed), repository)
    )
    assert report.ending is Ending.COMPLETED
    assert not (repository / "ran.txt").exists()
    carry_out(acp_launch(task), repository)
    assert (repository / "ran.txt").exists()


@pytest.mark.demand("D3.g")
@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ([("a", "allow_always"), ("b", "allow_once"), ("c", "reject_once")], True),
        ([("a", "allow_always"), ("c", "reject_once")], False),  # it would not ask for the next one
        ([("c", "reject_once"), ("d", "reject_always")], False),
        ([("a", "allow_everything")], False),
        ([], False),
    ],
)
def test_only_a_permission_for_this_one_time_is_given(
    repository: Path, options: list[tuple[str, str]], allowed: bool
) -> None:
    offered = [{"optionId": option, "name": option, "kind": kind} for option, kind in options]
    ran = run_agent(repository, "asks", [{"path": "src/login.ts", "options": offered}], SCOPE)
    assert (repository / "src/login.ts").exists() is allowed
    assert bool(ran.notices) is not allowed


def answers(ran: Ran) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(ran.report.answer)
    return found


@pytest.mark.demand("D3.g")
def test_files_are_read_in_the_checkout_and_nowhere_else(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere/secret").write_text("secret\n")
    os.mkfifo(repository / "docs/pipe")
    (repository / "docs/lines").write_text("1\n2\n3\n4\n")
    asked = [
        ("README.md", {}),
        ("docs/lines", {"line": 2, "limit": 2}),
        (f"{tmp_path}/elsewhere/secret", {}),
        ("docs/away/elsewhere/secret", {}),
        ("docs/../README.md", {}),
        ("docs/pipe", {}),
        ("docs/missing", {}),
    ]
    steps = [["fs/read_text_file", {"path": path, **more}] for path, more in asked]
    found = answers(run_agent(repository, "through_client", steps, SCOPE))
    assert found[:2] == [{"result": {"content": "as it was\n"}}, {"result": {"content": "2\n3\n"}}]
    assert all("refused" in str(one["error"]) for one in found[2:6])
    assert "Resource not found" in str(found[6]["error"])
    assert "secret\n" not in json.dumps(found)


@pytest.mark.demand("D3.g")
def test_a_file_with_another_name_elsewhere_is_not_written_through(
    repository: Path, tmp_path: Path
) -> None:
    target = tmp_path / "elsewhere/target"
    target.write_text("as it was\n")
    (repository / "docs/hard").hardlink_to(target)
    steps = [["fs/write_text_file", {"path": "docs/hard", "content": "new\n"}]]
    run_agent(repository, "through_client", steps, SCOPE)
    assert (repository / "docs/hard").read_text() == "new\n"
    assert target.read_text() == "as it was\n"
    (repository / "docs/hard").unlink()
    (repository / "docs/hard").hardlink_to(target)
    run_unprotected(repository, "through_client", steps)
    assert target.read_text() == "new\n"


def test_requests_that_we_do_not_know_are_answered_so(repository: Path) -> None:
    asked = ["terminal/create", "fs/delete_file", "_vendor/anything", ""]
    found = answers(
        run_agent(repository, "through_client", [[method, {}] for method in asked], SCOPE)
    )
    assert [one["error"]["code"] for one in found] == [-32601] * 4  # type: ignore[index]


def test_parameters_that_cannot_be_read_give_nothing(repository: Path) -> None:
    asked: list[tuple[str, dict[str, object]]] = [
        ("fs/write_text_file", {"path": "docs/a"}),
        ("fs/write_text_file", {"path": "docs/a", "content": ["x"]}),
        ("fs/write_text_file", {"path": "docs/a", "content": "x", "sessionId": "another"}),
        ("session/request_permission", {"toolCall": {}, "options": []}),
        (
            "session/request_permission",
            {"toolCall": {"toolCallId": "c", "content": "x"}, "options": []},
        ),
    ]
    found = answers(run_agent(repository, "through_client", asked, SCOPE))
    assert [one["error"]["code"] for one in found] == [-32602] * 5  # type: ignore[index]
    assert not (repository / "docs/a").exists()


RESPONSE = '{{"jsonrpc":"2.0","id":{id},"result":{result}}}'
NO_PROTOCOL = {
    "a banner": "Welcome to the agent!",
    "half a message": '{"jsonrpc":"2.0","id":',
    "a list": "[]",
    "nothing in it": "{}",
    "no version": '{"id":1,"result":{"protocolVersion":1}}',
    "result and error": '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}',
    "no UTF-8": "\udcff\udcfe",
    "deep": "[" * 200_000,
    "a version that is not a number": '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"one"}}',
    "another version": '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":2}}',
    "no version in the answer": '{"jsonrpc":"2.0","id":1,"result":null}',
}


@pytest.mark.demand("D3.g")
@pytest.mark.parametrize("words", NO_PROTOCOL.values(), ids=NO_PROTOCOL)
def test_what_is_not_the_protocol_ends_the_run_with_a_reason(repository: Path, words: str) -> None:
    argument = words[:100_000]  # of one argument no more is possible
    ran = run_agent(repository, "first_words", argument)
    assert ran.report.ending is Ending.FAILED
    assert "protocol" in ran.report.reason
    assert ran.report.remedy
    assert "Traceback" not in ran.finished.stderr


def test_a_turn_is_over_when_the_protocol_is(repository: Path) -> None:
    ran = run_agent(repository, "prints", "I will just say it in plain words.")
    assert ran.report.ending is Ending.FAILED
    assert "I will just say it" in ran.report.reason


@pytest.mark.parametrize("behaviour", ["mute", "chatters"])
def test_an_agent_that_never_answers_is_not_waited_for(repository: Path, behaviour: str) -> None:
    ran = run_agent(repository, behaviour, handshake_s=1.0)
    assert (ran.report.ending, ran.report.reason) == (Ending.FAILED, "it did not answer within 1 s")
    assert ran.report.remedy


def test_a_message_without_end_ends_the_run(repository: Path) -> None:
    ran = run_agent(repository, "floods")
    assert ran.report.ending is Ending.FAILED
    assert "16 MiB" in ran.report.reason


def test_answers_that_nobody_takes_end_the_run(repository: Path) -> None:
    (repository / "docs/large").write_text("x" * 4_000_000)
    ran = run_agent(repository, "never_reads", "docs/large", SCOPE)
    assert ran.report.ending is Ending.FAILED
    assert "does not read" in ran.report.reason


def test_a_child_that_holds_the_output_open_does_not_hold_up_the_end(repository: Path) -> None:
    ran = run_agent(repository, "leaves_a_child")
    assert ran.report.ending is Ending.FAILED
    assert ran.report.reason == "it exited before it answered: exit status 3"
    assert ran.finished.duration_s < 300, "the child lives for ten minutes"


@pytest.mark.parametrize(
    ("status", "ending"), [(0, Ending.FAILED), (1, Ending.FAILED), (75, Ending.TRANSIENT)]
)
def test_an_agent_that_exits_early_is_judged_by_its_exit_status(
    repository: Path, status: int, ending: Ending
) -> None:
    ran = run_agent(repository, "ends_at_once", str(status))
    assert ran.report.ending is ending
    assert f"exit status {status}" in ran.report.reason


def test_a_program_that_is_not_there_is_not_runnable(repository: Path) -> None:
    task = acp_task(repository, ("no-such-agent-anywhere", "acp"))
    report = reported(get_harness("acp"), task, carry_out(acp_launch(task), repository))
    assert report.ending is Ending.NOT_RUNNABLE
    assert "no-such-agent-anywhere cannot be started" in report.reason
    assert "install" in report.remedy


@pytest.mark.demand("D9.a")
@pytest.mark.parametrize(("behaviour", "patience_s"), [("waits_for_cancel", 30), ("hangs", 30)])
def test_an_agent_that_is_told_to_stop_is_cancelled_and_ended(
    repository: Path, tmp_path: Path, behaviour: str, patience_s: float
) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    task = acp_task(repository, agent_command(behaviour, str(ready)), SCOPE)
    launch = acp_launch(task)
    assert isinstance(launch.stdin, bytes)
    with subprocess.Popen(
        launch.argv,
        cwd=repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **launch.env},
    ) as program:
        assert program.stdin is not None
        program.stdin.write(launch.stdin)
        program.stdin.close()
        ready.read_text()  # it is in its turn
        program.send_signal(signal.SIGTERM)
        assert program.stdout is not None
        lines = [json.loads(line) for line in program.stdout.read().splitlines()]
        program.wait(patience_s)
    assert lines[-1]["type"] == "end"
    assert lines[-1]["how"] == "cancelled"
    assert not (repository / "late.txt").exists()
    assert not [line for line in lines if line["type"] == "notice"]


def test_the_interpreter_of_the_program_looks_for_nothing_in_the_checkout(repository: Path) -> None:
    (repository / "json.py").write_text("raise SystemExit('hijacked')")
    (repository / "msgspec.py").write_text("raise SystemExit('hijacked')")
    ran = run_agent(repository, "stops", "end_turn")
    assert ran.report.ending is Ending.COMPLETED
    assert EventKind.END in {event.kind for event in ran.events}
