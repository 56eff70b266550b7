"""Parse the stream of Claude Code: `system`, `assistant`, `user` and `result` lines.

Qwen Code and Cursor use parts of the same format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from phasegate.agents.port import AgentEvent, EventKind, Usage
from phasegate.agents.stream.api_error import ReportedError
from phasegate.agents.stream.line import LineReader, to_token_count
from phasegate.agents.stream.state import StreamParser, StreamState
from phasegate.agents.stream.tool_use import (
    ToolInput,
    make_notice_event,
    make_result_events,
    make_tool_event,
)

# A program that would wait longer for its model is stopped, and we reschedule the job.
MAX_RETRY_DELAY_MS = 30_000
_EXIT_CODE = re.compile(r"^Exit [Cc]ode:? (\d{1,3})\b", re.MULTILINE)
_USAGE_LIMIT = re.compile(r"Claude(?: AI)? usage limit reached\b")


class ClaudePart(msgspec.Struct, frozen=True):
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
    content: tuple[ClaudePart, ...] | str
    id: str = ""
    usage: ClaudeTokens | None = None


class ClaudeAssistant(msgspec.Struct, frozen=True, tag="assistant"):
    message: ClaudeMessage
    parent_tool_use_id: str | None = None
    is_api_error_message: bool = False


class ClaudeUser(msgspec.Struct, frozen=True, tag="user"):
    message: ClaudeMessage
    # With `returnCodeInterpretation` an exit status other than 0 is not an error: `grep` found
    # nothing
    tool_use_result: object = None


class QwenRetry(msgspec.Struct, frozen=True):
    """A retry as Qwen Code reports it."""

    attempt: int = 0
    delay_ms: float = msgspec.field(default=0.0, name="delayMs")


class ClaudeSystem(msgspec.Struct, frozen=True, tag="system"):
    subtype: str = ""
    error: str = ""
    error_status: int | None = None
    attempt: int = 0
    message: str = ""
    tool_name: str = ""
    data: QwenRetry | None = None
    claude_code_version: str = ""
    qwen_code_version: str = ""


class ClaudeLimitInfo(msgspec.Struct, frozen=True):
    status: str = ""
    resets_at_s: float | None = msgspec.field(default=None, name="resetsAt")


class ClaudeRateLimit(msgspec.Struct, frozen=True, tag="rate_limit_event"):
    rate_limit_info: ClaudeLimitInfo


class ClaudeErrorText(msgspec.Struct, frozen=True):
    message: str = ""


class ClaudeModelTokens(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    cache_creation_input_tokens: float | None = None


class ClaudeResult(msgspec.Struct, frozen=True, tag="result"):
    is_error: bool | None = None
    subtype: str = ""
    result: str | None = None
    error: ClaudeErrorText | None = None
    errors: tuple[str, ...] = ()
    terminal_reason: object = None
    api_error_status: object = None
    usage: ClaudeTokens | None = None
    total_cost_usd: float | None = None
    model_usage: Mapping[str, ClaudeModelTokens] = msgspec.field(
        default_factory=dict, name="modelUsage"
    )

    @property
    def is_success(self) -> bool:
        """Whether the run succeeded by all fields: `subtype` is "success" after API errors too."""
        return (
            self.is_error is False
            and self.subtype == "success"
            and self.result is not None
            and self.terminal_reason in (None, "completed")
            and self.api_error_status is None
        )

    @property
    def reported_error(self) -> ReportedError:
        texts = [self.error.message if self.error else "", *self.errors, self.result, self.subtype]
        message = next(filter(None, texts), "its result is an error")
        if isinstance(self.api_error_status, int):
            return ReportedError(message, self.api_error_status)

        return ReportedError(message)


_Line = ClaudeAssistant | ClaudeUser | ClaudeSystem | ClaudeRateLimit | ClaudeResult
_LINE_READER: LineReader[_Line] = LineReader(_Line, text_tags=("assistant",))


class ClaudeStreamParser(StreamParser):
    """A parser that turns lines into events and keeps the data for the report in its state."""

    def __init__(
        self, state: StreamState, checkout: Path, *, input_includes_cache: bool = False
    ) -> None:
        super().__init__(state, checkout)
        # the wait that the program announced, if it was too long
        self.announced_wait_s: float | None = None
        # `input_tokens` includes the cached tokens
        self._input_includes_cache = input_includes_cache
        self._limit_resets_at_s: float | None = None
        self._message_id = ""
        # usage of all messages before the current one
        self._previous_usage = Usage()

    def parse_line(self, text: str) -> Iterable[AgentEvent]:
        """Parse one line of the stream into events."""
        match self._state.parse_line(_LINE_READER, text):
            case None:
                # another type, or not a line of the protocol
                return ()
            case ClaudeAssistant() as event:
                return self._handle_assistant(event)
            case ClaudeUser(message, result):
                return self._handle_tool_results(message, result)
            case ClaudeSystem() as event:
                return self._handle_system(event)
            case ClaudeRateLimit(info):
                return self._handle_limit(info)
            case ClaudeResult() as event:
                return self._handle_result(event)

    def _handle_assistant(self, event: ClaudeAssistant) -> Iterator[AgentEvent]:
        """Yield the texts, tool calls and usage of a message of the model."""
        content = event.message.content
        parts = content if isinstance(content, tuple) else ()

        if event.parent_tool_use_id is None and not event.is_api_error_message:
            self._add_message_parts(parts)

        for part in parts:
            if part.type == "text" and part.text:
                yield AgentEvent(EventKind.TEXT, part.text)
            elif part.type == "tool_use":
                yield make_tool_event(part.name, part.input, self._checkout)

        if event.message.usage is not None:
            yield self._add_usage(event.message.id, event.message.usage)

    def _add_message_parts(self, parts: Iterable[ClaudePart]) -> None:
        """Add text to the current message, which may have several lines; a tool call ends it."""
        self._state.mark_progress()

        for part in parts:
            if part.type == "text" and part.text is not None:
                self._state.add_text(part.text)
            elif part.type == "text":
                self._state.mark_text_lost()
            elif part.type == "tool_use":
                self._state.end_message()

    def _add_usage(self, message_id: str, tokens: ClaudeTokens) -> AgentEvent:
        """Add the usage of a message; output tokens are an estimate until the result arrives."""
        if message_id != self._message_id:
            self._message_id = message_id
            self._previous_usage = self._state.usage or Usage()

        previous = self._previous_usage
        current = self._convert_tokens(tokens)
        self._state.usage = Usage(
            input_tokens=previous.input_tokens + current.input_tokens,
            cached_input_tokens=previous.cached_input_tokens + current.cached_input_tokens,
            output_tokens=previous.output_tokens + current.output_tokens,
        )

        return AgentEvent(EventKind.USAGE, usage=self._state.usage)

    def _convert_tokens(self, tokens: ClaudeTokens, cost_usd: float | None = None) -> Usage:
        """Convert token counts; cached tokens are part of the input."""
        input_tokens = to_token_count(tokens.input_tokens)
        cache_read = to_token_count(tokens.cache_read_input_tokens)
        if not self._input_includes_cache:
            input_tokens += cache_read + to_token_count(tokens.cache_creation_input_tokens)

        return Usage(
            input_tokens=input_tokens,
            cached_input_tokens=cache_read,
            output_tokens=to_token_count(tokens.output_tokens),
            cost_usd=cost_usd,
        )

    def _handle_tool_results(self, message: ClaudeMessage, result: object) -> Iterator[AgentEvent]:
        """Yield the results of tools, with exit status where it is known."""
        details = result if isinstance(result, dict) else {}
        for part in message.content if isinstance(message.content, tuple) else ():
            if part.type != "tool_result":
                continue

            text = str(part.content or "a tool failed")[:2_000]
            stated = _EXIT_CODE.search(text)
            exit_code = int(stated[1]) if stated else None
            if part.is_error:
                yield make_notice_event(text, failed=True, exit_code=exit_code)
                continue

            # The shell tool of Claude Code states the exit status of failed commands only
            is_shell = "stdout" in details and "returnCodeInterpretation" not in details
            if exit_code is None and part.is_error is False and is_shell:
                exit_code = 0
            yield from make_result_events(part.content, exit_code=exit_code)

    def _handle_system(self, event: ClaudeSystem) -> Iterable[AgentEvent]:
        """Store version and retry errors of a system message; return its notices."""
        self._state.version = (
            event.claude_code_version or event.qwen_code_version or self._state.version
        )
        if event.subtype == "permission_denied":
            text = f"not permitted: {event.tool_name}: {event.message}"
            return (make_notice_event(text, failed=True),)

        if event.subtype == "api_retry":
            self._state.retry_error = ReportedError(
                event.error or "its model does not respond", event.error_status
            )
            text = f"attempt {event.attempt} failed: {event.error_status or ''} {event.error}"
            return (make_notice_event(text, failed=True),)

        if event.subtype == "retry" and event.data is not None:
            return self._handle_retry(event.data)

        return ()

    def _handle_retry(self, retry: QwenRetry) -> Iterable[AgentEvent]:
        self._state.retry_error = ReportedError("its model temporarily does not respond")
        if retry.delay_ms >= MAX_RETRY_DELAY_MS:
            self.announced_wait_s = retry.delay_ms / 1000
            self._state.stop()
        return (make_notice_event(f"attempt {retry.attempt} failed", failed=True),)

    def _handle_limit(self, info: ClaudeLimitInfo) -> Iterable[AgentEvent]:
        if info.status != "rejected":
            return ()
        self._limit_resets_at_s = info.resets_at_s
        return (make_notice_event("its usage limit is reached", failed=True),)

    def _handle_result(self, result: ClaudeResult) -> Iterator[AgentEvent]:
        """Store the final result or error of the run; yield its usage and end."""
        if result.usage is not None or result.model_usage:
            self._state.usage = self._sum_usage(result)
            yield AgentEvent(EventKind.USAGE, usage=self._state.usage)

        self._state.mark_progress()
        if result.is_success and not _USAGE_LIMIT.match(result.result or ""):
            self._state.replace_message(result.result or "")
            self._state.completed = True
        else:
            self._state.error = result.reported_error._replace(retry_at_s=self._limit_resets_at_s)

        yield AgentEvent(EventKind.END, failed=not self._state.completed)

    def _sum_usage(self, result: ClaudeResult) -> Usage:
        """Sum the usage of all models of the run, including sub-agents, if it is listed."""
        if not result.model_usage:
            return self._convert_tokens(result.usage or ClaudeTokens(), result.total_cost_usd)

        input_tokens = 0
        cache_read = 0
        output_tokens = 0
        for model in result.model_usage.values():
            input_tokens += to_token_count(model.input_tokens)
            input_tokens += to_token_count(model.cache_creation_input_tokens)
            cache_read += to_token_count(model.cache_read_input_tokens)
            output_tokens += to_token_count(model.output_tokens)

        return Usage(
            input_tokens=input_tokens + cache_read,
            cached_input_tokens=cache_read,
            output_tokens=output_tokens,
            cost_usd=result.total_cost_usd,
        )
