"""The stream of Claude Code, which Qwen Code and Cursor share in part: `system`, `assistant`, `user`, `result`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from phasegate.agents.port import AgentEvent, EventKind, Usage
from phasegate.agents.stream.api_error import Trouble
from phasegate.agents.stream.line import LineReader, count
from phasegate.agents.stream.state import ReadsStream, StreamState
from phasegate.agents.stream.tool_use import ToolInput, notice, tool_result, tool_use

PATIENCE_MS = 30_000  # a program that waits longer than this for its model is stopped: we wait better
_USAGE_LIMIT = re.compile(r"Claude(?: AI)? usage limit reached\b")


class Part(msgspec.Struct, frozen=True):
    type: str = ""
    text: str | None = None
    name: str = ""
    input: ToolInput = ToolInput()
    is_error: bool | None = None
    content: object = None


class ClaudeTokens(msgspec.Struct, frozen=True):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_creation_input_tokens: float | None = None
    cache_read_input_tokens: float | None = None


class ClaudeMessage(msgspec.Struct, frozen=True):
    content: tuple[Part, ...] | str
    id: str = ""
    usage: ClaudeTokens | None = None


class Assistant(msgspec.Struct, frozen=True, tag="assistant"):
    message: ClaudeMessage
    parent_tool_use_id: str | None = None
    is_api_error_message: bool = False


class User(msgspec.Struct, frozen=True, tag="user"):
    message: ClaudeMessage


class Wait(msgspec.Struct, frozen=True):
    """What Qwen Code says about a retry."""

    attempt: int = 0
    delay_ms: float = msgspec.field(default=0.0, name="delayMs")


class ClaudeSystem(msgspec.Struct, frozen=True, tag="system"):
    subtype: str = ""
    error: str = ""
    error_status: int | None = None
    attempt: int = 0
    message: str = ""
    tool_name: str = ""
    data: Wait | None = None
    claude_code_version: str = ""
    qwen_code_version: str = ""


class LimitInfo(msgspec.Struct, frozen=True):
    status: str = ""
    resets_at_s: float | None = msgspec.field(default=None, name="resetsAt")


class Limit(msgspec.Struct, frozen=True, tag="rate_limit_event"):
    rate_limit_info: LimitInfo


class ErrorText(msgspec.Struct, frozen=True):
    message: str = ""


class ModelTokens(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    cache_creation_input_tokens: float | None = None


class ClaudeResult(msgspec.Struct, frozen=True, tag="result"):
    is_error: bool | None = None
    subtype: str = ""
    result: str | None = None
    error: ErrorText | None = None
    errors: tuple[str, ...] = ()
    terminal_reason: object = None
    api_error_status: object = None
    usage: ClaudeTokens | None = None
    total_cost_usd: float | None = None
    model_usage: Mapping[str, ModelTokens] = msgspec.field(default_factory=dict, name="modelUsage")

    @property
    def is_good(self) -> bool:
        """Every sign must be there: `subtype` alone says "success" after an API error too."""
        ended_well = self.terminal_reason in (None, "completed") and self.api_error_status is None
        return self.is_error is False and self.subtype == "success" and self.result is not None and ended_well

    @property
    def trouble(self) -> Trouble:
        said = (self.error.message if self.error else "", *self.errors, self.result or "", self.subtype)
        status = self.api_error_status if isinstance(self.api_error_status, int) else None
        return Trouble(next((text for text in said if text), "its result is an error"), status)


_Line = Assistant | User | ClaudeSystem | Limit | ClaudeResult
_LINES: LineReader[_Line] = LineReader(_Line, speaking=("assistant",))


class ClaudeStream(ReadsStream):
    """Turns lines into events, and keeps in its state what the report needs."""

    def __init__(self, state: StreamState, checkout: Path, *, cache_is_counted: bool = False) -> None:
        super().__init__(state, checkout)
        self.wait_s: float | None = None  # how long it said that it would wait, when that was too long
        self._cache_is_counted = cache_is_counted  # whether `input_tokens` holds the cached ones already
        self._limit_ends_s: float | None = None
        self._message_id = ""
        self._before = Usage()  # of the messages before the one in hand

    def line(self, text: str) -> Iterable[AgentEvent]:
        match self._state.read(_LINES, text):
            case None:
                return ()  # of another kind, or no line of the protocol
            case Assistant() as event:
                return self._assistant(event)
            case User(message):
                return self._results(message)
            case ClaudeSystem() as event:
                return self._system(event)
            case Limit(info):
                return self._limit(info)
            case ClaudeResult() as event:
                return self._end(event)

    def _assistant(self, event: Assistant) -> Iterator[AgentEvent]:
        parts = event.message.content if isinstance(event.message.content, tuple) else ()
        if event.parent_tool_use_id is None and not event.is_api_error_message:
            self._speak(parts)
        for part in parts:
            if part.type == "text" and part.text:
                yield AgentEvent(EventKind.TEXT, part.text)
            elif part.type == "tool_use":
                yield tool_use(part.name, part.input, self._checkout)
        if event.message.usage is not None:
            yield self._count(event.message.id, event.message.usage)

    def _speak(self, parts: Iterable[Part]) -> None:
        """A message may come in several lines; a tool ends it."""
        self._state.get_on()
        for part in parts:
            if part.type == "text" and part.text is not None:
                self._state.say(part.text)
            elif part.type == "text":
                self._state.lose_text()
            elif part.type == "tool_use":
                self._state.end_message()

    def _count(self, message_id: str, tokens: ClaudeTokens) -> AgentEvent:
        """What the messages say so far: the output is a guess until the result corrects it."""
        if message_id != self._message_id:
            self._message_id, self._before = message_id, self._state.usage or Usage()
        now = self._usage(tokens)
        self._state.usage = Usage(
            self._before.input_tokens + now.input_tokens,
            self._before.cached_input_tokens + now.cached_input_tokens,
            self._before.output_tokens + now.output_tokens,
        )
        return AgentEvent(EventKind.USAGE, usage=self._state.usage)

    def _usage(self, tokens: ClaudeTokens, cost_usd: float | None = None) -> Usage:
        read, written = count(tokens.cache_read_input_tokens), count(tokens.cache_creation_input_tokens)
        beside = 0 if self._cache_is_counted else read + written
        return Usage(count(tokens.input_tokens) + beside, read, count(tokens.output_tokens), cost_usd)

    def _results(self, message: ClaudeMessage) -> Iterator[AgentEvent]:
        for part in message.content if isinstance(message.content, tuple) else ():
            if part.type == "tool_result" and part.is_error:
                yield notice(str(part.content or "a tool failed")[:2_000], failed=True)
            elif part.type == "tool_result":
                yield from tool_result(part.content)

    def _system(self, event: ClaudeSystem) -> Iterable[AgentEvent]:
        self._state.version = event.claude_code_version or event.qwen_code_version or self._state.version
        if event.subtype == "permission_denied":
            return (notice(f"not permitted: {event.tool_name}: {event.message}", failed=True),)
        if event.subtype == "api_retry":
            self._state.retrying = Trouble(event.error or "its model does not answer", event.error_status)
            return (notice(f"try {event.attempt} failed: {event.error_status or ''} {event.error}", failed=True),)
        if event.subtype == "retry" and event.data is not None:
            return self._wait(event.data)
        return ()

    def _wait(self, wait: Wait) -> Iterable[AgentEvent]:
        self._state.retrying = Trouble("temporarily no answer from its model")
        if wait.delay_ms >= PATIENCE_MS:
            self.wait_s = wait.delay_ms / 1000
            self._state.stop()
        return (notice(f"try {wait.attempt} failed", failed=True),)

    def _limit(self, info: LimitInfo) -> Iterable[AgentEvent]:
        if info.status != "rejected":
            return ()
        self._limit_ends_s = info.resets_at_s
        return (notice("its usage limit is reached", failed=True),)

    def _end(self, result: ClaudeResult) -> Iterator[AgentEvent]:
        if result.usage is not None or result.model_usage:
            self._state.usage = self._total(result)
            yield AgentEvent(EventKind.USAGE, usage=self._state.usage)
        self._state.get_on()
        if result.is_good and not _USAGE_LIMIT.match(result.result or ""):
            self._state.replace(result.result or "")
            self._state.completed = True
        else:
            self._state.trouble = result.trouble._replace(retry_at_s=self._limit_ends_s)
        yield AgentEvent(EventKind.END, failed=not self._state.completed)

    def _total(self, result: ClaudeResult) -> Usage:
        """All models of the run, those of sub-agents too, where they are listed."""
        if not result.model_usage:
            return self._usage(result.usage or ClaudeTokens(), result.total_cost_usd)
        models = result.model_usage.values()
        read = sum(count(model.cache_read_input_tokens) for model in models)
        fresh = sum(count(model.input_tokens) + count(model.cache_creation_input_tokens) for model in models)
        return Usage(fresh + read, read, sum(count(model.output_tokens) for model in models), result.total_cost_usd)
