"""What an agent is told: who it is, what it is to do, what it is shown, and why it is asked again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from phasegate.agents.envelope import Share
from phasegate.agents.port import NOTHING
from phasegate.core.machine.feature_state import Feature
from phasegate.core.machine.package_machine import Run
from phasegate.core.paths.scope import Scope
from phasegate.core.prompt.budget import Piece, PieceKind
from phasegate.core.text.token_estimate import estimate_tokens
from phasegate.core.workflow.phases import Work
from phasegate.engine.jobs.assignment import Assigned
from phasegate.engine.jobs.step import Errand, Known
from phasegate.engine.journal.artifacts import KeptArtifact, artifact_pieces
from phasegate.engine.project.agents import Member
from phasegate.engine.project.feature_branch import Branch
from phasegate.engine.steps.context_documents import ContextDocument, context_documents, role_of_phase
from phasegate.engine.steps.workplace import Workplace
from phasegate.prompts.shipped_texts import instructions, note
from phasegate.workspace.commit_log import blobs_of, diff_text
from phasegate.workspace.merge import fork_point
from phasegate.workspace.removal import lay_file

CHANGELOG = "CHANGELOG.md"
CHANGE, WHOLE_CHANGE = "change.diff", "phasegate-change.diff"
WRITERS = ("plan", "archive")
_FORMS = {"review": "feature-review"}
_OF_PACKAGES = "tasks/"


def brief_package(
    place: Workplace,
    run: Run,
    errand: Errand,
    member: Member,
    job: str,
    folder: Path,
    known: Known,
    said: str = "",
    programs: tuple[str, ...] = (),
) -> Assigned:
    """A new job for a package, in this folder. `said`: by a person, to all agents; `programs`: those of the setup."""
    lay_file(folder, place.document_name, place.document)
    implements = errand.role == "implement"
    share = place.share(errand.agent_index) if implements else None
    scope = place.scope(errand.agent_index, known.allowed)
    documents = context_documents(place.project, place.package.feature_slug, place.start(), folder)
    values = {
        **_package_facts(place, run, errand, share, said),
        "JOB_ID": job,
        "SCOPE": ", ".join(scope.entries),
    }
    if programs:
        values["NOTE"] = f"{note('ready')}\n{values['NOTE']}"
    stored = artifact_pieces(place.project.papers, known.artifacts)
    pieces = (*_package_pieces(place, run, errand, documents), *stored)
    saved = 0
    if errand.role == "review" and run.can_review_delta:
        shorter = tuple(_delta_pieces(place, run, pieces, folder))
        saved = max(_tokens(pieces) - _tokens(shorter), 0)
        pieces = shorter if saved else pieces
    return Assigned(
        job=job,
        agent=member.name,
        settings=member.settings,
        feature=place.package.feature_slug,
        work=place.package,
        phase=errand.role,
        workflow_phase=errand.phase,
        round=errand.round,
        rounds=run.limits.rounds,
        checkout=folder,
        document=folder / place.document_name,
        instructions=instructions("review-delta" if saved else errand.role, values),
        pieces=(*pieces, *_decision(said)),
        paths=tuple(place.blobs_of(place.start())),
        context=tuple(one.path for one in documents),
        share=share,
        scope=scope if implements else NOTHING,
        programs=tuple(folder / path for path in programs),
        asked_again=errand.asked_again,
        saved_tokens=saved,
        own=place.assignment(errand.agent_index) if implements else None,
    )


def brief_comparison(
    place: Workplace, run: Run, errand: Errand, member: Member, job: str, folder: Path, start: str
) -> Assigned:
    """A new job that compares attempts at a package. Nothing in it tells who made them."""
    lay_file(folder, place.document_name, place.document)
    letters = ", ".join(run.candidates)
    values = {
        **_package_facts(place, run, errand, None, ""),
        "JOB_ID": job,
        "COUNT": str(len(run.candidates)),
        "LETTERS": letters,
    }
    return Assigned(
        job=job,
        agent=member.name,
        settings=member.settings,
        feature=place.package.feature_slug,
        work=place.package,
        phase="review",
        workflow_phase=errand.phase,
        round=errand.round,
        rounds=run.limits.rounds,
        checkout=folder,
        document=folder / place.document_name,
        instructions=instructions("compare", values),
        pieces=tuple(_pieces_to_compare(place, run, start, folder)),
        paths=tuple(place.blobs_of(start)),
    )


def _pieces_to_compare(place: Workplace, run: Run, start: str, folder: Path) -> Iterator[Piece]:
    yield Piece(PieceKind.TASKS, place.document_name, place.document)
    for document in context_documents(place.project, place.package.feature_slug, start, folder):
        yield Piece(PieceKind.ARTIFACT, document.name, document.text)
    for name, one in run.candidates.items():
        assert one.harvested is not None
        assert one.validated is not None
        diff = diff_text(place.project.repository, start, one.harvested.commit)
        yield Piece(PieceKind.REVISED, f"change-{name}.diff", diff)
        evidence = place.project.papers.get(one.validated.evidence).decode()
        yield Piece(PieceKind.REVISED, f"evidence-{name}.md", evidence)


def _package_facts(place: Workplace, run: Run, errand: Errand, share: Share | None, said: str) -> dict[str, str]:
    package = place.package
    notes = [*_why_asked(errand, run.findings, said)]
    if share is not None:
        files = ", ".join(share.deliverables)
        notes.append(note("share", INDEX=str(share.agent_index), COUNT=str(share.agent_count), FILES=files))
    return {
        "WP_ID": package.work_package_id,
        "TITLE": package.title,
        "FEATURE_FOLDER": f"{place.project.config.paths.features}/{package.feature_slug}/",
        "ROUND": str(errand.round),
        "ROUNDS": str(run.last_round),
        "DELIVERABLES": ", ".join(share.deliverables if share else package.deliverables.all) or "-",
        "NOTE": "\n".join(notes),
    }


def _why_asked(errand: Errand, findings: str, said: str) -> Iterator[str]:
    """Why this run is asked for, if it is not the plain first one."""
    if findings:
        yield note("revision", BEFORE=str(errand.round - 1))
    elif errand.round == 1:
        yield note("first")
    if said:
        yield note("decided")
    if errand.reason:
        yield note("again" if errand.asked_again else "retry", REASON=errand.reason)


def _package_pieces(
    place: Workplace, run: Run, errand: Errand, documents: tuple[ContextDocument, ...]
) -> Iterator[Piece]:
    """What the agent is shown besides the code: the package, the feature's documents, the findings."""
    yield Piece(PieceKind.TASKS, place.document_name, place.document)
    yield from role_of_phase(place.phase)
    for document in documents:
        yield Piece(PieceKind.ARTIFACT, document.name, document.text)
    if errand.role == "review":
        yield Piece(PieceKind.REVISED, CHANGE, diff_text(place.project.repository, place.start(), run.commit))
        papers = [place.project.papers.get(paper).decode() for paper in run.papers]
        yield from (Piece(PieceKind.REVISED, "evidence.md", evidence) for evidence in papers[:1])
        if remarks := "".join((*papers[1:], *_about_tasks(place.package.tasks, run))):
            yield Piece(PieceKind.REVISED, "remarks.md", remarks)
    yield from _findings(errand, run.findings)


def _about_tasks(tasks: Sequence[str], run: Run) -> Iterator[str]:
    """What the implementer reports of each task, for the reviewer to hold against the change."""
    if tasks:
        reported = dict(run.tasks)
        said = (f"{name} {reported.get(name, 'without a status')}" for name in tasks)
        yield f"- {note('tasks', STATUSES=', '.join(said))}\n"
    if run.doubted:
        yield f"- {note('doubted', TASKS=', '.join(run.doubted))}\n"


def _delta_pieces(place: Workplace, run: Run, full: Iterable[Piece], folder: Path) -> Iterator[Piece]:
    """The same, but of the change only what is new since the last review; the whole lies beside the work, as a file."""
    for piece in full:
        if piece.name == CHANGE:
            lay_file(folder, WHOLE_CHANGE, piece.content)
            new = diff_text(place.project.repository, run.seen, run.commit)
            yield piece._replace(name="since-last-review.diff", content=new)
        elif piece.kind is not PieceKind.FINDINGS:
            yield piece
    so_far = "\n\n".join(f"# Review {number}\n\n{text}" for number, text in enumerate(run.reviews, 1))
    yield Piece(PieceKind.FINDINGS, "findings-so-far.md", so_far)


def _tokens(pieces: Iterable[Piece]) -> int:
    return sum(estimate_tokens(piece.content) for piece in pieces)


def _findings(errand: Errand, findings: str) -> Iterator[Piece]:
    if findings:
        yield Piece(PieceKind.FINDINGS, f"findings-{errand.round - 1}.md", findings)


def _decision(said: str) -> Iterator[Piece]:
    if said:
        yield Piece(PieceKind.FINDINGS, "decision.md", note("decision", WORDS=said))


def brief_phase(
    branch: Branch,
    feature: Feature,
    errand: Errand,
    member: Member,
    job: str,
    folder: Path,
    commit: str,
    artifacts: tuple[KeptArtifact, ...] = (),
) -> Assigned:
    """A new job for a phase, in this folder, about this commit of the feature's branch."""
    project, role, writes = branch.project, errand.role, errand.role in WRITERS
    documents = (CHANGELOG,) if role == "archive" else feature.phase.artifacts
    values = {**_phase_facts(branch, feature, errand), "JOB_ID": job, "DOCUMENTS": ", ".join(documents) or "-"}
    return Assigned(
        job=job,
        agent=member.name,
        settings=member.settings,
        feature=branch.slug,
        work=None,
        phase=role,
        workflow_phase=feature.phase.key,
        round=errand.round,
        rounds=feature.limits.revisions,
        checkout=folder,
        document=None,
        instructions=instructions(_FORMS.get(role, role), values),
        pieces=(*_phase_pieces(branch, feature, errand, commit), *artifact_pieces(project.papers, artifacts)),
        paths=tuple(path for path in blobs_of(project.repository, commit) if not _is_of_features(branch, path)),
        documents=documents if writes else (),
        scope=write_scope(branch, role) if writes else NOTHING,
        commit="" if writes else commit,
    )


def write_scope(branch: Branch, role: str) -> Scope:
    """What a writer may change."""
    return Scope(_writable(branch, role), lock_files=(), litter=branch.project.config.run.tool_litter)


def _writable(branch: Branch, role: str) -> tuple[str, ...]:
    return (CHANGELOG, branch.folder) if role == "archive" else (branch.folder,)


def _phase_facts(branch: Branch, feature: Feature, errand: Errand) -> Mapping[str, str]:
    phase = feature.phase.key
    kind = "of_commands" if feature.phase.work is Work.COMMANDS else "whole_feature"
    return {
        "FEATURE": branch.slug,
        "PHASE": phase,
        "TYPE": feature.workflow.type,
        "FEATURE_FOLDER": f"{branch.folder}/",
        "ROUND": str(errand.round),
        "ROUNDS": str(feature.last_round),
        "BASE": feature.base,
        "KIND": note(kind, PHASE=phase),
        "SCOPE": ", ".join(_writable(branch, errand.role)),
        "NOTE": "\n".join(_why_asked(errand, feature.findings, feature.said)),
    }


def _phase_pieces(branch: Branch, feature: Feature, errand: Errand, commit: str) -> Iterator[Piece]:
    """The context, in no order: its kind says where each piece stands."""
    yield from role_of_phase(feature.phase.key)
    yield Piece(PieceKind.ARTIFACT, "request.md", _request(feature))
    named = {name: blob for name, blob in branch.documents(commit).items() if _is_shown(name)}
    for name, text in branch.read(named).items():
        yield Piece(PieceKind.REVISED if _is_of_phase(name, feature) else PieceKind.ARTIFACT, name, text)
    if errand.role in ("review", "archive"):
        repository = branch.project.repository
        diff = diff_text(repository, fork_point(repository, feature.base, commit), commit)
        yield Piece(PieceKind.REVISED, "change.diff", diff)
    if errand.role == "review" and feature.report:
        yield Piece(PieceKind.REVISED, "evidence.md", feature.report)
    yield from _findings(errand, feature.findings)
    yield from _decision(feature.said)


def _request(feature: Feature) -> str:
    if feature.description:
        return note("request", DESCRIPTION=feature.description)
    return note("no_request", TYPE=feature.workflow.type)


def _is_shown(name: str) -> bool:
    return name.endswith(".md") and not name.startswith(_OF_PACKAGES)


def _is_of_phase(name: str, feature: Feature) -> bool:
    return any(name == one or (one.endswith("/") and name.startswith(one)) for one in feature.phase.artifacts)


def _is_of_features(branch: Branch, path: str) -> bool:
    """The features' folders change from round to round: they are not part of the tree that a prompt begins with."""
    return path.startswith(f"{branch.project.config.paths.features}/")
