"""Handle the events of a running agent: write them to its trail and update its activity.

The trail marks them as reported by the agent, not observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from typing import NamedTuple

from phasegate.agents.port import AgentEvent, EventKind, Usage
from phasegate.core.answer.parse import find_blockers
from phasegate.core.audit.trail import (
    PHASEGATE_ACTOR,
    Action,
    Source,
    TrailActor,
    TrailEvent,
    TrailValue,
    classify_command,
)
from phasegate.core.display.activity import Activity, record_action, record_message, record_tokens

# Per job; the log is complete, the trail is for readers
MAX_TRAIL_ENTRIES = 2_000
MAX_TEXT_CHARS = 500
# Names of the tools with which agent programs read a file
_READ_TOOLS = ("read", "read_file", "view", "open", "cat")


class _StartedCommand(NamedTuple):
    event: AgentEvent
    started_at_s: float


class LiveTrail:
    """Writes the events of a running agent to its trail, up to a limit.

    A command is written together with its result. If the next command starts first, it is written
    without a result.
    """

    def __init__(
        self,
        agent: TrailActor,
        write_entry: Callable[[TrailEvent], None],
        clock_s: Callable[[], float],
    ) -> None:
        self._agent = agent
        self._write = write_entry
        self._clock_s = clock_s
        self._entry_count = 0
        self._pending_command: _StartedCommand | None = None
        self.blockers: set[str] = set()

    def __call__(self, event: AgentEvent) -> None:
        """Write an agent event to the trail; a command waits for its result."""
        if event.kind is EventKind.COMMAND and not event.failed:
            self.flush_command()
            self._pending_command = _StartedCommand(event, self._clock_s())
            return

        if event.kind is EventKind.RESULT or (event.kind is EventKind.NOTICE and event.failed):
            self.flush_command(event)
        if event.kind is EventKind.BLOCKER:
            self.note_blockers(find_blockers(event.text))

        entry = make_trail_entry(self._agent, event)
        if entry is not None:
            self._write_entry(entry)

    def note_blockers(self, blockers: Iterable[str]) -> None:
        """Write a trail entry for each blocker that has none yet."""
        for text in blockers:
            if text not in self.blockers:
                self.blockers.add(text)
                self._write_entry(
                    self._agent.build_event(Action.BLOCKER, Source.REPORTED, text=text)
                )

    def flush_command(self, result: AgentEvent | None = None) -> None:
        """Write the last started command, with its result if there is one."""
        started = self._pending_command
        self._pending_command = None
        if started is None:
            return

        fields: dict[str, TrailValue] = {"command": started.event.text[:MAX_TEXT_CHARS]}
        if result is not None:
            if result.exit_code is not None:
                fields["exit_code"] = result.exit_code
            fields["duration_ms"] = round((self._clock_s() - started.started_at_s) * 1000)
            if result.failed:
                fields["failed"] = True

        action = classify_command(started.event.text)
        self._write_entry(self._agent.build_event(action, Source.REPORTED, **fields))

    def _write_entry(self, entry: TrailEvent) -> None:
        if self._entry_count > MAX_TRAIL_ENTRIES:
            return

        self._entry_count += 1
        if self._entry_count > MAX_TRAIL_ENTRIES:
            text = f"more than {MAX_TRAIL_ENTRIES} actions: see the log for the rest"
            entry = PHASEGATE_ACTOR.build_event(Action.NOTICE, Source.OBSERVED, text=text)

        self._write(entry)


def update_activity(activities: MutableMapping[str, Activity], job: str, event: AgentEvent) -> None:
    """Update the activity of a job; the job with the latest event is moved to the end."""
    activities[job] = apply_agent_event(activities.pop(job, Activity()), event)


def apply_agent_event(before: Activity, event: AgentEvent) -> Activity:
    """Return the activity after an event."""
    match event.kind:
        case EventKind.TEXT:
            return record_message(before, event.text if event.is_partial else f"{event.text}\n")
        case EventKind.FILE:
            return record_action(before, f"{'delete' if event.removed else 'write'} {event.path}")
        case EventKind.COMMAND:
            return record_action(before, f"$ {event.text}")
        case EventKind.TOOL:
            return record_action(before, f"{event.text} {event.path}")
        case EventKind.USAGE if event.usage is not None:
            return record_tokens(before, event.usage.input_tokens + event.usage.output_tokens)

    return before


def make_trail_entry(agent: TrailActor, event: AgentEvent) -> TrailEvent | None:
    """Make the trail entry of an event, or return None for messages and token counts."""
    failed: dict[str, TrailValue] = {"failed": True} if event.failed else {}

    match event.kind:
        case EventKind.FILE:
            if event.removed:
                action = Action.DELETE_FILE
            else:
                action = Action.WRITE_FILE

            return agent.build_event(action, Source.REPORTED, path=event.path, **failed)
        case EventKind.COMMAND:
            command = event.text[:MAX_TEXT_CHARS]
            return agent.build_event(
                classify_command(event.text), Source.REPORTED, command=command, **failed
            )
        case EventKind.TOOL if event.text.lower() in _READ_TOOLS and event.path.endswith(".md"):
            return agent.build_event(Action.READ_SPEC, Source.REPORTED, path=event.path, **failed)
        case EventKind.TOOL:
            return agent.build_event(
                Action.USE_TOOL,
                Source.REPORTED,
                tool=event.text[:MAX_TEXT_CHARS],
                path=event.path,
                **failed,
            )
        case EventKind.NOTICE:
            return agent.build_event(
                Action.NOTICE, Source.REPORTED, text=event.text[:MAX_TEXT_CHARS], **failed
            )

    return None


def make_usage_entry(agent: TrailActor, usage: Usage) -> TrailEvent:
    """Make the trail entry of a run's usage, as its agent reports it."""
    return agent.build_event(
        Action.USAGE,
        Source.REPORTED,
        input_tokens=usage.input_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd,
    )
