"""Format the output of an agent program for reading: messages, tool calls, shortened results.

The harness of the program parses the lines, so a transcript shows the events by which the run was
judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from phasegate.agents.envelope import Envelope, EnvelopeConfig
from phasegate.agents.port import AgentConfig, AgentEvent, AgentTask, EventKind, Usage, get_harness
from phasegate.core.display.activity import format_count
from phasegate.core.text.wording import shorten

MAX_RESULT_LINES = 3
_THOUGHT_TAG = re.compile(r"(</?thought\b[^>\n]{0,200}>)")
# For lines of a result, and for lines that are not of the protocol.
MAX_LINE_CHARS = 200


class Transcript:
    """A formatter of one run's output, line by line. It raises for no line."""

    def __init__(self, kind: str, checkout: Path, phase: str) -> None:
        self._parser = get_harness(kind).make_parser(
            _make_task(kind, checkout, phase), _NullJobHandle()
        )
        # last line of a message that arrives in parts
        self._partial_line = ""
        self._is_in_thought = False
        self._usage: Usage | None = None

    def format_line(self, text: str) -> Iterator[str]:
        """Yield the readable lines for one line of stdout; most protocol lines have none."""
        events = [*self._parser.parse_line(text)]
        if not events and text.strip() and not text.lstrip().startswith("{"):
            yield from self._flush_message()
            yield f"? {shorten(text, MAX_LINE_CHARS)}"

        for event in events:
            yield from self._format_event(event)

    def format_end(self) -> Iterator[str]:
        """Yield the rest of the last message, and the usage."""
        yield from self._flush_message()

        usage = self._usage
        if usage is not None:
            read = format_count(usage.input_tokens)
            written = format_count(usage.output_tokens)
            cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.2f}"
            yield f"= {read} tokens read, {written} written{cost}"

    def _format_event(self, event: AgentEvent) -> Iterator[str]:
        if event.kind is EventKind.TEXT:
            yield from self._format_text(event)
            return
        if event.kind is EventKind.USAGE:
            self._usage = event.usage or self._usage
            return

        yield from self._flush_message()
        yield from _format_action(event)

    def _format_text(self, event: AgentEvent) -> Iterator[str]:
        *complete, self._partial_line = f"{self._partial_line}{event.text}".split("\n")
        if not event.is_partial:
            if self._partial_line or not complete:
                complete.append(self._partial_line)
            self._partial_line = ""

        for line in complete:
            yield from self._without_thoughts(line)

    def _flush_message(self) -> Iterator[str]:
        if self._partial_line:
            yield from self._without_thoughts(self._partial_line)
            self._partial_line = ""

    def _without_thoughts(self, line: str) -> Iterator[str]:
        """Yield a line without `<thought>` elements, which may span lines."""
        kept = []
        for part in _THOUGHT_TAG.split(line):
            if _THOUGHT_TAG.fullmatch(part):
                self._is_in_thought = not part.startswith("</")
            elif not self._is_in_thought:
                kept.append(part)

        text = "".join(kept)
        if text.strip() or text == line:
            yield text


def _format_action(event: AgentEvent) -> Iterable[str]:
    """Format an event as lines of the transcript."""
    failed = " (failed)" if event.failed else ""
    match event.kind:
        case EventKind.FILE:
            return (f"> {'delete' if event.removed else 'write'} {event.path}{failed}",)
        case EventKind.COMMAND:
            return (f"> $ {_indent_text(event.text)}{failed}",)
        case EventKind.TOOL:
            return (f"> {event.text} {event.path}".rstrip() + failed,)
        case EventKind.RESULT:
            return _fold_result(event.text)
        case EventKind.NOTICE:
            return (f"! {_indent_text(event.text)}",)
        case EventKind.END if event.failed:
            if event.text:
                return (f"! ended in failure: {_indent_text(event.text)}",)
            return ("! ended in failure",)

    return ()


def _fold_result(text: str) -> Iterator[str]:
    """Yield the first lines of a result; the log has the rest."""
    lines = [line for line in text.splitlines() if line.strip()]
    yield from (f"  | {shorten(line, MAX_LINE_CHARS)}" for line in lines[:MAX_RESULT_LINES])
    if len(lines) > MAX_RESULT_LINES:
        yield f"  | ... {len(lines) - MAX_RESULT_LINES} more lines"


def _indent_text(text: str) -> str:
    return text.replace("\n", "\n    ")


class _NullJobHandle:
    """A job that cannot be controlled: it has ended, or another process runs it."""

    def send(self, data: bytes) -> None: ...

    def close_stdin(self) -> None: ...

    def stop(self) -> None: ...


def _make_task(kind: str, checkout: Path, phase: str) -> AgentTask:
    """Create a minimal task, for parsing a log without running an agent."""
    envelope = Envelope(
        job_id="",
        feature_slug="",
        wp_sequence=0,
        wp_id=None,
        prompt_path="",
        context_paths=(),
        worktree_path=str(checkout),
        config=EnvelopeConfig(kind=kind, timeout_secs=0, pr_target_branch=""),
    )
    return AgentTask(
        envelope=envelope,
        agent=AgentConfig(kind),
        repository=checkout,
        checkout=checkout,
        prompt_xml=Path(),
        phase=phase,
    )
