"""Resources (the documents of a feature, and its journal) and prompts (to specify, and to unblock)."""

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
# Characters
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
    """Words that a person can choose in their program; `{}` is what they add."""

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
            description="Talk a wish through, then begin it as a feature",
            argument_name="wish",
            argument_description="what you want, in a sentence",
            is_required=True,
            text="I want: {}\n\nRead what of this repository it concerns. Ask me what is open (users, bounds, errors, what "
            "is out of scope), a few questions at a time. Then write the description in my words, with requirements "
            "that can be tested, show it to me, and when I agree begin it with the tool `start` (type `feature`, or "
            "`fix` or `quick` where that fits) and `run`. Follow it with `wait` and tell me when it needs me.",
        ),
        McpPrompt(
            name="unblock",
            description="Find out why a feature waits, and what to decide",
            argument_name="feature",
            argument_description="e.g. 001-login",
            is_required=True,
            text="{}\n\nFind out what is behind it with `status` and `artifact`. Tell me in a few sentences what happened, "
            "what the choices are and which one you would take. When I have decided, order it with `decide`.",
        ),
    )
}


def render_mcp_prompt(prompt: McpPrompt, arguments: JsonObject, folder: Path) -> str:
    """The words of a prompt with what the person added."""
    given = arguments.get(prompt.argument_name)
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(
            f"{prompt.name} needs {prompt.argument_name}", prompt.argument_description
        )

    said = given.strip()
    return prompt.text.format(
        _describe_waiting_feature(folder, said) if prompt.argument_name == "feature" else said
    )


def _describe_waiting_feature(folder: Path, slug: str) -> str:
    view = feature_view(require_reader(str(folder)), slug)
    if view is None:
        raise ConfigError(
            f"nothing is recorded of feature {slug}", "the tool `status` lists the features"
        )

    now = view.now
    lines = [f"{slug} is {now.stage} in {now.phase}: {now.reason or 'no reason is on record'}"]
    lines += [f"Findings:\n{now.findings}"] if now.findings else []
    lines += [f"What to do: {now.remediation}"] if now.remediation else []

    return "\n".join((*lines, f"Allowed orders: {', '.join(now.orders)}"))


def list_resources(folder: Path) -> list[JsonObject]:
    """The documents of all features, and a journal each."""
    with open_reader(str(folder)) or nullcontext() as reader:
        journals = [
            (slug, JOURNAL, "text/plain") for slug in (list_features(reader) if reader else [])
        ]

    documents = [
        (one.feature_slug, one.path, "text/markdown")
        for one in ArtifactFiles(folder).list_artifacts()
    ]
    found = [*journals, *documents][:_MAX_LISTED]

    return [
        {
            "uri": f"{_URI_PREFIX}{quote(slug)}/{quote(path)}",
            "name": f"{slug}/{path}",
            "mimeType": kind,
        }
        for slug, path, kind in found
    ]


def read_resource(folder: Path, uri: str) -> tuple[str, str]:
    """The text behind an address, and its kind."""
    slug, slash, path = uri.removeprefix(_URI_PREFIX).partition("/")
    if not uri.startswith(_URI_PREFIX) or not slash:
        raise ConfigError(
            f"there is no resource {uri[:200]}", f"its form is {_URI_PREFIX}SLUG/PATH"
        )

    slug = unquote(slug)
    path = unquote(path)
    if path == JOURNAL:
        return _read_journal(folder, slug), "text/plain"

    return ArtifactFiles(folder).read(slug, path).decode("utf-8", "replace")[
        :MAX_DOCUMENT_CHARS
    ], "text/markdown"


def _read_journal(folder: Path, slug: str) -> str:
    with require_reader(str(folder)) as reader:
        # Or a refusal
        list_features(reader, slug)
        told = [
            f"{event.ts} {event.line}"
            for event in JournalFollower(reader, slug, after=0).read_reported_events()
            if event.line
        ]

    return "\n".join(told)[-MAX_DOCUMENT_CHARS:]
