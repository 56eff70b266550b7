"""MCP resources (the documents and the journal of a feature) and prompts (specify, unblock)."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from phasegate.engine.views.artifacts import ArtifactFiles
from phasegate.engine.views.feature import feature_view
from phasegate.engine.views.follow import JournalFollower
from phasegate.engine.views.overview import list_features, open_reader, require_reader
from phasegate.errors import ConfigError
from phasegate.interfaces.mcp.jsonrpc import JsonObject

JOURNAL = "journal"
MAX_DOCUMENT_CHARS = 1_000_000
_MAX_LISTED = 200
_URI_PREFIX = "phasegate://feature/"
RESOURCE_TEMPLATES: tuple[JsonObject, ...] = (
    {
        "uriTemplate": f"{_URI_PREFIX}{{slug}}/{{+path}}",
        "name": "document",
        "mimeType": "text/markdown",
    },
    {"uriTemplate": f"{_URI_PREFIX}{{slug}}/{JOURNAL}", "name": JOURNAL, "mimeType": "text/plain"},
)


class McpPrompt(NamedTuple):
    """A prompt that the user can choose in the client; `{}` is replaced by the argument."""

    name: str
    description: str
    argument_name: str
    argument_description: str
    is_required: bool
    text: str

    def describe(self) -> JsonObject:
        argument = {
            "name": self.argument_name,
            "description": self.argument_description,
            "required": self.is_required,
        }
        return {"name": self.name, "description": self.description, "arguments": [argument]}


PROMPTS = {
    prompt.name: prompt
    for prompt in (
        McpPrompt(
            name="specify",
            description="Discuss an idea, then start it as a feature",
            argument_name="wish",
            argument_description="what you want, in a sentence",
            is_required=True,
            text="I want: {}\n\nRead the parts of this repository that it concerns. Ask me what is "
            "open (users, limits, errors, what is out of scope), a few questions at a time. Then "
            "write the description in my words, with testable requirements, and show it to me. "
            "When I agree, start it with the tool `start` (type `feature`, or `fix` or `quick` "
            "where that fits) and `run`. Follow it with `wait` and tell me when it needs me.",
        ),
        McpPrompt(
            name="unblock",
            description="Find out why a feature waits, and what to decide",
            argument_name="feature",
            argument_description="e.g. 001-login",
            is_required=True,
            text="{}\n\nFind out why with `status` and `artifact`. Tell me in a few sentences what "
            "happened, what the options are and which one you recommend. When I have decided, "
            "order it with `decide`.",
        ),
    )
}


def render_mcp_prompt(prompt: McpPrompt, arguments: JsonObject, folder: Path) -> str:
    """Fill the argument into a prompt."""
    given = arguments.get(prompt.argument_name)
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(
            f"{prompt.name} needs {prompt.argument_name}", prompt.argument_description
        )

    argument = given.strip()
    if prompt.argument_name == "feature":
        argument = _describe_waiting_feature(folder, argument)
    return prompt.text.format(argument)


def _describe_waiting_feature(folder: Path, slug: str) -> str:
    """Describe why a feature waits and which orders are allowed."""
    view = feature_view(require_reader(str(folder)), slug)
    if view is None:
        raise ConfigError(
            f"nothing is recorded for feature {slug}", "the tool `status` lists the features"
        )

    now = view.now
    lines = [f"{slug} is {now.stage} in {now.phase}: {now.reason or 'no reason is recorded'}"]
    if now.findings:
        lines.append(f"Findings:\n{now.findings}")
    if now.remediation:
        lines.append(f"What to do: {now.remediation}")
    lines.append(f"Allowed orders: {', '.join(now.orders)}")

    return "\n".join(lines)


def list_resources(folder: Path) -> list[JsonObject]:
    """List the documents and the journal of all features.

    Documents of packages are many: they can be read, but are not listed.
    """
    with open_reader(str(folder)) or nullcontext() as reader:
        slugs = list_features(reader) if reader else []

    journals = [(slug, JOURNAL, "text/plain") for slug in slugs]
    documents = [
        (artifact.feature_slug, artifact.path, "text/markdown")
        for artifact in ArtifactFiles(folder).list_artifacts()
        if not artifact.path.startswith("tasks/")
    ]

    return [
        {
            "uri": f"{_URI_PREFIX}{quote(slug)}/{quote(path)}",
            "name": f"{slug}/{path}",
            "mimeType": mime_type,
        }
        for slug, path, mime_type in [*journals, *documents][:_MAX_LISTED]
    ]


def read_resource(folder: Path, uri: str) -> tuple[str, str]:
    """Return the text of a resource and its MIME type."""
    slug, slash, path = uri.removeprefix(_URI_PREFIX).partition("/")
    if not uri.startswith(_URI_PREFIX) or not slash:
        raise ConfigError(f"there is no resource {uri[:200]}", f"use {_URI_PREFIX}SLUG/PATH")

    slug = unquote(slug)
    path = unquote(path)
    if path == JOURNAL:
        return _read_journal(folder, slug), "text/plain"

    text = ArtifactFiles(folder).read(slug, path).decode("utf-8", "replace")
    return text[:MAX_DOCUMENT_CHARS], "text/markdown"


def _read_journal(folder: Path, slug: str) -> str:
    with require_reader(str(folder)) as reader:
        # Raises if there is no such feature
        list_features(reader, slug)
        lines = [
            f"{event.ts} {event.line}"
            for event in JournalFollower(reader, slug, after=0).read_reported_events()
            if event.line
        ]

    return "\n".join(lines)[-MAX_DOCUMENT_CHARS:]
