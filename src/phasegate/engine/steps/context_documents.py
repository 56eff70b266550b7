"""Select the documents that an agent is given.

The feature's documents are selected by name, the project's by the audience in their front matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.core.prompt.audience import select_document
from phasegate.core.text.yaml_nodes import MalformedDocument
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.prompts.feature_folder import UnreadableDocument, read_document_text
from phasegate.prompts.front_matter import read_document

# In the order in which a workflow writes them
FEATURE_DOCUMENTS = (
    "quick-scan.md",
    "proposal.md",
    "spec.md",
    "impact-analysis.md",
    "trace-analysis.md",
    "architecture.md",
    "plan.md",
    "specs/",
    "test-strategy.md",
    "upgrade-plan.md",
)
SPECS_PREFIX = "specs/"
PROJECT_DOCUMENTS = ("ARCHITECTURE.md", "GOVERNANCE.md")


class ContextDocument(NamedTuple):
    """A document that is part of an agent's context."""

    name: str
    path: Path
    text: str


def read_context_documents(
    project: Project, slug: str, commit: str, checkout: Path
) -> tuple[ContextDocument, ...]:
    """Read the documents of a feature and of the project that are meant for agents.

    Unreadable documents are left out. The feature's documents come from the commit that the work
    started from; if it has none, from the user's folder.
    """
    branch = FeatureBranch(project, slug)
    blobs = {
        name: blob
        for name, blob in branch.list_documents(commit).items()
        if _is_feature_document(name)
    }

    if blobs:
        feature_documents = _select_documents(
            branch.read_documents(blobs), checkout / branch.folder, by_name=True
        )
    else:
        feature_documents = _select_documents(
            _read_texts(project.features_folder / slug, FEATURE_DOCUMENTS),
            project.features_folder / slug,
            by_name=True,
        )

    return (
        *feature_documents,
        *_select_documents(
            _read_texts(project.root, PROJECT_DOCUMENTS), project.root, by_name=False
        ),
    )


def _is_feature_document(name: str) -> bool:
    return name in FEATURE_DOCUMENTS or (name.startswith(SPECS_PREFIX) and name.endswith(".md"))


def _read_texts(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    texts = {}
    for name in names:
        try:
            texts[name] = read_document_text(folder / name)
        except UnreadableDocument:
            continue

    return texts


def _select_documents(
    texts: Mapping[str, str], folder: Path, by_name: bool
) -> Iterator[ContextDocument]:
    for name, text in texts.items():
        try:
            front = read_document(text).front_matter
        except MalformedDocument:
            continue

        if select_document(front, by_name).is_given:
            yield ContextDocument(name, folder / name, text)
