"""The methods of the protocol, in both of its eras.

Up to 2025-11-25 a client shakes hands (`initialize`) and the server may ask it something in the
middle of a call. From 2026-07-28 on each request says which version it speaks and what the client
can do, and a call that needs a person ends with the question; the client then calls again with the
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from phasegate import __version__
from phasegate.errors import PhasegateError
from phasegate.interfaces.mcp.call_context import McpSession
from phasegate.interfaces.mcp.elicitation import Elicitor, McpClient
from phasegate.interfaces.mcp.jsonrpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Call,
    JsonObject,
    McpError,
)
from phasegate.interfaces.mcp.resources import (
    PROMPTS,
    RESOURCE_TEMPLATES,
    list_resources,
    read_resource,
    render_mcp_prompt,
)
from phasegate.interfaces.mcp.tools import TOOLS, call_tool

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
UNSUPPORTED_VERSION = -32022
RESOURCE_NOT_FOUND = -32002
_META_PREFIX = "io.modelcontextprotocol/"
_SERVER_INFO = {"name": "phasegate", "title": "Phasegate", "version": __version__}
_CAPABILITIES: JsonObject = {"tools": {}, "resources": {}, "prompts": {}}
_INSTRUCTIONS = (
    "Phasegate carries a change through phases with gates, by agents of its own, in worktrees of its own. Begin with "
    "`status`. `start` and `run` begin a feature; the run goes on by itself: follow it with `wait`, call after call. "
    "When it waits for a person, show them `explain` and ask for their decision with `decide`."
)


class McpServer:
    """One client, served in one repository."""

    def __init__(self, folder: Path) -> None:
        self._session = McpSession(folder)
        self._client = McpClient()
        self._methods: dict[str, Callable[[Call, McpClient], JsonObject]] = {
            "ping": lambda *_: {},
            "server/discover": self._discover,
            "tools/list": lambda *_: {"tools": [tool.describe() for tool in TOOLS.values()]},
            "tools/call": self._call_tool,
            "resources/list": lambda *_: {"resources": list_resources(self._session.folder)},
            "resources/templates/list": lambda *_: {"resourceTemplates": [*RESOURCE_TEMPLATES]},
            "resources/read": self._read_resource,
            "prompts/list": lambda *_: {
                "prompts": [prompt.describe() for prompt in PROMPTS.values()]
            },
            "prompts/get": self._get_prompt,
        }

    def handle_call(self, call: Call) -> JsonObject:
        """The result of a request."""
        if call.method == "initialize":
            return self._initialize(call)

        client = self._identify_client(call)
        method = self._methods.get(call.method)
        if method is None:
            raise McpError(METHOD_NOT_FOUND, f"there is no method {call.method}")

        result = method(call, client)
        if client.is_modern:
            return _add_modern_fields(call.method, result)

        return result

    def _initialize(self, call: Call) -> JsonObject:
        wanted = call.params.get("protocolVersion")
        if wanted in HANDSHAKE_VERSIONS:
            version = wanted
        else:
            version = HANDSHAKE_VERSIONS[-1]

        self._client = McpClient.from_client_info(
            call.params.get("clientInfo"), call.params.get("capabilities")
        )
        return {
            "protocolVersion": version,
            "capabilities": _CAPABILITIES,
            "serverInfo": _SERVER_INFO,
            "instructions": _INSTRUCTIONS,
        }

    def _identify_client(self, call: Call) -> McpClient:
        version = call.meta.get(f"{_META_PREFIX}protocolVersion")
        if version is None:
            return self._client

        if version not in MODERN_VERSIONS:
            supported = [*HANDSHAKE_VERSIONS, *MODERN_VERSIONS]
            raise McpError(
                UNSUPPORTED_VERSION,
                f"protocol version {version} is not supported",
                {"supported": supported, "requested": version},
            )

        about, abilities = (
            call.meta.get(f"{_META_PREFIX}{name}") for name in ("clientInfo", "clientCapabilities")
        )
        return McpClient.from_client_info(about, abilities, is_modern=True)

    def _discover(self, _call: Call, _client: McpClient) -> JsonObject:
        return {
            "supportedVersions": [*MODERN_VERSIONS, *HANDSHAKE_VERSIONS],
            "capabilities": _CAPABILITIES,
            "instructions": _INSTRUCTIONS,
        }

    def _call_tool(self, call: Call, client: McpClient) -> JsonObject:
        name = call.params.get("name")
        arguments = call.params.get("arguments", {})
        if isinstance(name, str):
            tool = TOOLS.get(name)
        else:
            tool = None

        if tool is None or not isinstance(arguments, dict):
            raise McpError(
                INVALID_PARAMS, f"there is no tool {name}; known are: {', '.join(TOOLS)}"
            )

        return call_tool(
            tool,
            arguments,
            self._session,
            Elicitor(call, client, self._session.pending_confirmations),
        )

    def _read_resource(self, call: Call, _client: McpClient) -> JsonObject:
        uri = call.params.get("uri")
        try:
            text, kind = read_resource(self._session.folder, uri if isinstance(uri, str) else "")
        except PhasegateError as error:
            raise McpError(RESOURCE_NOT_FOUND, error.message, {"uri": uri}) from error
        return {"contents": [{"uri": uri, "mimeType": kind, "text": text}]}

    def _get_prompt(self, call: Call, _client: McpClient) -> JsonObject:
        name = call.params.get("name")
        arguments = call.params.get("arguments") or {}
        if isinstance(name, str):
            prompt = PROMPTS.get(name)
        else:
            prompt = None

        if prompt is None or not isinstance(arguments, dict):
            raise McpError(
                INVALID_PARAMS, f"there is no prompt {name}; known are: {', '.join(PROMPTS)}"
            )

        try:
            text = render_mcp_prompt(prompt, arguments, self._session.folder)
        except PhasegateError as error:
            raise McpError(INVALID_PARAMS, error.message) from error

        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": prompt.description, "messages": [message]}


def _add_modern_fields(method: str, result: JsonObject) -> JsonObject:
    """What the later era wants in every result; lists say how long they hold."""
    held: JsonObject = {}
    if method.endswith("/list") or method in ("server/discover", "resources/read"):
        held = {"ttlMs": 0, "cacheScope": "private"}
    return {
        "resultType": "complete",
        "_meta": {f"{_META_PREFIX}serverInfo": _SERVER_INFO},
        **held,
        **result,
    }
