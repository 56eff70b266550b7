"""Collect the context of one package for a prompt: its core, and passages of the documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from phasegate.core.plan.tasks import Task, parse_tasks
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.prompt.budget import ContextPiece, PieceKind
from phasegate.core.prompt.excerpt import excerpt_requirements
from phasegate.core.prompt.role_needs import RoleNeed
from phasegate.core.workflow.phases import TASKS_FILE
from phasegate.engine.journal.package import parse_planned_packages
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.steps.context_documents import SPECS_PREFIX, ContextDocument
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.prompts.front_matter import read_yaml
from phasegate.prompts.package_core import render_core
from phasegate.prompts.shipped_texts import load_phrases

# Documents about all packages, of which a package gets an excerpt
_EXCERPTED = ("spec.md", "test-strategy.md")
_TEST_CASE = re.compile(r"\bTC-\d+\b")


def read_package_tasks(workspace: PackageWorkspace, commit: str) -> tuple[Task, ...]:
    """Return the entries of `tasks.md` that the package consists of."""
    branch = FeatureBranch(workspace.project, workspace.package.feature_slug)
    blob = branch.list_documents(commit).get(TASKS_FILE)
    if blob is None or not workspace.package.tasks:
        return ()

    text = branch.read_documents({TASKS_FILE: blob}).get(TASKS_FILE, "")
    wanted = set(workspace.package.tasks)
    return tuple(task for task in parse_tasks(text, read_yaml).tasks if task.id in wanted)


def core_piece(
    workspace: PackageWorkspace,
    tasks: Sequence[Task],
    scope: Iterable[str],
    documents: Mapping[str, str],
    is_review: bool,
) -> ContextPiece:
    """Return the package's core piece; `documents` covers all packages of the feature.

    A reviewer sees the checks in the evidence.
    """
    package = workspace.package
    planned = parse_planned_packages(package.feature_slug, documents)
    others = [one.package for name, one in planned.items() if name != package.work_package_id]
    text = render_core(
        workspace.document,
        package,
        scope=scope,
        tasks=tasks,
        others=others,
        with_checks=not is_review,
    )
    return ContextPiece(PieceKind.TASKS, workspace.document_name, text)


def page_pieces(pages: Iterable[ContextDocument]) -> Iterator[ContextPiece]:
    """Yield the project's agent pages in full; every role gets them."""
    for page in pages:
        yield ContextPiece(PieceKind.REVISED, page.name, page.text)


def document_pieces(
    need: RoleNeed,
    package: WorkPackage,
    tasks: Sequence[Task],
    documents: Iterable[ContextDocument],
) -> Iterator[ContextPiece]:
    """Yield the feature's documents as far as they concern the package."""
    cited = {reference.partition("#")[0] for task in tasks for reference in task.spec}
    # The tasks may name test cases that name no requirement
    cases = {case for task in tasks for case in _TEST_CASE.findall(task.do)}
    ids = {*package.requirements, *cases}

    for document in documents:
        name, text = document.name, document.text
        excerpt = excerpt_requirements(text, ids)
        is_excerpted = need.excerpts and name in _EXCERPTED and bool(package.requirements)

        if is_excerpted and excerpt:
            head = load_phrases().excerpt.format(path=name)
            yield ContextPiece(PieceKind.ARTIFACT, name, head + excerpt)
        elif is_excerpted:
            continue
        elif not name.startswith(SPECS_PREFIX) or not tasks or name in cited or excerpt:
            yield ContextPiece(PieceKind.ARTIFACT, name, text)
