"""Decide which settings of a repository need the user's trust, and describe them.

A cloned repository brings its own `phasegate.toml`. Settings that name programs, hosts, variables,
or that weaken the sandbox, are used only after the user has accepted them. The rest is harmless:
limits within a job, stricter levels, check commands (they run in the sandbox without credentials).
"""

from __future__ import annotations

import hashlib
import json

from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES
from phasegate.core.text.light_tuple import Light

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Key = tuple[str, ...]

# Written by `phasegate trust` only: setups may use the user's registry credentials.
CREDENTIALS_LINE = "credentials"
_HARMLESS_TABLES = ("checks", "roles", "protect", "already_failing")
_HARMLESS_AGENT_KEYS = (
    "harness",
    "timeout_s",
    "first_output_timeout_s",
    "max_retries",
    "mcp_tools",
    "template",
    "fallback",
)
_HARMLESS_RUN_KEYS = (
    "parallel",
    "final_review",
    "merge_feature_folder",
    "question_timeout_s",
    "commit_hooks",
)
# Keys whose stricter values are harmless.
_HARMLESS_VALUES: dict[Key, tuple[object, ...]] = {
    ("run", "sandbox"): ("auto", "worktree", "offline"),
    ("mcp", "decisions"): ("ask", "never"),
    ("merge", "auto_merge"): (False,),
    ("merge", "draft"): (True,),
}
# Phases depend on the workflows that have them.
_WORKFLOW_TABLES = ("workflows", "phases")
_PROGRAM_KEYS = ("command", "commands", "scenario", "harness")
_HOST_KEYS = (
    "allowed_hosts",
    "setup_allowed_hosts",
    "url",
    "urls",
    "endpoint",
    "address",
    "smtp_server",
    "remote",
)
_NOTES: dict[Key, str] = {
    ("notify", "command"): " (runs as you, with your environment)",
    ("run", "sandbox"): " (jobs run as you, without isolation)",
}
_CHECK_NOTE = " (in the sandbox, if there is one)"


class TrustPart(Light):
    """Settings of one table, or a file: accepted as a whole, by its digest."""

    name: str
    # Empty if not all of it could be read: it cannot be accepted
    digest: str
    # Keys and values; empty for a file
    settings: tuple[tuple[Key, object], ...] = ()
    # What a file is for
    purpose: str = ""

    @property
    def line(self) -> str:
        """Return the line that the record of accepted parts has for it.

        A name comes from the repository: a line feed in it must not make a second line.
        """
        return f"{self.name.encode('unicode_escape').decode()} {self.digest}"


class Trust(Light):
    """The parts of a repository that need trust, and those that the user has accepted."""

    parts: tuple[TrustPart, ...] = ()
    accepted: frozenset[str] = frozenset()
    accepts_all: bool = False

    @property
    def untrusted(self) -> tuple[TrustPart, ...]:
        return tuple(part for part in self.parts if not self.accepts(part))

    @property
    def lends_credentials(self) -> bool:
        """Return whether setups may use the user's credentials for registries."""
        return self.accepts_all or CREDENTIALS_LINE in self.accepted

    @property
    def is_accepted(self) -> bool:
        """Return whether the user has accepted the repository, and all that it asks for.

        One that asks for nothing has to be accepted too before its code runs without a sandbox.
        """
        return not self.untrusted and self.lends_credentials

    def accepts(self, part: TrustPart) -> bool:
        return self.accepts_all or (bool(part.digest) and part.line in self.accepted)

    def accepts_path(self, path: str) -> bool:
        """Return whether a file or folder of the repository may be used."""
        return all(part.name != path.rstrip("/") for part in self.untrusted)

    def accepts_text(self, path: str, content: bytes) -> bool:
        """Return whether this content of a file may be used; it may be from a commit."""
        return self.accepts(TrustPart(path, hash_content(content)))


TRUSTS_EVERYTHING = Trust(accepts_all=True)


def hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def hash_parts(parts: Iterable[TrustPart]) -> str:
    """Return one digest of all parts, for PHASEGATE_TRUST."""
    return hash_content("\n".join(sorted(part.line for part in parts)).encode())


def group_settings(settings: Iterable[tuple[Key, object]]) -> tuple[TrustPart, ...]:
    """Return the parts of a configuration file that need trust."""
    tables: dict[str, list[tuple[Key, object]]] = {}
    for key, value in settings:
        # An empty table sets nothing.
        if value != {}:
            tables.setdefault(_name_table(key), []).append((key, value))

    parts = []
    for name, entries in tables.items():
        needing = tuple(sorted(_select_entries(entries), key=lambda entry: entry[0]))
        if needing:
            parts.append(TrustPart(name, _hash_entries(needing), needing))

    return tuple(parts)


def _hash_entries(entries: tuple[tuple[Key, object], ...]) -> str:
    try:
        text = json.dumps(entries, sort_keys=True, default=str)
    except RecursionError:
        # Nested too deep for any setting: the error is reported when the value is converted.
        text = "too deep"
    return hash_content(text.encode("utf-8", "surrogatepass"))


def _name_table(key: Key) -> str:
    """Return the name of the part that a key belongs to. Each agent is accepted on its own."""
    if key[0] == "agents":
        return ".".join(key[:2])
    if key[0] in _WORKFLOW_TABLES:
        return "workflows"
    return key[0]


def _select_entries(entries: list[tuple[Key, object]]) -> list[tuple[Key, object]]:
    """Return the entries of one table that need trust."""
    if entries[0][0][0] == "agents":
        return _select_agent_entries(entries)
    return [(key, value) for key, value in entries if not _is_harmless(key, value)]


def _is_harmless(key: Key, value: object) -> bool:
    if key[0] in _HARMLESS_TABLES:
        return True
    if key[0] == "run" and key[-1] in _HARMLESS_RUN_KEYS:
        return True
    return value in _HARMLESS_VALUES.get(key, ())


def _select_agent_entries(entries: list[tuple[Key, object]]) -> list[tuple[Key, object]]:
    """Return the entries of an agent that need trust.

    For the program of another author, that is its whole table. A known program without a command
    gets its own variables anyway.
    """
    values = {key[-1]: value for key, value in entries}
    row = INSTALLABLE_HARNESSES.get(str(values.get("harness")))
    # `agents.*` would set the variables of one program for another.
    if row is None or "command" in values or entries[0][0][1] == "*":
        return entries

    harmless = [*_HARMLESS_AGENT_KEYS]
    env = values.get("env")
    if isinstance(env, list) and all(name in row.variables for name in env):
        harmless.append("env")
    if values.get("share_sign_in") is False:
        harmless.append("share_sign_in")

    return [(key, value) for key, value in entries if key[-1] not in harmless]


def drop_references(
    values: dict[Key, object], untrusted: Sequence[TrustPart], known_roles: Sequence[str]
) -> None:
    """Remove references to agents and workflows that were dropped.

    `known_roles` are those that exist without workflows of the repository.
    """
    left_out = {key[1] for part in untrusted for key, _ in part.settings if key[0] == "agents"}
    dropped = {name for name in left_out if ("agents", name, "harness") not in values}
    has_all_roles = all(part.name != "workflows" for part in untrusted)

    for key, value in [*values.items()]:
        is_role = key[0] == "roles"
        names_agent = is_role or (key[0] == "agents" and key[-1] == "fallback")
        is_unknown_role = is_role and not has_all_roles and key[1] not in known_roles
        belongs_to_agent = key[0] == "agents" and key[1] in dropped
        if belongs_to_agent or is_unknown_role or (names_agent and value in dropped):
            del values[key]

    competing = values.get(("run", "competing_agents"))
    if isinstance(competing, tuple) and dropped.intersection(competing):
        del values["run", "competing_agents"]


def describe_parts(
    parts: Iterable[TrustPart], commands: Iterable[tuple[Key, object]] = ()
) -> dict[str, list[str]]:
    """Return the requests of the parts by kind: programs, hosts, variables, sandbox, other, files.

    `commands` are those of `[checks]`. Nothing is shortened: a user accepts what is shown.
    """
    asked: dict[str, list[str]] = {}
    for part in parts:
        if part.purpose:
            asked.setdefault("files", []).append(f"{part.name}: {part.purpose}")

        for key, value in part.settings:
            line = _format_setting(key, value, _NOTES.get(key, ""))
            asked.setdefault(_name_kind(key), []).append(line)

    for key, value in commands:
        asked.setdefault("programs", []).append(_format_setting(key, value, _CHECK_NOTE))

    return asked


def _format_setting(key: Key, value: object, note: str) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f"{'.'.join(key)} = {text}{note}"


def _name_kind(key: Key) -> str:
    name = key[-1]
    if key == ("run", "sandbox"):
        return "sandbox"
    if name in _PROGRAM_KEYS:
        return "programs"
    if name in _HOST_KEYS:
        return "hosts"
    if name == "env" or name.endswith("_env") or name == "share_sign_in":
        return "variables"
    return "other"
