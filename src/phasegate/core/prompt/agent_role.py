"""What an agent file says that its agent is, and the prompt section that is due to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple

from phasegate.core.answer.block import render_status
from phasegate.core.display.next_steps import review_item
from phasegate.core.prompt.agent_file import PROMPTS_TITLE, PROTOCOL_TITLE, PromptSection
from phasegate.core.prompt.template import fill_placeholders
from phasegate.core.workflow.workflows import find_phases_problem, is_printable
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


class AgentRole(NamedTuple):
    """What an agent is. Without phases, a phase agent serves whichever phase is current."""

    kind: AgentKind
    phases: tuple[str, ...] = ()
    parent: str = ""
    task: str = ""
    outside_workflows: bool = False


ANY_PHASE_ROLE = AgentRole(AgentKind.PHASE_AGENT)


def parse_declared_role(front_matter: Sequence[str], stem: str) -> AgentRole | None:
    """The role that the front matter of a file declares; None when it declares none."""
    entries = _parse_entries(front_matter)
    phases = _parse_phases(entries.get("phases"))
    kind = _parse_kind(_get_scalar(entries, "role"))
    if kind is None:
        if phases:
            return AgentRole(AgentKind.PHASE_AGENT, phases)
        return None

    if kind is AgentKind.SUB_AGENT:
        return AgentRole(
            kind=kind,
            phases=(),
            parent=_get_status_text(entries, "parent"),
            task=_get_status_text(entries, "task"),
        )

    discovers = DISCOVER_ORCHESTRATOR in (stem, _get_scalar(entries, "name"))
    return AgentRole(
        kind=kind,
        phases=phases,
        outside_workflows=discovers and kind is AgentKind.SUB_ORCHESTRATOR and not phases,
    )


def build_section(role: AgentRole, texts: Mapping[str, str]) -> PromptSection:
    """The section that is due to a role, made from the shipped texts by their names."""
    if role.kind is AgentKind.ORCHESTRATOR:
        return PromptSection(PROTOCOL_TITLE, texts["prompt-emission-protocol"])

    if role.kind is AgentKind.SUB_AGENT:
        return PromptSection(
            PROMPTS_TITLE,
            fill_placeholders(
                texts["sub-agent"], {"STATUS": _render_status_block(role), "PARENT": role.parent}
            ),
        )

    if role.outside_workflows:
        return PromptSection(PROMPTS_TITLE, texts["discover-orchestrator"])
    if not role.phases:
        return PromptSection(PROMPTS_TITLE, texts["any-phase"])

    blocks = [
        fill_placeholders(texts["phase-block"], {"PHASE": key, "REVIEW": review_item(key)})
        for key in role.phases
    ]
    keys = " or ".join(f"`phasegate next --phase {key}`" for key in role.phases)

    return PromptSection(
        PROMPTS_TITLE,
        fill_placeholders(
            texts["phase-agent"], {"COMMANDS": keys, "BLOCKS": "\n".join(blocks).rstrip("\n")}
        ),
    )


def _render_status_block(role: AgentRole) -> str:
    try:
        return render_status(role.task, role.parent).rstrip("\n")
    except ValueError as error:
        hint = "leave the words `complete. Returning results to` to the block"
        raise ConfigError(
            f"`task: {role.task}` and `parent: {role.parent}` make no status block", hint
        ) from error


def _parse_entries(lines: Sequence[str]) -> dict[str, list[str]]:
    """The few entries that we read, as their value and the list items below them.

    All others are skipped.
    """
    entries: dict[str, list[str]] = {}
    current: list[str] = []

    for line in lines:
        entry = _ENTRY.match(line)
        item = _LIST_ITEM.match(line)

        if entry and entry[1] in _KEYS:
            if entry[1] in entries:
                raise ConfigError(f"the front matter sets `{entry[1]}` twice", "keep one of them")

            current = entries[entry[1]] = [entry[2] or ""]
        elif item:
            current.append(item[1])
        elif line.strip() and not line.lstrip().startswith("#"):
            current = []

    return entries


def _unquote(value: str) -> str:
    """A value without its quotes, or without the comment after it."""
    bare = value.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'":
        return bare[1:-1]
    if not bare.startswith("#"):
        return bare.partition(" #")[0].strip()

    return ""


def _get_scalar(entries: Mapping[str, list[str]], key: str) -> str:
    return _unquote(entries.get(key, [""])[0])


def _get_status_text(entries: Mapping[str, list[str]], key: str) -> str:
    """A value that goes into the status block."""
    value = _get_scalar(entries, key)

    if value[:1] in ("|", ">"):
        raise ConfigError(
            f"`{key}` is not on one line",
            f"write the words behind `{key}:`; they go into one sentence",
        )

    if not is_printable(value):
        if value:
            what = f"`{key}: {value}` cannot stand in a status block"
        else:
            what = f"a sub-agent needs `{key}:`"

        raise ConfigError(what, f"set `{key}` in the front matter, in printable ASCII")

    return value


def _parse_kind(value: str) -> AgentKind | None:
    """The kind that a `role` names.

    A near miss is a mistake; any other word is not meant for us.
    """
    if value in [*AgentKind]:
        return AgentKind(value)

    close = get_close_matches(value.lower(), [*AgentKind], n=1, cutoff=0.7)
    if close:
        raise ConfigError(f"`role: {value}` is unknown", f"did you mean `role: {close[0]}`?")

    return None


def _parse_phases(values: Sequence[str] | None) -> tuple[str, ...]:
    """The phase keys of `phases: [a, b]` or of a list below `phases:`."""
    if values is None:
        return ()

    inline = _unquote(values[0])
    items = values[1:]

    if inline.startswith("[") and inline.endswith("]") and not items:
        items = [part for part in inline[1:-1].split(",") if part.strip()]
    elif inline:
        raise ConfigError(
            f"`phases: {inline}` is not a list", "write it like `phases: [06-implementation]`"
        )

    phases = tuple(_unquote(item) for item in items)
    wrong = find_phases_problem(phases)
    if wrong:
        raise ConfigError(f"`phases`: {wrong}", "write it like `phases: [06-implementation]`")

    return phases
