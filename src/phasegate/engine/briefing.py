"""What an agent of a package is told: who it is, what it is to do, what it is shown, and why it is asked again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from phasegate.agents.envelope import Share
from phasegate.agents.port import NOTHING
from phasegate.engine.context_documents import ContextDocument, context_documents, role_of_phase
from phasegate.engine.job_end import Assigned
from phasegate.engine.staffing import Member, member_for
from phasegate.engine.workplace import Workplace
from phasegate.prompts.shipped_words import instructions, note
from phasegate.rules.budget import Piece, PieceKind
from phasegate.rules.package_run import Action, Run, Step
from phasegate.workspace.commit_log import diff_text
from phasegate.workspace.removal import lay_file


def agent_for(place: Workplace, step: Step, wanted: str | None, resting: Mapping[str, float]) -> Member:
    """The agent that implements, or that reviews."""
    return member_for(place.project, step, place.phase, wanted, resting)


def brief(place: Workplace, run: Run, action: Action, folder: Path, wanted: str | None) -> Assigned:
    """A new job for what is to be done next, in this folder."""
    member = agent_for(place, action.step, wanted, place.store.resting(place.project.clock.time_s()))
    job, slug = place.project.clock.new_id(), place.package.feature_slug
    document = folder / place.document_name
    lay_file(folder, place.document_name, place.document)
    share = place.share(action.owed.agent_index) if action.step is Step.IMPLEMENT else None
    return Assigned(
        job=job,
        agent=member.name,
        settings=member.settings,
        feature=slug,
        work=place.package,
        phase=str(action.step),
        workflow_phase=place.phase,
        round=action.round,
        rounds=run.limits.rounds,
        checkout=folder,
        document=document,
        instructions=instructions(action.step, _values(place, run, action, job, share)),
        pieces=tuple(_pieces(place, run, action, folder)),
        paths=tuple(place.blobs_of(place.start())),
        context=tuple(one.path for one in _documents(place, folder)),
        share=share,
        scope=place.scope(action.owed.agent_index) if action.step is Step.IMPLEMENT else NOTHING,
    )


def _values(place: Workplace, run: Run, action: Action, job: str, share: Share | None) -> dict[str, str]:
    package = place.package
    return {
        "WP_ID": package.work_package_id,
        "TITLE": package.title,
        "JOB_ID": job,
        "FEATURE_FOLDER": f"{place.project.config.paths.features}/{package.feature_slug}/",
        "ROUND": str(action.round),
        "ROUNDS": str(run.last_round),
        "DELIVERABLES": ", ".join(share.deliverables if share else package.deliverables.all) or "-",
        "SCOPE": ", ".join(place.scope(action.owed.agent_index).entries),
        "NOTE": _note(run, action, share),
    }


def _note(run: Run, action: Action, share: Share | None) -> str:
    """Why this run is asked for, if it is not the plain first one."""
    parts = [note("first")] if action.round == 1 else []
    if run.findings:
        parts = [note("revision", BEFORE=str(action.round - 1))]
    if action.owed.reason:
        parts.append(note("again" if action.owed.asked_again else "retry", REASON=action.owed.reason))
    if share is not None:
        files = ", ".join(share.deliverables)
        parts.append(note("share", INDEX=str(share.agent_index), COUNT=str(share.agent_count), FILES=files))
    return "\n".join(parts)


def _pieces(place: Workplace, run: Run, action: Action, folder: Path) -> Iterator[Piece]:
    """What the agent is shown besides the code: the package, the feature's documents, the findings."""
    yield Piece(PieceKind.TASKS, place.document_name, place.document)
    yield from role_of_phase(place.phase)
    for document in _documents(place, folder):
        yield Piece(PieceKind.ARTIFACT, document.name, document.text)
    if action.step is Step.REVIEW:
        yield from _about_the_work(place, run)
    if run.findings:
        yield Piece(PieceKind.FINDINGS, f"findings-{action.round - 1}.md", run.findings)


def _documents(place: Workplace, folder: Path) -> tuple[ContextDocument, ...]:
    return context_documents(place.project, place.package.feature_slug, place.start(), folder)


def _about_the_work(place: Workplace, run: Run) -> Iterator[Piece]:
    diff = diff_text(place.project.repository, place.start(), run.commit)
    yield Piece(PieceKind.REVISED, "change.diff", diff)
    yield Piece(PieceKind.REVISED, "evidence.md", place.evidence_file(run.round).read_text(encoding="utf-8"))
    files = (place.remarks_file(run.round), place.claims_file(run.round))
    if remarks := "".join(path.read_text(encoding="utf-8") for path in files):
        yield Piece(PieceKind.REVISED, "remarks.md", remarks)
