"""Programs change their streams. Every field of the recorded ones is spoilt in turn: only what must matter does."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from phasegate.agents.port import (
    AgentConfig,
    AgentReport,
    AgentTask,
    Ending,
    FinishedRun,
    Usage,
    get_harness,
)
from phasegate.core.agents.harnesses import HARNESSES
from support.agent_streams import FOLDER, PROGRAMS, REPOSITORY, recorded
from support.agents import read
from support.tasks import make_task

SPOILT = (None, "x", 3.5, -1, True, [], {}, ["x"], {"x": None}, 10**400)
# What a harness cannot do without: the kind of a line, what it says, and the mark of its end.
MUST = {
    "claude_code": {
        *("result.type", "result.subtype", "result.is_error", "result.result"),
        *("result.terminal_reason", "result.api_error_status"),
    },
    "codex": {
        *(
            "item.completed.type",
            "item.completed.item",
            "item.completed.item.type",
            "item.completed.item.text",
        ),
        "turn.completed.type",
    },
    "cursor": {"result.type", "result.subtype", "result.is_error", "result.result"},
    "gemini": {"message.type", "message.role", "message.content", "result.type", "result.status"},
    "opencode": {
        *("text.type", "text.part", "text.part.text"),
        *("step_finish.type", "step_finish.part", "step_finish.part.reason"),
    },
    "qwen": {"result.type", "result.subtype", "result.is_error", "result.result"},
}


class Spoiling(NamedTuple):
    """One field of one line, by its names from the line's type on, and the stream with it spoilt."""

    field: str
    stream: str
    by_text: bool  # which may be another answer, and a whole one


def fields_of(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of everything inside, whole objects and lists too."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inner:
        yield (*path, key)
        yield from fields_of(item, (*path, key))


def changed(
    line: dict[str, Any], path: tuple[str | int, ...], value: object, *, removed: bool
) -> str:
    spoilt: Any = copy.deepcopy(line)
    holder = spoilt
    for key in path[:-1]:
        holder = holder[key]
    if removed and isinstance(holder, dict):
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return json.dumps(spoilt)


def spoilings(kind: str, scenario: str) -> Iterator[Spoiling]:
    lines = recorded(kind, scenario).stdout.splitlines()
    for number, text in enumerate(lines):
        line = json.loads(text)
        for path in fields_of(line):
            field = ".".join([line["type"], *(str(key) for key in path if isinstance(key, str))])
            texts = {
                changed(line, path, value, removed=False): isinstance(value, str)
                for value in SPOILT
            }
            texts[changed(line, path, None, removed=True)] = False
            for spoilt, by_text in texts.items():
                yield Spoiling(
                    field, "\n".join([*lines[:number], spoilt, *lines[number + 1 :]]), by_text
                )


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> AgentTask:
    made = make_task(tmp_path_factory.mktemp("repository"), AgentConfig("tested"))
    return msgspec.structs.replace(made, checkout=REPOSITORY)


def reported(task: AgentTask, kind: str, stdout: str) -> AgentReport:
    return read(get_harness(kind), task, FinishedRun(0, stdout, ""))[1]


def is_complete(report: AgentReport) -> bool:
    return report.ending is Ending.COMPLETED and not report.truncated


@pytest.mark.demand("D3.a")
@pytest.mark.parametrize("kind", PROGRAMS)
def test_only_what_must_matters_and_what_was_lost_of_an_answer_is_missed(
    task: AgentTask, kind: str
) -> None:
    whole = reported(task, kind, recorded(kind, "ok").stdout)
    mattered = set()
    for spoiling in spoilings(kind, "ok"):
        report = reported(task, kind, spoiling.stream)
        if is_complete(report) and report.answer == whole.answer:
            continue
        mattered.add(spoiling.field)
        # A line of a type that nobody knows is nothing to a harness: new ones come with every version.
        is_no_line = spoiling.field.endswith(".type")
        assert not is_complete(report) or spoiling.by_text or is_no_line, spoiling
    assert mattered == MUST[kind]


@pytest.mark.parametrize("kind", PROGRAMS)
def test_nothing_of_a_recorded_stream_cannot_be_read(task: AgentTask, kind: str) -> None:
    for path in (FOLDER / PROGRAMS[kind]).glob("*.jsonl"):
        assert reported(task, kind, path.read_text()).remark == "", path


GARBLED = {
    "codex": '{"type":"item.completed","item":{"id":"item_9","type":"agent_message","te',
    "gemini": '{"type":"message","role":"assistant","content":"half a',
    "opencode": '{"type":"text","part":{"text":5}}',
}


@pytest.mark.parametrize("kind", GARBLED)
def test_a_line_that_cannot_be_read_is_counted_and_told_with_the_tested_version(
    task: AgentTask, kind: str
) -> None:
    lines = recorded(kind, "ok").stdout.splitlines()
    report = reported(task, kind, "\n".join([*lines[:-1], GARBLED[kind], lines[-1]]))
    assert report.truncated
    tested = HARNESSES[kind].tested_version
    assert report.remark == f"1 line could not be read completely (tested with {tested})"
    unfinished = reported(task, kind, "\n".join([*lines[:-1], GARBLED[kind], GARBLED[kind]]))
    assert unfinished.reason.endswith(
        f"2 lines could not be read completely (tested with {tested})"
    )


def test_the_version_is_told_where_the_stream_says_it(task: AgentTask) -> None:
    whole = recorded("claude_code", "ok").stdout.replace("2.1.325", "9.9.9")
    spoilt = whole.replace('"total_cost_usd":', '"total_cost_usd":[],"was":')
    report = reported(task, "claude_code", spoilt)
    assert is_complete(report)
    assert (
        report.remark
        == f"1 line could not be read completely (version 9.9.9, tested with {HARNESSES['claude_code'].tested_version})"
    )


@pytest.mark.demand("D10.c")
def test_a_count_that_is_a_fraction_or_nothing_is_no_reason_to_lose_the_others(
    task: AgentTask,
) -> None:
    whole = recorded("codex", "ok").stdout
    usage = '{"type":"turn.completed","usage":{"input_tokens":7.9,"cached_input_tokens":null,"output_tokens":3}}'
    report = reported(task, "codex", "\n".join([*whole.splitlines()[:-1], usage]))
    assert (report.ending, report.usage, report.remark) == (Ending.COMPLETED, Usage(7, 0, 3), "")


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_line_that_was_too_long_to_be_read_may_have_been_text(task: AgentTask, kind: str) -> None:
    finished = recorded(kind, "ok", skipped_lines=1)
    report = read(get_harness(kind), task, finished)[1]
    repeats_its_answer = kind in ("claude_code", "cursor", "qwen")
    assert report.ending is Ending.COMPLETED
    assert report.truncated is not repeats_its_answer
