"""Select the documents that an agent is given.

The feature's documents are selected by name, the project's pages by the audience in their front
matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from phasegate.core.prompt.audience import select_document
from phasegate.core.text.yaml_nodes import MalformedDocument
from phasegate.core.workflow.phases import TASKS_FILE
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.prompts.feature_folder import UnreadableDocument, read_document_text
from phasegate.prompts.front_matter import read_document
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.merge import find_fork_point

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
_MAX_PAGES = 20
# Markdown files that are searched for an audience, those near the root first
_MAX_SEARCHED_PAGES = 1_000


class ContextDocument(NamedTuple):
    """A document that is part of an agent's context."""

    name: str
    path: Path
    text: str


def read_context_documents(
    project: Project, slug: str, commit: str, checkout: Path
) -> tuple[ContextDocument, ...]:
    """Read the documents of a feature that are meant for agents.

    Unreadable documents are left out. They come from the commit that the work started from; if it
    has none, from the user's folder.
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
        folder = project.find_feature_folder(slug)
        feature_documents = _select_documents(
            _read_texts(folder, FEATURE_DOCUMENTS), folder, by_name=True
        )

    return tuple(feature_documents)


def read_agent_pages(
    project: Project, base: str, commit: str, checkout: Path
) -> tuple[ContextDocument, ...]:
    """Read the pages of the repository whose `audience` contains agents, wherever they are.

    They are read where `commit` left the branch `base`: what an agent of the feature wrote does
    not instruct the next one. The folder of the features and the project description are left out.
    """
    fork = find_fork_point(project.repository, base, commit) if base else commit
    paths = project.config.paths
    blobs = list_blobs(project.repository, fork, include_links=False)
    names = sorted(
        (
            path
            for path in blobs
            if path.endswith(".md")
            and path != paths.project_file
            and not path.startswith(f"{paths.features}/")
        ),
        key=lambda path: (path.count("/"), path),
    )
    branch = FeatureBranch(project, "")
    texts = branch.read_documents({name: blobs[name] for name in names[:_MAX_SEARCHED_PAGES]})
    pages = {name: text for name, text in texts.items() if text.startswith("---")}
    return tuple(islice(_select_documents(pages, checkout, by_name=False), _MAX_PAGES))


def select_feature_documents(texts: Mapping[str, str]) -> tuple[ContextDocument, ...]:
    """Select the feature documents that an agent receives, in the order of the phases."""
    names = sorted(filter(_is_feature_document, texts), key=order_of_document)
    return tuple(_select_documents({name: texts[name] for name in names}, Path(), by_name=True))


def order_of_document(name: str) -> tuple[int, str]:
    """Return the sort key of a document of the feature's folder: phases first, then names."""
    folder = f"{name.partition('/')[0]}/"
    for index, known in enumerate(FEATURE_DOCUMENTS):
        if known in (name, folder):
            return index, name
    return len(FEATURE_DOCUMENTS), name


def is_planning_document(name: str) -> bool:
    """Return whether a planning phase writes this document of the feature's folder."""
    return name == TASKS_FILE or _is_feature_document(name)


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
