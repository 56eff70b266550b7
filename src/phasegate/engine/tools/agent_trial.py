"""Send one small question to an agent, through prompt, sandbox, trail and record of every job.

It runs in an empty throw-away repository. Its cost counts towards the limits like any other job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.agents.port import Usage
from phasegate.config.cross_checks import suggest_name
from phasegate.config.settings import AgentSettings
from phasegate.core.machine.package_events import JobEndKind
from phasegate.core.prompt.document import UnifiedPrompt
from phasegate.engine.drive.local_context import open_local_context
from phasegate.engine.jobs.admission import Admission, DriverContext, admit_job
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.job_end import JobEnd
from phasegate.engine.jobs.job_threads import JobPool
from phasegate.engine.jobs.lost_jobs import clean_up_job, make_lost_row, read_last_seen
from phasegate.engine.jobs.run_job import run_job
from phasegate.engine.project.agents import NamedAgent, can_start_agent, list_builtin_agents
from phasegate.engine.project.project import Project
from phasegate.engine.tools.agent_survey import find_missing_sign_in
from phasegate.errors import ConfigError, StateConflict
from phasegate.prompts.shipped_texts import render_instructions
from phasegate.storage.journal_store import Store
from phasegate.storage.row_events import job_started_event
from phasegate.workspace.checkout.export import export_tree
from phasegate.workspace.checkout.removal import remove_tree
from phasegate.workspace.repository.objects import NewCommit, Signature, write_commits
from phasegate.workspace.repository.repository import FALLBACK_IDENTITY, exclude_folder_from_git

MAX_TIMEOUT_S = 300.0
MAX_ANSWER_CHARS = 400
_POLL_INTERVAL_S = 0.2


class RoundTrip(NamedTuple):
    """Result of a round trip."""

    agent: str
    ok: bool
    # Why the trial failed
    reason: str
    remedy: str
    # Shortened
    answer: str
    duration_s: float
    usage: Usage | None
    job: str
    # Folder
    logs: str


def make_round_trip(project: Project, store: Store, name: str) -> RoundTrip:
    """Ask the agent for a word that it cannot guess, and check that its answer has the word."""
    member = _find_member(project, name)
    job = project.clock.new_id()
    word = f"round-trip-{job[:8]}"
    text = render_instructions("round-trip", {"WORD": word})
    with _empty_repository(project, job) as folder:
        assigned = _build_job(project, job, member, folder, text)
        ended = _run_and_record(project, store, assigned)

    return _make_result(project, assigned, ended, word)


def ask_agent(
    project: Project,
    store: Store,
    member: NamedAgent,
    commit: str,
    text: str,
    purpose: str = "discover",
) -> tuple[str, str]:
    """Run an agent on a prompt in a temporary copy of a commit. Return the job id and the answer.

    It is recorded under its purpose and the day.

    Raise StateConflict if the job fails.
    """
    job = project.clock.new_id()
    folder = project.worktrees_folder / f".ask-{job}"
    exclude_folder_from_git(project.repository, project.worktrees_folder)

    try:
        export_tree(project.repository, commit, folder, with_git=True)
        assigned = _build_job(project, job, member, folder, text)._replace(
            feature=f"{purpose}-{project.now()[:10]}"
        )
        ended = _run_and_record(project, store, assigned)
    finally:
        if folder.exists():
            remove_tree(folder)

    if ended.outcome is not JobEndKind.DONE:
        raise StateConflict(
            f"{member.name} did not answer: {ended.reason or ended.outcome}", ended.remediation
        )

    return job, ended.answer.text


def _run_and_record(project: Project, store: Store, assigned: JobAssignment) -> JobEnd:
    """Run the trial job and record its start and end."""
    with open_local_context(project, store) as context:
        admitted = admit_job(context, assigned)
        store.append_unconditionally(
            assigned.feature, project.now(), [job_started_event(admitted.started_row)]
        )
        ended = _run_trial_job(context, assigned, admitted)
        store.append_unconditionally(assigned.feature, project.now(), ended.rows)
        context.trails.forget(assigned.job_id)

    store.anchor()
    return ended


def _find_member(project: Project, name: str) -> NamedAgent:
    """Find a configured agent, or a known program by its name or harness."""
    known = list_builtin_agents()
    by_kind = {str(agent.harness): agent for agent in known.values()}
    choices = {**by_kind, **known, **project.config.agents}
    if name not in choices:
        raise ConfigError(
            f"there is no agent {name}", suggest_name(name, {**known, **project.config.agents})
        )

    if not can_start_agent(project, choices[name]):
        raise ConfigError(
            f"the program of agent {name} is not installed",
            "phasegate agents shows how to install it",
        )

    if (missing := find_missing_sign_in(choices[name])) is not None:
        raise ConfigError(f"{name} was not started: {missing.what}", missing.remedy)

    return NamedAgent(name, _with_time_limit(choices[name]))


def _with_time_limit(agent: AgentSettings) -> AgentSettings:
    return msgspec.structs.replace(agent, timeout_s=min(agent.timeout_s, MAX_TIMEOUT_S))


def _build_job(
    project: Project, job: str, member: NamedAgent, folder: Path, text: str
) -> JobAssignment:
    """Build the assignment of a trial job."""
    return JobAssignment(
        job_id=job,
        agent=member.name,
        settings=member.settings,
        feature=f"agents-test-{project.now()[:10]}",
        package=None,
        role="review",
        phase="",
        round=1,
        max_rounds=1,
        checkout=folder,
        package_document=None,
        instructions=text,
        pieces=(),
        paths=(),
        prepared_prompt=UnifiedPrompt(None, (), text).to_xml(),
    )


@contextmanager
def _empty_repository(project: Project, job: str) -> Iterator[Path]:
    """Yield an empty checkout, so that none of the user's code is sent anywhere."""
    exclude_folder_from_git(project.repository, project.worktrees_folder)
    signature = Signature(FALLBACK_IDENTITY, 0)
    commit = write_commits(
        project.repository,
        [NewCommit(parents=(), author=signature, committer=signature, message="nothing", paths={})],
    )[0]
    folder = project.worktrees_folder / f".test-{job}"
    try:
        yield export_tree(project.repository, commit, folder, with_git=True).folder
    finally:
        remove_tree(folder)


def _run_trial_job(context: DriverContext, assigned: JobAssignment, admitted: Admission) -> JobEnd:
    """Run the job in a thread, so that Ctrl-C ends the agent too.

    An interrupted job is recorded as lost.
    """
    project = context.project

    try:
        with JobPool() as pool:
            pool.start_job(
                assigned.job_id,
                lambda announce: run_job(project, context.trails, assigned, admitted, announce),
            )
            while (result := pool.wait_for_result(_POLL_INTERVAL_S)) is None:
                pass

            if isinstance(result.outcome, BaseException):
                raise result.outcome
            return result.outcome
    except BaseException:
        clean_up_job(project, assigned.job_id)
        lost = make_lost_row(admitted.started_row, read_last_seen(project, admitted.started_row))
        context.record.append_unconditionally(assigned.feature, project.now(), [lost])
        raise


def _make_result(project: Project, assigned: JobAssignment, ended: JobEnd, word: str) -> RoundTrip:
    """Return whether an agent answered with the requested word, or why not."""
    answer = ended.answer.text.strip()
    ok = ended.outcome is JobEndKind.DONE and word in answer
    reason = ended.reason or str(ended.outcome)
    remedy = ended.remediation or "read the log of the job, or try another model"
    if ok:
        reason = remedy = ""
    elif ended.outcome is JobEndKind.DONE:
        reason = "its answer does not contain the requested word"
    elif ended.outcome is JobEndKind.RATE_LIMITED:
        remedy = ended.remediation or "wait until then"

    return RoundTrip(
        agent=assigned.agent,
        ok=ok,
        reason=reason,
        remedy=remedy,
        answer=answer if len(answer) <= MAX_ANSWER_CHARS else f"{answer[:MAX_ANSWER_CHARS]} ...",
        duration_s=round(ended.finished.duration_s, 1),
        usage=ended.usage,
        job=assigned.job_id,
        logs=str(project.jobs_folder / assigned.job_id),
    )
