"""Which documents an agent is given: the feature's own by name, others by the audience in their front matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.core.prompt.audience import select
from phasegate.core.prompt.budget import Piece, PieceKind
from phasegate.core.text.yaml_nodes import Malformed
from phasegate.engine.project.feature_branch import Branch
from phasegate.engine.project.project import Project
from phasegate.prompts.agent_files import file_of_phase
from phasegate.prompts.feature_folder import Unreadable, read_text
from phasegate.prompts.front_matter import read_document

OF_THE_FEATURE = (
    *("proposal.md", "spec.md", "impact-analysis.md", "trace-analysis.md", "architecture.md", "plan.md"),
    *("test-strategy.md", "upgrade-plan.md"),
)
SPECS = "specs/"
OF_THE_PROJECT = ("ARCHITECTURE.md", "GOVERNANCE.md")


class ContextDocument(NamedTuple):
    """A document that agents of a feature are given."""

    name: str
    path: Path
    text: str


def context_documents(project: Project, slug: str, commit: str, checkout: Path) -> tuple[ContextDocument, ...]:
    """The documents of a feature and of the project that are meant for agents. What cannot be read is not given.

    The feature's own come from the commit that the work began with; where it has none, from the person's folder.
    """
    branch = Branch(project, slug)
    named = {name: blob for name, blob in branch.documents(commit).items() if _is_of_the_feature(name)}
    if named:
        own = _given(branch.read(named), checkout / branch.folder, by_name=True)
    else:
        own = _given(_texts(project.features / slug, OF_THE_FEATURE), project.features / slug, by_name=True)
    return (*own, *_given(_texts(project.root, OF_THE_PROJECT), project.root, by_name=False))


def role_of_phase(phase: str) -> Iterator[Piece]:
    """The agent file of a phase, which is the job description of its agents."""
    if (file := file_of_phase(phase)) is not None:
        yield Piece(PieceKind.ROLE, file.name, file.text)


def _is_of_the_feature(name: str) -> bool:
    return name in OF_THE_FEATURE or (name.startswith(SPECS) and name.endswith(".md"))


def _texts(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = read_text(folder / name)
        except Unreadable:
            continue
    return found


def _given(texts: Mapping[str, str], folder: Path, by_name: bool) -> Iterator[ContextDocument]:
    for name, text in texts.items():
        try:
            front = read_document(text).front
        except Malformed:
            continue
        if select(front, by_name).given:
            yield ContextDocument(name, folder / name, text)
