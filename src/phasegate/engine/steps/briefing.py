"""Build the job of an agent: its role, instructions, context pieces and the reason for a retry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from phasegate.agents.envelope import AgentShare
from phasegate.agents.port import EMPTY_SCOPE
from phasegate.core.answer.prose import cut_markers
from phasegate.core.machine.feature_state import Feature
from phasegate.core.machine.package_state import PackageRun
from phasegate.core.paths.glob import compile_any
from phasegate.core.paths.scope import Scope
from phasegate.core.plan.acceptance import (
    ACCEPTANCE_FOLDER,
    SingleFileRunner,
    find_acceptance_phase,
)
from phasegate.core.plan.consistency import TASKS_FILE
from phasegate.core.prompt.budget import ContextPiece, PieceKind
from phasegate.core.prompt.role_needs import RoleNeed
from phasegate.core.text.markdown_lines import collapse_whitespace
from phasegate.core.text.token_estimate import estimate_tokens
from phasegate.core.text.wording import shorten
from phasegate.core.workflow.phases import PhaseWork
from phasegate.engine.checks.acceptance import wants_acceptance
from phasegate.engine.checks.evidence_text import OUTPUT_FOLDER, read_outputs
from phasegate.engine.checks.manifest import LOGS_FOLDER
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.step import AgentRequest, StepContext
from phasegate.engine.journal.artifacts import StoredArtifact, make_artifact_pieces
from phasegate.engine.project.agents import NamedAgent
from phasegate.engine.project.checkout_diff import diff_checkouts
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.engine.steps.context_documents import (
    ContextDocument,
    order_of_document,
    read_agent_pages,
    read_context_documents,
)
from phasegate.engine.steps.delivery import DEFAULT_CHANGELOG, read_changelog_path
from phasegate.engine.steps.package_context import (
    core_piece,
    document_pieces,
    page_pieces,
    read_package_tasks,
)
from phasegate.engine.steps.project_context import companion_pieces, project_pieces, tree_paths
from phasegate.engine.steps.prompt_selection import (
    DIFF_NAME,
    FULL_DIFF_FILE,
    REQUEST_NAME,
    agent_file_pieces,
    change_pieces,
    file_pieces,
    find_need,
    get_part,
    limit_piece,
    list_changed_files,
    select_pieces,
)
from phasegate.engine.steps.validate_package import select_latest_claims
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.errors import PhasegateError
from phasegate.prompts.shipped_texts import render_instructions, render_note
from phasegate.workspace.checkout.checkout import Assignment
from phasegate.workspace.checkout.removal import place_file, place_folder
from phasegate.workspace.repository.commit_log import diff_commits, list_blobs
from phasegate.workspace.repository.merge import find_fork_point, find_merge_base

SINCE_NAME = "since-last-review.diff"
# Of a phase; part of the findings
SINCE_ROUND_NAME = "since-last-round.diff"
REPLIES_NAME = "replies.md"
DECISION_NAME = "decision.md"
_BLOCKER_NAME = "blocker.md"
EARLIER_WORK_NAME = "earlier-work.diff"
LAST_ANSWER_NAME = "your-last-answer.md"
WRITER_ROLES = ("plan", "archive")
JUDGE_ROLES = ("challenge", "review")
_RECHECK_NOTES = {
    REPLIES_NAME: "recheck_replies",
    SINCE_NAME: "recheck_since",
    SINCE_ROUND_NAME: "recheck_since",
}
_TEMPLATE_BY_ROLE = {"review": "feature-review"}
_PACKAGES_PREFIX = "tasks/"
# What an implementer needs to complete an answer whose form was wrong. A judge keeps everything:
# an answer without a verdict may come from an agent that stopped before it looked at the work.
_FORM_PARTS = ("package", "findings", "evidence")
_MAX_SUMMARY_CHARS = 800
# Of an earlier round
_MAX_EARLIER_CHARS = 300


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

    `user_message`: the user's message to all agents of the feature. `programs`: paths of the
    programs that the setup installed, relative to the folder.
    """
    place_file(folder, workspace.document_name, workspace.document)
    implements = request.role == "implement"
    share = workspace.share(request.agent_index) if implements else None
    scope = workspace.scope(request.agent_index, context.scope_exceptions)
    documents = read_context_documents(
        workspace.project, workspace.package.feature_slug, workspace.base_commit(), folder
    )
    pages = read_agent_pages(workspace.project, context.base, workspace.base_commit(), folder)
    need = find_need(request.role, request.phase)
    stored = make_artifact_pieces(workspace.project.document_store, context.artifacts)
    pieces = select_pieces(
        need,
        (
            *_decision_piece(user_message),
            *_last_answer_piece(request),
            *_package_pieces(workspace, run, request, need, documents, folder, scope, context),
            *page_pieces(pages),
            *stored,
        ),
    )
    saved = 0
    if request.role == "review" and run.review.can_review_delta:
        shorter = tuple(piece for piece in pieces if piece.name != DIFF_NAME)
        if any(piece.name == SINCE_NAME for piece in pieces):
            whole = diff_commits(workspace.project.repository, workspace.base_commit(), run.commit)
            place_file(folder, FULL_DIFF_FILE, whole)
        else:
            shorter = pieces

        cost = _count_tokens(shorter)
        saved = _count_tokens(pieces) - cost
        # A delta review replaces the full one only where it saves more than it costs
        if saved > cost:
            pieces = shorter
        else:
            saved = 0

    values = {
        **_package_template_values(workspace, run, request, share, pieces),
        "JOB_ID": job,
        "SCOPE": ", ".join(scope.entries),
    }
    completes_answer = implements and _repeats_form(request)
    if completes_answer:
        pieces = tuple(piece for piece in pieces if get_part(piece) in _FORM_PARTS)

    if programs and not completes_answer:
        ready = render_note("ready" if implements else "ready_to_review")
        values["NOTE"] = f"{ready}\n{values['NOTE']}"

    return JobAssignment(
        job_id=job,
        agent=agent.name,
        settings=agent.settings,
        feature=workspace.package.feature_slug,
        package=workspace.package,
        role=request.role,
        phase=request.phase,
        round=request.round,
        max_rounds=run.limits.rounds,
        checkout=folder,
        package_document=folder / workspace.document_name,
        instructions=render_instructions("review-delta" if saved else request.role, values),
        pieces=pieces,
        paths=tree_paths(workspace.project, workspace.blobs_of(workspace.base_commit())),
        focus=scope.entries,
        context_documents=tuple(document.path for document in (*documents, *pages)),
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
    base_commit: str,
    user_message: str = "",
) -> JobAssignment:
    """Build a job that compares attempts at a package without revealing their authors.

    `folder`: the review copy of `base_commit`, into which the caller exported the candidates; the
    document of the package is written there. `user_message`: the user's message to all agents of
    the feature.
    """
    place_file(folder, workspace.document_name, workspace.document)
    letters = ", ".join(run.contest.candidates)
    pieces = (
        *_decision_piece(user_message),
        *_comparison_pieces(workspace, run, base_commit, folder),
    )
    values = {
        **_package_template_values(workspace, run, request, None, pieces),
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
        role="review",
        phase=request.phase,
        round=request.round,
        max_rounds=run.limits.rounds,
        checkout=folder,
        package_document=folder / workspace.document_name,
        instructions=render_instructions("compare", values),
        pieces=pieces,
        paths=tree_paths(workspace.project, workspace.blobs_of(base_commit)),
        focus=workspace.package.file_scope,
    )


def _comparison_pieces(
    workspace: PackageWorkspace, run: PackageRun, base_commit: str, folder: Path
) -> Iterator[ContextPiece]:
    """Yield the context for comparing attempts: documents, diffs and evidence."""
    tasks = read_package_tasks(workspace, base_commit)
    yield core_piece(workspace, tasks, workspace.package.file_scope, {}, is_review=True)
    documents = read_context_documents(
        workspace.project, workspace.package.feature_slug, base_commit, folder
    )
    need = find_need("review", workspace.phase)
    yield from document_pieces(need, workspace.package, tasks, documents)

    for name, attempt in run.contest.candidates.items():
        assert attempt.harvested is not None
        assert attempt.validated is not None
        diff = diff_commits(workspace.project.repository, base_commit, attempt.harvested.commit)
        yield ContextPiece(PieceKind.REVISED, f"change-{name}.diff", diff)
        evidence = workspace.project.document_store.get(attempt.validated.evidence).decode()
        yield ContextPiece(PieceKind.REVISED, f"evidence-{name}.md", evidence)


def _package_template_values(
    workspace: PackageWorkspace,
    run: PackageRun,
    request: AgentRequest,
    share: AgentShare | None,
    pieces: Sequence[ContextPiece],
) -> dict[str, str]:
    """Return the template values for a job of a package."""
    package = workspace.package
    notes = [*_reason_notes(request, pieces)]
    if workspace.acceptance and request.role == "implement":
        tests = workspace.acceptance.seal.tests
        names = [id_ for one in package.requirements for id_ in tests.get(one, ())]
        notes.append(render_note("sealed", TESTS=", ".join(names) or "-"))

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


def _reason_notes(request: AgentRequest, pieces: Sequence[ContextPiece]) -> Iterator[str]:
    """Yield notes that say why this job is requested: a revision, a decision or a retry."""
    names = [piece.name or "" for piece in pieces]
    findings = next((name for name in names if name.startswith("findings-")), "")

    if findings and request.role in JUDGE_ROLES:
        yield render_note("recheck", FINDINGS=findings)
        for name, note in _RECHECK_NOTES.items():
            if name in names:
                yield render_note(note, FILE=name)
    elif findings:
        yield render_note("revision", BEFORE=str(request.round - 1))

    if EARLIER_WORK_NAME in names:
        yield render_note("earlier_work")
    if _BLOCKER_NAME in names:
        yield render_note("unblocked")
    if DECISION_NAME in names:
        yield render_note("decided")
    if LAST_ANSWER_NAME in names:
        yield render_note("again", REASON=request.retry_reason)
    elif request.retry_reason:
        yield render_note("retry", REASON=request.retry_reason)


def _package_pieces(
    workspace: PackageWorkspace,
    run: PackageRun,
    request: AgentRequest,
    need: RoleNeed,
    documents: tuple[ContextDocument, ...],
    folder: Path,
    scope: Scope,
    context: StepContext,
) -> Iterator[ContextPiece]:
    """Yield the context: the package, the feature's documents, files or the change, findings."""
    base = workspace.base_commit()
    branch = FeatureBranch(workspace.project, workspace.package.feature_slug)
    tasks = read_package_tasks(workspace, base)
    is_review = request.role == "review"
    yield core_piece(workspace, tasks, scope.entries, context.package_documents, is_review)
    yield from agent_file_pieces(need, workspace.phase)
    yield from document_pieces(need, workspace.package, tasks, documents)

    if request.role == "implement":
        blobs = workspace.blobs_of(run.commit or base)
        yield from file_pieces(branch, need, blobs, scope.entries)
        if not run.commit:
            yield from _earlier_work_piece(workspace, need, context)

    if request.role == "review":
        changes = tuple(change_pieces(branch, need, base, run.commit, folder))
        yield from changes
        yield from _recheck_pieces(workspace, run, changes[0].content)
        texts = [
            workspace.project.document_store.get(document).decode()
            for document in run.review.documents
        ]
        if texts:
            yield _evidence_piece(workspace.project, texts[0], run.commit, base, folder)
        earlier = _earlier_summaries(context, workspace.package.work_package_id, run.round)
        tasks_text = _task_remarks(workspace.package.tasks, run)
        if remarks := "".join((*texts[1:], *earlier, *tasks_text)):
            yield ContextPiece(PieceKind.REVISED, "remarks.md", remarks)

    else:
        yield from _findings_piece(request, run.findings)
        if run.resolved_blocker and request.round == run.rounds_before + 1:
            reason = cut_markers(run.resolved_blocker)
            yield ContextPiece(PieceKind.FINDINGS, _BLOCKER_NAME, f"{reason}\n")


def _earlier_work_piece(
    workspace: PackageWorkspace, need: RoleNeed, context: StepContext
) -> Iterator[ContextPiece]:
    """Yield the changes that packages of an earlier plan made to this package's files.

    Changes that were merged into the feature are in the checkout already.
    """
    package = workspace.package
    repository = workspace.project.repository
    names = [f"WP{number:02}" for number in range(1, package.sequence)]
    replaced = [name for name in names if name not in context.package_documents]
    branches = [Assignment(package.feature_slug, name).branch for name in replaced]
    base = workspace.base_commit()
    diffs = []
    for tip in workspace.project.refs.fetch(*branches).values():
        start = find_merge_base(repository, base, tip)
        if start:
            diffs.append(diff_commits(repository, start, tip, package.file_scope))

    if not any(diffs):
        # The amendment came before the work was collected
        diffs = [*_diff_uncollected_work(workspace, replaced)]

    if any(diffs):
        piece = ContextPiece(PieceKind.REVISED, EARLIER_WORK_NAME, "".join(diffs))
        limited = limit_piece(piece, need.max_characters("diff"))
        if limited is not None:
            yield limited


def _diff_uncollected_work(workspace: PackageWorkspace, names: Iterable[str]) -> Iterator[str]:
    """Yield the changes to this package's files in the checkouts of replaced packages."""
    scope = compile_any(workspace.package.file_scope)
    for name in names:
        try:
            diffs = diff_checkouts(workspace.project, workspace.package.feature_slug, name)
        except PhasegateError:
            # The checkout was removed or replaced
            continue
        yield from (diff for path, diff in diffs.items() if scope.match(path))


def _recheck_pieces(
    workspace: PackageWorkspace, run: PackageRun, change: str
) -> Iterator[ContextPiece]:
    """Yield earlier findings, the replies to them and the changes since then for a reviewer."""
    review = run.review
    if review.reviewed_commit:
        repository = workspace.project.repository
        since = diff_commits(repository, review.reviewed_commit, run.commit)
        if 0 < len(since) < len(change):
            yield ContextPiece(PieceKind.REVISED, SINCE_NAME, since)

    if review.findings:
        findings = "\n\n".join(
            f"# Review {number}\n\n{text}" for number, text in enumerate(review.findings, 1)
        )
        yield ContextPiece(PieceKind.FINDINGS, "findings-so-far.md", findings)
        yield from _replies_piece(run.replies)


def _replies_piece(replies: str) -> Iterator[ContextPiece]:
    if replies:
        yield ContextPiece(PieceKind.FINDINGS, REPLIES_NAME, replies)


def _evidence_piece(
    project: Project, evidence: str, commit: str, base: str, folder: Path
) -> ContextPiece:
    """Return the evidence of a commit; the outputs that it names are written into the folder."""
    outputs = read_outputs(project.location.data_folder / LOGS_FOLDER, evidence)
    if outputs:
        place_folder(folder, OUTPUT_FOLDER, outputs)

    about = render_note("evidence_commit", COMMIT=commit, BASE=base)
    return ContextPiece(PieceKind.REVISED, "evidence.md", f"{about}{evidence}")


def _earlier_summaries(context: StepContext, package: str, round_: int) -> Iterator[str]:
    """Yield the implementers' summary of each earlier round, on a line each."""
    claims = [one for one in context.claims if one.package == package]
    for number in range(1, round_):
        latest = select_latest_claims(claims, number)
        text = collapse_whitespace(cut_markers(" ".join(one.said.summary or "" for one in latest)))
        if text:
            text = shorten(text, _MAX_EARLIER_CHARS)
            yield f"- {render_note('earlier_summary', ROUND=str(number), TEXT=text)}\n"


def _task_remarks(tasks: Sequence[str], run: PackageRun) -> Iterator[str]:
    """Yield the implementer's report about its tasks, for the reviewer to verify."""
    # Later rounds have it in replies.md
    if run.replies and not run.review.findings:
        text = collapse_whitespace(cut_markers(run.replies)).removeprefix("Summary: ")
        summary = shorten(text, _MAX_SUMMARY_CHARS)
        yield f"- {render_note('summary', TEXT=summary)}\n"

    if tasks:
        reported = dict(run.tasks)
        statuses = (f"{name} {reported.get(name, 'without a status')}" for name in tasks)
        yield f"- {render_note('tasks', STATUSES=', '.join(statuses))}\n"

    if run.reported_failed_tasks:
        yield f"- {render_note('doubted', TASKS=', '.join(run.reported_failed_tasks))}\n"


def _count_tokens(pieces: Iterable[ContextPiece]) -> int:
    return sum(estimate_tokens(piece.content) for piece in pieces)


def _findings_piece(request: AgentRequest, findings: str) -> Iterator[ContextPiece]:
    if findings:
        yield ContextPiece(PieceKind.FINDINGS, f"findings-{request.round - 1}.md", findings)


def _decision_piece(user_message: str) -> Iterator[ContextPiece]:
    if user_message:
        yield ContextPiece(
            PieceKind.FINDINGS, DECISION_NAME, render_note("decision", WORDS=user_message)
        )


def _last_answer_piece(request: AgentRequest) -> Iterator[ContextPiece]:
    """Yield the answer that could not be used, without its markers."""
    if _repeats_form(request):
        answer = cut_markers(request.previous_answer)
        yield ContextPiece(PieceKind.FINDINGS, LAST_ANSWER_NAME, answer)


def _repeats_form(request: AgentRequest) -> bool:
    return request.asked_again and bool(request.previous_answer)


def build_phase_job(
    branch: FeatureBranch,
    feature: Feature,
    request: AgentRequest,
    agent: NamedAgent,
    job: str,
    folder: Path,
    commit: str,
    artifacts: tuple[StoredArtifact, ...] = (),
    replies: str = "",
    evidence: str = "",
) -> JobAssignment:
    """Build a new job for a phase in the given folder, on a commit of the feature's branch.

    `replies`: the author's replies to the findings of the previous round. `evidence`: the results
    of the checks of this commit, for a reviewer.
    """
    project = branch.project
    role = request.role
    writes = role in WRITER_ROLES
    documents = feature.phase.artifacts
    if role == "archive":
        changelog = read_changelog_path(branch, commit)
        documents = (changelog,) if changelog else ()

    if role == "plan" and isinstance(wants_acceptance(project, feature, commit), SingleFileRunner):
        documents = (*documents, ACCEPTANCE_FOLDER)

    need = find_need(role, feature.phase.key)
    names = [*filter(_is_prompt_document, branch.list_documents(commit))]
    pages = read_agent_pages(project, feature.base, commit, folder)
    if role == "challenge" and _writes_acceptance_tests(feature):
        # They are sealed after this gate: nobody else judges them
        documents = (*documents, *filter(_is_acceptance_test, names))

    pieces = select_pieces(
        need,
        (
            *_decision_piece(feature.decisions),
            *_last_answer_piece(request),
            *_phase_pieces(branch, feature, request, need, commit, folder, evidence),
            *page_pieces(pages),
            *_phase_recheck_pieces(branch, feature, request, commit, replies),
            *make_artifact_pieces(project.document_store, artifacts),
        ),
    )
    given = [name for name in names if any(piece.name == name for piece in pieces)]
    values = {
        **_phase_template_values(branch, feature, request, pieces),
        "SCOPE": ", ".join((*(documents if role == "archive" else ()), branch.folder)),
        "JOB_ID": job,
        "DOCUMENTS": ", ".join(documents) or "-",
        "OTHERS": ", ".join(name for name in names if name not in given) or "-",
        "CHANGE": next((piece.name or "" for piece in pieces if get_part(piece) == "diff"), "-"),
    }
    if role == "plan" and TASKS_FILE in documents:
        values["NOTE"] = f"{values['NOTE']}\n\n{render_note('tasks_file')}".strip()

    changed: Sequence[str] = ()
    if need.gives("diff"):
        fork = find_fork_point(project.repository, feature.base, commit)
        changed, _ = list_changed_files(branch, fork, commit)

    return JobAssignment(
        job_id=job,
        agent=agent.name,
        settings=agent.settings,
        feature=branch.slug,
        package=None,
        role=role,
        phase=feature.phase.key,
        round=request.round,
        max_rounds=feature.limits.revisions,
        checkout=folder,
        package_document=None,
        instructions=render_instructions(_TEMPLATE_BY_ROLE.get(role, role), values),
        pieces=pieces,
        paths=tree_paths(project, list_blobs(project.repository, commit)),
        focus=changed,
        context_documents=(
            *(folder / branch.folder / name for name in given),
            *(page.path for page in pages),
        ),
        new_documents=_list_new_documents(documents, names) if role == "plan" else (),
        scope=writer_scope(branch, role, commit) if writes else EMPTY_SCOPE,
        reviewed_commit="" if writes else commit,
    )


def _list_new_documents(documents: Sequence[str], existing: Sequence[str]) -> tuple[str, ...]:
    """Return the documents to write that do not exist yet; a folder exists if it has a document."""
    folders = {name.partition("/")[0] for name in existing if "/" in name}
    known = {*existing, *folders}
    return tuple(document for document in documents if document.rstrip("/") not in known)


def writer_scope(branch: FeatureBranch, role: str, commit: str) -> Scope:
    """Return the scope of a job that writes documents.

    An archivist may write a changelog that the project does not keep: it is not delivered.
    """
    paths: tuple[str, ...] = (branch.folder,)
    if role == "archive":
        paths = (read_changelog_path(branch, commit) or DEFAULT_CHANGELOG, *paths)

    return Scope(
        paths,
        lock_files=(),
        litter=branch.project.config.run.ignored_tool_files,
    )


def _phase_template_values(
    branch: FeatureBranch,
    feature: Feature,
    request: AgentRequest,
    pieces: Sequence[ContextPiece],
) -> Mapping[str, str]:
    """Return the template values for a job of a phase."""
    phase = feature.phase.key
    kind = "of_commands" if feature.phase.work is PhaseWork.COMMANDS else "whole_feature"

    request_text = ""
    if _has_request_in_instructions(feature, request):
        request_text = f"{_request_text(feature)}\n"

    return {
        "REQUEST": request_text,
        "FEATURE": branch.slug,
        "PHASE": phase,
        "TYPE": feature.workflow.type,
        "FEATURE_FOLDER": f"{branch.folder}/",
        "ROUND": str(request.round),
        "ROUNDS": str(feature.last_round),
        "BASE": feature.base,
        "KIND": render_note(kind, PHASE=phase),
        "NOTE": "\n".join(_reason_notes(request, pieces)),
    }


def _phase_pieces(
    branch: FeatureBranch,
    feature: Feature,
    request: AgentRequest,
    need: RoleNeed,
    commit: str,
    folder: Path,
    evidence: str,
) -> Iterator[ContextPiece]:
    """Yield the context pieces: the kind of a piece decides its position."""
    if not _has_request_in_instructions(feature, request):
        yield ContextPiece(PieceKind.ARTIFACT, REQUEST_NAME, _request_text(feature))

    yield from agent_file_pieces(need, feature.phase.key)
    blobs = {
        name: blob
        for name, blob in branch.list_documents(commit).items()
        if _is_prompt_document(name)
    }

    texts = branch.read_documents(blobs)
    for name in sorted(texts, key=order_of_document):
        yield ContextPiece(
            PieceKind.REVISED
            if request.role != "archive" and _is_phase_document(name, feature)
            else PieceKind.ARTIFACT,
            name,
            texts[name],
        )

    if need.gives("commands"):
        yield from project_pieces(branch, commit, request.role)

    fork = find_fork_point(branch.project.repository, feature.base, commit)
    if need.gives("diff"):
        yield from change_pieces(branch, need, fork, commit, folder)

    if request.role == "review" and evidence:
        yield _evidence_piece(branch.project, evidence, commit, fork, folder)
    if request.role == "challenge" and TASKS_FILE in feature.phase.artifacts:
        yield from companion_pieces(branch, texts.get(TASKS_FILE, ""), fork)

    yield from _findings_piece(request, feature.findings)


def _phase_recheck_pieces(
    branch: FeatureBranch, feature: Feature, request: AgentRequest, commit: str, replies: str
) -> Iterator[ContextPiece]:
    """Yield the replies and changes since the previous round, for a critic or reviewer.

    A reviewer gets the changes of the code, a critic those of the feature's documents.
    """
    before = feature.previous_commit
    if request.role not in JUDGE_ROLES or not feature.findings or not before:
        return

    code, documents = list_changed_files(branch, before, commit)
    paths = code if request.role == "review" else documents
    since = diff_commits(branch.project.repository, before, commit, paths)
    yield from _replies_piece(replies)
    if since:
        yield ContextPiece(PieceKind.REVISED, SINCE_ROUND_NAME, since)


def _request_text(feature: Feature) -> str:
    if feature.description:
        return render_note("request", DESCRIPTION=feature.description)
    return render_note("no_request", TYPE=feature.workflow.type)


def _is_prompt_document(name: str) -> bool:
    return _is_acceptance_test(name) or (
        name.endswith(".md") and not name.startswith(_PACKAGES_PREFIX)
    )


def _is_acceptance_test(name: str) -> bool:
    return name.startswith(ACCEPTANCE_FOLDER) and name.endswith(".py")


def _writes_acceptance_tests(feature: Feature) -> bool:
    return feature.phase.key == find_acceptance_phase(feature.workflow.phases)


def _is_phase_document(name: str, feature: Feature) -> bool:
    if _is_acceptance_test(name):
        return _writes_acceptance_tests(feature)
    return any(
        name == artifact or (artifact.endswith("/") and name.startswith(artifact))
        for artifact in feature.phase.artifacts
    )


def _has_request_in_instructions(feature: Feature, request: AgentRequest) -> bool:
    """Return whether this is the first planning step: its instructions start with the request."""
    return request.role == "plan" and feature.workflow.index == 0
