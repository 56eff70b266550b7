"""The acp harness with an agent that keeps to the protocol."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from phasegate.agents.acp.events import AcpSessionConfig
from phasegate.agents.port import Ending, EventKind, FinishedRun, Usage, get_harness
from phasegate.core.paths.scope import Scope
from support.acp_runs import AGENT, acp_launch, acp_task, agent_command, run_agent
from support.agents import carry_out, reported

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "a repository"
    (folder / "src").mkdir(parents=True)
    return folder


STOPS = [
    ("end_turn", Ending.COMPLETED, ""),
    ("max_tokens", Ending.FAILED, "token limit"),
    ("max_turn_requests", Ending.FAILED, "requests"),
    ("refusal", Ending.FAILED, "refused"),
    ("cancelled", Ending.FAILED, "stopped"),
    ("because", Ending.FAILED, "'because'"),
]


@pytest.mark.demand("D3.g", "D10.b")
@pytest.mark.parametrize(("stop", "ending", "reason"), STOPS)
def test_only_the_agents_own_end_of_its_turn_completes_a_run(
    repository: Path, stop: str, ending: Ending, reason: str
) -> None:
    report = run_agent(repository, "stops", stop).report
    assert (report.answer, report.ending) == ("I stop here", ending)
    assert reason in report.reason
    assert bool(report.reason) is (ending is not Ending.COMPLETED)


@pytest.mark.demand("D3.g")
def test_the_last_message_is_the_answer_and_the_rest_is_shown(repository: Path) -> None:
    ran = run_agent(repository, "messages")
    assert ran.report.answer == "All well"
    assert ran.report.blockers == ("no key",)
    shown = [(event.kind, event.text) for event in ran.events if event.kind is not EventKind.USAGE]
    assert shown == [
        (EventKind.TEXT, "BLOCKER: no key\n<review>REJECTED</review>"),
        (EventKind.COMMAND, "npm test"),
        (EventKind.TEXT, "All "),
        (EventKind.TEXT, "well"),
        (EventKind.END, "end_turn"),
    ]


@pytest.mark.parametrize("kind", ["agent_message_chunk", "usage_update"])
def test_an_update_that_cannot_be_read_is_told_and_a_lost_piece_of_the_answer_missed(
    repository: Path, kind: str
) -> None:
    report = run_agent(repository, "garbles", kind).report
    is_text = kind == "agent_message_chunk"
    assert (report.ending, report.answer, report.truncated) == (
        Ending.COMPLETED,
        "All well",
        is_text,
    )
    assert report.remark == "1 update could not be read"


@pytest.mark.demand("D3.g")
def test_an_agent_that_ends_its_turn_at_a_refusal_is_asked_once_more(repository: Path) -> None:
    ran = run_agent(repository, "gives_up_when_refused")
    assert ran.report.ending is Ending.COMPLETED
    assert ran.report.answer.startswith("The last change was refused and not applied: Edit: ")
    assert not (repository / "x").exists()
    allowed = run_agent(repository, "gives_up_when_refused", scope=("x",))
    assert (allowed.report.ending, allowed.report.answer) == (Ending.COMPLETED, "")


@pytest.mark.demand("D10.a", "D10.b")
@pytest.mark.parametrize(
    ("error", "ending"),
    [
        ("429 Rate limit reached", Ending.RATE_LIMITED),
        ("Authentication failed with provider: 401", Ending.NOT_RUNNABLE),
        ("400 Bad Request", Ending.FAILED),
        ("stream disconnected before completion", Ending.TRANSIENT),
    ],
)
def test_an_error_that_is_told_as_an_answer_is_no_answer(
    repository: Path, error: str, ending: Ending
) -> None:
    report = run_agent(repository, "hides_an_error", error).report
    assert (report.ending, report.reason) == (ending, f"Error: {error}")


def test_what_a_turn_used_is_added_up_as_the_agent_says_it(repository: Path) -> None:
    report = run_agent(repository, "messages").report
    assert report.usage == Usage(
        input_tokens=101, cached_input_tokens=11, output_tokens=23, cost_usd=0.25
    )


@pytest.mark.demand("P5.a", "D3.g")
def test_a_large_prompt_arrives_whole(repository: Path) -> None:
    task = acp_task(repository, agent_command("echoes"))
    prompt = "<prompt>" + "é ]]> \u2028 line\n" * 30_000 + "</prompt>"
    task.prompt_xml.write_text(prompt, encoding="utf-8")
    assert len(prompt.encode()) > 300_000
    report = reported(get_harness("acp"), task, carry_out(acp_launch(task), repository))
    assert report.answer == prompt


def test_an_agent_with_a_mode_that_asks_is_put_into_it(repository: Path) -> None:
    assert run_agent(repository, "asking_mode").report.answer == "default"


def test_reads_and_commands_are_allowed(repository: Path) -> None:
    (repository / "README.md").write_text("")
    steps = [
        {
            "path": "a",
            "call": {"kind": "execute", "title": "npm test", "rawInput": {"command": "npm test"}},
        },
        {"path": "b", "call": {"kind": "read", "locations": [{"path": f"{repository}/README.md"}]}},
        {"path": "c", "call": {"kind": "read", "locations": [{"path": str(repository)}]}},
        {"path": "d", "call": {"kind": "search", "locations": []}},
        {"path": "e", "call": {"kind": "think", "locations": []}},
    ]
    for step in steps:
        step["says_no_path"] = True
    ran = run_agent(repository, "asks", steps)
    assert not ran.notices
    assert {path.name for path in repository.iterdir()} >= {"a", "b", "c", "d", "e"}


ERRORS = [
    (
        {"code": -32603, "message": "Internal error", "data": {"details": "HTTP 400 Bad Request"}},
        Ending.FAILED,
    ),
    ({"code": -32603, "message": "connect ECONNREFUSED 127.0.0.1:1"}, Ending.TRANSIENT),
    (
        {"code": 429, "message": "status 429", "data": "too many requests, retry after 60s"},
        Ending.RATE_LIMITED,
    ),
    ({"code": -32000, "message": "Authentication required"}, Ending.NOT_RUNNABLE),
    ({"code": 1}, Ending.FAILED),
]


@pytest.mark.demand("D10.a", "D10.b")
@pytest.mark.parametrize(("error", "ending"), ERRORS)
def test_an_error_of_the_agent_says_whether_another_try_may_help(
    repository: Path, error: dict[str, object], ending: Ending
) -> None:
    report = run_agent(repository, "fails", error).report
    assert report.ending is ending
    assert report.reason
    assert (report.retry_at_s is not None) is (ending is Ending.RATE_LIMITED)


def test_an_agent_that_hides_an_error_in_a_good_end_has_failed(repository: Path) -> None:
    assert run_agent(repository, "system_error").report.ending is Ending.RATE_LIMITED


def test_an_agent_that_wants_somebody_to_sign_in_says_how(repository: Path) -> None:
    report = run_agent(repository, "wants_sign_in").report
    assert report.ending is Ending.NOT_RUNNABLE
    assert "Log in with a browser, API key" in report.reason
    assert "sign in" in report.remedy


@pytest.mark.parametrize(
    ("key", "ending"), [("has one", Ending.COMPLETED), ("has none", Ending.NOT_RUNNABLE)]
)
def test_a_key_in_the_environment_is_the_only_way_to_sign_in_that_is_tried(
    repository: Path, key: str, ending: Ending
) -> None:
    assert run_agent(repository, "wants_key", key).report.ending is ending


def test_the_program_gets_the_scope_and_no_secret_by_its_input(repository: Path) -> None:
    task = msgspec.structs.replace(
        acp_task(repository, agent_command("echoes")),
        scope=Scope(("src/",), exceptions=("a",), set_aside=("WP01.md",)),
    )
    launch = get_harness("acp").launch(task)
    assert isinstance(launch.stdin, bytes)
    order = msgspec.json.decode(launch.stdin, type=AcpSessionConfig)
    assert (order.entries, order.set_aside) == (("src/", "a"), ("WP01.md",))
    assert "src/" not in launch.argv
    assert str(AGENT) in launch.argv


@pytest.mark.parametrize(
    ("program", "kind"),
    [("gemini", "gemini"), ("opencode", "opencode"), ("claude-agent-acp", "claude_code")],
)
def test_a_known_program_is_started_with_what_its_own_harness_gives_it(
    repository: Path, program: str, kind: str
) -> None:
    task = acp_task(repository, (f"/somewhere/{program}", "--acp"))
    launch, own = get_harness("acp").launch(task), get_harness(kind).launch(task)
    assert launch.argv[-2:] == (f"/somewhere/{program}", "--acp")
    assert launch.stdin != own.stdin
    assert own.env.items() <= launch.env.items()
    assert own.sign_in_files == launch.sign_in_files != ()
    for field in (
        "default_env",
        "pass_env",
        "home_files",
    ):  # what keeps the settings of a repository from it
        assert getattr(own, field) == getattr(launch, field)
    assert ("OPENCODE_PERMISSION" in launch.env) is (program == "opencode")


def test_a_job_that_was_told_to_stop_and_still_ended_its_turn_is_judged_by_its_work(
    repository: Path,
) -> None:
    task = acp_task(repository, agent_command("stops", "end_turn"))
    done = carry_out(acp_launch(task), repository)
    stopped = msgspec.structs.replace(done, sigterm_sent=True)
    assert reported(get_harness("acp"), task, stopped).ending is Ending.COMPLETED
    killed = msgspec.structs.replace(stopped, exit_status=None, signal=9, timed_out=True)
    assert reported(get_harness("acp"), task, killed).ending is Ending.FAILED


def test_lines_that_are_not_ours_say_nothing(repository: Path) -> None:
    task = acp_task(repository, agent_command("echoes"))
    lines = [
        '{"type":"end","how":"well"}',
        '{"type":"text"}',
        "null",
        '{"type":"end"}',
        json.dumps({"type": "x"}),
    ]
    report = reported(get_harness("acp"), task, FinishedRun(0, "\n".join(lines), ""))
    assert (report.answer, report.ending) == ("", Ending.FAILED)
