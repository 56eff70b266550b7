"""What an agent reports while it runs.

Noted in its trail as reported, not seen, and shown to who watches.
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

# Of one job: the log has all of it, the trail is for reading
MAX_TRAIL_ENTRIES = 2_000
MAX_TEXT_CHARS = 500


class _StartedCommand(NamedTuple):
    event: AgentEvent
    started_at_s: float


class LiveTrail:
    """Takes the events of a run, and passes on those that belong into a trail, up to a number.

    A command is noted when its result comes, with what is known of it then; at the latest before
    the next one.
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
        if event.kind is EventKind.COMMAND and not event.failed:
            self.flush_command()
            self._pending_command = _StartedCommand(event, self._clock_s())
            return

        if event.kind is EventKind.RESULT or (event.kind is EventKind.NOTICE and event.failed):
            self.flush_command(event)
        if event.kind is EventKind.BLOCKER:
            self.note_blockers(find_blockers(event.text))
        if (done := make_trail_entry(self._agent, event)) is not None:
            self._write_entry(done)

    def note_blockers(self, blockers: Iterable[str]) -> None:
        """Note what keeps the agent from its work, each once."""
        for text in blockers:
            if text not in self.blockers:
                self.blockers.add(text)
                self._write_entry(
                    self._agent.build_event(Action.BLOCKER, Source.REPORTED, text=text)
                )

    def flush_command(self, result: AgentEvent | None = None) -> None:
        """Note the command that was begun last; without a result it has none."""
        begun = self._pending_command
        self._pending_command = None
        if begun is None:
            return

        fields: dict[str, TrailValue] = {"command": begun.event.text[:MAX_TEXT_CHARS]}
        if result is not None:
            fields |= {"exit_code": result.exit_code} if result.exit_code is not None else {}
            fields |= {"duration_ms": round((self._clock_s() - begun.started_at_s) * 1000)}
            fields |= {"failed": True} if result.failed else {}

        action = classify_command(begun.event.text)
        self._write_entry(self._agent.build_event(action, Source.REPORTED, **fields))

    def _write_entry(self, entry: TrailEvent) -> None:
        if self._entry_count > MAX_TRAIL_ENTRIES:
            return

        self._entry_count += 1
        if self._entry_count > MAX_TRAIL_ENTRIES:
            text = f"more than {MAX_TRAIL_ENTRIES} actions: the rest is in the log only"
            entry = PHASEGATE_ACTOR.build_event(Action.NOTICE, Source.OBSERVED, text=text)

        self._write(entry)


def update_activity(activities: MutableMapping[str, Activity], job: str, event: AgentEvent) -> None:
    """Keep what a job did last. The job that was heard last comes last."""
    activities[job] = apply_agent_event(activities.pop(job, Activity()), event)


def apply_agent_event(before: Activity, event: AgentEvent) -> Activity:
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
    """An event as an entry of the trail.

    What an agent says, and what it used so far, is not one.
    """
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
    """What a run used, as its agent says."""
    return agent.build_event(
        Action.USAGE,
        Source.REPORTED,
        input_tokens=usage.input_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd,
    )
