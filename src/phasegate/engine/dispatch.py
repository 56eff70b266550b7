"""A work package carried through implementation, manifest, review and merge: decide, act, record, again.

Every act is idempotent or recorded before and after, so that a dispatcher that was killed is followed by one that goes
on. The rules say what is next (`rules/package_run`); nothing here decides about the work.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event as Cancelled
from typing import NamedTuple

from phasegate.agents.envelope import Share
from phasegate.agents.port import NOTHING
from phasegate.config import Agent
from phasegate.engine.context_documents import context_documents
from phasegate.engine.jobs import Assigned, Ended, run_job, started_row
from phasegate.engine.packages import PackageJournal, Planned, allowed_paths, refuse_unready
from phasegate.engine.project import Project, new_id, now
from phasegate.engine.validation import Checker, describe, failures_of
from phasegate.errors import ConfigError, StateConflict
from phasegate.prompts.instructions import instructions, note
from phasegate.record.lock import feature_lock, repository_lock
from phasegate.record.row_events import job_started
from phasegate.record.rows import Event
from phasegate.record.store import Store
from phasegate.record.trails import Trails
from phasegate.rules.budget import Kind, Piece
from phasegate.rules.package_run import (
    Action,
    Cleaned,
    End,
    Happened,
    Harvested,
    JobEnded,
    JobStarted,
    Limits,
    Merged,
    NotMerged,
    Prepared,
    Resolved,
    Reviewed,
    Run,
    Step,
    Validated,
    decide,
)
from phasegate.rules.retry import back_off_s
from phasegate.rules.scope import Scope, changed_lock_files, judge
from phasegate.rules.work_package import State, split
from phasegate.workspace.changes import Observation, TooMuch, observe
from phasegate.workspace.checkout import Assignment, Checkout, find_checkout
from phasegate.workspace.export import export
from phasegate.workspace.harvest import Harvest, harvest
from phasegate.workspace.log import blobs_of, diff_text
from phasegate.workspace.making import Terms
from phasegate.workspace.merge import AlreadyMerged, Conflict, finish_merge, prepare_merge
from phasegate.workspace.refs import BRANCHES, RefMoved
from phasegate.workspace.removal import remove_tree
from phasegate.workspace.repository import read_refs
from phasegate.workspace.trees import differences
from phasegate.workspace.upkeep import (
    Unsaved,
    bring_up_to_date,
    open_feature,
    remove_checkout,
    start_over,
    take_checkout,
)

Say = Callable[[str], None]
MOST_MERGE_TRIES = 20
LONGEST_MERGE_WAIT_S = 6 * 3600.0  # others check their merged trees meanwhile; a lock never outlives its process


class Report(NamedTuple):
    """Where a package stands when the dispatcher stops."""

    package: str
    feature: str
    state: State
    round: int
    branch: str
    commit: str
    reason: str
    remediation: str

    @property
    def accepted(self) -> bool:
        return self.state is State.DONE


def dispatch(
    project: Project, store: Store, one: Planned, *, agent: str | None, say: Say, cancelled: Cancelled | None = None
) -> Report:
    """Carry a package to DONE or BLOCKED, from wherever it stands."""
    package = one.package
    refuse_unready(store, one)
    lock = f"{package.feature_slug}-{package.work_package_id}"
    with (
        feature_lock(project.location.locks, lock, f"dispatch {package.work_package_id}", now()),
        Trails.create(project.location, store.heads.path.parent, new_id()) as trails,
    ):
        work = _Dispatch(project, store, trails, one, agent, say, cancelled or Cancelled())
        try:
            return work.carry_on()
        finally:
            store.anchor()


class _Dispatch:
    """One package, one dispatcher."""

    def __init__(
        self,
        project: Project,
        store: Store,
        trails: Trails,
        one: Planned,
        agent: str | None,
        say: Say,
        cancelled: Cancelled,
    ) -> None:
        self._project, self._store, self._trails = project, store, trails
        self._package, self._document = one.package, one.document
        self._agent, self._say, self._cancelled = agent, say, cancelled
        _, settings = self._agent_for("implement")
        self._count = max(one.package.num_agents, settings.num_agents)
        limits = Limits(project.config.run.max_review_cycles, settings.max_retries, self._count)
        self._journal = PackageJournal(store, one.package, limits)
        self._steps: dict[Step, Callable[[Action], None]] = {
            Step.PREPARE: self._prepare,
            Step.IMPLEMENT: self._implement,
            Step.HARVEST: self._harvest,
            Step.VALIDATE: self._validate,
            Step.REVIEW: self._review,
            Step.MERGE: self._merge,
            Step.CLEAN: self._clean,
        }

    @property
    def _run(self) -> Run:
        return self._journal.run

    def carry_on(self) -> Report:
        self._pick_up()
        while (action := decide(self._run)).step is not Step.STOP:
            if self._cancelled.is_set():
                raise KeyboardInterrupt
            self._steps[action.step](action)
        run, package = self._run, self._package
        return Report(
            package.work_package_id,
            package.feature_slug,
            run.state,
            run.round,
            package.branch,
            run.commit,
            run.reason,
            run.remediation,
        )

    def _record(self, *events: Happened, rows: tuple[Event, ...] = ()) -> None:
        before = self._run.state
        run = self._journal.record(events, rows)
        if run.state is not before:
            self._say(f"{self._package.work_package_id} {before} -> {run.state}")

    def _pick_up(self) -> None:
        """Go on from what the journal says: a job that nobody saw the end of is run again, from a clean beginning."""
        if self._run.state is State.BLOCKED:
            self._record(Resolved("dispatched again by a person"))
        if self._run.open_job is not None:
            index = self._run.open_job.agent_index
            found = find_checkout(self._project.repository, self._assignment(index))
            if found is not None and self._run.step is Step.IMPLEMENT:
                self._renewed(bring_up_to_date(found, self._terms()))
            self._record(JobEnded(self._run.open_job.job, End.LOST, "the dispatcher died before its end"))

    # --- the steps

    def _prepare(self, _: Action) -> None:
        repository, package = self._project.repository, self._package
        base = open_feature(repository, package.feature_slug, current_branch(self._project))
        for index in range(self._count):
            self._checkout(index)
        self._say(f"{package.work_package_id}: worktree ready at {package.worktree}")
        self._record(Prepared(base))

    def _implement(self, action: Action) -> None:
        if self._run.retries:
            self._wait(back_off_s(self._run.retries, random.random()))  # noqa: S311 - jitter, no secret
        checkout = self._checkout(action.agent_index)
        assigned = self._assigned("implement", action, checkout.folder)
        ended = self._run_agent(assigned, action)
        end = JobEnded(assigned.job, ended.end, ended.reason, ended.remediation, ended.cleanup)
        if ended.cleanup:
            self._renewed(start_over(checkout, self._terms()))
        self._record(end, rows=ended.rows)
        self._trails.forget(assigned.job)

    def _harvest(self, _: Action) -> None:
        seen = [(checkout, observe(checkout)) for checkout in map(self._checkout, range(self._count))]
        violations = [text for index, (_, look) in enumerate(seen) for text in self._violations(index, look)]
        if violations:
            self._record(Harvested(violations=tuple(violations)))
            return
        tip, remarks = "", []
        for index, (checkout, look) in enumerate(seen):
            assert not isinstance(look, TooMuch)
            remarks += [*self._remarks(index, look)]
            tip = self._taken_over(index, checkout, look)
        self._remarks_file.parent.mkdir(parents=True, exist_ok=True)
        self._remarks_file.write_text("".join(f"- {remark}\n" for remark in remarks), encoding="utf-8")
        start = self._start()
        changed = bool(differences(self._project.repository.place(), start, tip))
        self._record(Harvested(tip if changed else ""))

    def _violations(self, index: int, look: Observation | TooMuch) -> Iterator[str]:
        if isinstance(look, TooMuch):
            yield f"the checkout holds more than {look.limit} {look.what}"
            return
        tracked = blobs_of(self._project.repository, self._start())
        for violation in judge(look.changes, self._scope(index), tracked):
            yield f"{violation.path}: {violation.detail}"

    def _remarks(self, index: int, look: Observation) -> Iterator[str]:
        """What is no violation, and for the reviewer to know (D03, D09)."""
        passing, planted = ([change.path for change in changes] for changes in (look.passing, look.git_directory))
        found = {
            "locks": changed_lock_files(look.changes, self._scope(index)),
            "passing": passing,
            "git_directory": planted,
        }
        for name, paths in found.items():
            if paths:
                remark = note(name, FILES=", ".join(paths))
                self._say(f"{self._package.work_package_id}: {remark}")
                yield remark

    def _taken_over(self, index: int, checkout: Checkout, look: Observation) -> str:
        scope = self._scope(index)
        taken = harvest(
            checkout,
            look,
            lambda path: not scope.is_litter(path) and (scope.covers(path) or scope.is_lock_file(path)),
            committer=self._project.signature(),
            title=f"{self._package.work_package_id}: {self._package.title}",
        )
        if not isinstance(taken, Harvest):
            raise StateConflict(f"the work could not be taken over: {taken}", "dispatch again")
        return taken.tip

    def _validate(self, _: Action) -> None:
        commit = self._run.commit
        evidence = Checker(self._project, self._package, self._start()).check(commit)
        self._evidence_file.parent.mkdir(parents=True, exist_ok=True)
        self._evidence_file.write_text(describe(evidence), encoding="utf-8")
        failures = failures_of(evidence)
        names = ", ".join(check.name for check in evidence.failures)
        self._say(f"{self._package.work_package_id}: manifest {'failed: ' + names if names else 'passed'}")
        self._record(Validated(commit, failures))

    def _review(self, action: Action) -> None:
        room = self._project.worktrees / f".review-{self._package.feature_slug}-{self._package.work_package_id}"
        if room.exists():
            remove_tree(room)
        export(self._project.repository, self._run.commit, room, with_git=True)
        assigned = self._assigned("review", action, room)
        ended = self._run_agent(assigned, action)
        end = JobEnded(assigned.job, ended.end, ended.reason, ended.remediation)
        verdict = ended.answer.verdict
        judged = [Reviewed(verdict, ended.answer.text)] if ended.end is End.DONE and verdict else []
        self._record(end, *judged, rows=ended.rows)
        self._trails.forget(assigned.job)
        remove_tree(room)

    def _merge(self, _: Action) -> None:
        """One package of a feature after the other: each checks its merged tree once, however many there are."""
        queue = f"merge-{self._package.feature_slug}"
        with repository_lock(self._project.location.locks, queue, LONGEST_MERGE_WAIT_S):
            for _try in range(MOST_MERGE_TRIES):
                done = self._try_to_merge()
                if done is not None:
                    self._record(done)
                    return
        raise StateConflict(f"feat/{self._package.feature_slug} keeps moving", "dispatch again")

    def _try_to_merge(self) -> Merged | NotMerged | None:
        """Merge on paper, check the merged tree, then move the ref if it still is where it was."""
        package, repository = self._package, self._project.repository
        target = f"feat/{package.feature_slug}"
        message = f"{package.work_package_id}: merge into {target}\n"
        made = prepare_merge(repository, package.branch, target, message, self._project.signature())
        if isinstance(made, AlreadyMerged):
            return Merged(made.commit)
        if isinstance(made, Conflict):
            self._renew_all()
            return NotMerged(note("conflict", TARGET=target, REASON=f"conflicts in {', '.join(made.paths)}"))
        if made.expected != self._start():
            # Measured from where the branch is now: what others merged meanwhile is not this package's to answer for.
            evidence = Checker(self._project, package, made.expected).check(made.commit)
            if not evidence.passed:
                return NotMerged("\n".join(failures_of(evidence)))
        finished = finish_merge(repository, made)
        if isinstance(finished, AlreadyMerged):
            return Merged(finished.commit)
        if isinstance(finished, RefMoved):
            return None
        raise StateConflict(
            f"{target} cannot be moved: {finished}", "commit or stash what is in the way, then dispatch"
        )

    def _clean(self, _: Action) -> None:
        for index in range(self._count):
            found = find_checkout(self._project.repository, self._assignment(index))
            if found is not None:
                removed = remove_checkout(found, self._project.signature(), keep_for_reuse=True)
                if isinstance(removed, Unsaved):
                    self._say(f"{self._package.work_package_id}: {removed.folder} is kept: {removed.reason}")
        self._record(Cleaned())

    # --- what the steps share

    def _assignment(self, index: int) -> Assignment:
        package = self._package
        return Assignment(package.feature_slug, package.work_package_id, index if self._count > 1 else None)

    def _terms(self) -> Terms:
        signature = self._project.signature()
        return Terms(signature.who, signature, set_aside=(self._document_name,), worktrees=self._project.worktrees)

    @property
    def _document_name(self) -> str:
        return f"{self._package.work_package_id}.md"

    def _checkout(self, index: int) -> Checkout:
        checkout = take_checkout(self._project.repository, self._assignment(index), self._terms())
        (checkout.folder / self._document_name).write_text(self._document, encoding="utf-8")
        return checkout

    def _renewed(self, renewed: object) -> None:
        if isinstance(renewed, Unsaved):
            raise StateConflict(f"{renewed.folder} cannot be reset: {renewed.reason}", "look into it, then dispatch")

    def _renew_all(self) -> None:
        for index in range(self._count):
            self._renewed(bring_up_to_date(self._checkout(index), self._terms()))

    def _start(self) -> str:
        """The commit that the work is measured from: the head of the feature's branch when the checkout was made."""
        return self._checkout(0).start

    def _share(self, index: int) -> Share | None:
        if self._count == 1:
            return None
        return Share(index, self._count, split(self._package.deliverables.all, self._count)[index])

    def _scope(self, index: int) -> Scope:
        """What an agent may change; of several, each owns its part of the deliverables alone (D11)."""
        allowed = allowed_paths(self._store, self._package)
        share = self._share(index)
        if share is None:
            return self._package.scope(allowed)
        set_aside = (self._document_name,)
        return Scope(share.deliverables, exceptions=allowed, set_aside=set_aside)

    def _agent_for(self, role: str) -> tuple[str, Agent]:
        agents, roles = self._project.config.agents, self._project.config.roles
        name = self._agent or roles.get(role) or (next(iter(agents)) if len(agents) == 1 else "")
        if name in agents:
            return name, agents[name]
        if not agents:
            raise ConfigError("no agent is configured", "add one to phasegate.toml: [agents.NAME] with its harness")
        raise ConfigError(
            f"no agent has the role {role}", f"set [roles] {role} in phasegate.toml, or --agent: {', '.join(agents)}"
        )

    def _assigned(self, phase: str, action: Action, folder: Path) -> Assigned:
        name, settings = self._agent_for(phase)
        job, package = new_id(), self._package
        document = folder / self._document_name
        document.write_text(self._document, encoding="utf-8")
        share = self._share(action.agent_index) if phase == "implement" else None
        values = {
            "WP_ID": package.work_package_id,
            "TITLE": package.title,
            "JOB_ID": job,
            "FEATURE_FOLDER": f"{self._project.config.paths.features}/{package.feature_slug}/",
            "ROUND": str(action.round),
            "ROUNDS": str(self._run.limits.rounds),
            "DELIVERABLES": ", ".join(share.deliverables if share else package.deliverables.all) or "-",
            "SCOPE": ", ".join(self._scope(action.agent_index).entries),
            "NOTE": self._note(action, share),
        }
        return Assigned(
            job,
            name,
            settings,
            package.feature_slug,
            package,
            phase,
            "06-implementation",
            action.round,
            self._run.limits.rounds,
            folder,
            document,
            instructions(phase, values),
            tuple(self._pieces(phase, action)),
            tuple(blobs_of(self._project.repository, self._start())),
            tuple(one.path for one in context_documents(self._project, package.feature_slug)),
            share,
            scope=self._scope(action.agent_index) if phase == "implement" else NOTHING,  # a reviewer changes nothing
        )

    def _note(self, action: Action, share: Share | None) -> str:
        """Why this run is asked for, if it is not the plain first one."""
        parts = [note("first" if action.round == 1 else "revision", BEFORE=str(action.round - 1))]
        if action.note:
            parts.append(note("again" if self._run.asked_again else "retry", REASON=action.note))
        if share is not None:
            files = ", ".join(share.deliverables)
            parts.append(note("share", INDEX=str(share.agent_index), COUNT=str(share.agent_count), FILES=files))
        return "\n".join(parts)

    def _pieces(self, phase: str, action: Action) -> Iterator[Piece]:
        """What the agent is shown besides the code: the package, the feature's documents, the findings."""
        yield Piece(Kind.TASKS, self._document_name, self._document)
        for document in context_documents(self._project, self._package.feature_slug):
            yield Piece(Kind.ARTIFACT, document.name, document.text)
        if phase == "review":
            yield Piece(
                Kind.REVISED, "change.diff", diff_text(self._project.repository, self._start(), self._run.commit)
            )
            yield Piece(Kind.REVISED, "evidence.md", self._evidence_file.read_text(encoding="utf-8"))
            if remarks := self._remarks_file.read_text(encoding="utf-8"):
                yield Piece(Kind.REVISED, "remarks.md", remarks)
        if self._run.findings:
            yield Piece(Kind.FINDINGS, f"findings-{action.round - 1}.md", self._run.findings)

    @property
    def _evidence_file(self) -> Path:
        name = f"{self._package.work_package_id}-{self._run.round}.md"
        return self._project.location.folder / "evidence" / self._package.feature_slug / name

    @property
    def _remarks_file(self) -> Path:
        return self._evidence_file.with_suffix(".remarks.md")

    def _run_agent(self, assigned: Assigned, action: Action) -> Ended:
        which = f" (agent {action.agent_index})" if self._count > 1 and assigned.phase == "implement" else ""
        self._say(f"{self._package.work_package_id}: round {action.round}, {assigned.phase} by {assigned.agent}{which}")
        started, row = JobStarted(assigned.job, assigned.phase, action.round, action.agent_index), started_row(assigned)
        self._record(started, rows=(job_started(row),))
        ended = run_job(self._project, self._store, self._trails, assigned, row)
        if ended.reason:
            self._say(f"{self._package.work_package_id}: {assigned.phase} {ended.end}: {ended.reason}")
        return ended

    def _wait(self, seconds: float) -> None:
        self._say(f"{self._package.work_package_id}: trying again in {seconds:.0f} s")
        if self._cancelled.wait(seconds):
            raise KeyboardInterrupt


def current_branch(project: Project) -> str:
    """The branch that the person has checked out: the base of a new feature."""
    head = (project.repository.git_dir / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref: " + BRANCHES):
        raise StateConflict("HEAD is detached", "check out the branch that the feature is to be based on")
    branch = head.removeprefix("ref: " + BRANCHES)
    if not read_refs(project.repository, BRANCHES + branch):
        raise StateConflict(f"{branch} has no commit yet", "commit something first")
    return branch
