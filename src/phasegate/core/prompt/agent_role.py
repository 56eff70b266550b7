"""What an agent file says that its agent is, and the prompt section that is due to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple

from phasegate.core.answer.block import render_status
from phasegate.core.display.next_steps import own_review
from phasegate.core.prompt.agent_file import PROMPTS, PROTOCOL, Section
from phasegate.core.prompt.template import fill_all
from phasegate.core.workflow.workflows import invalid_phases, is_printable
from phasegate.errors import ConfigError

DISCOVER_ORCHESTRATOR = "discover-orchestrator"
_KEYS = ("name", "role", "phases", "parent", "task")
_ENTRY = re.compile(r"([a-z_]+)[ \t]*:(?:[ \t]+(.*))?$")
_LIST_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)$")


class AgentKind(StrEnum):
    ORCHESTRATOR = "orchestrator"
    PHASE_AGENT = "phase-agent"
    SUB_ORCHESTRATOR = "sub-orchestrator"
    SUB_AGENT = "sub-agent"


class Role(NamedTuple):
    """What an agent is. Without phases, a phase agent serves whichever phase is current."""

    kind: AgentKind
    phases: tuple[str, ...] = ()
    parent: str = ""
    task: str = ""
    outside_workflows: bool = False


ANY_PHASE = Role(AgentKind.PHASE_AGENT)


def declared_role(front_matter: Sequence[str], stem: str) -> Role | None:
    """The role that the front matter of a file declares; None when it declares none."""
    entries = _entries(front_matter)
    phases = _phases(entries.get("phases"))
    kind = _kind(_scalar(entries, "role"))
    if kind is None:
        return Role(AgentKind.PHASE_AGENT, phases) if phases else None
    if kind is AgentKind.SUB_AGENT:
        return Role(kind, (), _words(entries, "parent"), _words(entries, "task"))
    discovers = DISCOVER_ORCHESTRATOR in (stem, _scalar(entries, "name"))
    return Role(kind, phases, outside_workflows=discovers and kind is AgentKind.SUB_ORCHESTRATOR and not phases)


def section_for(role: Role, texts: Mapping[str, str]) -> Section:
    """The section that is due to a role, made from the shipped texts by their names."""
    if role.kind is AgentKind.ORCHESTRATOR:
        return Section(PROTOCOL, texts["prompt-emission-protocol"])
    if role.kind is AgentKind.SUB_AGENT:
        return Section(PROMPTS, fill_all(texts["sub-agent"], {"STATUS": _status(role), "PARENT": role.parent}))
    if role.outside_workflows:
        return Section(PROMPTS, texts["discover-orchestrator"])
    if not role.phases:
        return Section(PROMPTS, texts["any-phase"])
    blocks = [fill_all(texts["phase-block"], {"PHASE": key, "REVIEW": own_review(key)}) for key in role.phases]
    keys = " or ".join(f"`phasegate next --phase {key}`" for key in role.phases)
    return Section(
        PROMPTS, fill_all(texts["phase-agent"], {"COMMANDS": keys, "BLOCKS": "\n".join(blocks).rstrip("\n")})
    )


def _status(role: Role) -> str:
    try:
        return render_status(role.task, role.parent).rstrip("\n")
    except ValueError as error:
        hint = "leave the words `complete. Returning results to` to the block"
        raise ConfigError(f"`task: {role.task}` and `parent: {role.parent}` make no status block", hint) from error


def _entries(lines: Sequence[str]) -> dict[str, list[str]]:
    """The few entries that we read, as their value and the list items below them; all others are skipped."""
    entries: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        entry, item = _ENTRY.match(line), _LIST_ITEM.match(line)
        if entry and entry[1] in _KEYS:
            if entry[1] in entries:
                raise ConfigError(f"the front matter sets `{entry[1]}` twice", "keep one of them")
            current = entries[entry[1]] = [entry[2] or ""]
        elif item:
            current.append(item[1])
        elif line.strip() and not line.lstrip().startswith("#"):
            current = []
    return entries


def _plain(value: str) -> str:
    """A value without its quotes, or without the comment after it."""
    bare = value.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'":
        return bare[1:-1]
    return bare.partition(" #")[0].strip() if not bare.startswith("#") else ""


def _scalar(entries: Mapping[str, list[str]], key: str) -> str:
    return _plain(entries.get(key, [""])[0])


def _words(entries: Mapping[str, list[str]], key: str) -> str:
    """A value that goes into the status block."""
    value = _scalar(entries, key)
    if value[:1] in ("|", ">"):
        raise ConfigError(f"`{key}` is not on one line", f"write the words behind `{key}:`; they go into one sentence")
    if not is_printable(value):
        what = f"`{key}: {value}` cannot stand in a status block" if value else f"a sub-agent needs `{key}:`"
        raise ConfigError(what, f"set `{key}` in the front matter, in printable ASCII")
    return value


def _kind(value: str) -> AgentKind | None:
    """The kind that a `role` names. A near miss is a mistake; any other word is not meant for us."""
    if value in [*AgentKind]:
        return AgentKind(value)
    close = get_close_matches(value.lower(), [*AgentKind], n=1, cutoff=0.7)
    if close:
        raise ConfigError(f"`role: {value}` is unknown", f"did you mean `role: {close[0]}`?")
    return None


def _phases(values: Sequence[str] | None) -> tuple[str, ...]:
    """The phase keys of `phases: [a, b]` or of a list below `phases:`."""
    if values is None:
        return ()
    inline, items = _plain(values[0]), values[1:]
    if inline.startswith("[") and inline.endswith("]") and not items:
        items = [part for part in inline[1:-1].split(",") if part.strip()]
    elif inline:
        raise ConfigError(f"`phases: {inline}` is not a list", "write it like `phases: [06-implementation]`")
    phases = tuple(_plain(item) for item in items)
    wrong = invalid_phases(phases)
    if wrong:
        raise ConfigError(f"`phases`: {wrong}", "write it like `phases: [06-implementation]`")
    return phases
