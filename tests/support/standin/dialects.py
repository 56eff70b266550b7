"""The four ways of speaking that the agent programs know, each as far as they use it.

A dialect reads what a request holds (tools offered, tool results so far) and puts a move into its protocol's words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

from support.standin.turns import Call, Move

Json = dict[str, Any]
MODEL_ID = "stand-in"
INPUT_TOKENS, OUTPUT_TOKENS = 101, 23


class Dialect(Protocol):
    """One protocol between agents and models."""

    def offered(self, body: Json) -> list[str]:
        """The names of the tools in the request."""

    def results(self, body: Json) -> int:
        """How many tool results the conversation holds so far."""

    def streams(self, path: str, body: Json) -> bool:
        """Whether the answer is wanted as a stream of events."""

    def frames(self, move: Move) -> list[bytes]:
        """The answer as server-sent events."""

    def whole(self, move: Move) -> Json:
        """The answer as one document."""

    def error(self, status: int, message: str, retry_after_s: int | None) -> Json:
        """The document of an HTTP error."""


def dialect_of(path: str) -> Dialect | None:
    """The dialect that is spoken at a path, whatever stands before it; None when the path is no question to a model."""
    route = path.partition("?")[0]
    if route.endswith("/v1/messages"):
        return Anthropic()
    if route.endswith("/responses"):
        return Responses()
    if route.endswith("/chat/completions"):
        return Chat()
    return Gemini() if route.endswith(("enerateContent",)) else None


def _event(data: Json, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def _arguments(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _text(move: Move) -> str:
    assert not isinstance(move, Call)
    assert isinstance(move.text, str)
    return move.text


def _parts(text: str) -> list[str]:
    """A text in the pieces in which it is streamed."""
    return [text[at : at + 400] for at in range(0, len(text), 400)] or [""]


class Anthropic:
    """Messages."""

    def offered(self, body: Json) -> list[str]:
        return [tool["name"] for tool in body.get("tools", [])]

    def results(self, body: Json) -> int:
        contents = (message["content"] for message in body["messages"])
        blocks = (block for content in contents if isinstance(content, list) for block in content)
        return sum(block.get("type") == "tool_result" for block in blocks)

    def streams(self, path: str, body: Json) -> bool:
        return bool(body.get("stream"))

    def frames(self, move: Move) -> list[bytes]:
        message = self.whole(move)
        (block,) = message["content"]
        empty = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
        start = {**message, "content": [], "stop_reason": None}
        end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        events: list[Json] = [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            *(
                {"type": "content_block_delta", "index": 0, "delta": delta}
                for delta in self._deltas(move)
            ),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": OUTPUT_TOKENS}},
            {"type": "message_stop"},
        ]
        return [_event(event, event["type"]) for event in events]

    def _deltas(self, move: Move) -> Iterator[Json]:
        if isinstance(move, Call):
            yield {"type": "input_json_delta", "partial_json": _arguments(move)}
        else:
            yield from ({"type": "text_delta", "text": part} for part in _parts(_text(move)))

    def whole(self, move: Move) -> Json:
        if isinstance(move, Call):
            block = {
                "type": "tool_use",
                "id": f"toolu_{_next()}",
                "name": move.name,
                "input": move.arguments,
            }
        else:
            block = {"type": "text", "text": _text(move)}
        return {
            "id": f"msg_{_next()}",
            "type": "message",
            "role": "assistant",
            "model": MODEL_ID,
            "content": [block],
            "stop_reason": "tool_use" if isinstance(move, Call) else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS},
        }

    def error(self, status: int, message: str, retry_after_s: int | None) -> Json:
        kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
        return {
            "type": "error",
            "error": {"type": kinds.get(status, "api_error"), "message": message},
        }


class _OpenAi:
    def streams(self, path: str, body: Json) -> bool:
        return bool(body.get("stream"))

    def error(self, status: int, message: str, retry_after_s: int | None) -> Json:
        kinds = {400: "invalid_request_error", 401: "invalid_api_key", 429: "rate_limit_exceeded"}
        kind = kinds.get(status, "server_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


class Responses(_OpenAi):
    """OpenAI's Responses."""

    def offered(self, body: Json) -> list[str]:
        tools = body.get("tools", [])
        spaces = [
            f"{tool['name']}.{one['name']}"
            for tool in tools
            if "tools" in tool
            for one in tool["tools"]
        ]
        return [*(tool.get("name", tool["type"]) for tool in tools), *spaces]

    def results(self, body: Json) -> int:
        return sum(str(item.get("type", "")).endswith("_call_output") for item in body["input"])

    def frames(self, move: Move) -> list[bytes]:
        response = self.whole(move)
        (item,) = response["output"]
        created = {**response, "status": "in_progress", "output": [], "usage": None}
        texts = [] if isinstance(move, Call) else _parts(_text(move))
        place = {"output_index": 0, "item_id": item["id"], "content_index": 0}
        events: list[Json] = [
            {"type": "response.created", "response": created},
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {**item, "status": "in_progress"},
            },
            *({"type": "response.output_text.delta", **place, "delta": part} for part in texts),
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ]
        return [_event(event, event["type"]) for event in events]

    def whole(self, move: Move) -> Json:
        usage = {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        made = {
            "id": f"resp_{_next()}",
            "object": "response",
            "status": "completed",
            "model": MODEL_ID,
        }
        return {**made, "output": [self._item(move)], "usage": usage}

    def _item(self, move: Move) -> Json:
        if not isinstance(move, Call):
            content = [{"type": "output_text", "text": _text(move), "annotations": []}]
            return {
                "type": "message",
                "id": f"msg_{_next()}",
                "role": "assistant",
                "content": content,
            }
        if isinstance(move.arguments, str):
            kind, argument = "custom_tool_call", "input"
        else:
            kind, argument = "function_call", "arguments"
        space, _, name = move.name.rpartition(".")
        named = {"type": kind, "id": f"item_{_next()}", "call_id": f"call_{_next()}", "name": name}
        return {**named, **({"namespace": space} if space else {}), argument: _arguments(move)}


class Chat(_OpenAi):
    """OpenAI's Chat Completions."""

    def offered(self, body: Json) -> list[str]:
        return [tool["function"]["name"] for tool in body.get("tools") or []]

    def results(self, body: Json) -> int:
        return sum(message["role"] == "tool" for message in body["messages"])

    def frames(self, move: Move) -> list[bytes]:
        made = {
            "id": f"chat_{_next()}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": MODEL_ID,
        }
        if isinstance(move, Call):
            deltas: list[Json] = [
                {"role": "assistant", "tool_calls": [{"index": 0, **self._call(move)}]}
            ]
        else:
            deltas = [{"role": "assistant", "content": part} for part in _parts(_text(move))]
        choices: list[Json] = [
            {"index": 0, "delta": delta, "finish_reason": None} for delta in deltas
        ]
        choices.append({"index": 0, "delta": {}, "finish_reason": self._reason(move)})
        events: list[Json] = [{**made, "choices": [choice]} for choice in choices]
        events.append({**made, "choices": [], "usage": self._usage()})
        return [*map(_event, events), b"data: [DONE]\n\n"]

    def whole(self, move: Move) -> Json:
        spoken: Json = (
            {"tool_calls": [self._call(move)]}
            if isinstance(move, Call)
            else {"content": _text(move)}
        )
        choice = {
            "index": 0,
            "message": {"role": "assistant", **spoken},
            "finish_reason": self._reason(move),
        }
        made = {
            "id": f"chat_{_next()}",
            "object": "chat.completion",
            "created": 1,
            "model": MODEL_ID,
        }
        return {**made, "choices": [choice], "usage": self._usage()}

    def _call(self, call: Call) -> Json:
        return {
            "id": f"call_{_next()}",
            "type": "function",
            "function": {"name": call.name, "arguments": _arguments(call)},
        }

    def _reason(self, move: Move) -> str:
        return "tool_calls" if isinstance(move, Call) else "stop"

    def _usage(self) -> Json:
        total = INPUT_TOKENS + OUTPUT_TOKENS
        return {
            "prompt_tokens": INPUT_TOKENS,
            "completion_tokens": OUTPUT_TOKENS,
            "total_tokens": total,
        }


class Gemini:
    """Google's generateContent and streamGenerateContent."""

    def offered(self, body: Json) -> list[str]:
        tools = body.get("tools") or []
        return [
            function["name"] for tool in tools for function in tool.get("functionDeclarations", [])
        ]

    def results(self, body: Json) -> int:
        parts = (part for content in body["contents"] for part in content.get("parts", []))
        return sum("functionResponse" in part for part in parts)

    def streams(self, path: str, body: Json) -> bool:
        return ":streamGenerateContent" in path

    def frames(self, move: Move) -> list[bytes]:
        if isinstance(move, Call):
            return [_event(self.whole(move))]
        last = self.whole(move)
        pieces = [
            {**last, "candidates": [self._candidate({"text": part})]}
            for part in _parts(_text(move))
        ]
        pieces[-1]["candidates"][0]["finishReason"] = "STOP"
        return [_event(piece) for piece in pieces]

    def whole(self, move: Move) -> Json:
        part = (
            {"functionCall": {"name": move.name, "args": move.arguments}}
            if isinstance(move, Call)
            else {"text": _text(move)}
        )
        used = {"promptTokenCount": INPUT_TOKENS, "candidatesTokenCount": OUTPUT_TOKENS}
        total = {"totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS}
        candidate = {**self._candidate(part), "finishReason": "STOP"}
        return {
            "candidates": [candidate],
            "usageMetadata": {**used, **total},
            "modelVersion": MODEL_ID,
        }

    def _candidate(self, part: Json) -> Json:
        return {"index": 0, "content": {"role": "model", "parts": [part]}}

    def error(self, status: int, message: str, retry_after_s: int | None) -> Json:
        kinds = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED"}
        wait = {
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": f"{retry_after_s}s",
        }
        details = [] if retry_after_s is None else [wait]
        status_name = kinds.get(status, "INTERNAL")
        return {
            "error": {"code": status, "message": message, "status": status_name, "details": details}
        }


_made = iter(range(1, 10**12))


def _next() -> int:
    return next(_made)
