"""The shipped words that prompts and reports are made of: sentences, skeletons, instructions, forms. All are data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tomllib import loads

import msgspec

from phasegate.core.prompt.project_tree import FoldPhrases
from phasegate.core.prompt.template import fill_all
from phasegate.typed import read_value

_FOLDER = Path(__file__).parent
_NAMED_OTHERWISE = {"specs/": "capability-spec.md", "CHANGELOG.md": "changelog-entry.md"}


class Notes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    left_out: str
    cut: str
    hidden: str
    hidden_at: str
    hidden_in_name: str
    escaped: str
    entry: str
    more: str


class Phrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    missing: str
    artifacts: str
    tasks: str
    cut: str
    skeleton: str
    folded: FoldPhrases
    notes: Notes


@cache
def phrases() -> Phrases:
    """The assembler's own sentences."""
    return read_value(loads(_shipped("phrases.toml")), Phrases)


def load_skeleton(document: str) -> str | None:
    """The skeleton of a document, by the document's name; None for one that has no fixed form."""
    name = _NAMED_OTHERWISE.get(document, document)
    known = {path.name for path in (_FOLDER / "skeletons").glob("*.md")}
    return _shipped(f"skeletons/{name}") if name in known else None


def skeletons_of(documents: Iterable[str]) -> str:
    """The skeletons of several documents, one below the other; empty if none of them has one."""
    known = [(document, text) for document in documents if (text := load_skeleton(document)) is not None]
    phrase = phrases().skeleton
    return "\n\n".join(phrase.format(document=document, text=text.rstrip("\n")) for document, text in known)


def instructions(phase: str, values: Mapping[str, str]) -> str:
    """What an agent is asked to do in a run of a phase."""
    return fill_all(_shipped(f"instructions/{phase}.md"), values).rstrip() + "\n"


def note(name: str, **values: str) -> str:
    """One of the short remarks that a run may need."""
    return fill_all(loads(_shipped("instructions/notes.toml"))[name], values)


def report(name: str, values: Mapping[str, str]) -> str:
    """A document that we write ourselves: a shipped form with its facts filled in."""
    return fill_all(_shipped(f"reports/{name}.md"), values).rstrip() + "\n"


@cache
def _shipped(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
