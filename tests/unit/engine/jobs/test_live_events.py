"""What an agent reports goes into its trail, as reported and in bounded number."""

from __future__ import annotations

import pytest

from phasegate.agents.port import AgentEvent, EventKind, Usage
from phasegate.core.audit.trail import Action, Source, TrailActor, TrailEvent
from phasegate.core.display.activity import MAX_LINE_CHARS, Activity
from phasegate.engine.jobs.live_events import (
    MAX_TEXT_CHARS,
    MAX_TRAIL_ENTRIES,
    LiveTrail,
    make_trail_entry,
    make_usage_entry,
    update_activity,
)

AGENT = TrailActor("agent:x", "mine")


def test_each_kind_of_action_has_its_entry_and_all_are_reported() -> None:
    events = [
        AgentEvent(EventKind.FILE, path="a.py"),
        AgentEvent(EventKind.FILE, path="b.py", removed=True, failed=True),
        AgentEvent(EventKind.COMMAND, "make test"),
        AgentEvent(EventKind.TOOL, "Read", "c.py"),
        AgentEvent(EventKind.NOTICE, "not permitted", failed=True),
    ]
    entries = [make_trail_entry(AGENT, event) for event in events]
    assert [(entry.action, dict(entry.fields)) for entry in entries if entry] == [
        (Action.WRITE_FILE, {"path": "a.py"}),
        (Action.DELETE_FILE, {"path": "b.py", "failed": True}),
        (Action.RUN_TESTS, {"command": "make test"}),
        (Action.USE_TOOL, {"tool": "Read", "path": "c.py"}),
        (Action.NOTICE, {"text": "not permitted", "failed": True}),
    ]
    assert {entry.source for entry in entries if entry} == {Source.REPORTED}


def test_what_an_agent_says_is_no_action() -> None:
    for kind in (EventKind.TEXT, EventKind.USAGE, EventKind.END):
        assert make_trail_entry(AGENT, AgentEvent(kind, "words")) is None


def test_a_busy_agent_does_not_fill_the_disk() -> None:
    entries: list[TrailEvent] = []
    trail = LiveTrail(AGENT, entries.append, lambda: 0.0)
    for _ in range(3 * MAX_TRAIL_ENTRIES):
        trail(AgentEvent(EventKind.COMMAND, "x" * 10_000))
    assert len(entries) == MAX_TRAIL_ENTRIES + 1
    assert entries[-1].action is Action.NOTICE
    assert entries[-1].source is Source.OBSERVED
    assert all(len(str(entry.fields.get("command", ""))) <= MAX_TEXT_CHARS for entry in entries)


def test_a_command_is_noted_with_its_result_or_before_the_next_one() -> None:
    entries: list[TrailEvent] = []
    times_s = iter([1.0, 3.5, 4.0, 5.0, 6.0])
    trail = LiveTrail(AGENT, entries.append, lambda: next(times_s))
    trail(AgentEvent(EventKind.COMMAND, "python -m pytest -q"))
    trail(AgentEvent(EventKind.RESULT, "1 failed", exit_code=1))
    trail(AgentEvent(EventKind.COMMAND, "ls"))
    trail(AgentEvent(EventKind.COMMAND, "ruff check ."))
    trail(AgentEvent(EventKind.NOTICE, "failed: ruff", failed=True))
    trail.flush_command()
    assert [(entry.action, dict(entry.fields)) for entry in entries] == [
        (Action.RUN_TESTS, {"command": "python -m pytest -q", "exit_code": 1, "duration_ms": 2500}),
        (Action.RUN_COMMAND, {"command": "ls"}),
        (Action.RUN_CHECK, {"command": "ruff check .", "duration_ms": 1000, "failed": True}),
        (Action.NOTICE, {"text": "failed: ruff", "failed": True}),
    ]
    assert {entry.agent for entry in entries} == {"mine"}


def test_a_blocker_is_noted_once() -> None:
    entries: list[TrailEvent] = []
    trail = LiveTrail(AGENT, entries.append, lambda: 0.0)
    trail(AgentEvent(EventKind.BLOCKER, "BLOCKER: no zod"))
    trail.note_blockers(("no zod", "no key"))
    assert [(entry.action, entry.fields["text"]) for entry in entries] == [
        (Action.BLOCKER, "no zod"),
        (Action.BLOCKER, "no key"),
    ]


def test_usage_is_noted_once_as_the_agent_says() -> None:
    entry = make_usage_entry(AGENT, Usage(10, 4, 2, 0.5))
    assert (entry.action, entry.source) == (Action.USAGE, Source.REPORTED)
    assert dict(entry.fields) == {
        "input_tokens": 10,
        "cached_input_tokens": 4,
        "output_tokens": 2,
        "cost_usd": 0.5,
    }


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ([], ""),
        ([AgentEvent(EventKind.FILE, path="src/a.py")], "write src/a.py"),
        ([AgentEvent(EventKind.FILE, path="src/a.py", removed=True)], "delete src/a.py"),
        ([AgentEvent(EventKind.COMMAND, "make\n  test")], "$ make test"),
        ([AgentEvent(EventKind.TOOL, "Read", "c.py")], "Read c.py"),
        (
            [
                AgentEvent(EventKind.TEXT, "One.\nTwo is ", is_partial=True),
                AgentEvent(EventKind.TEXT, "longer.\n\n"),
            ],
            "Two is longer.",
        ),
        (
            [
                AgentEvent(EventKind.TEXT, "Done."),
                AgentEvent(EventKind.USAGE, usage=Usage(12_000, 0, 345)),
            ],
            "Done.  12.3k tokens",
        ),
        ([AgentEvent(EventKind.TEXT, "Done:\n```json\n{}\n```\n")], "{}"),
        ([AgentEvent(EventKind.COMMAND, "ls"), AgentEvent(EventKind.NOTICE, "a warning")], "$ ls"),
    ],
)
def test_what_an_agent_did_last_is_one_line_with_its_tokens(
    events: list[AgentEvent], line: str
) -> None:
    activities: dict[str, Activity] = {}
    for event in events:
        update_activity(activities, "job", event)
    assert activities.get("job", Activity()).line == line


def test_a_long_message_takes_no_more_than_a_line() -> None:
    activities: dict[str, Activity] = {}
    for _ in range(1_000):
        update_activity(activities, "job", AgentEvent(EventKind.TEXT, "x" * 1_000))
    assert len(activities["job"].line) == MAX_LINE_CHARS
    assert len(activities["job"].message) < 1_000


def test_the_job_that_was_heard_last_comes_last() -> None:
    activities: dict[str, Activity] = {}
    for job in ("a", "b", "a"):
        update_activity(activities, job, AgentEvent(EventKind.COMMAND, job))
    assert [*activities] == ["b", "a"]
