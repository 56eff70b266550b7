"""What an agent reports while it runs: noted in its trail as reported, not seen, and shown to who watches."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

from phasegate.agents.port import AgentEvent, EventKind, Usage
from phasegate.rules.activity import Activity, acted, counted, spoke
from phasegate.rules.trail import Action, Done, Source, Value

MOST_NOTED = 2_000  # of one job: the log has all of it, the trail is for reading
LONGEST_TEXT = 500


class LiveTrail:
    """Takes the events of a run, and passes on those that belong into a trail, up to a number."""

    def __init__(self, actor: str, note: Callable[[Done], None]) -> None:
        self._actor = actor
        self._note = note
        self._noted = 0

    def __call__(self, event: AgentEvent) -> None:
        done = noted(self._actor, event)
        if done is None or self._noted > MOST_NOTED:
            return
        self._noted += 1
        if self._noted > MOST_NOTED:
            text = f"more than {MOST_NOTED} actions: the rest is in the log only"
            done = Done("phasegate", Action.NOTICE, Source.OBSERVED, {"text": text})
        self._note(done)


def shown_live(activities: MutableMapping[str, Activity], job: str, event: AgentEvent) -> None:
    """Keep what a job did last. The job that was heard last comes last."""
    activities[job] = after_event(activities.pop(job, Activity()), event)


def after_event(before: Activity, event: AgentEvent) -> Activity:
    match event.kind:
        case EventKind.TEXT:
            return spoke(before, event.text if event.is_piece else f"{event.text}\n")
        case EventKind.FILE:
            return acted(before, f"{'delete' if event.removed else 'write'} {event.path}")
        case EventKind.COMMAND:
            return acted(before, f"$ {event.text}")
        case EventKind.TOOL:
            return acted(before, f"{event.text} {event.path}")
        case EventKind.USAGE if event.usage is not None:
            return counted(before, event.usage.input_tokens + event.usage.output_tokens)
    return before


def noted(actor: str, event: AgentEvent) -> Done | None:
    """An event as an entry of the trail. What an agent says, and what it used so far, is not one."""
    failed: dict[str, Value] = {"failed": True} if event.failed else {}
    match event.kind:
        case EventKind.FILE:
            action = Action.DELETE_FILE if event.removed else Action.WRITE_FILE
            return Done(actor, action, Source.REPORTED, {"path": event.path, **failed})
        case EventKind.COMMAND:
            return Done(actor, Action.RUN_COMMAND, Source.REPORTED, {"command": event.text[:LONGEST_TEXT], **failed})
        case EventKind.TOOL:
            named: dict[str, Value] = {"tool": event.text[:LONGEST_TEXT], "path": event.path}
            return Done(actor, Action.USE_TOOL, Source.REPORTED, {**named, **failed})
        case EventKind.NOTICE:
            return Done(actor, Action.NOTICE, Source.REPORTED, {"text": event.text[:LONGEST_TEXT], **failed})
    return None


def used(actor: str, usage: Usage) -> Done:
    """What a run used, as its agent says."""
    fields: dict[str, Value] = {
        "input_tokens": usage.input_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
    }
    return Done(actor, Action.USAGE, Source.REPORTED, fields)
