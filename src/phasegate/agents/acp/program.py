"""The ACP client program that runs in the sandbox together with the agent.

Usage: `python -m phasegate.agents.acp.program -- AGENT ...`, with the config on stdin.

It starts the agent, runs one session with it over JSON-RPC, and prints events (`acp.events`), one
per line. The last line is the end. It runs inside the sandbox, so that files that it writes for the
agent have the same restrictions as the agent.
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
# For claude-agent-acp; other agents ignore it. Project settings could send its key to another host.
USER_SETTINGS_ONLY = {"claudeCode": {"options": {"settingSources": ["user"]}}}
REFUSAL_PROMPT = (
    "The last change was refused and not applied: {what}. Continue without it and finish the task "
    "with the requested answer; if that is impossible without the change, say so in a line that "
    "begins with BLOCKER:"
)
MAX_REFUSAL_CHARS = 500
# This agent sends notices "Info: ..." as messages.
INFO_MESSAGE_AGENT = "Copilot"
# The mode that asks before each write has this name in all agents that have one.
ASKING_MODE = "default"
FAILED_EXIT = 70
NOT_STARTED_EXIT = 127
Answer = TypeVar("Answer")


class AcpRequestFailed(Exception):
    """The agent answered a request with an error."""

    def __init__(self, error: RpcErrorObject) -> None:
        super().__init__(_format_error(error))
        self.error = error


class AcpAuthMethod(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    type: str = "agent"

    @property
    def uses_api_key(self) -> bool:
        """Whether this sign-in method uses a key from the environment.

        Other methods need a user and a browser.
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
    """Token counts under the names of the protocol; some agents use `_meta.quota` instead."""

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
    """Run the session; return exit status 0 only if the agent ended its turn by itself."""
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    config = read_json(sys.stdin.buffer.read(), AcpSessionConfig)
    prompt = Path(config.prompt).read_text(encoding="utf-8")

    try:
        # Its own process group, so that its children can be killed with it.
        agent = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
    except OSError as error:
        reason = f"{command[0]} cannot be started: {error.strerror}"
        emit_event(AcpSessionEnd(AcpEndReason.NOT_STARTED, reason))
        return NOT_STARTED_EXIT

    connection = AcpConnection(agent)
    end = AcpConversation(connection, config).run(prompt)
    status = connection.close(config.close_s)
    if end.how is AcpEndReason.EXITED:
        end = msgspec.structs.replace(end, agent_status=status)

    emit_event(end)
    if end.how is AcpEndReason.END_TURN:
        return 0

    return FAILED_EXIT


def _build_file_access(config: AcpSessionConfig) -> AcpFileAccess:
    """Build the file access of an agent from the scope in its configuration."""
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
        # usage of the previous turn, if there was one
        self._previous_usage = AcpUsage()

    def run(self, prompt: str) -> AcpSessionEnd:
        """Run the session. Every outcome is an end; nothing is raised."""
        try:
            self._initialize()
            self._open_session()
            end = self._build_end(self._send_prompt(prompt))

            if end.how is AcpEndReason.END_TURN and self._client.last_refusal:
                # Copilot 1.0 and OpenCode 1.18 silently end their turn after a refusal: ask again.
                refusal = self._client.last_refusal[:MAX_REFUSAL_CHARS]
                end = self._build_end(self._send_prompt(REFUSAL_PROMPT.format(what=refusal)))

            return end
        except AcpStopRequested:
            return AcpSessionEnd(AcpEndReason.CANCELLED, "it was stopped")
        except AcpRequestFailed as failure:
            return self._build_failure_end(failure)
        except AcpReceiveTimeout:
            return AcpSessionEnd(
                AcpEndReason.SILENT, f"it did not answer within {self._config.handshake_s:.0f} s"
            )
        except AcpAgentExited:
            return AcpSessionEnd(
                AcpEndReason.CANCELLED if self._client.cancelled else AcpEndReason.EXITED,
                "it exited before it answered",
            )
        except AcpProtocolError as error:
            return AcpSessionEnd(AcpEndReason.BROKEN, str(error))

    def _initialize(self) -> None:
        """Negotiate the protocol version, and store the agent's capabilities."""
        # The agent writes files through us. It reads them itself, since the sandbox decides what it
        # can see, and gemini 0.61 cannot create a file if it must ask us whether it exists. It runs
        # commands itself, in the same sandbox as this program.
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": True}, "terminal": False}
        client = {"name": "phasegate", "title": "Phasegate", "version": version("phasegate")}
        answer = self._send_request(
            "initialize",
            {
                "protocolVersion": PROTOCOL_VERSION,
                "clientCapabilities": capabilities,
                "clientInfo": client,
            },
            has_deadline=True,
        )

        initialized = _decode_result(AcpInitializeResult, answer, "initialize")
        protocol_version = initialized.protocol_version

        if protocol_version != PROTOCOL_VERSION:
            raise AcpProtocolError(
                f"it speaks version {protocol_version} of the protocol, not {PROTOCOL_VERSION}"
            )

        self._auth_methods = initialized.auth_methods or []
        self._client.sends_info_messages = (
            initialized.agent_info is not None and initialized.agent_info.name == INFO_MESSAGE_AGENT
        )

    def _open_session(self) -> None:
        """Open a session, with an API key sign-in if required, in the mode that asks."""
        try:
            session = self._create_session()
        except AcpRequestFailed as failure:
            method_id = next((item.id for item in self._auth_methods if item.uses_api_key), None)
            if failure.error.code != AUTH_REQUIRED or method_id is None:
                raise

            self._send_request("authenticate", {"methodId": method_id}, has_deadline=True)
            session = self._create_session()

        self._client.session_id = session.session_id
        modes = session.modes or AcpModes()

        if modes.current_mode_id != ASKING_MODE and any(
            mode.id == ASKING_MODE for mode in modes.available_modes
        ):
            change = {"sessionId": session.session_id, "modeId": ASKING_MODE}
            self._send_request("session/set_mode", change, has_deadline=True)

    def _create_session(self) -> AcpSession:
        """Send `session/new` with the MCP server of the job, and return the session."""
        servers = []
        command = shutil.which(MCP_SERVER_COMMAND[0])
        if self._config.has_tools and command:
            server = {
                "name": MCP_SERVER_COMMAND[0],
                "command": command,
                "args": [*MCP_SERVER_COMMAND[1:]],
                "env": [],
            }
            servers.append(server)

        params = {"cwd": self._files.checkout, "mcpServers": servers, "_meta": USER_SETTINGS_ONLY}
        answer = self._send_request("session/new", params, has_deadline=True)

        return _decode_result(AcpSession, answer, "session/new")

    def _send_prompt(self, prompt: str) -> AcpPromptResult:
        content = [{"type": "text", "text": prompt}]
        params = {"sessionId": self._client.session_id, "prompt": content}
        answer = self._send_request("session/prompt", params)

        return _decode_result(AcpPromptResult, answer, "session/prompt")

    def _send_request(
        self, method: str, params: Mapping[str, object], *, has_deadline: bool = False
    ) -> Raw:
        """Send a request and handle other messages until it is answered.

        A turn has no deadline here; the sandbox limits its time.
        """
        request_id = next(self._ids)
        deadline_s = time.monotonic() + self._config.handshake_s if has_deadline else None
        self._connection.send({"id": request_id, "method": method, "params": params})
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

            if message.method is UNSET and message.id == request_id:
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
        """Return how the turn ended, and emit the usage that it added."""
        usage = _read_usage(turn, self._client.cost_usd)
        emit_event(_add_usage(self._previous_usage, usage))
        self._previous_usage = usage

        try:
            how = AcpEndReason(turn.stop_reason)
        except ValueError:
            return AcpSessionEnd(
                AcpEndReason.BROKEN, f"unknown stop reason: {turn.stop_reason!r:.60}"
            )

        if how is not AcpEndReason.END_TURN:
            return AcpSessionEnd(how)

        if self._client.system_error:
            return AcpSessionEnd(
                AcpEndReason.ERROR, self._client.last_text or "it reports an internal error"
            )

        # Copilot 1.0 reports an error of its model as a successful turn.
        if self._client.last_error_text and not usage.output_tokens:
            return AcpSessionEnd(AcpEndReason.ERROR, self._client.last_error_text)

        return AcpSessionEnd(how)

    def _build_failure_end(self, failure: AcpRequestFailed) -> AcpSessionEnd:
        """Return the end of a session after a failed request."""
        if failure.error.code != AUTH_REQUIRED:
            return AcpSessionEnd(
                AcpEndReason.CANCELLED if self._client.cancelled else AcpEndReason.ERROR,
                str(failure),
            )

        reason = "it requires a sign-in"
        if self._auth_methods:
            names = [f"{method.name or method.id:.60}" for method in self._auth_methods[:8]]
            reason += f" ({', '.join(names)})"

        return AcpSessionEnd(AcpEndReason.SIGN_IN, reason)


def _add_usage(previous: AcpUsage, current: AcpUsage) -> AcpUsage:
    return AcpUsage(
        input_tokens=previous.input_tokens + current.input_tokens,
        cached_input_tokens=previous.cached_input_tokens + current.cached_input_tokens,
        output_tokens=previous.output_tokens + current.output_tokens,
        cost_usd=current.cost_usd,
    )


def _read_usage(turn: AcpPromptResult, cost_usd: float | None) -> AcpUsage:
    """Return the usage of a turn; unreadable counts are ignored."""
    try:
        tokens = read_json(turn.usage, AcpTokens | None)
        if tokens is not None:
            cache_read = to_token_count(tokens.cached_read_tokens)
            cache_write = to_token_count(tokens.cached_write_tokens)
            return AcpUsage(
                input_tokens=to_token_count(tokens.input_tokens) + cache_read + cache_write,
                cached_input_tokens=cache_read,
                output_tokens=to_token_count(tokens.output_tokens),
                cost_usd=cost_usd,
            )

        meta = read_json(turn.meta, AcpPromptMeta | None)
        if meta and meta.quota and meta.quota.token_count:
            quota = meta.quota.token_count
            return AcpUsage(
                input_tokens=to_token_count(quota.input_tokens),
                output_tokens=to_token_count(quota.output_tokens),
                cost_usd=cost_usd,
            )

        return AcpUsage(cost_usd=cost_usd)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return AcpUsage(cost_usd=cost_usd)


def _format_error(error: RpcErrorObject) -> str:
    """Format an error's message and its `data`, which is where agents put the cause."""
    text = error.message
    data = bytes(error.data).decode("utf-8", "replace")
    if data not in ("null", "{}"):
        text = f"{text}: {data}"

    return f"{text[:2000] or 'no reason given'} (error {error.code})"


def _decode_result(kind: type[Answer], raw: Raw, method: str) -> Answer:
    try:
        return read_json(raw, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AcpProtocolError(
            f"its answer to {method} violates the protocol: {str(error)[:200]}"
        ) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
