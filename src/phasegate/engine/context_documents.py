"""Which documents an agent is given: the feature's own by name, others by the audience in their front matter (D16)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from phasegate.engine.feature_branch import Branch
from phasegate.engine.project import Project
from phasegate.prompts.feature_folder import Unreadable, read_text
from phasegate.prompts.front_matter import read_document
from phasegate.rules.audience import select
from phasegate.rules.front_matter import Malformed

OF_THE_FEATURE = (
    *("proposal.md", "spec.md", "impact-analysis.md", "trace-analysis.md", "architecture.md", "plan.md"),
    *("test-strategy.md", "upgrade-plan.md"),
)
OF_THE_PROJECT = ("ARCHITECTURE.md", "GOVERNANCE.md")


class ContextDocument(NamedTuple):
    """A document that agents of a feature are given."""

    name: str
    path: Path
    text: str


def context_documents(project: Project, slug: str, commit: str, checkout: Path) -> tuple[ContextDocument, ...]:
    """The documents of a feature and of the project that are meant for agents. What cannot be read is not given."""
    committed = _committed(project, slug, commit)
    names = dict.fromkeys((*OF_THE_FEATURE, *sorted(committed)))
    own = (_of_feature(project, slug, name, committed.get(name), checkout) for name in names)
    shared = (ContextDocument(name, project.root / name, _on_disk(project.root / name)) for name in OF_THE_PROJECT)
    return (*(one for one in own if _is_given(one, True)), *(one for one in shared if _is_given(one, False)))


def _of_feature(project: Project, slug: str, name: str, committed: str | None, checkout: Path) -> ContextDocument:
    """A document as the commit that the work began from has it, and so the checkout.

    The person's own folder is named where it has the same, or where the document is not committed yet.
    """
    path = project.features / slug / name
    on_disk = _on_disk(path)
    if committed is None or committed == on_disk:
        return ContextDocument(name, path, on_disk)
    return ContextDocument(name, checkout / project.config.paths.features / slug / name, committed)


def _committed(project: Project, slug: str, commit: str) -> dict[str, str]:
    branch = Branch(project, slug)
    found = branch.documents(commit)
    return branch.read({name: blob for name, blob in found.items() if name in OF_THE_FEATURE or _is_capability(name)})


def _is_capability(name: str) -> bool:
    return name.startswith("specs/") and name.endswith(".md")


def _on_disk(path: Path) -> str:
    try:
        return read_text(path)
    except Unreadable:
        return ""


def _is_given(document: ContextDocument, by_name: bool) -> bool:
    try:
        front = read_document(document.text).front
    except Malformed:
        return False
    return bool(document.text) and select(front, by_name).given
