"""One small question to an agent and back, the way that every job goes: prompt, cage, trail, record.

It is asked in an empty repository that is thrown away. What it costs counts towards the limits, like any other job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.agents.port import Usage
from phasegate.config import Agent
from phasegate.config.cross_checks import suggestion
from phasegate.core.machine.package_events import End
from phasegate.core.prompt.document import UnifiedPrompt
from phasegate.engine.drive.local_context import local_desk
from phasegate.engine.jobs.admission import Admitted, DriverDesk, admit
from phasegate.engine.jobs.assignment import Assigned, Ended
from phasegate.engine.jobs.pool import Crew
from phasegate.engine.jobs.run_job import clear_away, last_seen, lost_row, run_job
from phasegate.engine.project.agents import Member, can_start, known_agents
from phasegate.engine.project.project import Project
from phasegate.engine.tools.agent_survey import lacks_a_sign_in
from phasegate.errors import ConfigError, StateConflict
from phasegate.prompts.shipped_texts import instructions
from phasegate.storage.row_events import job_started
from phasegate.storage.store import Store
from phasegate.workspace.export import export
from phasegate.workspace.objects import NewCommit, Signature, write_commits
from phasegate.workspace.removal import remove_tree
from phasegate.workspace.repository import NOBODY, keep_out_of_git

LONGEST_S = 300.0
LONGEST_SHOWN = 400
_LOOK_EVERY_S = 0.2


class RoundTrip(NamedTuple):
    """How it went."""

    agent: str
    ok: bool
    reason: str  # why not
    remedy: str
    answer: str  # what came back, shortened
    duration_s: float
    usage: Usage | None
    job: str
    logs: str  # the folder


def make_round_trip(project: Project, store: Store, name: str) -> RoundTrip:
    """Ask the agent for a word that it cannot guess, and see whether it comes back."""
    member = _member(project, name)
    job = project.clock.new_id()
    word = f"round-trip-{job[:8]}"
    with (
        local_desk(project, store) as desk,
        _empty_repository(project, job) as folder,
    ):
        assigned = _assigned(project, job, member, folder, instructions("round-trip", {"WORD": word}))
        admitted = admit(desk, assigned)
        store.append_now(assigned.feature, project.now(), [job_started(admitted.row)])
        ended = _run(desk, assigned, admitted)
        store.append_now(assigned.feature, project.now(), ended.rows)
        desk.trails.forget(job)
    store.anchor()
    return _told(project, assigned, ended, word)


def ask_in(project: Project, store: Store, member: Member, commit: str, text: str) -> tuple[str, str]:
    """Ask an agent in a copy of a commit that is thrown away: the job, and its answer. A run that fails is an error."""
    job = project.clock.new_id()
    folder = project.worktrees / f".ask-{job}"
    keep_out_of_git(project.repository, project.worktrees)
    try:
        export(project.repository, commit, folder, with_git=True)
        with local_desk(project, store) as desk:
            assigned = _assigned(project, job, member, folder, text)._replace(feature=f"discover-{project.now()[:10]}")
            admitted = admit(desk, assigned)
            store.append_now(assigned.feature, project.now(), [job_started(admitted.row)])
            ended = _run(desk, assigned, admitted)
            store.append_now(assigned.feature, project.now(), ended.rows)
            desk.trails.forget(job)
    finally:
        if folder.exists():
            remove_tree(folder)
    store.anchor()
    if ended.end is not End.DONE:
        raise StateConflict(f"{member.name} gave no answer: {ended.reason or ended.end}", ended.remediation)
    return job, ended.answer.text


def _member(project: Project, name: str) -> Member:
    """A configured agent, or a known program that nobody configured, by its name or its kind."""
    known = known_agents()
    by_kind = {str(agent.harness): agent for agent in known.values()}
    choices = {**by_kind, **known, **project.config.agents}
    if name not in choices:
        raise ConfigError(f"there is no agent {name}", suggestion(name, {**known, **project.config.agents}))
    if not can_start(project, choices[name]):
        raise ConfigError(f"the program of the agent {name} is not there", "phasegate agents says how to get it")
    if (missing := lacks_a_sign_in(choices[name])) is not None:
        raise ConfigError(f"{name} was not started: {missing.what}", missing.remedy)
    return Member(name, _in_time(choices[name]))


def _in_time(agent: Agent) -> Agent:
    return msgspec.structs.replace(agent, timeout_s=min(agent.timeout_s, LONGEST_S))


def _assigned(project: Project, job: str, member: Member, folder: Path, text: str) -> Assigned:
    return Assigned(
        job=job,
        agent=member.name,
        settings=member.settings,
        feature=f"agents-test-{project.now()[:10]}",
        work=None,
        phase="review",
        workflow_phase="",
        round=1,
        rounds=1,
        checkout=folder,
        document=None,
        instructions=text,
        pieces=(),
        paths=(),
        prompt=UnifiedPrompt(None, (), text).to_xml(),
    )


@contextmanager
def _empty_repository(project: Project, job: str) -> Iterator[Path]:
    """A checkout with nothing in it: nothing of the person's code is sent anywhere."""
    keep_out_of_git(project.repository, project.worktrees)
    nobody = Signature(NOBODY, 0)
    commit = write_commits(project.repository, [NewCommit((), nobody, nobody, "nothing", {})])[0]
    folder = project.worktrees / f".test-{job}"
    try:
        yield export(project.repository, commit, folder, with_git=True).folder
    finally:
        remove_tree(folder)


def _run(desk: DriverDesk, assigned: Assigned, admitted: Admitted) -> Ended:
    """In a thread, so that Ctrl-C ends the agent too; a job that was cut short is closed on record."""
    project = desk.project
    try:
        with Crew() as crew:
            crew.start(assigned.job, lambda announce: run_job(project, desk.trails, assigned, admitted, announce))
            while (came := crew.wait(_LOOK_EVERY_S)) is None:
                pass
            if isinstance(came.result, BaseException):
                raise came.result
            return came.result
    except BaseException:
        clear_away(project, assigned.job)
        lost = lost_row(admitted.row, last_seen(project, admitted.row))
        desk.record.append_now(assigned.feature, project.now(), [lost])
        raise


def _told(project: Project, assigned: Assigned, ended: Ended, word: str) -> RoundTrip:
    answer = ended.answer.text.strip()
    ok = ended.end is End.DONE and word in answer
    other = "it answered, but not with the word that it was asked for"
    reason = "" if ok else (other if ended.end is End.DONE else ended.reason or str(ended.end))
    wait = "wait until then" if ended.end is End.LIMITED else ""
    remedy = "" if ok else ended.remediation or wait or "read the log of the job, or try another model"
    return RoundTrip(
        agent=assigned.agent,
        ok=ok,
        reason=reason,
        remedy=remedy,
        answer=answer if len(answer) <= LONGEST_SHOWN else f"{answer[:LONGEST_SHOWN]} ...",
        duration_s=round(ended.finished.duration_s, 1),
        usage=ended.usage,
        job=assigned.job,
        logs=str(project.jobs / assigned.job),
    )
