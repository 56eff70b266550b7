"""The methods of the protocol, in both of its eras.

Up to 2025-11-25 a client shakes hands (`initialize`) and the server may ask it something in the middle of a call. From
2026-07-28 on each request says which version it speaks and what the client can do, and a call that needs a person ends
with the question; the client then calls again with the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from phasegate import __version__
from phasegate.errors import PhasegateError
from phasegate.interfaces.mcp.call_context import McpDesk
from phasegate.interfaces.mcp.elicitation import McpPeer, Question
from phasegate.interfaces.mcp.jsonrpc import INVALID_PARAMS, NO_SUCH_METHOD, Call, Fields, McpError
from phasegate.interfaces.mcp.resources import PROMPTS, RESOURCE_TEMPLATES, list_resources, prompt_text, read_resource
from phasegate.interfaces.mcp.tools import TOOLS, call_tool

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
UNSUPPORTED_VERSION, NO_SUCH_RESOURCE = -32022, -32002
_KEY = "io.modelcontextprotocol/"
_SERVER = {"name": "phasegate", "title": "Phasegate", "version": __version__}
_CAPABILITIES: Fields = {"tools": {}, "resources": {}, "prompts": {}}
_INSTRUCTIONS = (
    "Phasegate carries a change through phases with gates, by agents of its own, in worktrees of its own. Begin with "
    "`status`. `start` and `run` begin a feature; the run goes on by itself: follow it with `wait`, call after call. "
    "When it waits for a person, show them `explain` and ask for their decision with `decide`."
)


class Server:
    """One client, served in one repository."""

    def __init__(self, folder: Path) -> None:
        self._desk = McpDesk(folder)
        self._client = McpPeer()
        self._methods: dict[str, Callable[[Call, McpPeer], Fields]] = {
            "ping": lambda *_: {},
            "server/discover": self._discover,
            "tools/list": lambda *_: {"tools": [tool.listed() for tool in TOOLS.values()]},
            "tools/call": self._call_tool,
            "resources/list": lambda *_: {"resources": list_resources(self._desk.folder)},
            "resources/templates/list": lambda *_: {"resourceTemplates": [*RESOURCE_TEMPLATES]},
            "resources/read": self._read_resource,
            "prompts/list": lambda *_: {"prompts": [prompt.listed() for prompt in PROMPTS.values()]},
            "prompts/get": self._get_prompt,
        }

    def answer(self, call: Call) -> Fields:
        """The result of a request."""
        if call.method == "initialize":
            return self._shake_hands(call)
        client = self._client_of(call)
        method = self._methods.get(call.method)
        if method is None:
            raise McpError(NO_SUCH_METHOD, f"there is no method {call.method}")
        result = method(call, client)
        return _modern(call.method, result) if client.is_modern else result

    def _shake_hands(self, call: Call) -> Fields:
        wanted = call.params.get("protocolVersion")
        version = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        self._client = McpPeer.of(call.params.get("clientInfo"), call.params.get("capabilities"))
        return {
            "protocolVersion": version,
            "capabilities": _CAPABILITIES,
            "serverInfo": _SERVER,
            "instructions": _INSTRUCTIONS,
        }

    def _client_of(self, call: Call) -> McpPeer:
        version = call.meta.get(f"{_KEY}protocolVersion")
        if version is None:
            return self._client
        if version not in MODERN_VERSIONS:
            supported = [*HANDSHAKE_VERSIONS, *MODERN_VERSIONS]
            raise McpError(
                UNSUPPORTED_VERSION,
                f"protocol version {version} is not supported",
                {"supported": supported, "requested": version},
            )
        about, abilities = (call.meta.get(f"{_KEY}{name}") for name in ("clientInfo", "clientCapabilities"))
        return McpPeer.of(about, abilities, is_modern=True)

    def _discover(self, _call: Call, _client: McpPeer) -> Fields:
        return {
            "supportedVersions": [*MODERN_VERSIONS, *HANDSHAKE_VERSIONS],
            "capabilities": _CAPABILITIES,
            "instructions": _INSTRUCTIONS,
        }

    def _call_tool(self, call: Call, client: McpPeer) -> Fields:
        name, arguments = call.params.get("name"), call.params.get("arguments", {})
        tool = TOOLS.get(name) if isinstance(name, str) else None
        if tool is None or not isinstance(arguments, dict):
            raise McpError(INVALID_PARAMS, f"there is no tool {name}; known are: {', '.join(TOOLS)}")
        return call_tool(tool, arguments, self._desk, Question(call, client, self._desk.states))

    def _read_resource(self, call: Call, _client: McpPeer) -> Fields:
        uri = call.params.get("uri")
        try:
            text, kind = read_resource(self._desk.folder, uri if isinstance(uri, str) else "")
        except PhasegateError as error:
            raise McpError(NO_SUCH_RESOURCE, error.message, {"uri": uri}) from error
        return {"contents": [{"uri": uri, "mimeType": kind, "text": text}]}

    def _get_prompt(self, call: Call, _client: McpPeer) -> Fields:
        name, arguments = call.params.get("name"), call.params.get("arguments") or {}
        prompt = PROMPTS.get(name) if isinstance(name, str) else None
        if prompt is None or not isinstance(arguments, dict):
            raise McpError(INVALID_PARAMS, f"there is no prompt {name}; known are: {', '.join(PROMPTS)}")
        try:
            text = prompt_text(prompt, arguments, self._desk.folder)
        except PhasegateError as error:
            raise McpError(INVALID_PARAMS, error.message) from error
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": prompt.description, "messages": [message]}


def _modern(method: str, result: Fields) -> Fields:
    """What the later era wants in every result; lists say how long they hold."""
    held: Fields = {}
    if method.endswith("/list") or method in ("server/discover", "resources/read"):
        held = {"ttlMs": 0, "cacheScope": "private"}
    return {"resultType": "complete", "_meta": {f"{_KEY}serverInfo": _SERVER}, **held, **result}
