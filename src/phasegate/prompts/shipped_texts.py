"""Load the shipped texts of prompts and reports: phrases, skeletons, instructions, forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tomllib import loads

import msgspec

from phasegate.core.prompt.project_tree import FoldPhrases
from phasegate.core.prompt.role_needs import RoleNeeds
from phasegate.core.prompt.template import fill_placeholders
from phasegate.typed import read_value

_FOLDER = Path(__file__).parent
_SKELETON_FILE_NAMES = {
    "specs/": "capability-spec.md",
    "acceptance/": "acceptance.md",
    "CHANGELOG.md": "changelog-entry.md",
}


class NotePhrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Phrases of the notes on omissions and hidden characters."""

    name: str
    left_out: str
    cut: str
    hidden: str
    hidden_at: str
    hidden_in_name: str
    escaped: str
    entry: str
    more: str


class PromptPhrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Phrases that the assembler adds to a prompt."""

    missing: str
    artifacts: str
    tasks: str
    skeletons_below: str
    # In front of the outline of a long file
    outline: str
    # Behind a diff of which a part was left out
    diff_left_out: str
    diff_documents: str
    excerpt: str
    cut: str
    skeleton: str
    folded: FoldPhrases
    notes: NotePhrases


@cache
def load_phrases() -> PromptPhrases:
    """Load the phrases of the assembler."""
    return read_value(loads(read_shipped("phrases.toml")), PromptPhrases)


def load_skeleton(document: str) -> str | None:
    """Load the skeleton of a document by its name; None if the document has no fixed form."""
    name = _SKELETON_FILE_NAMES.get(document, document)
    known = {path.name for path in (_FOLDER / "skeletons").glob("*.md")}
    if name in known:
        return read_shipped(f"skeletons/{name}")
    return None


def render_skeletons(documents: Iterable[str]) -> str:
    """Render the skeletons of several documents; empty if none of them has one."""
    known = [
        (document, text) for document in documents if (text := load_skeleton(document)) is not None
    ]
    phrase = load_phrases().skeleton
    return "\n\n".join(
        phrase.format(document=document, text=text.rstrip("\n")) for document, text in known
    )


def render_instructions(phase: str, values: Mapping[str, str]) -> str:
    """Render the instructions for a run of a phase."""
    return fill_placeholders(read_shipped(f"instructions/{phase}.md"), values).rstrip() + "\n"


def render_note(name: str, **values: str) -> str:
    """Render one of the short remarks that a run may need."""
    return fill_placeholders(loads(read_shipped("instructions/notes.toml"))[name], values)


def render_report(name: str, values: Mapping[str, str]) -> str:
    """Render a document that Phasegate writes: a shipped form with its values."""
    return fill_placeholders(read_shipped(f"reports/{name}.md"), values).rstrip() + "\n"


@cache
def load_role_needs() -> RoleNeeds:
    """Load the table of what each role gets in its prompt."""
    return read_value(loads(read_shipped("role_needs.toml")), RoleNeeds)


@cache
def read_shipped(name: str) -> str:
    """Return a text file that is shipped in this package."""
    return (_FOLDER / name).read_text(encoding="utf-8")
