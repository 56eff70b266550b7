"""Name, parse and fill system prompt templates."""

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
    """The purpose of an agent run. The phases of a workflow consist of these."""

    PLAN = "plan"
    CHALLENGE = "challenge"
    IMPLEMENT = "implement"
    REVIEW = "review"
    ARCHIVE = "archive"


class TemplateName(NamedTuple):
    """Agent and phase of a template.

    Only validated names are represented, so that none can leave the folder.
    """

    agent: str
    phase: AgentPhase

    @property
    def file_name(self) -> str:
        return f"{self.agent}-{self.phase}.md"


# The enumeration of the published schema
PUBLISHED_AGENTS = ("GEMINI", "CLAUDE", "CODEX", "BASE")


def describe_schema_mismatch(agent: str) -> str:
    """Return how the metadata of an agent's template differ from the published schema.

    The text is empty if they are valid.
    """
    if agent in PUBLISHED_AGENTS:
        return ""
    return f"{agent} is not in the published schema, which lists {', '.join(PUBLISHED_AGENTS)}"


class SystemTemplateMetadata(msgspec.Struct, frozen=True):
    """Agent, phase, and the variables of a template in order of their first appearance."""

    agent: str
    phase: AgentPhase
    variables: tuple[str, ...]


class FilledTemplate(NamedTuple):
    """A filled template, its variables without a value, and unknown placeholders."""

    text: str
    missing: tuple[str, ...]
    unknown: tuple[str, ...]


def resolve_template_prefix(agent: str) -> str:
    """Return the template prefix of an agent, given its harness or the prefix in any case."""
    if agent in HARNESSES:
        return HARNESSES[agent].template
    return agent.upper()


def parse_template_name(agent: object, phase: object) -> TemplateName | None:
    """Validate a name, or return None for an agent that is not upper case or an unknown phase."""
    if not isinstance(agent, str) or not isinstance(phase, str) or not _AGENT.fullmatch(agent):
        return None
    if phase in tuple(AgentPhase):
        return TemplateName(agent, AgentPhase(phase))
    return None


def parse_file_name(file_name: str) -> TemplateName | None:
    """Parse the output of `TemplateName.file_name`."""
    match = _FILE_NAME.fullmatch(file_name)
    if match:
        return parse_template_name(match[1], match[2])
    return None


def fill_template(template: str, values: Mapping[str, str], missing_note: str) -> FilledTemplate:
    """Fill each placeholder once.

    Values are inserted unchanged: a `{{TASKS}}` inside a value is part of that value's text.

    A known variable without a value leaves the note, with its name for `{name}`. Any other
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
    """Fill every placeholder of a shipped text.

    A missing value is an internal error, raised as a KeyError.
    """
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def list_variables(template: str) -> tuple[str, ...]:
    """Return the names of the placeholders, each once, in order."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(template)))


def build_metadata(name: TemplateName, template: str) -> SystemTemplateMetadata:
    """Build the metadata of a template from its name and text."""
    return SystemTemplateMetadata(name.agent, name.phase, list_variables(template))
