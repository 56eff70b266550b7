"""What the known agent programs have in common.

Their command, their prompt, and their way to the network.
"""

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
# The one of the job, which is first on its PATH
MCP_SERVER_COMMAND = ("phasegate", "mcp")
# A question may wait for its person
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
    """The launch of a known program.

    The prompt's XML goes to its stdin, whole: an argument holds 128 KiB at most.
    """
    if task.agent.command:
        command = resolve_repository_files(task.repository, task.agent.command)
    else:
        command = row.command

    return Launch(
        argv=(*command, *arguments),
        stdin=task.prompt_xml if stdin is None else stdin,
        network=True,
        env={**build_run_env(task), **(env or {})},
        pass_env=tuple(
            dict.fromkeys(
                (*row.variables, *PROXY_VARIABLES, *CERTIFICATE_VARIABLES, *task.agent.env)
            )
        ),
        home_files=home_files or {},
        sign_in_files=row.sign_in_files,
    )


def escape_mentions(task: AgentTask) -> bytes:
    """The prompt with no `@path` of what is there: a program would read it in, whole folders too.

    Such an `@` is written as a reference of XML, which the prompt is.
    """
    return _MENTION.sub(
        lambda found: _escape_mention(found, task.checkout), task.prompt_xml.read_bytes()
    )


def _escape_mention(found: re.Match[bytes], checkout: Path) -> bytes:
    name = os.fsdecode(found[1])
    paths = {name, name.rstrip(".:'"), name.partition("#")[0]} - {""}
    is_file = any(os.path.lexists(checkout / path) for path in paths)
    if is_file or name.startswith(('"', "agent-")) or "\\" in name:
        return ESCAPED_AT + found[1]
    return found[0]


def model_option(task: AgentTask, flag: str) -> tuple[str, ...]:
    """The configured model, or the program's own choice."""
    if task.agent.model:
        return (flag, task.agent.model)
    return ()


def encode_settings(settings: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(settings), indent=2)
