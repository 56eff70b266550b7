"""The shipped skeletons: what the documents of a phase look like before they are written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from phasegate.prompts.phrases import phrases

_FOLDER = Path(__file__).parent / "skeletons"
_NAMED_OTHERWISE = {"specs/": "capability-spec.md", "CHANGELOG.md": "changelog-entry.md"}


def load_skeleton(document: str) -> str | None:
    """The skeleton of a document, by the document's name; None for one that has no fixed form."""
    shipped = {path.name: path for path in _FOLDER.glob("*.md")}
    path = shipped.get(_NAMED_OTHERWISE.get(document, document))
    return path.read_text(encoding="utf-8") if path else None


def skeletons_of(documents: Iterable[str]) -> str:
    """The skeletons of several documents, one below the other; empty if none of them has one."""
    known = [(document, text) for document in documents if (text := load_skeleton(document)) is not None]
    phrase = phrases().skeleton
    return "\n\n".join(phrase.format(document=document, text=text.rstrip("\n")) for document, text in known)
