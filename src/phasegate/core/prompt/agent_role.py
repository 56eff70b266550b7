"""Parse the role that an agent file declares, and build the prompt section for it."""

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
from phasegate.core.workflow.workflow_phases import find_phases_problem, is_printable
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
    """The role of an agent. A phase agent without phases serves the current phase."""

    kind: AgentKind
    phases: tuple[str, ...] = ()
    parent: str = ""
    task: str = ""
    outside_workflows: bool = False


ANY_PHASE_ROLE = AgentRole(AgentKind.PHASE_AGENT)


def parse_declared_role(front_matter: Sequence[str], stem: str) -> AgentRole | None:
    """Parse the role that the front matter of a file declares; None if it declares none."""
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

    is_discover = DISCOVER_ORCHESTRATOR in (stem, _get_scalar(entries, "name"))
    return AgentRole(
        kind=kind,
        phases=phases,
        outside_workflows=is_discover and kind is AgentKind.SUB_ORCHESTRATOR and not phases,
    )


def build_section(role: AgentRole, texts: Mapping[str, str]) -> PromptSection:
    """Build the section for a role from the shipped texts, by name."""
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
        raise ConfigError(
            f"`task: {role.task}` and `parent: {role.parent}` do not fit in a status block",
            "omit the words `complete. Returning results to`",
        ) from error


def _parse_entries(lines: Sequence[str]) -> dict[str, list[str]]:
    """Parse the few entries that are used, as their value and the list items below them.

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
    """Return a value without its quotes, or without a trailing comment."""
    bare = value.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'":
        return bare[1:-1]
    if not bare.startswith("#"):
        return bare.partition(" #")[0].strip()

    return ""


def _get_scalar(entries: Mapping[str, list[str]], key: str) -> str:
    return _unquote(entries.get(key, [""])[0])


def _get_status_text(entries: Mapping[str, list[str]], key: str) -> str:
    """Return a value that goes into the status block."""
    value = _get_scalar(entries, key)

    if value[:1] in ("|", ">"):
        raise ConfigError(
            f"`{key}` is not on one line",
            f"write the text after `{key}:`; it becomes part of a sentence",
        )

    if not is_printable(value):
        if value:
            what = f"`{key}: {value}` is not allowed in a status block"
        else:
            what = f"a sub-agent needs `{key}:`"

        raise ConfigError(what, f"set `{key}` in the front matter, in printable ASCII")

    return value


def _parse_kind(value: str) -> AgentKind | None:
    """Parse the kind that a `role` names.

    A near miss is an error; any other word is meant for another program.
    """
    if value in [*AgentKind]:
        return AgentKind(value)

    close = get_close_matches(value.lower(), [*AgentKind], n=1, cutoff=0.7)
    if close:
        raise ConfigError(f"`role: {value}` is unknown", f"did you mean `role: {close[0]}`?")

    return None


def _parse_phases(values: Sequence[str] | None) -> tuple[str, ...]:
    """Parse the phase keys of `phases: [a, b]` or of a list below `phases:`."""
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
    problem = find_phases_problem(phases)
    if problem:
        raise ConfigError(f"`phases`: {problem}", "write it like `phases: [06-implementation]`")

    return phases
