"""The streams of the known agent programs: events, usage, answer, and what the end means."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.agents.port import (
    AgentConfig,
    AgentEvent,
    AgentReport,
    AgentTask,
    Ending,
    EventKind,
    FinishedRun,
    JobStartListener,
    Usage,
    get_harness,
)
from phasegate.agents.stream.api_error import BROKEN_STREAM_MESSAGES
from phasegate.core.agents.harnesses import HARNESSES
from support.agent_streams import FOLDER, NOW_S, PROGRAMS, REPOSITORY, recorded
from support.agents import Mute, read
from support.sandboxed import eventually
from support.tasks import make_task

RUN_HERE = sorted(PROGRAMS.keys() - {"cursor"})


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> AgentTask:
    made = make_task(tmp_path_factory.mktemp("repository"), AgentConfig("tested"))
    return msgspec.structs.replace(made, checkout=REPOSITORY)


def heard(
    task: AgentTask, kind: str, finished: FinishedRun
) -> tuple[list[AgentEvent], AgentReport]:
    return read(get_harness(kind), task, finished)


def kinds(events: list[AgentEvent]) -> list[EventKind]:
    return [event.kind for event in events]


@pytest.mark.demand("D3.a", "D3.b", "D3.c", "D3.d", "D3.e", "D3.f")
@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_good_run_is_one_sequence_of_events_and_its_last_message_the_answer(
    task: AgentTask, kind: str
) -> None:
    events, report = heard(task, kind, recorded(kind, "ok"))
    assert report.ending is Ending.COMPLETED
    assert report.answer.startswith("Work done by the stub model.\n<review>PASS</review>\n")
    assert [event.path for event in events if event.kind is EventKind.FILE] == ["hello.txt"]
    assert "".join(event.text for event in events if event.kind is EventKind.TEXT).endswith(
        report.answer
    )
    assert kinds(events)[-1] is EventKind.END
    assert not any(event.failed for event in events)


@pytest.mark.parametrize("kind", RUN_HERE)
def test_a_command_is_told_with_its_line(task: AgentTask, kind: str) -> None:
    events, _ = heard(task, kind, recorded(kind, "yolo_shell"))
    commands = [event.text for event in events if event.kind is EventKind.COMMAND]
    assert len(commands) == 1
    assert "echo hi > shell.txt && git add -A && git commit -qm WP01" in commands[0]


USED = {
    "claude_code": Usage(238, 22, 46, 0.0013551),
    "codex": Usage(202, 22, 46),
    "gemini": Usage(202, 22, 46),
    "opencode": Usage(202, 22, 46, 0.0),
    "qwen": Usage(202, 22, 46),
}


STATED = {
    "claude_code": {
        "type": "result",
        "usage": {"input_tokens": "N", "output_tokens": "N", "cache_read_input_tokens": "N"},
        "total_cost_usd": "N",
    },
    "codex": {"type": "turn.completed", "usage": {"input_tokens": "N", "output_tokens": "N"}},
    "gemini": {"type": "result", "stats": {"input_tokens": "N", "output_tokens": "N"}},
    "opencode": {
        "type": "step_finish",
        "part": {"tokens": {"input": "N", "output": "N"}, "cost": "N"},
    },
}


@pytest.mark.demand("D10.c")
@pytest.mark.parametrize("kind", STATED)
def test_no_number_that_an_agent_states_makes_room_under_a_cap_or_cannot_be_added_up(
    task: AgentTask, kind: str
) -> None:
    for number, bound in (("-1000000", 0), ("9" * 30, 10**12)):
        line = msgspec.json.encode(STATED[kind]).decode().replace('"N"', number)
        _, report = heard(task, kind, FinishedRun(0, line, "", ended_at_s=NOW_S))
        assert report.usage is not None
        assert report.usage.input_tokens == report.usage.output_tokens == bound
        assert 0 <= (report.usage.cost_usd or 0) <= 1e9


@pytest.mark.parametrize("kind", RUN_HERE)
def test_usage_is_that_of_the_whole_run_with_the_cached_tokens_in_it(
    task: AgentTask, kind: str
) -> None:
    events, report = heard(task, kind, recorded(kind, "ok"))
    assert report.usage == USED[kind]
    assert [event.usage for event in events if event.kind is EventKind.USAGE][-1] == USED[kind]


def test_a_run_that_was_killed_still_counts_what_it_used(task: AgentTask) -> None:
    _, report = heard(task, "claude_code", recorded("claude_code", "sig_term_pid", 143))
    assert report.usage == Usage(119, 11, 1)


BAD_ENDS = [
    *((kind, "err_e400", Ending.FAILED) for kind in RUN_HERE),
    *((kind, "err_e401", Ending.NOT_RUNNABLE) for kind in RUN_HERE),
    *((kind, "err_e429", Ending.RATE_LIMITED) for kind in RUN_HERE),
    *((kind, "err_e500", Ending.TRANSIENT) for kind in RUN_HERE),
    *((kind, "err_trunc", Ending.TRANSIENT) for kind in RUN_HERE if kind != "claude_code"),
    *((kind, "err_cut", Ending.TRANSIENT) for kind in RUN_HERE),
    *((kind, "err_cut_short", Ending.TRANSIENT) for kind in RUN_HERE),
    *(
        (kind, "err_garbled", Ending.TRANSIENT) for kind in RUN_HERE if kind != "claude_code"
    ),  # it gets over it
    ("claude_code", "maxturns", Ending.FAILED),
    ("claude_code", "sig_term_pid", Ending.FAILED),
    ("claude_code", "sig_int_pid", Ending.FAILED),
    ("codex", "sig_term_pid", Ending.FAILED),
    ("gemini", "maxturns", Ending.FAILED),
    ("gemini", "sig_term_group", Ending.FAILED),
    ("opencode", "sig_term_pid", Ending.FAILED),
    ("qwen", "maxturns", Ending.FAILED),
]


@pytest.mark.demand("D10.a", "D10.b")
@pytest.mark.parametrize(("kind", "scenario", "ending"), BAD_ENDS)
def test_a_bad_end_has_its_meaning_whatever_the_exit_status(
    task: AgentTask, kind: str, scenario: str, ending: Ending
) -> None:
    """Exit status 0 came with errors from several of them."""
    for exit_status in (0, 1):
        _, report = heard(task, kind, recorded(kind, scenario, exit_status))
        assert report.ending is ending
        assert report.reason
        assert bool(report.remedy) is (ending is Ending.NOT_RUNNABLE)


@pytest.mark.parametrize("kind", RUN_HERE)
def test_trouble_that_passed_is_no_trouble(task: AgentTask, kind: str) -> None:
    _, report = heard(task, kind, recorded(kind, "err_flaky500"))
    assert report.ending is Ending.COMPLETED


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_stream_without_its_end_is_not_complete_wherever_it_is_cut(
    task: AgentTask, kind: str
) -> None:
    whole = recorded(kind, "ok")
    lines = whole.stdout.splitlines(keepends=True)
    for count in range(len(lines)):
        cut = msgspec.structs.replace(
            whole, stdout="".join(lines[:count]) + lines[count][: len(lines[count]) // 2]
        )
        _, report = heard(task, kind, cut)
        assert report.ending is Ending.FAILED
        assert "final result" in report.reason


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_comes_after_the_end_takes_it_back(task: AgentTask, kind: str) -> None:
    whole = recorded(kind, "ok")
    lines = whole.stdout.splitlines(keepends=True)
    again = next(
        line
        for line in reversed(lines)
        if '"text"' in line or '"assistant"' in line or "agent_message" in line
    )
    _, report = heard(task, kind, msgspec.structs.replace(whole, stdout=whole.stdout + again))
    assert report.ending is Ending.FAILED


@pytest.mark.parametrize("kind", RUN_HERE)
@pytest.mark.parametrize(
    "how",
    [
        {"exit_status": 1},
        {"exit_status": None, "signal": 9},
        {"timed_out": True},
        {"exit_status": 143},
    ],
)
def test_a_good_result_of_a_process_that_ended_badly_is_not_complete(
    task: AgentTask, kind: str, how: dict[str, object]
) -> None:
    _, report = heard(task, kind, recorded(kind, "ok", **how))  # type: ignore[arg-type]
    assert report.ending is not Ending.COMPLETED


@pytest.mark.demand("D9.d")
@pytest.mark.parametrize("kind", RUN_HERE)
def test_an_agent_that_ends_well_after_it_was_told_to_stop_is_judged_like_any_other(
    task: AgentTask, kind: str
) -> None:
    assert heard(task, kind, recorded(kind, "ok", sigterm_sent=True))[1].ending is Ending.COMPLETED


def test_a_refused_permission_is_noted(task: AgentTask) -> None:
    events, report = heard(task, "claude_code", recorded("claude_code", "autoedit_shell"))
    assert any(
        "not permitted: Bash" in event.text for event in events if event.kind is EventKind.NOTICE
    )
    assert report.ending is Ending.COMPLETED, "what it did not do, evidence will miss"


def test_a_patch_that_failed_is_told_as_failed(task: AgentTask) -> None:
    events, _ = heard(task, "codex", recorded("codex", "sandbox_broken_file_change_failed"))
    assert [(event.path, event.failed) for event in events if event.kind is EventKind.FILE] == [
        ("hello.txt", True)
    ]


def test_a_program_that_would_wait_for_minutes_is_stopped_and_we_wait(task: AgentTask) -> None:
    finished = recorded("qwen", "err_e429", None, signal=15, sigterm_sent=True)
    talk = Mute()
    parser = get_harness("qwen").make_parser(task, talk)
    for line in finished.stdout.splitlines():
        [*parser.parse_line(line)]
    report = parser.build_report(finished)
    assert talk.stops == 1
    assert (report.ending, report.retry_at_s) == (Ending.RATE_LIMITED, NOW_S + 120)


def test_a_program_that_asks_again_without_end_is_stopped(task: AgentTask) -> None:
    talk = Mute()
    parser = get_harness("opencode").make_parser(task, talk)
    finished = recorded("opencode", "err_trunc", None, signal=15, sigterm_sent=True)
    for line in finished.stdout.splitlines():
        [*parser.parse_line(line)]
    assert talk.stops == 1
    assert parser.build_report(finished).ending is Ending.TRANSIENT


def test_codex_without_a_network_is_stopped(task: AgentTask) -> None:
    talk = Mute()
    parser = get_harness("codex").make_parser(task, talk)
    waiting = '{"type":"error","message":"Reconnecting... waiting for network (Connection failed)"}'
    for _ in range(100):
        [*parser.parse_line(waiting)]
    assert talk.stops == 1
    assert (
        parser.build_report(FinishedRun(None, "", "", 15, sigterm_sent=True)).ending
        is Ending.TRANSIENT
    )


RATE_LIMITED = '{"type":"error","message":"Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)"}'


def test_codex_that_waits_for_the_end_of_a_limit_is_stopped_in_time_unless_it_gets_on(
    task: AgentTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phasegate.agents.programs.codex.MAX_RETRY_WAIT_S", 0.05)
    waits, gets_on = Mute(), Mute()
    for talk in (gets_on, waits):
        parser = get_harness("codex").make_parser(task, talk)
        list(parser.parse_line(RATE_LIMITED))
        if talk is gets_on:
            list(parser.parse_line('{"type":"item.started","item":{"type":"reasoning"}}'))
    assert eventually(lambda: waits.stops)
    assert gets_on.stops == 0
    report = parser.build_report(FinishedRun(None, "", "", signal=15, sigterm_sent=True))
    assert report.ending is Ending.RATE_LIMITED


@pytest.mark.parametrize("kind", RUN_HERE)
def test_the_words_for_a_broken_stream_are_those_of_the_recorded_runs(kind: str) -> None:
    runs = [path.read_text() for path in (FOLDER / PROGRAMS[kind]).glob("err_*")]
    said = BROKEN_STREAM_MESSAGES[kind]
    assert [words for words in said if any(words in run for run in runs)] or kind == "opencode"
    unheard = [words for words in said if not any(words in run for run in runs)]
    assert unheard == (
        ["stream ended before its end"] if kind == "opencode" else []
    )  # that one we say of it


SIGNS = {
    "claude_code": '{"type":"assistant","message":{"content":[]}}',
    "codex": '{"type":"item.started","item":{"type":"reasoning"}}',
    "cursor": '{"type":"assistant","message":{"content":[]}}',
    "gemini": '{"type":"message","role":"assistant","content":"I"}',
    "opencode": '{"type":"text","part":{"text":"I"}}',
    "qwen": '{"type":"assistant","message":{"content":[]}}',
}
NO_SIGNS = {
    "claude_code": '{"type":"system","subtype":"init"}',
    "codex": '{"type":"turn.started"}',
    "cursor": '{"type":"system","subtype":"init"}',
    "gemini": '{"type":"message","role":"user","content":"do it"}',
    "opencode": '{"type":"step_start","part":{}}',
    "qwen": '{"type":"system","subtype":"init"}',
}


@pytest.mark.demand("D10.a")
@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_whose_model_gives_no_sign_is_stopped_and_that_has_a_name(
    task: AgentTask, kind: str
) -> None:
    impatient = msgspec.structs.replace(
        task, agent=AgentConfig("tested", first_output_timeout_s=0.05)
    )
    silent, speaking = Mute(), Mute()
    for talk, line in ((speaking, SIGNS[kind]), (silent, NO_SIGNS[kind])):
        parser = get_harness(kind).make_parser(impatient, talk)
        assert isinstance(parser, JobStartListener)
        parser.on_job_start()
        list(parser.parse_line(line))
    assert eventually(lambda: silent.stops)
    assert speaking.stops == 0
    report = parser.build_report(FinishedRun(None, "", "", signal=15, sigterm_sent=True))
    assert report.ending is Ending.SILENT
    assert report.reason.startswith("no output from its model within")
    assert "first_output_timeout_s" in report.remedy


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_that_is_silent_until_its_time_is_over_reaches_its_fallback(
    task: AgentTask, kind: str
) -> None:
    """Qwen Code at a limit waits without a word, and `first_output_timeout_s` may be longer than the job."""
    silent = get_harness(kind).make_parser(task, Mute())
    speaking = get_harness(kind).make_parser(task, Mute())
    list(silent.parse_line(NO_SIGNS[kind]))
    list(speaking.parse_line(SIGNS[kind]))
    out_of_time = FinishedRun(None, "", "", signal=9, sigterm_sent=True, timed_out=True)
    assert silent.build_report(out_of_time).ending is Ending.SILENT
    assert speaking.build_report(out_of_time).ending is Ending.FAILED
    stopped = FinishedRun(None, "", "", signal=15, sigterm_sent=True, stop_requested=True)
    assert silent.build_report(stopped).ending is not Ending.SILENT


def test_what_a_silent_program_said_of_its_trouble_goes_before_its_silence(task: AgentTask) -> None:
    impatient = msgspec.structs.replace(
        task, agent=AgentConfig("tested", first_output_timeout_s=0.05)
    )
    talk = Mute()
    parser = get_harness("claude_code").make_parser(impatient, talk)
    assert isinstance(parser, JobStartListener)
    parser.on_job_start()
    list(
        parser.parse_line(
            '{"type":"system","subtype":"api_retry","attempt":1,"error_status":429,"error":"rate_limit"}'
        )
    )
    assert eventually(lambda: talk.stops)
    report = parser.build_report(
        FinishedRun(None, "", "", signal=9, sigterm_sent=True, timed_out=True)
    )
    assert report.ending is Ending.RATE_LIMITED


UNKNOWN_OPTIONS = {
    "claude_code": ("error: unknown option '--no-such-flag'\n", "--no-such-flag"),
    "codex": (
        "error: unexpected argument '--no-such-flag' found\n\n  tip: to pass it as a value\n",
        "--no-such-flag",
    ),
    "gemini": ("Unknown arguments: such-flag, suchFlag\nUsage: gemini [options]\n", "such-flag"),
    "opencode": (
        "opencode run [message..]\n\nrun opencode with a message\n",
        "that `opencode run` was given",
    ),
    "qwen": ("\x1b[31mUnknown argument: such-flag\x1b[0m\nUsage: qwen [options]\n", "such-flag"),
}


@pytest.mark.demand("D3.k")
@pytest.mark.parametrize("kind", UNKNOWN_OPTIONS)
def test_an_option_that_a_program_does_not_know_is_told_as_that(task: AgentTask, kind: str) -> None:
    stderr, option = UNKNOWN_OPTIONS[kind]
    _, report = heard(task, kind, FinishedRun(2, "", stderr))
    assert (report.ending, report.reason) == (
        Ending.NOT_RUNNABLE,
        f"it does not know the option {option}",
    )
    assert HARNESSES[kind].tested_version in report.remedy
    assert HARNESSES[kind].install_instruction in report.remedy
    _, good = heard(task, kind, msgspec.structs.replace(recorded(kind, "ok"), stderr=stderr))
    assert good.ending is Ending.COMPLETED, (
        "where it came to its end, what it says of options is not a reason"
    )


def test_gemini_that_stopped_because_it_went_round_in_circles_is_not_complete(
    task: AgentTask,
) -> None:
    lines = (
        '{"type":"error","severity":"warning","message":"Loop detected, stopping execution"}\n'
        '{"type":"result","status":"success","stats":{"total_tokens":0}}\n'
    )
    _, report = heard(task, "gemini", FinishedRun(0, lines, ""))
    assert (report.ending, report.reason) == (Ending.FAILED, "Loop detected, stopping execution")


def test_cursor_is_told_to_go_after_its_result_and_that_is_a_good_end(task: AgentTask) -> None:
    talk = Mute()
    parser = get_harness("cursor").make_parser(task, talk)
    finished = recorded("cursor", "ok", None, signal=15, sigterm_sent=True)
    for line in finished.stdout.splitlines():
        [*parser.parse_line(line)]
    assert talk.stops == 1
    assert parser.build_report(finished).ending is Ending.COMPLETED


def test_the_end_of_a_usage_limit_is_known(task: AgentTask) -> None:
    limit = '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794803600}}\n'
    whole = recorded("claude_code", "err_e429")
    _, report = heard(
        task, "claude_code", msgspec.structs.replace(whole, stdout=limit + whole.stdout)
    )
    assert (report.ending, report.retry_at_s) == (Ending.RATE_LIMITED, NOW_S + 3600)


@pytest.mark.parametrize("resets_at", ["1e18", "-5", "1894803600"])
def test_a_limit_that_ends_at_no_likely_time_is_one_without_an_end(
    task: AgentTask, resets_at: str
) -> None:
    """Such a moment has no date, or would keep the agent from all work for years."""
    limit = f'{{"type":"rate_limit_event","rate_limit_info":{{"status":"rejected","resetsAt":{resets_at}}}}}\n'
    whole = recorded("claude_code", "err_e429")
    _, report = heard(
        task, "claude_code", msgspec.structs.replace(whole, stdout=limit + whole.stdout)
    )
    assert (report.ending, report.retry_at_s) == (Ending.RATE_LIMITED, None)


def test_a_usage_limit_that_calls_itself_a_success_is_none(task: AgentTask) -> None:
    line = '{"type":"result","subtype":"success","is_error":false,"result":"Claude AI usage limit reached|1794803600"}'
    _, report = heard(task, "claude_code", FinishedRun(0, line, "", ended_at_s=NOW_S))
    assert (report.ending, report.retry_at_s) == (Ending.RATE_LIMITED, NOW_S + 3600)


@pytest.mark.demand("D7.i")
def test_a_blocker_in_an_earlier_message_is_not_lost(task: AgentTask) -> None:
    message = '{"type":"item.completed","item":{"type":"agent_message","text":"BLOCKER: no database here\\nI go on."}}\n'
    whole = recorded("codex", "ok")
    _, report = heard(task, "codex", msgspec.structs.replace(whole, stdout=message + whole.stdout))
    assert report.blockers == ("no database here",)
    assert "BLOCKER" not in report.answer


def test_a_blocker_is_not_lost_where_the_result_repeats_only_the_last_message(
    task: AgentTask,
) -> None:
    said = '{"type":"assistant","message":{"id":"%s","content":[{"type":"text","text":"%s"}]}}\n'
    result = '{"type":"result","subtype":"success","is_error":false,"result":"All done."}\n'
    stdout = said % ("1", "BLOCKER: no database here\\n") + said % ("2", "All done.") + result
    _, report = heard(task, "claude_code", FinishedRun(0, stdout, ""))
    assert (report.answer, report.blockers, report.ending) == (
        "All done.",
        ("no database here",),
        Ending.COMPLETED,
    )


def test_a_message_without_end_costs_bounded_memory_and_is_flagged(task: AgentTask) -> None:
    parser = get_harness("gemini").make_parser(task, Mute())
    piece = '{"type":"message","role":"assistant","content":"' + "x" * 100_000 + '"}'
    for _ in range(60):
        [*parser.parse_line(piece)]
    report = parser.build_report(FinishedRun(0, "", ""))
    assert report.truncated
    assert len(report.answer) == 4_000_000


# What a stream is made of, put together wrongly: real lines, halves of lines, and other things.
PIECES = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "{}",
            "[]",
            "null",
            '{"type":"result"}',
            '{"type":7}',
            '{"type":"assistant","message":null}',
            "\0",
        ]
    ),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=4,
    ).map(
        lambda value: msgspec.json.encode(
            {"type": "result", "result": value, "usage": value}
        ).decode()
    ),
)


@cache
def _streams(kind: str) -> st.SearchStrategy[list[str]]:
    """Garbage between lines of real runs, but for those that mark a good end."""
    scenarios = ["ok"] if kind == "cursor" else ["ok", "err_e500", "yolo_shell"]
    lines = [line for name in scenarios for line in recorded(kind, name).stdout.splitlines()]
    marks = (
        '"subtype":"success"',
        '"status":"success","stats"',
        "turn.completed",
        '"reason":"stop"',
    )
    unfinished = [line for line in lines if not any(mark in line for mark in marks)]
    return st.lists(PIECES | st.sampled_from(unfinished), max_size=8)


@pytest.mark.parametrize("kind", PROGRAMS)
@given(data=st.data(), exit_status=st.sampled_from([0, 0, 1, None]), noise=st.binary(max_size=60))
def test_garbage_never_raises_and_never_completes(
    task: AgentTask, kind: str, data: st.DataObject, exit_status: int | None, noise: bytes
) -> None:
    lines = data.draw(_streams(kind))
    parser = get_harness(kind).make_parser(task, Mute())
    for line in [*lines, noise.decode("utf-8", "replace"), noise.decode("latin-1"), "\ud800"]:
        for event in parser.parse_line(line):
            assert isinstance(event, AgentEvent)
    report = parser.build_report(FinishedRun(exit_status, "", noise.decode("utf-8", "replace")))
    assert report.ending is not Ending.COMPLETED


@pytest.mark.parametrize("kind", PROGRAMS)
def test_depth_and_size_do_no_harm(task: AgentTask, kind: str) -> None:
    parser = get_harness(kind).make_parser(task, Mute())
    for line in (
        "[" * 200_000,
        '{"type":' * 100_000,
        '{"type":"result","result":' + "9" * 5_000 + "}",
        '"' * 10,
    ):
        assert all(event.failed for event in parser.parse_line(line))
    assert parser.build_report(FinishedRun(0, "", "")).ending is not Ending.COMPLETED


def test_the_fixtures_name_no_other_place_than_the_checkout_of_their_runs() -> None:
    folder = Path(__file__).parents[2] / "fixtures/agent_streams"
    for path in folder.rglob("*.*"):
        text = path.read_text().replace(str(REPOSITORY), "")
        assert not any(place in text for place in ("/home/", "/root/", "/Users/", "Bearer ")), path
