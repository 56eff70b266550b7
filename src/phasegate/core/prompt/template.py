"""System prompt templates as text: their names, their placeholders, and filling them in one pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from phasegate.core.agents.harnesses import HARNESSES

BASE_AGENT = "BASE"
TEMPLATE_VARIABLES = ("PROJECT_CONTEXT", "PROJECT_STRUCTURE", "ARTIFACTS", "SKELETON", "TASKS")

KNOWN_AGENTS = frozenset({BASE_AGENT, *(row.template for row in HARNESSES.values())})

_PLACEHOLDER = re.compile(r"\{\{([A-Z][A-Z0-9_]*)\}\}")
_AGENT = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_FILE_NAME = re.compile(r"([A-Z][A-Z0-9_]{0,63})-([a-z]+)\.md")


class AgentPhase(StrEnum):
    """What an agent run is for. The phases of a workflow are made of these."""

    PLAN = "plan"
    CHALLENGE = "challenge"
    IMPLEMENT = "implement"
    REVIEW = "review"
    ARCHIVE = "archive"


class TemplateName(NamedTuple):
    """Which agent and phase a template is for.

    Only checked names become one, so that none can leave the folder.
    """

    agent: str
    phase: AgentPhase

    @property
    def file_name(self) -> str:
        return f"{self.agent}-{self.phase}.md"


# The enumeration of the published schema
PUBLISHED_AGENTS = ("GEMINI", "CLAUDE", "CODEX", "BASE")


def describe_schema_mismatch(agent: str) -> str:
    """How the metadata of an agent's template stand to the published schema.

    Nothing to say where they are valid.
    """
    if agent in PUBLISHED_AGENTS:
        return ""
    return f"{agent} is none of {', '.join(PUBLISHED_AGENTS)}, which the published schema lists: an agent of your own"


class SystemTemplateMetadata(msgspec.Struct, frozen=True):
    """What a template is for, and the variables that it names, in the order of their first
    appearance.
    """

    agent: str
    phase: AgentPhase
    variables: tuple[str, ...]


class FilledTemplate(NamedTuple):
    """A filled template; which of our variables had no value, and which placeholders are none of
    ours.
    """

    text: str
    missing: tuple[str, ...]
    unknown: tuple[str, ...]


def resolve_template_prefix(agent: str) -> str:
    """The prefix of an agent that is named by its harness or by the prefix itself, in any case."""
    if agent in HARNESSES:
        return HARNESSES[agent].template
    return agent.upper()


def parse_template_name(agent: object, phase: object) -> TemplateName | None:
    """The checked name; None for an agent that is not upper case and an unknown phase."""
    if not isinstance(agent, str) or not isinstance(phase, str) or not _AGENT.fullmatch(agent):
        return None
    if phase in tuple(AgentPhase):
        return TemplateName(agent, AgentPhase(phase))
    return None


def parse_file_name(file_name: str) -> TemplateName | None:
    """The inverse of `file_name`."""
    match = _FILE_NAME.fullmatch(file_name)
    if match:
        return parse_template_name(match[1], match[2])
    return None


def fill_template(template: str, values: Mapping[str, str], missing_note: str) -> FilledTemplate:
    """Fill each placeholder once.

    Values go in untouched: a `{{TASKS}}` inside a value is that value's text.

    A variable of ours without a value leaves the note, with its name for `{name}`. Any other
    placeholder stays.
    """
    absent: dict[str, None] = {}

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in values:
            return values[name]

        absent[name] = None
        if name in TEMPLATE_VARIABLES:
            return missing_note.replace("{name}", name)

        return match[0]

    text = _PLACEHOLDER.sub(value, template)

    return FilledTemplate(
        text,
        tuple(n for n in absent if n in TEMPLATE_VARIABLES),
        tuple(n for n in absent if n not in TEMPLATE_VARIABLES),
    )


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """A shipped text with every placeholder filled.

    One without a value is a mistake of ours, and a KeyError.
    """
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def list_variables(template: str) -> tuple[str, ...]:
    """The placeholders' names, each once, in order."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(template)))


def build_metadata(name: TemplateName, template: str) -> SystemTemplateMetadata:
    """What the template says about itself."""
    return SystemTemplateMetadata(name.agent, name.phase, list_variables(template))
