"""What an agent's program printed, as people read it: messages, tool calls, and what came back from them, folded.

The lines are read by the harness of the program itself, so a transcript shows what the run was judged by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from phasegate.agents.envelope import Envelope, EnvelopeConfig
from phasegate.agents.port import AgentConfig, AgentEvent, AgentTask, EventKind, Usage, harness_of
from phasegate.core.display.activity import short_count

SHOWN_OF_RESULT = 3  # lines
LONGEST_LINE = 200  # of a result, and of a line outside of the protocol


class Transcript:
    """Turns the lines of one run into lines for people, as they come. No line makes it raise."""

    def __init__(self, kind: str, checkout: Path, phase: str) -> None:
        self._reading = harness_of(kind).reading(_task(kind, checkout, phase), _NobodyListens())
        self._begun = ""  # a line of a message that came in pieces and has not ended
        self._usage: Usage | None = None

    def line(self, text: str) -> Iterator[str]:
        """What one line of the program's stdout is to people; most lines of a protocol are nothing."""
        events = [*self._reading.line(text)]
        if not events and text.strip() and not text.lstrip().startswith("{"):
            yield from self._ended_message()
            yield f"? {_short(text)}"
        for event in events:
            yield from self._of_event(event)

    def end(self) -> Iterator[str]:
        """What is left at the end of the stream, and what was used."""
        yield from self._ended_message()
        if used := self._usage:
            cost = f", ${used.cost_usd:.2f}" if used.cost_usd is not None else ""
            yield f"= {short_count(used.input_tokens)} tokens read, {short_count(used.output_tokens)} written{cost}"

    def _of_event(self, event: AgentEvent) -> Iterator[str]:
        if event.kind is EventKind.TEXT:
            yield from self._said(event)
            return
        if event.kind is EventKind.USAGE:
            self._usage = event.usage or self._usage
            return
        yield from self._ended_message()
        yield from _act(event)

    def _said(self, event: AgentEvent) -> Iterator[str]:
        *whole, self._begun = f"{self._begun}{event.text}".split("\n")
        yield from whole
        if not event.is_piece:
            if self._begun or not whole:
                yield self._begun
            self._begun = ""

    def _ended_message(self) -> Iterator[str]:
        if self._begun:
            yield self._begun
            self._begun = ""


def _act(event: AgentEvent) -> Iterable[str]:
    failed = " (failed)" if event.failed else ""
    match event.kind:
        case EventKind.FILE:
            return (f"> {'delete' if event.removed else 'write'} {event.path}{failed}",)
        case EventKind.COMMAND:
            return (f"> $ {_indented(event.text)}{failed}",)
        case EventKind.TOOL:
            return (f"> {event.text} {event.path}".rstrip() + failed,)
        case EventKind.RESULT:
            return _folded(event.text)
        case EventKind.NOTICE:
            return (f"! {_indented(event.text)}",)
        case EventKind.END if event.failed:
            return (f"! ended in failure: {_indented(event.text)}" if event.text else "! ended in failure",)
    return ()


def _folded(text: str) -> Iterator[str]:
    """The first lines of a result; a reader who wants the rest opens the log."""
    lines = [line for line in text.splitlines() if line.strip()]
    yield from (f"  | {_short(line)}" for line in lines[:SHOWN_OF_RESULT])
    if len(lines) > SHOWN_OF_RESULT:
        yield f"  | ... {len(lines) - SHOWN_OF_RESULT} more lines"


def _short(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


class _NobodyListens:
    """The program has ended, or is another process's job: a reading cannot talk to it from here."""

    def send(self, data: bytes) -> None: ...

    def close_stdin(self) -> None: ...

    def stop(self) -> None: ...


def _task(kind: str, checkout: Path, phase: str) -> AgentTask:
    envelope = Envelope("", "", 0, None, "", (), str(checkout), EnvelopeConfig(kind, 0, ""))
    return AgentTask(envelope, AgentConfig(kind), checkout, checkout, Path(), phase)
