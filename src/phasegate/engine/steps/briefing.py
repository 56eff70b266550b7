"""Build the job of an agent: its role, instructions, context pieces and the reason for a retry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from phasegate.agents.envelope import AgentShare
from phasegate.agents.port import EMPTY_SCOPE
from phasegate.core.machine.feature_state import Feature
from phasegate.core.machine.package_state import PackageRun
from phasegate.core.paths.scope import Scope
from phasegate.core.prompt.budget import ContextPiece, PieceKind
from phasegate.core.text.token_estimate import estimate_tokens
from phasegate.core.workflow.phases import PhaseWork
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.step import AgentRequest, StepContext
from phasegate.engine.journal.artifacts import StoredArtifact, make_artifact_pieces
from phasegate.engine.project.agents import NamedAgent
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.steps.context_documents import (
    ContextDocument,
    agent_file_pieces,
    read_context_documents,
)
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.prompts.shipped_texts import render_instructions, render_note
from phasegate.workspace.commit_log import diff_commits, list_blobs
from phasegate.workspace.merge import find_fork_point
from phasegate.workspace.removal import place_file

CHANGELOG = "CHANGELOG.md"
DIFF_NAME = "change.diff"
FULL_DIFF_FILE = "phasegate-change.diff"
WRITER_ROLES = ("plan", "archive")
_TEMPLATE_BY_ROLE = {"review": "feature-review"}
_PACKAGES_PREFIX = "tasks/"


def build_package_job(
    workspace: PackageWorkspace,
    run: PackageRun,
    request: AgentRequest,
    agent: NamedAgent,
    job: str,
    folder: Path,
    context: StepContext,
    user_message: str = "",
    programs: tuple[str, ...] = (),
) -> JobAssignment:
    """Build a new job for a package in the given folder.

    `user_message`: what the user said to all agents of the feature. `programs`: paths of the
    programs that the setup installed, relative to the folder.
    """
    place_file(folder, workspace.document_name, workspace.document)
    implements = request.role == "implement"
    share = workspace.share(request.agent_index) if implements else None
    scope = workspace.scope(request.agent_index, context.scope_exceptions)
    documents = read_context_documents(
        workspace.project, workspace.package.feature_slug, workspace.base_commit(), folder
    )
    values = {
        **_package_template_values(workspace, run, request, share, user_message),
        "JOB_ID": job,
        "SCOPE": ", ".join(scope.entries),
    }
    if programs:
        values["NOTE"] = f"{render_note('ready')}\n{values['NOTE']}"

    stored = make_artifact_pieces(workspace.project.document_store, context.artifacts)
    pieces = (*_package_pieces(workspace, run, request, documents), *stored)
    saved = 0
    if request.role == "review" and run.review.can_review_delta:
        shorter = tuple(_delta_pieces(workspace, run, pieces, folder))
        saved = max(_count_tokens(pieces) - _count_tokens(shorter), 0)
        pieces = shorter if saved else pieces

    return JobAssignment(
        job_id=job,
        agent=agent.name,
        settings=agent.settings,
        feature=workspace.package.feature_slug,
        package=workspace.package,
        phase=request.role,
        workflow_phase=request.phase,
        round=request.round,
        max_rounds=run.limits.rounds,
        checkout=folder,
        package_document=folder / workspace.document_name,
        instructions=render_instructions("review-delta" if saved else request.role, values),
        pieces=(*pieces, *_decision_piece(user_message)),
        paths=tuple(workspace.blobs_of(workspace.base_commit())),
        context_documents=tuple(document.path for document in documents),
        share=share,
        scope=scope if implements else EMPTY_SCOPE,
        setup_programs=tuple(folder / path for path in programs),
        asked_again=request.asked_again,
        saved_tokens=saved,
        own_checkout=workspace.assignment(request.agent_index) if implements else None,
    )


def build_comparison_job(
    workspace: PackageWorkspace,
    run: PackageRun,
    request: AgentRequest,
    agent: NamedAgent,
    job: str,
    folder: Path,
    start: str,
) -> JobAssignment:
    """Build a job that compares attempts at a package without revealing their authors."""
    place_file(folder, workspace.document_name, workspace.document)
    letters = ", ".join(run.contest.candidates)
    values = {
        **_package_template_values(workspace, run, request, None, ""),
        "JOB_ID": job,
        "COUNT": str(len(run.contest.candidates)),
        "LETTERS": letters,
    }

    return JobAssignment(
        job_id=job,
        agent=agent.name,
        settings=agent.settings,
        feature=workspace.package.feature_slug,
        package=workspace.package,
        phase="review",
        workflow_phase=request.phase,
        round=request.round,
        max_rounds=run.limits.rounds,
        checkout=folder,
        package_document=folder / workspace.document_name,
        instructions=render_instructions("compare", values),
        pieces=tuple(_comparison_pieces(workspace, run, start, folder)),
        paths=tuple(workspace.blobs_of(start)),
    )


def _comparison_pieces(
    workspace: PackageWorkspace, run: PackageRun, start: str, folder: Path
) -> Iterator[ContextPiece]:
    yield ContextPiece(PieceKind.TASKS, workspace.document_name, workspace.document)
    for document in read_context_documents(
        workspace.project, workspace.package.feature_slug, start, folder
    ):
        yield ContextPiece(PieceKind.ARTIFACT, document.name, document.text)

    for name, attempt in run.contest.candidates.items():
        assert attempt.harvested is not None
        assert attempt.validated is not None
        diff = diff_commits(workspace.project.repository, start, attempt.harvested.commit)
        yield ContextPiece(PieceKind.REVISED, f"change-{name}.diff", diff)
        evidence = workspace.project.document_store.get(attempt.validated.evidence).decode()
        yield ContextPiece(PieceKind.REVISED, f"evidence-{name}.md", evidence)


def _package_template_values(
    workspace: PackageWorkspace,
    run: PackageRun,
    request: AgentRequest,
    share: AgentShare | None,
    user_message: str,
) -> dict[str, str]:
    package = workspace.package
    notes = [*_reason_notes(request, run.findings, user_message)]

    if share is not None:
        files = ", ".join(share.deliverables)
        notes.append(
            render_note(
                "share", INDEX=str(share.agent_index), COUNT=str(share.agent_count), FILES=files
            )
        )

    return {
        "WP_ID": package.work_package_id,
        "TITLE": package.title,
        "FEATURE_FOLDER": f"{workspace.project.config.paths.features}/{package.feature_slug}/",
        "ROUND": str(request.round),
        "ROUNDS": str(run.last_round),
        "DELIVERABLES": ", ".join(share.deliverables if share else package.deliverables.all) or "-",
        "NOTE": "\n".join(notes),
    }


def _reason_notes(request: AgentRequest, findings: str, user_message: str) -> Iterator[str]:
    """Yield notes that say why this job is requested: a revision, a decision or a retry."""
    if findings:
        yield render_note("revision", BEFORE=str(request.round - 1))
    elif request.round == 1:
        yield render_note("first")

    if user_message:
        yield render_note("decided")
    if request.retry_reason:
        yield render_note("again" if request.asked_again else "retry", REASON=request.retry_reason)


def _package_pieces(
    workspace: PackageWorkspace,
    run: PackageRun,
    request: AgentRequest,
    documents: tuple[ContextDocument, ...],
) -> Iterator[ContextPiece]:
    """Yield the context besides the code: the package, the feature's documents, the findings."""
    yield ContextPiece(PieceKind.TASKS, workspace.document_name, workspace.document)
    yield from agent_file_pieces(workspace.phase)
    for document in documents:
        yield ContextPiece(PieceKind.ARTIFACT, document.name, document.text)

    if request.role == "review":
        yield ContextPiece(
            PieceKind.REVISED,
            DIFF_NAME,
            diff_commits(workspace.project.repository, workspace.base_commit(), run.commit),
        )
        texts = [
            workspace.project.document_store.get(document).decode()
            for document in run.review.documents
        ]
        if texts:
            yield ContextPiece(PieceKind.REVISED, "evidence.md", texts[0])
        if remarks := "".join((*texts[1:], *_task_remarks(workspace.package.tasks, run))):
            yield ContextPiece(PieceKind.REVISED, "remarks.md", remarks)

    yield from _findings_piece(request, run.findings)


def _task_remarks(tasks: Sequence[str], run: PackageRun) -> Iterator[str]:
    """Yield the task statuses reported by the implementer, for the reviewer to verify."""
    if tasks:
        reported = dict(run.tasks)
        statuses = (f"{name} {reported.get(name, 'without a status')}" for name in tasks)
        yield f"- {render_note('tasks', STATUSES=', '.join(statuses))}\n"

    if run.reported_failed_tasks:
        yield f"- {render_note('doubted', TASKS=', '.join(run.reported_failed_tasks))}\n"


def _delta_pieces(
    workspace: PackageWorkspace, run: PackageRun, full: Iterable[ContextPiece], folder: Path
) -> Iterator[ContextPiece]:
    """Yield the pieces with only the changes since the last review.

    The full diff is written as a file into the folder.
    """
    for piece in full:
        if piece.name == DIFF_NAME:
            place_file(folder, FULL_DIFF_FILE, piece.content)
            new_diff = diff_commits(
                workspace.project.repository, run.review.reviewed_commit, run.commit
            )
            yield piece._replace(name="since-last-review.diff", content=new_diff)
        elif piece.kind is not PieceKind.FINDINGS:
            yield piece

    findings = "\n\n".join(
        f"# Review {number}\n\n{text}" for number, text in enumerate(run.review.findings, 1)
    )
    yield ContextPiece(PieceKind.FINDINGS, "findings-so-far.md", findings)


def _count_tokens(pieces: Iterable[ContextPiece]) -> int:
    return sum(estimate_tokens(piece.content) for piece in pieces)


def _findings_piece(request: AgentRequest, findings: str) -> Iterator[ContextPiece]:
    if findings:
        yield ContextPiece(PieceKind.FINDINGS, f"findings-{request.round - 1}.md", findings)


def _decision_piece(user_message: str) -> Iterator[ContextPiece]:
    if user_message:
        yield ContextPiece(
            PieceKind.FINDINGS, "decision.md", render_note("decision", WORDS=user_message)
        )


def build_phase_job(
    branch: FeatureBranch,
    feature: Feature,
    request: AgentRequest,
    agent: NamedAgent,
    job: str,
    folder: Path,
    commit: str,
    artifacts: tuple[StoredArtifact, ...] = (),
) -> JobAssignment:
    """Build a new job for a phase in the given folder, on a commit of the feature's branch."""
    project = branch.project
    role = request.role
    writes = role in WRITER_ROLES
    documents = (CHANGELOG,) if role == "archive" else feature.phase.artifacts
    values = {
        **_phase_template_values(branch, feature, request),
        "JOB_ID": job,
        "DOCUMENTS": ", ".join(documents) or "-",
    }

    return JobAssignment(
        job_id=job,
        agent=agent.name,
        settings=agent.settings,
        feature=branch.slug,
        package=None,
        phase=role,
        workflow_phase=feature.phase.key,
        round=request.round,
        max_rounds=feature.limits.revisions,
        checkout=folder,
        package_document=None,
        instructions=render_instructions(_TEMPLATE_BY_ROLE.get(role, role), values),
        pieces=(
            *_phase_pieces(branch, feature, request, commit),
            *make_artifact_pieces(project.document_store, artifacts),
        ),
        paths=tuple(
            path
            for path in list_blobs(project.repository, commit)
            if not _is_in_features_folder(branch, path)
        ),
        documents_to_write=documents if writes else (),
        scope=writer_scope(branch, role) if writes else EMPTY_SCOPE,
        reviewed_commit="" if writes else commit,
    )


def writer_scope(branch: FeatureBranch, role: str) -> Scope:
    """Return the scope of a job that writes documents."""
    return Scope(
        _writable_paths(branch, role),
        lock_files=(),
        litter=branch.project.config.run.ignored_tool_files,
    )


def _writable_paths(branch: FeatureBranch, role: str) -> tuple[str, ...]:
    if role == "archive":
        return (CHANGELOG, branch.folder)
    return (branch.folder,)


def _phase_template_values(
    branch: FeatureBranch, feature: Feature, request: AgentRequest
) -> Mapping[str, str]:
    phase = feature.phase.key
    kind = "of_commands" if feature.phase.work is PhaseWork.COMMANDS else "whole_feature"

    return {
        "FEATURE": branch.slug,
        "PHASE": phase,
        "TYPE": feature.workflow.type,
        "FEATURE_FOLDER": f"{branch.folder}/",
        "ROUND": str(request.round),
        "ROUNDS": str(feature.last_round),
        "BASE": feature.base,
        "KIND": render_note(kind, PHASE=phase),
        "SCOPE": ", ".join(_writable_paths(branch, request.role)),
        "NOTE": "\n".join(_reason_notes(request, feature.findings, feature.user_notes)),
    }


def _phase_pieces(
    branch: FeatureBranch, feature: Feature, request: AgentRequest, commit: str
) -> Iterator[ContextPiece]:
    """Yield the context pieces, unordered: the kind of a piece decides its position."""
    yield from agent_file_pieces(feature.phase.key)
    yield ContextPiece(PieceKind.ARTIFACT, "request.md", _request_text(feature))
    blobs = {
        name: blob
        for name, blob in branch.list_documents(commit).items()
        if _is_prompt_document(name)
    }

    for name, text in branch.read_documents(blobs).items():
        yield ContextPiece(
            PieceKind.REVISED if _is_phase_document(name, feature) else PieceKind.ARTIFACT,
            name,
            text,
        )

    if request.role in ("review", "archive"):
        repository = branch.project.repository
        diff = diff_commits(repository, find_fork_point(repository, feature.base, commit), commit)
        yield ContextPiece(PieceKind.REVISED, DIFF_NAME, diff)

    if request.role == "review" and feature.report:
        yield ContextPiece(PieceKind.REVISED, "evidence.md", feature.report)

    yield from _findings_piece(request, feature.findings)
    yield from _decision_piece(feature.user_notes)


def _request_text(feature: Feature) -> str:
    if feature.description:
        return render_note("request", DESCRIPTION=feature.description)
    return render_note("no_request", TYPE=feature.workflow.type)


def _is_prompt_document(name: str) -> bool:
    return name.endswith(".md") and not name.startswith(_PACKAGES_PREFIX)


def _is_phase_document(name: str, feature: Feature) -> bool:
    return any(
        name == artifact or (artifact.endswith("/") and name.startswith(artifact))
        for artifact in feature.phase.artifacts
    )


def _is_in_features_folder(branch: FeatureBranch, path: str) -> bool:
    """Return whether a path is in the folder of the features' documents.

    These change in every round, so the file tree at the start of a prompt omits them, which keeps
    the prompt's prefix cacheable.
    """
    return path.startswith(f"{branch.project.config.paths.features}/")
