"""Which documents an agent is given: the feature's own by name, others by the audience in their front matter (D16)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from phasegate.engine.project import Project
from phasegate.prompts.feature_folder import Unreadable, read_text
from phasegate.prompts.front_matter import read_document
from phasegate.rules.audience import select
from phasegate.rules.front_matter import Malformed

OF_THE_FEATURE = ("proposal.md", "spec.md", "plan.md", "architecture.md", "test-strategy.md")
OF_THE_PROJECT = ("ARCHITECTURE.md", "GOVERNANCE.md")


class ContextDocument(NamedTuple):
    """A document that agents of a feature are given."""

    name: str
    path: Path
    text: str


def context_documents(project: Project, slug: str) -> tuple[ContextDocument, ...]:
    """The documents of a feature and of the project that are meant for agents. What cannot be read is not given."""
    folder = project.features / slug
    return (*_given(folder, OF_THE_FEATURE, by_name=True), *_given(project.root, OF_THE_PROJECT, by_name=False))


def _given(folder: Path, names: tuple[str, ...], by_name: bool) -> Iterator[ContextDocument]:
    for name in names:
        try:
            text = read_text(folder / name)
            front = read_document(text).front
        except (Unreadable, Malformed):
            continue
        if select(front, by_name).given:
            yield ContextDocument(name, folder / name, text)
