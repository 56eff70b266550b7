"""The ACP harness inside the cage.

`python -m phasegate.agents.acp.program -- AGENT ...`, the order on stdin.

It starts the agent, holds one session with it over JSON-RPC, and prints what happens as lines of
`acp_events`. The last line is how it ended. It runs with the agent in the cage, so that a file
written for it is written under the same walls.
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

from phasegate.agents.acp.client import AcpClient, emit_event
from phasegate.agents.acp.events import AcpEndReason, AcpSessionConfig, AcpSessionEnd, AcpUsage
from phasegate.agents.acp.files import AcpFileAccess
from phasegate.agents.acp.wire import (
    AcpAgentExited,
    AcpConnection,
    AcpProtocolError,
    AcpReceiveTimeout,
    AcpStopRequested,
)
from phasegate.agents.program_launch import MCP_SERVER_COMMAND
from phasegate.agents.stream.line import to_token_count
from phasegate.core.paths.scope import Scope
from phasegate.core.text.jsonrpc import RpcErrorObject
from phasegate.typed import read_json

PROTOCOL_VERSION = 1
AUTH_REQUIRED = -32000
# For claude-agent-acp; others do not look there. Settings of the project could send its key
# elsewhere.
USER_SETTINGS_ONLY = {"claudeCode": {"options": {"settingSources": ["user"]}}}
REFUSAL_PROMPT = (
    "The last change was refused and not made: {what}. Go on without it and bring the task to its end, with the answer "
    "that was asked for; if it cannot be done without that change, say so in a line that begins with BLOCKER:"
)
MAX_REFUSAL_CHARS = 500
# Says "Info: ..." of itself in the place of a message
INFO_MESSAGE_AGENT = "Copilot"
# The name of the mode that asks before it writes, wherever there is one
ASKING_MODE = "default"
FAILED_EXIT = 70
NOT_STARTED_EXIT = 127
Answer = TypeVar("Answer")


class AcpRequestFailed(Exception):
    """A request of ours was answered with an error."""

    def __init__(self, error: RpcErrorObject) -> None:
        super().__init__(_format_error(error))
        self.error = error


class AcpAuthMethod(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    type: str = "agent"

    @property
    def uses_api_key(self) -> bool:
        """Whether it takes a key from the environment.

        The other ways need a person and a browser.
        """
        return self.type == "env_var" or "api-key" in self.id or "api_key" in self.id


class AcpAgentInfo(msgspec.Struct, frozen=True):
    name: str = ""


class AcpInitializeResult(msgspec.Struct, frozen=True, rename="camel"):
    protocol_version: int
    auth_methods: list[AcpAuthMethod] | None = None
    agent_info: AcpAgentInfo | None = None


class AcpMode(msgspec.Struct, frozen=True):
    id: str


class AcpModes(msgspec.Struct, frozen=True, rename="camel"):
    current_mode_id: str = ""
    available_modes: list[AcpMode] = []


class AcpSession(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    modes: AcpModes | None = None


class AcpTokens(msgspec.Struct, frozen=True):
    """Token counts under the names that agents use for them.

    The protocol's own, and those of `_meta.quota`.
    """

    input_tokens: float | None = msgspec.field(default=None, name="inputTokens")
    output_tokens: float | None = msgspec.field(default=None, name="outputTokens")
    cached_read_tokens: float | None = msgspec.field(default=None, name="cachedReadTokens")
    cached_write_tokens: float | None = msgspec.field(default=None, name="cachedWriteTokens")


class AcpQuotaTokens(msgspec.Struct, frozen=True):
    input_tokens: float | None = None
    output_tokens: float | None = None


class AcpQuota(msgspec.Struct, frozen=True):
    token_count: AcpQuotaTokens | None = None


class AcpPromptMeta(msgspec.Struct, frozen=True):
    quota: AcpQuota | None = None


class AcpPromptResult(msgspec.Struct, frozen=True, rename="camel"):
    stop_reason: str
    usage: Raw = Raw(b"null")
    meta: Raw = msgspec.field(default=Raw(b"null"), name="_meta")


def main(arguments: Sequence[str]) -> int:
    """Hold the session and give the exit status: 0 only where the agent ended its turn by itself."""
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    order = read_json(sys.stdin.buffer.read(), AcpSessionConfig)
    prompt = Path(order.prompt).read_text(encoding="utf-8")

    try:
        # The group is its own, so that its children can be ended with it.
        agent = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
    except OSError as error:
        emit_event(
            AcpSessionEnd(
                AcpEndReason.NOT_STARTED, f"{command[0]} cannot be started: {error.strerror}"
            )
        )
        return NOT_STARTED_EXIT

    wire = AcpConnection(agent)
    ended = AcpConversation(wire, order).run(prompt)
    status = wire.close(order.close_s)
    emit_event(
        msgspec.structs.replace(ended, agent_status=status)
        if ended.how is AcpEndReason.EXITED
        else ended
    )
    if ended.how is AcpEndReason.END_TURN:
        return 0

    return FAILED_EXIT


def _build_file_access(config: AcpSessionConfig) -> AcpFileAccess:
    scope = Scope(
        config.entries,
        set_aside=config.set_aside,
        lock_files=config.lock_files,
        litter=config.litter,
    )

    checkout = os.path.realpath(config.checkout)
    return AcpFileAccess(
        checkout=checkout,
        scope=scope,
        can_run_commands=config.may_run,
        aliases=(config.checkout,),
        readable=config.readable,
    )


class AcpConversation:
    """One session with one prompt."""

    def __init__(self, connection: AcpConnection, config: AcpSessionConfig) -> None:
        self._connection = connection
        self._config = config
        self._files = _build_file_access(config)
        self._client = AcpClient(connection, self._files)
        self._ids = itertools.count(1)
        self._auth_methods: list[AcpAuthMethod] = []
        # In the turn before, where there was one
        self._previous_usage = AcpUsage()

    def run(self, prompt: str) -> AcpSessionEnd:
        """Say what there is to say; whatever comes back is an ending."""
        try:
            self._initialize()
            self._open_session()
            ended = self._build_end(self._send_prompt(prompt))

            if ended.how is AcpEndReason.END_TURN and self._client.last_refusal:
                # Some end their turn at a refusal without a word: copilot 1.0 and opencode 1.18 do.
                ended = self._build_end(
                    self._send_prompt(
                        REFUSAL_PROMPT.format(what=self._client.last_refusal[:MAX_REFUSAL_CHARS])
                    )
                )

            return ended
        except AcpStopRequested:
            return AcpSessionEnd(AcpEndReason.CANCELLED, "it was told to stop")
        except AcpRequestFailed as failure:
            return self._build_failure_end(failure)
        except AcpReceiveTimeout:
            return AcpSessionEnd(
                AcpEndReason.SILENT, f"it did not answer within {self._config.handshake_s:.0f} s"
            )
        except AcpAgentExited:
            return AcpSessionEnd(
                AcpEndReason.CANCELLED if self._client.cancelled else AcpEndReason.EXITED,
                "it ended before it answered",
            )
        except AcpProtocolError as broken:
            return AcpSessionEnd(AcpEndReason.BROKEN, str(broken))

    def _initialize(self) -> None:
        # Writes come through us. Reads need not: what the agent can see is up to the cage, and
        # gemini 0.61 cannot create a file where it must ask us whether there is one. Commands it
        # runs itself, in the same cage as we.
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": True}, "terminal": False}
        us = {"name": "phasegate", "title": "Phasegate", "version": version("phasegate")}
        answer = self._send_request(
            "initialize",
            {
                "protocolVersion": PROTOCOL_VERSION,
                "clientCapabilities": capabilities,
                "clientInfo": us,
            },
            has_deadline=True,
        )

        initialized = _decode_result(AcpInitializeResult, answer, "initialize")

        if initialized.protocol_version != PROTOCOL_VERSION:
            versions = (
                f"version {initialized.protocol_version} of the protocol, not {PROTOCOL_VERSION}"
            )
            raise AcpProtocolError(f"it speaks {versions}")

        self._auth_methods = initialized.auth_methods or []
        self._client.sends_info_messages = (
            initialized.agent_info is not None and initialized.agent_info.name == INFO_MESSAGE_AGENT
        )

    def _open_session(self) -> None:
        try:
            session = self._create_session()
        except AcpRequestFailed as failure:
            by_key = next((method.id for method in self._auth_methods if method.uses_api_key), None)
            if failure.error.code != AUTH_REQUIRED or by_key is None:
                raise

            self._send_request("authenticate", {"methodId": by_key}, has_deadline=True)
            session = self._create_session()

        self._client.session_id = session.session_id
        modes = session.modes or AcpModes()

        if modes.current_mode_id != ASKING_MODE and any(
            mode.id == ASKING_MODE for mode in modes.available_modes
        ):
            change = {"sessionId": session.session_id, "modeId": ASKING_MODE}
            self._send_request("session/set_mode", change, has_deadline=True)

    def _create_session(self) -> AcpSession:
        if self._config.has_tools:
            command = shutil.which(MCP_SERVER_COMMAND[0])
        else:
            command = None

        server = {
            "name": MCP_SERVER_COMMAND[0],
            "command": command,
            "args": [*MCP_SERVER_COMMAND[1:]],
            "env": [],
        }

        servers = [server] if command else []
        where = {"cwd": self._files.checkout, "mcpServers": servers, "_meta": USER_SETTINGS_ONLY}

        return _decode_result(
            AcpSession, self._send_request("session/new", where, has_deadline=True), "session/new"
        )

    def _send_prompt(self, prompt: str) -> AcpPromptResult:
        session = self._client.session_id
        content = [{"type": "text", "text": prompt}]
        return _decode_result(
            AcpPromptResult,
            self._send_request("session/prompt", {"sessionId": session, "prompt": content}),
            "session/prompt",
        )

    def _send_request(
        self, method: str, params: Mapping[str, object], *, has_deadline: bool = False
    ) -> Raw:
        """Send a request and take whatever comes until it is answered.

        A turn may take as long as the cage allows.
        """
        number = next(self._ids)
        if has_deadline:
            deadline_s = time.monotonic() + self._config.handshake_s
        else:
            deadline_s = None

        self._connection.send({"id": number, "method": method, "params": params})
        while True:
            try:
                message = self._connection.receive(deadline_s)
            except AcpStopRequested:
                if method != "session/prompt":
                    raise

                deadline_s = self._cancel_turn()
                continue
            except AcpReceiveTimeout:
                if self._client.cancelled:
                    raise AcpAgentExited from None
                raise

            if message.method is UNSET and message.id == number:
                if message.error is not UNSET:
                    raise AcpRequestFailed(message.error)

                assert message.result is not UNSET
                return message.result

            self._client.handle_message(message)

    def _cancel_turn(self) -> float:
        self._client.cancelled = True
        self._connection.send(
            {"method": "session/cancel", "params": {"sessionId": self._client.session_id}}
        )
        return time.monotonic() + self._config.cancel_s

    def _build_end(self, turn: AcpPromptResult) -> AcpSessionEnd:
        used = _read_usage(turn, self._client.cost_usd)
        emit_event(_add_usage(self._previous_usage, used))
        self._previous_usage = used

        try:
            how = AcpEndReason(turn.stop_reason)
        except ValueError:
            return AcpSessionEnd(
                AcpEndReason.BROKEN,
                f"it stopped for a reason that the protocol does not know: {turn.stop_reason!r:.60}",
            )

        if how is AcpEndReason.END_TURN and self._client.system_error:
            return AcpSessionEnd(
                AcpEndReason.ERROR, self._client.last_text or "it reports an error of its own"
            )

        if how is AcpEndReason.END_TURN and self._client.last_error_text and not used.output_tokens:
            # Copilot 1.0 hides an error of its model in a good end
            return AcpSessionEnd(AcpEndReason.ERROR, self._client.last_error_text)

        return AcpSessionEnd(how)

    def _build_failure_end(self, failure: AcpRequestFailed) -> AcpSessionEnd:
        if failure.error.code != AUTH_REQUIRED:
            return AcpSessionEnd(
                AcpEndReason.CANCELLED if self._client.cancelled else AcpEndReason.ERROR,
                str(failure),
            )

        ways = ", ".join(f"{method.name or method.id:.60}" for method in self._auth_methods[:8])
        return AcpSessionEnd(
            AcpEndReason.SIGN_IN,
            f"it wants somebody to sign in first{f' ({ways})' if ways else ''}",
        )


def _add_usage(before: AcpUsage, now: AcpUsage) -> AcpUsage:
    return AcpUsage(
        before.input_tokens + now.input_tokens,
        before.cached_input_tokens + now.cached_input_tokens,
        before.output_tokens + now.output_tokens,
        now.cost_usd,
    )


def _read_usage(turn: AcpPromptResult, cost_usd: float | None) -> AcpUsage:
    """What the turn used; counts that cannot be read are not counted."""
    try:
        if (tokens := read_json(turn.usage, AcpTokens | None)) is not None:
            read = to_token_count(tokens.cached_read_tokens)
            written = to_token_count(tokens.cached_write_tokens)
            return AcpUsage(
                to_token_count(tokens.input_tokens) + read + written,
                read,
                to_token_count(tokens.output_tokens),
                cost_usd,
            )

        meta = read_json(turn.meta, AcpPromptMeta | None)
        if meta and meta.quota:
            quota = meta.quota.token_count
        else:
            quota = None

        if quota is None:
            return AcpUsage(cost_usd=cost_usd)

        return AcpUsage(
            to_token_count(quota.input_tokens), 0, to_token_count(quota.output_tokens), cost_usd
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return AcpUsage(cost_usd=cost_usd)


def _format_error(error: RpcErrorObject) -> str:
    """The message of an error, and what its data adds: agents put the cause there."""
    data = bytes(error.data).decode("utf-8", "replace")
    if data in ("null", "{}"):
        text = error.message
    else:
        text = f"{error.message}: {data}"

    return f"{text[:2000] or 'no reason given'} (error {error.code})"


def _decode_result(kind: type[Answer], raw: Raw, method: str) -> Answer:
    try:
        return read_json(raw, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AcpProtocolError(
            f"its answer to {method} is not what the protocol says: {str(error)[:200]}"
        ) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
