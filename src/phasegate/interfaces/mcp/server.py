"""The methods of the MCP protocol, in its older and its modern form.

Up to version 2025-11-25, a client starts with `initialize`, and the server may send it a request
during a call. From 2026-07-28 on, each request names its version and the client's capabilities,
and a call that needs the user ends with the question; the client repeats it with the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from phasegate import __version__
from phasegate.core.text.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from phasegate.errors import PhasegateError
from phasegate.interfaces.mcp.elicitation import Elicitor, McpClient
from phasegate.interfaces.mcp.jsonrpc import Call, JsonObject, McpError
from phasegate.interfaces.mcp.resources import (
    PROMPTS,
    RESOURCE_TEMPLATES,
    list_resources,
    read_resource,
    render_mcp_prompt,
)
from phasegate.interfaces.mcp.tool_arguments import McpSession
from phasegate.interfaces.mcp.tools import TOOLS, call_tool

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
UNSUPPORTED_VERSION = -32022
RESOURCE_NOT_FOUND = -32002
_META_PREFIX = "io.modelcontextprotocol/"
_SERVER_INFO = {"name": "phasegate", "title": "Phasegate", "version": __version__}
_CAPABILITIES: JsonObject = {"tools": {}, "resources": {}, "prompts": {}}
_INSTRUCTIONS = (
    "Phasegate takes a change through phases with gates. It runs its own agents in its own "
    "worktrees. Call `status` first. `start` and `run` start a feature; the run continues in the "
    "background: call `wait` repeatedly to follow it. When it waits for the user, show them "
    "`explain` and ask for their decision with `decide`."
)


class McpServer:
    """Serves one client in one repository."""

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
        """Return the result of a request."""
        if call.method == "initialize":
            return self._initialize(call)

        client = self._identify_client(call)
        method = self._methods.get(call.method)
        if method is None:
            raise McpError(METHOD_NOT_FOUND, f"there is no method {call.method}")

        try:
            result = method(call, client)
        except PhasegateError as error:
            # Such as a store that was recorded on another machine
            raise McpError(INTERNAL_ERROR, f"{error.message}; {error.hint}") from error
        if client.is_modern:
            return _add_modern_fields(call.method, result)

        return result

    def _initialize(self, call: Call) -> JsonObject:
        """Negotiate the protocol version, and store the client's capabilities."""
        version = call.params.get("protocolVersion")
        if version not in HANDSHAKE_VERSIONS:
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
        """Return the client of a call; newer protocol versions send it each time."""
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

        return McpClient.from_client_info(
            call.meta.get(f"{_META_PREFIX}clientInfo"),
            call.meta.get(f"{_META_PREFIX}clientCapabilities"),
            is_modern=True,
        )

    def _discover(self, _call: Call, _client: McpClient) -> JsonObject:
        return {
            "supportedVersions": [*MODERN_VERSIONS, *HANDSHAKE_VERSIONS],
            "capabilities": _CAPABILITIES,
            "instructions": _INSTRUCTIONS,
        }

    def _call_tool(self, call: Call, client: McpClient) -> JsonObject:
        """Call a tool by name; raise McpError for an unknown one."""
        name = call.params.get("name")
        arguments = call.params.get("arguments", {})
        tool = TOOLS.get(name) if isinstance(name, str) else None
        if tool is None or not isinstance(arguments, dict):
            raise McpError(
                INVALID_PARAMS, f"there is no tool {name}; available: {', '.join(TOOLS)}"
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
        """Render a prompt by name; raise McpError for an unknown one."""
        name = call.params.get("name")
        arguments = call.params.get("arguments") or {}
        prompt = PROMPTS.get(name) if isinstance(name, str) else None
        if prompt is None or not isinstance(arguments, dict):
            raise McpError(
                INVALID_PARAMS, f"there is no prompt {name}; available: {', '.join(PROMPTS)}"
            )

        try:
            text = render_mcp_prompt(prompt, arguments, self._session.folder)
        except PhasegateError as error:
            raise McpError(INVALID_PARAMS, error.message) from error

        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": prompt.description, "messages": [message]}


def _add_modern_fields(method: str, result: JsonObject) -> JsonObject:
    """Add the fields that modern clients expect; lists also say how long they may be cached."""
    caching: JsonObject = {}
    if method.endswith("/list") or method in ("server/discover", "resources/read"):
        caching = {"ttlMs": 0, "cacheScope": "private"}
    return {
        "resultType": "complete",
        "_meta": {f"{_META_PREFIX}serverInfo": _SERVER_INFO},
        **caching,
        **result,
    }
