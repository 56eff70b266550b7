"""The ACP harness inside the cage: `python -m phasegate.agents.acp.program -- AGENT ...`, the order on stdin.

It starts the agent, holds one session with it over JSON-RPC, and prints what happens as lines of `acp_events`. The last
line is how it ended. It runs with the agent in the cage, so that a file written for it is written under the same walls.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw

from phasegate.agents.acp.client import Client, say
from phasegate.agents.acp.events import AcpEnded, How, Order, Used
from phasegate.agents.acp.files import AcpPlaces
from phasegate.agents.acp.wire import Gone, ProtocolBroken, RpcError, Silent, ToldToStop, Wire
from phasegate.agents.program_launch import TOOLS_SERVER
from phasegate.agents.stream.line import count
from phasegate.core.paths.scope import Scope
from phasegate.typed import read_json

PROTOCOL_VERSION = 1
AUTH_REQUIRED = -32000
# For claude-agent-acp; others do not look there. Settings of the project could send its key elsewhere.
OWN_SETTINGS_ONLY = {"claudeCode": {"options": {"settingSources": ["user"]}}}
REFUSED = (
    "The last change was refused and not made: {what}. Go on without it and bring the task to its end, with the answer "
    "that was asked for; if it cannot be done without that change, say so in a line that begins with BLOCKER:"
)
LONGEST_REFUSAL = 500
HAS_ASIDES = "Copilot"  # says "Info: ..." of itself in the place of a message
ASKING_MODE = "default"  # the name of the mode that asks before it writes, wherever there is one
FAILED, NOT_STARTED = 70, 127
Answer = TypeVar("Answer")


class Failed(Exception):
    """A request of ours was answered with an error."""

    def __init__(self, error: RpcError) -> None:
        super().__init__(_text_of(error))
        self.error = error


class AuthMethod(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    type: str = "agent"

    @property
    def is_by_key(self) -> bool:
        """Whether it takes a key from the environment. The other ways need a person and a browser."""
        return self.type == "env_var" or "api-key" in self.id or "api_key" in self.id


class AgentInfo(msgspec.Struct, frozen=True):
    name: str = ""


class Initialized(msgspec.Struct, frozen=True, rename="camel"):
    protocol_version: int
    auth_methods: list[AuthMethod] | None = None
    agent_info: AgentInfo | None = None


class AcpMode(msgspec.Struct, frozen=True):
    id: str


class AcpModes(msgspec.Struct, frozen=True, rename="camel"):
    current_mode_id: str = ""
    available_modes: list[AcpMode] = []


class AcpSession(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    modes: AcpModes | None = None


class AcpTokens(msgspec.Struct, frozen=True):
    """Token counts under the names that agents use for them: the protocol's own, and those of `_meta.quota`."""

    input_tokens: float | None = msgspec.field(default=None, name="inputTokens")
    output_tokens: float | None = msgspec.field(default=None, name="outputTokens")
    cached_read_tokens: float | None = msgspec.field(default=None, name="cachedReadTokens")
    cached_write_tokens: float | None = msgspec.field(default=None, name="cachedWriteTokens")


class QuotaTokens(msgspec.Struct, frozen=True):
    input_tokens: float | None = None
    output_tokens: float | None = None


class Quota(msgspec.Struct, frozen=True):
    token_count: QuotaTokens | None = None


class PromptMeta(msgspec.Struct, frozen=True):
    quota: Quota | None = None


class AcpTurn(msgspec.Struct, frozen=True, rename="camel"):
    stop_reason: str
    usage: Raw = Raw(b"null")
    meta: Raw = msgspec.field(default=Raw(b"null"), name="_meta")


def main(arguments: Sequence[str]) -> int:
    """Hold the session and give the exit status: 0 only where the agent ended its turn by itself."""
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    order = read_json(sys.stdin.buffer.read(), Order)
    prompt = Path(order.prompt).read_text(encoding="utf-8")
    try:
        # The group is its own, so that its children can be ended with it.
        agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
    except OSError as error:
        say(AcpEnded(How.NOT_STARTED, f"{command[0]} cannot be started: {error.strerror}"))
        return NOT_STARTED
    wire = Wire(agent)
    ended = Conversation(wire, order).hold(prompt)
    status = wire.close(order.close_s)
    say(msgspec.structs.replace(ended, agent_status=status) if ended.how is How.EXITED else ended)
    return 0 if ended.how is How.END_TURN else FAILED


def _places(order: Order) -> AcpPlaces:
    scope = Scope(order.entries, set_aside=order.set_aside, lock_files=order.lock_files, litter=order.litter)
    checkout = os.path.realpath(order.checkout)
    return AcpPlaces(checkout, scope, order.may_run, (order.checkout,), order.readable)


class Conversation:
    """One session with one prompt."""

    def __init__(self, wire: Wire, order: Order) -> None:
        self._wire, self._order, self._places = wire, order, _places(order)
        self._client = Client(wire, self._places)
        self._ids = itertools.count(1)
        self._auth_methods: list[AuthMethod] = []
        self._used_before = Used()  # in the turn before, where there was one

    def hold(self, prompt: str) -> AcpEnded:
        """Say what there is to say; whatever comes back is an ending."""
        try:
            self._initialize()
            self._open_session()
            ended = self._ended(self._prompt(prompt))
            if ended.how is How.END_TURN and self._client.refused:
                # Some end their turn at a refusal without a word: copilot 1.0 and opencode 1.18 do.
                ended = self._ended(self._prompt(REFUSED.format(what=self._client.refused[:LONGEST_REFUSAL])))
            return ended
        except ToldToStop:
            return AcpEnded(How.CANCELLED, "it was told to stop")
        except Failed as failure:
            return self._failure(failure)
        except Silent:
            return AcpEnded(How.SILENT, f"it did not answer within {self._order.handshake_s:.0f} s")
        except Gone:
            return AcpEnded(How.CANCELLED if self._client.cancelled else How.EXITED, "it ended before it answered")
        except ProtocolBroken as broken:
            return AcpEnded(How.BROKEN, str(broken))

    def _initialize(self) -> None:
        # Writes come through us. Reads need not: what the agent can see is up to the cage, and gemini 0.61 cannot
        # create a file where it must ask us whether there is one. Commands it runs itself, in the same cage as we.
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": True}, "terminal": False}
        us = {"name": "phasegate", "title": "Phasegate", "version": version("phasegate")}
        answer = self._ask(
            "initialize",
            {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": capabilities, "clientInfo": us},
            soon=True,
        )
        initialized = _read(Initialized, answer, "initialize")
        if initialized.protocol_version != PROTOCOL_VERSION:
            versions = f"version {initialized.protocol_version} of the protocol, not {PROTOCOL_VERSION}"
            raise ProtocolBroken(f"it speaks {versions}")
        self._auth_methods = initialized.auth_methods or []
        self._client.has_asides = initialized.agent_info is not None and initialized.agent_info.name == HAS_ASIDES

    def _open_session(self) -> None:
        try:
            session = self._new_session()
        except Failed as failure:
            by_key = next((method.id for method in self._auth_methods if method.is_by_key), None)
            if failure.error.code != AUTH_REQUIRED or by_key is None:
                raise
            self._ask("authenticate", {"methodId": by_key}, soon=True)
            session = self._new_session()
        self._client.session = session.session_id
        modes = session.modes or AcpModes()
        if modes.current_mode_id != ASKING_MODE and any(mode.id == ASKING_MODE for mode in modes.available_modes):
            change = {"sessionId": session.session_id, "modeId": ASKING_MODE}
            self._ask("session/set_mode", change, soon=True)

    def _new_session(self) -> AcpSession:
        command = shutil.which(TOOLS_SERVER[0]) if self._order.has_tools else None
        server = {"name": TOOLS_SERVER[0], "command": command, "args": [*TOOLS_SERVER[1:]], "env": []}
        servers = [server] if command else []
        where = {"cwd": self._places.checkout, "mcpServers": servers, "_meta": OWN_SETTINGS_ONLY}
        return _read(AcpSession, self._ask("session/new", where, soon=True), "session/new")

    def _prompt(self, prompt: str) -> AcpTurn:
        session = self._client.session
        content = [{"type": "text", "text": prompt}]
        return _read(AcpTurn, self._ask("session/prompt", {"sessionId": session, "prompt": content}), "session/prompt")

    def _ask(self, method: str, params: Mapping[str, object], *, soon: bool = False) -> Raw:
        """Send a request and take whatever comes until it is answered; a turn may take as long as the cage allows."""
        number = next(self._ids)
        deadline_s = time.monotonic() + self._order.handshake_s if soon else None
        self._wire.send({"id": number, "method": method, "params": params})
        while True:
            try:
                message = self._wire.receive(deadline_s)
            except ToldToStop:
                if method != "session/prompt":
                    raise
                deadline_s = self._cancel()
                continue
            except Silent:
                if self._client.cancelled:
                    raise Gone from None
                raise
            if message.method is UNSET and message.id == number:
                if message.error is not UNSET:
                    raise Failed(message.error)
                assert message.result is not UNSET
                return message.result
            self._client.take(message)

    def _cancel(self) -> float:
        self._client.cancelled = True
        self._wire.send({"method": "session/cancel", "params": {"sessionId": self._client.session}})
        return time.monotonic() + self._order.cancel_s

    def _ended(self, turn: AcpTurn) -> AcpEnded:
        used = _used(turn, self._client.cost_usd)
        say(_sum(self._used_before, used))
        self._used_before = used
        try:
            how = How(turn.stop_reason)
        except ValueError:
            return AcpEnded(
                How.BROKEN, f"it stopped for a reason that the protocol does not know: {turn.stop_reason!r:.60}"
            )
        if how is How.END_TURN and self._client.system_error:
            return AcpEnded(How.ERROR, self._client.last_text or "it reports an error of its own")
        if how is How.END_TURN and self._client.error_said and not used.output_tokens:
            return AcpEnded(How.ERROR, self._client.error_said)  # copilot 1.0 hides an error of its model in a good end
        return AcpEnded(how)

    def _failure(self, failure: Failed) -> AcpEnded:
        if failure.error.code != AUTH_REQUIRED:
            return AcpEnded(How.CANCELLED if self._client.cancelled else How.ERROR, str(failure))
        ways = ", ".join(f"{method.name or method.id:.60}" for method in self._auth_methods[:8])
        return AcpEnded(How.SIGN_IN, f"it wants somebody to sign in first{f' ({ways})' if ways else ''}")


def _sum(before: Used, now: Used) -> Used:
    return Used(
        before.input_tokens + now.input_tokens,
        before.cached_input_tokens + now.cached_input_tokens,
        before.output_tokens + now.output_tokens,
        now.cost_usd,
    )


def _used(turn: AcpTurn, cost_usd: float | None) -> Used:
    """What the turn used; counts that cannot be read are not counted."""
    try:
        if (tokens := read_json(turn.usage, AcpTokens | None)) is not None:
            read, written = count(tokens.cached_read_tokens), count(tokens.cached_write_tokens)
            return Used(count(tokens.input_tokens) + read + written, read, count(tokens.output_tokens), cost_usd)
        meta = read_json(turn.meta, PromptMeta | None)
        quota = meta.quota.token_count if meta and meta.quota else None
        if quota is None:
            return Used(cost_usd=cost_usd)
        return Used(count(quota.input_tokens), 0, count(quota.output_tokens), cost_usd)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Used(cost_usd=cost_usd)


def _text_of(error: RpcError) -> str:
    """The message of an error, and what its data adds: agents put the cause there."""
    data = bytes(error.data).decode("utf-8", "replace")
    text = error.message if data in ("null", "{}") else f"{error.message}: {data}"
    return f"{text[:2000] or 'no reason given'} (error {error.code})"


def _read(kind: type[Answer], raw: Raw, method: str) -> Answer:
    try:
        return read_json(raw, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolBroken(f"its answer to {method} is not what the protocol says: {str(error)[:200]}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
