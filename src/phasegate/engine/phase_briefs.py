"""What an agent of a phase is told and shown: role, request, documents, the change, the findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from phasegate.agents.port import NOTHING
from phasegate.engine.context_documents import role_of_phase
from phasegate.engine.feature_branch import Branch
from phasegate.engine.job_end import Assigned
from phasegate.engine.project import Project
from phasegate.engine.staffing import Member
from phasegate.prompts.shipped_words import instructions, note
from phasegate.rules.budget import Piece, PieceKind
from phasegate.rules.feature_state import ROLES, Feature, Step
from phasegate.rules.phase import Work
from phasegate.rules.scope import Scope
from phasegate.workspace.commit_log import blobs_of, diff_text
from phasegate.workspace.merge import fork_point

CHANGELOG = "CHANGELOG.md"
_FORMS = {"review": "feature-review"}
_OF_PACKAGES = "tasks/"


def brief(project: Project, feature: Feature, step: Step, folder: Path, commit: str, member: Member) -> Assigned:
    """A new job for a step of a phase, in this folder, about this commit of the feature's branch."""
    role, phase = ROLES[step], feature.phase
    branch = Branch(project, feature.workflow.feature)
    job = project.clock.new_id()
    documents = (CHANGELOG,) if step is Step.ARCHIVE else phase.artifacts
    values = {**_facts(branch, feature, step), "JOB_ID": job, "DOCUMENTS": ", ".join(documents) or "-"}
    return Assigned(
        job=job,
        agent=member.name,
        settings=member.settings,
        feature=feature.workflow.feature,
        work=None,
        phase=role,
        workflow_phase=phase.key,
        round=feature.round,
        rounds=feature.limits.revisions,
        checkout=folder,
        document=None,
        instructions=instructions(_FORMS.get(role, role), values),
        pieces=tuple(_pieces(branch, feature, step, commit)),
        paths=tuple(path for path in blobs_of(project.repository, commit) if not _is_of_features(project, path)),
        documents=documents if step in (Step.WRITE, Step.ARCHIVE) else (),
        scope=write_scope(project, branch, step) if step in (Step.WRITE, Step.ARCHIVE) else NOTHING,
    )


def write_scope(project: Project, branch: Branch, step: Step) -> Scope:
    """What the writer of a step may change."""
    return Scope(_writable(branch, step), lock_files=(), litter=project.config.run.tool_litter)


def _writable(branch: Branch, step: Step) -> tuple[str, ...]:
    return (CHANGELOG, branch.folder) if step is Step.ARCHIVE else (branch.folder,)


def _facts(branch: Branch, feature: Feature, step: Step) -> Mapping[str, str]:
    phase = feature.phase.key
    kind = "of_commands" if feature.phase.work is Work.COMMANDS else "whole_feature"
    return {
        "FEATURE": branch.slug,
        "PHASE": phase,
        "TYPE": feature.workflow.type,
        "FEATURE_FOLDER": f"{branch.folder}/",
        "ROUND": str(feature.round),
        "ROUNDS": str(feature.last_round),
        "BASE": feature.base,
        "KIND": note(kind, PHASE=phase),
        "SCOPE": ", ".join(_writable(branch, step)),
        "NOTE": "\n".join(_notes(feature)),
    }


def _notes(feature: Feature) -> Iterator[str]:
    """Why this run is asked for, if it is not the plain first one."""
    if feature.findings:
        yield note("revision", BEFORE=str(feature.round - 1))
    elif feature.round == 1:
        yield note("first")
    if feature.asked_again or feature.retries:
        yield note("again" if feature.asked_again else "retry", REASON=feature.workflow.reason)


def _pieces(branch: Branch, feature: Feature, step: Step, commit: str) -> Iterator[Piece]:
    """The context, in no order: its kind says where each piece stands."""
    yield from role_of_phase(feature.phase.key)
    yield Piece(PieceKind.ARTIFACT, "request.md", _request(feature))
    named = {name: blob for name, blob in branch.documents(commit).items() if _is_shown(name)}
    for name, text in branch.read(named).items():
        yield Piece(PieceKind.REVISED if _is_of_phase(name, feature) else PieceKind.ARTIFACT, name, text)
    if step in (Step.REVIEW, Step.ARCHIVE):
        repository = branch.project.repository
        yield Piece(
            PieceKind.REVISED,
            "change.diff",
            diff_text(repository, fork_point(repository, feature.base, commit), commit),
        )
    if step is Step.REVIEW and feature.report:
        yield Piece(PieceKind.REVISED, "evidence.md", feature.report)
    if feature.findings:
        yield Piece(PieceKind.FINDINGS, f"findings-{feature.round - 1}.md", feature.findings)


def _request(feature: Feature) -> str:
    if feature.description:
        return note("request", DESCRIPTION=feature.description)
    return note("no_request", TYPE=feature.workflow.type)


def _is_shown(name: str) -> bool:
    return name.endswith(".md") and not name.startswith(_OF_PACKAGES)


def _is_of_phase(name: str, feature: Feature) -> bool:
    return any(name == one or (one.endswith("/") and name.startswith(one)) for one in feature.phase.artifacts)


def _is_of_features(project: Project, path: str) -> bool:
    """The features' folders change from round to round: they are not part of the tree that a prompt begins with."""
    return path.startswith(f"{project.config.paths.features}/")
