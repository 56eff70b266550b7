"""Build the launch of a known agent program: its command, its prompt, its network access."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from phasegate.agents.port import AgentTask, Launch
from phasegate.agents.programs.command import build_run_env, resolve_repository_files
from phasegate.core.agents.harnesses import HarnessRow

UPPERCASE_PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
PROXY_VARIABLES = (
    *UPPERCASE_PROXY_VARIABLES,
    *(name.lower() for name in UPPERCASE_PROXY_VARIABLES),
)
# The job's own command, which is first on its PATH.
MCP_SERVER_COMMAND = ("phasegate", "mcp")
# A question may have to wait for the user.
TOOL_TIMEOUT_S = 1_800
CERTIFICATE_VARIABLES = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR")
ESCAPED_AT = b"&#64;"
_MENTION = re.compile(rb"@([^\s,;!?()\[\]{}<>]+)")


def build_launch(
    task: AgentTask,
    row: HarnessRow,
    arguments: Iterable[str],
    *,
    env: Mapping[str, str] | None = None,
    home_files: Mapping[str, bytes] | None = None,
    stdin: bytes | None = None,
) -> Launch:
    """Build the launch of a known program.

    The prompt's XML goes to its stdin, because an argument can have at most 128 KiB.
    """
    pass_env = (*row.variables, *PROXY_VARIABLES, *CERTIFICATE_VARIABLES, *task.agent.env)
    if task.agent.command:
        command = resolve_repository_files(task.repository, task.agent.command)
    else:
        command = row.command

    return Launch(
        argv=(*command, *arguments),
        stdin=task.prompt_xml if stdin is None else stdin,
        network=True,
        env={**build_run_env(task), **(env or {})},
        pass_env=tuple(dict.fromkeys(pass_env)),
        home_files=home_files or {},
        sign_in_files=row.sign_in_files,
    )


def escape_mentions(task: AgentTask) -> bytes:
    """Return the prompt with each `@path` of an existing file or folder escaped.

    A program would insert the file, or the whole folder. The `@` becomes an XML character reference
    (the prompt is XML).
    """
    return _MENTION.sub(
        lambda mention: _escape_mention(mention, task.checkout), task.prompt_xml.read_bytes()
    )


def _escape_mention(mention: re.Match[bytes], checkout: Path) -> bytes:
    name = os.fsdecode(mention[1])
    paths = {name, name.rstrip(".:'"), name.partition("#")[0]} - {""}
    exists = any(os.path.lexists(checkout / path) for path in paths)
    if exists or name.startswith(('"', "agent-")) or "\\" in name:
        return ESCAPED_AT + mention[1]
    return mention[0]


def model_option(task: AgentTask, flag: str) -> tuple[str, ...]:
    """Return the option for the configured model; empty for the program's default."""
    if task.agent.model:
        return (flag, task.agent.model)
    return ()


def encode_settings(settings: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(settings), indent=2)
