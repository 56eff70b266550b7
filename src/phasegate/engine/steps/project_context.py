"""Collect the context of the project for a prompt: its files, commands and own rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from phasegate.core.plan.companions import find_companions
from phasegate.core.plan.tasks import parse_tasks
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.prompt.budget import ContextPiece, PieceKind
from phasegate.core.prompt.hidden_characters import quote_name
from phasegate.engine.checks.plan import make_check_plans
from phasegate.engine.project.current_specs import get_spec_path, read_current_specs
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.engine.steps.delivery import read_changelog_path
from phasegate.engine.steps.prompt_selection import limit_piece
from phasegate.prompts.front_matter import read_yaml
from phasegate.prompts.shipped_texts import render_note
from phasegate.workspace.repository.commit_log import list_blobs, list_recent_changes
from phasegate.workspace.repository.repository import read_blobs

_CONTRIBUTING = re.compile(r"(?:\.github/|docs/)?CONTRIBUTING(?:\.(?:md|rst|txt))?", re.IGNORECASE)
_MAX_CHARACTERS = 2_000
# Of the base, in which files that were changed together are counted
_MAX_COMMITS = 500


def tree_paths(project: Project, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that the tree of a prompt shows: without Phasegate's own documents.

    These change in every round, and the tree is at the start of a prompt.
    """
    paths_of = project.config.paths
    page_folder = paths_of.project_file.rpartition("/")[0]
    own = tuple(f"{folder}/" for folder in (paths_of.features, page_folder) if folder)
    return tuple(path for path in paths if not path.startswith(own))


def project_pieces(branch: FeatureBranch, commit: str, role: str) -> Iterator[ContextPiece]:
    """Yield the project's commands for a planner, its changelog otherwise, and its CONTRIBUTING.

    Without a changelog to write, an archivist needs neither.
    """
    blobs = list_blobs(branch.project.repository, commit)
    paths = [next((path for path in sorted(blobs) if _CONTRIBUTING.fullmatch(path)), "")]
    if role == "plan":
        whole = WorkPackage(
            work_package_id="feature", title="", feature_slug=branch.slug, file_scope=()
        )
        commands = list_commands(branch, whole, commit)
        lines = [f"- {name}: `{line}`" for name, line in commands.items()]
        text = "\n".join(lines) or render_note("no_commands")
        yield ContextPiece(
            PieceKind.ARTIFACT, "commands.md", f"{render_note('commands')}\n{text}\n"
        )
        yield from _current_specs_piece(branch, commit)
    else:
        changelog = read_changelog_path(branch, commit)
        paths = [changelog, *paths] if changelog else []

    for path in filter(None, paths):
        data = read_blobs(branch.project.repository.place(), [blobs[path]])[blobs[path]]
        piece = ContextPiece(PieceKind.FILE, path, data.decode("utf-8", "surrogateescape"))
        limited = limit_piece(piece, _MAX_CHARACTERS)
        if limited is not None:
            yield limited


def _current_specs_piece(branch: FeatureBranch, commit: str) -> Iterator[ContextPiece]:
    """Yield the current requirements in a line each, and how a change of one is stated."""
    lines = []
    for capability, spec in read_current_specs(branch.project, commit).specs.items():
        path = get_spec_path(branch.project, capability)
        lines += [f"- {one.id} ({path}): {one.summary}" for one in spec.requirements.values()]
    if lines:
        text = "\n".join((render_note("current_specs"), *lines))
        piece = limit_piece(
            ContextPiece(PieceKind.ARTIFACT, "current-specs.md", f"{text}\n"), _MAX_CHARACTERS
        )
        if piece is not None:
            yield piece


def companion_pieces(branch: FeatureBranch, tasks: str, base: str) -> Iterator[ContextPiece]:
    """Yield the files that no task names, but that often changed with a planned file."""
    repository = branch.project.repository
    planned = {path for task in parse_tasks(tasks, read_yaml).tasks for path in task.files}
    companions = find_companions(
        list_recent_changes(repository, base, _MAX_COMMITS), planned, list_blobs(repository, base)
    )
    if companions:
        lines = [
            render_note(
                "companion",
                PATH=quote_name(one.path),
                PLANNED=quote_name(one.planned),
                TOGETHER=str(one.together),
                COMMITS=str(one.commits),
            )
            for one in companions
        ]
        text = "\n- ".join((render_note("companions"), *lines))
        yield ContextPiece(PieceKind.REVISED, "changed-together.md", f"{text}\n")


def list_commands(branch: FeatureBranch, package: WorkPackage, commit: str) -> dict[str, str]:
    """Return the commands that the checks of a package run, by purpose and root."""
    return {
        f"{name} in {check.plan.root}" if check.plan.root else name: line
        for check in make_check_plans(branch.project, package, commit, commit)
        for name, line in check.plan.commands.items()
        if line
    }
