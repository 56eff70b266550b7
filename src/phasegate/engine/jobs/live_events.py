"""What an agent reports while it runs: noted in its trail as reported, not seen, and shown to who watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from typing import NamedTuple

from phasegate.agents.port import AgentEvent, EventKind, Usage
from phasegate.core.answer.parse import blockers_in
from phasegate.core.audit.trail import US, Action, Doer, Done, Source, Value, action_of_command
from phasegate.core.display.activity import Activity, acted, counted, spoke

MOST_NOTED = 2_000  # of one job: the log has all of it, the trail is for reading
LONGEST_TEXT = 500


class _Begun(NamedTuple):
    event: AgentEvent
    at_s: float


class LiveTrail:
    """Takes the events of a run, and passes on those that belong into a trail, up to a number.

    A command is noted when its result comes, with what is known of it then; at the latest before the next one.
    """

    def __init__(self, agent: Doer, note: Callable[[Done], None], clock_s: Callable[[], float]) -> None:
        self._agent, self._note, self._clock_s = agent, note, clock_s
        self._noted = 0
        self._command: _Begun | None = None
        self.blockers: set[str] = set()

    def __call__(self, event: AgentEvent) -> None:
        if event.kind is EventKind.COMMAND and not event.failed:
            self.end_command()
            self._command = _Begun(event, self._clock_s())
            return
        if event.kind is EventKind.RESULT or (event.kind is EventKind.NOTICE and event.failed):
            self.end_command(event)
        if event.kind is EventKind.BLOCKER:
            self.block(blockers_in(event.text))
        if (done := noted(self._agent, event)) is not None:
            self._pass_on(done)

    def block(self, blockers: Iterable[str]) -> None:
        """Note what keeps the agent from its work, each once."""
        for text in blockers:
            if text not in self.blockers:
                self.blockers.add(text)
                self._pass_on(self._agent.did(Action.BLOCKER, Source.REPORTED, text=text))

    def end_command(self, result: AgentEvent | None = None) -> None:
        """Note the command that was begun last; without a result it has none."""
        begun, self._command = self._command, None
        if begun is None:
            return
        fields: dict[str, Value] = {"command": begun.event.text[:LONGEST_TEXT]}
        if result is not None:
            fields |= {"exit_code": result.exit_code} if result.exit_code is not None else {}
            fields |= {"duration_ms": round((self._clock_s() - begun.at_s) * 1000)}
            fields |= {"failed": True} if result.failed else {}
        action = action_of_command(begun.event.text)
        self._pass_on(self._agent.did(action, Source.REPORTED, **fields))

    def _pass_on(self, done: Done) -> None:
        if self._noted > MOST_NOTED:
            return
        self._noted += 1
        if self._noted > MOST_NOTED:
            text = f"more than {MOST_NOTED} actions: the rest is in the log only"
            done = US.did(Action.NOTICE, Source.OBSERVED, text=text)
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


def noted(agent: Doer, event: AgentEvent) -> Done | None:
    """An event as an entry of the trail. What an agent says, and what it used so far, is not one."""
    failed: dict[str, Value] = {"failed": True} if event.failed else {}
    match event.kind:
        case EventKind.FILE:
            action = Action.DELETE_FILE if event.removed else Action.WRITE_FILE
            return agent.did(action, Source.REPORTED, path=event.path, **failed)
        case EventKind.COMMAND:
            command = event.text[:LONGEST_TEXT]
            return agent.did(action_of_command(event.text), Source.REPORTED, command=command, **failed)
        case EventKind.TOOL:
            return agent.did(
                Action.USE_TOOL, Source.REPORTED, tool=event.text[:LONGEST_TEXT], path=event.path, **failed
            )
        case EventKind.NOTICE:
            return agent.did(Action.NOTICE, Source.REPORTED, text=event.text[:LONGEST_TEXT], **failed)
    return None


def used(agent: Doer, usage: Usage) -> Done:
    """What a run used, as its agent says."""
    return agent.did(
        Action.USAGE,
        Source.REPORTED,
        input_tokens=usage.input_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd,
    )
