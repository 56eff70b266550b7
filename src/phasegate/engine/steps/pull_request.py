"""Publish, poll and merge a pull request; shared by features and packages.

Each step is safe to repeat: it looks for what exists before it creates anything, and it recognizes
a merge that was already made.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from phasegate.core.forge.pull_body import replace_own_part
from phasegate.core.forge.pull_decision import (
    PullDecision,
    PullProgress,
    PullRequest,
    PullRules,
    PullState,
    PullStep,
    build_marker,
    decide_pull_step,
    format_remark_finding,
)
from phasegate.core.machine.package_events import AcceptedRemark
from phasegate.engine.jobs.step import StepResult
from phasegate.engine.project.forge import open_forge
from phasegate.engine.project.project import Project
from phasegate.errors import EnvironmentUnavailable
from phasegate.forge.port import MergeOutcome, PullSpec
from phasegate.workspace.repository.merge import merge_trees
from phasegate.workspace.repository.remote import (
    PushResult,
    fetch_branch,
    get_remote_branch,
    push_branch,
)
from phasegate.workspace.repository.repository import Repository, is_ancestor, resolve_commit
from phasegate.workspace.repository.tree_diff import resolve_tree

_MAX_TITLE_CHARS = 120

E = TypeVar("E")


class ForgeProblem(NamedTuple):
    """A state of the forge that the user has to resolve."""

    reason: str
    remedy: str


class PullTarget(NamedTuple):
    """The branch, texts and progress of one pull request."""

    # Feature or package; part of the marker in the body
    name: str
    branch: str
    head: str
    base: str
    title: str
    # Description of the commit status that is set on the head
    status: str
    # Remarks that were accepted so far; the last `unanswered` of them have no reply yet
    remarks: tuple[AcceptedRemark, ...]
    unanswered: int
    # Number of the pull request, once it is published
    number: int = 0
    url: str = ""
    published_head: str = ""
    # Rounds that remarks have caused, since the user's last order
    remark_rounds: int = 0
    # The last recorded reason for waiting
    wait_reason: str = ""
    was_queued: bool = False


class PullRequestSteps(ABC, Generic[E]):
    """Steps of one feature or package on its forge.

    Subclasses provide the target, the events, the body and the checks.
    """

    published: Callable[[int, str, str], E]
    remarks_received: Callable[[tuple[AcceptedRemark, ...]], E]
    # Arguments: reason, whether it is queued, whether it needs the user
    waits: Callable[[str, bool, bool], E]
    merged: Callable[[str], E]
    held: Callable[[str, str], E]

    def __init__(self, project: Project, target: PullTarget, started_at: str) -> None:
        self.project = project
        self.target = target
        self.forge, self.remote = open_forge(project)
        # The start time distinguishes this run from another one with the same name.
        self._id = hashlib.sha256(f"{started_at} {target.name}".encode()).hexdigest()[:16]

    @property
    def marker(self) -> str:
        return build_marker(self._id, self.target.name)

    @abstractmethod
    def check_before_publish(self) -> E | None:
        """Return an event if the head must not be published."""

    @abstractmethod
    def render_body(self) -> str:
        """Render the body of the pull request, which contains the marker."""

    @abstractmethod
    def check_before_merge(self) -> StepResult[E]:
        """Check the head merged into the base. Events in the result stop the merge."""

    @abstractmethod
    def handle_conflict(self) -> StepResult[E]:
        """Send a conflict with the base to an agent, or stop. The result has no event if there is
        no conflict.
        """

    def publish_notices(self) -> tuple[str, ...]:
        """Return notices for the user about the publication of the pull request."""
        return ()

    def finish_merge(self, commit: str) -> StepResult[E]:
        """Record a merge that the forge has made."""
        return StepResult((self.merged(commit),))

    # --- publish

    def publish(self) -> StepResult[E]:
        """Push the reviewed head, and create or update the pull request."""
        target = self.target
        stopped = self.check_before_publish()
        if stopped is not None:
            return StepResult((stopped,))
        if problem := self.push(target.branch, target.head, target.published_head):
            return self.hold(problem)

        spec = self._make_spec()
        pull = self._ensure_pull_request(spec)
        if isinstance(pull, ForgeProblem):
            return self.hold(pull)

        problems: Sequence[str] = ()
        # Afterwards, labels and reviewers belong to people
        if pull.number != target.number:
            problems = self.forge.add_labels_and_reviewers(pull, spec)

        self.forge.set_status(target.head, True, target.status)
        self._reply_to_remarks(pull)

        return StepResult(
            (self.published(pull.number, pull.url, target.head),),
            notices=(*self.publish_notices(), *problems),
        )

    def push(self, branch: str, head: str, last_pushed: str) -> ForgeProblem | None:
        """Push a branch from where it was last pushed, or fast-forward it.

        Commits that another user pushed are never overwritten.
        """
        repository = self.project.repository
        remote_head = get_remote_branch(repository, self.remote, branch)
        if remote_head == head:
            return None

        if remote_head not in ("", last_pushed) and not _is_contained(
            repository, remote_head, head
        ):
            return ForgeProblem(
                f"{branch} on the forge is at {remote_head[:12]}, "
                "a commit that was not checked here",
                f"merge it into {branch}, or delete the branch on the forge; then resolve",
            )

        result, detail = push_branch(repository, self.remote, branch, remote_head, head)
        if result is PushResult.DONE:
            return None

        if result is PushResult.MOVED:
            return ForgeProblem(
                f"{branch} on the forge was moved during the push",
                "check who pushed to it, then resolve",
            )

        return ForgeProblem(
            f"the forge refuses the push of {branch}: {detail}",
            "check its branch rules, then resolve",
        )

    def _make_spec(self) -> PullSpec:
        """Return the wanted title, body, labels and reviewers of the pull request."""
        settings = self.project.config.merge
        target = self.target
        title = target.title
        if len(title) > _MAX_TITLE_CHARS:
            title = f"{title[: _MAX_TITLE_CHARS - 3]}..."

        return PullSpec(
            branch=target.branch,
            base=target.base,
            title=title,
            body=self.render_body(),
            draft=settings.draft,
            reviewers=settings.reviewers,
            labels=settings.labels,
        )

    def _ensure_pull_request(self, spec: PullSpec) -> PullRequest | ForgeProblem:
        """Update our part of the text of the open pull request, or create one.

        Its title, its draft status and the rest of the text belong to people.
        """
        target = self.target

        # The response to a creation may have been lost: the second pass finds the pull request.
        for _ in range(2):
            existing = next(iter(self.forge.find_pulls(target.branch, target.base)), None)
            if existing is not None:
                if self.marker not in existing.body and existing.number != target.number:
                    return ForgeProblem(
                        f"{existing.url} was opened from {target.branch} by another user",
                        "close it, then resolve",
                    )

                body = replace_own_part(existing.body, spec.body, self.marker)
                if existing.body.rstrip() == body.rstrip():
                    return existing
                return self.forge.update_body(existing, body)

            created = self.forge.create_pull(spec)
            if created is not None:
                return created

        return ForgeProblem(
            "the forge reports an existing pull request but does not list it",
            f"look for a pull request of {spec.branch} on the forge and close it, then resolve",
        )

    def _reply_to_remarks(self, pull: PullRequest) -> None:
        """Reply once to each remark of the round; the marker shows which ones have a reply."""
        target = self.target
        remarks = target.remarks[len(target.remarks) - target.unanswered :]
        if not remarks:
            return

        texts = "\n".join(remark.text for remark in self.forge.fetch_pull(pull.number).remarks)
        for remark in remarks:
            marker = build_marker(self._id, remark.id)
            if marker not in texts:
                self.forge.reply(pull.number, remark.thread, f"Done in {target.head}.\n\n{marker}")

    # --- poll

    def poll(self) -> StepResult[E]:
        """Poll the pull request once. The result has no event while there is nothing to do."""
        decision = self._decide()
        match decision.step:
            case PullStep.STOP:
                return self.hold(ForgeProblem(decision.reason, decision.remedy))
            case PullStep.FIX:
                remarks = tuple(
                    AcceptedRemark(remark.id, remark.thread, format_remark_finding(remark))
                    for remark in decision.remarks
                )
                return StepResult((self.remarks_received(remarks),))
            case PullStep.MERGE:
                return self._merge()
            case PullStep.MERGED:
                return self._confirm_merge(decision.reason)
            case PullStep.CONFLICT:
                handled = self.handle_conflict()
                return handled if handled.events else self._wait(decision)
            case _:
                return self._wait(decision)

    def _decide(self) -> PullDecision:
        """Look at the pull request, and decide the next step."""
        target = self.target
        settings = self.project.config.merge
        snapshot = self.forge.fetch_pull(target.number)
        if self._is_push_pending(snapshot.pull):
            return PullDecision(PullStep.WAIT, "the forge does not show the pushed commit yet")

        return decide_pull_step(
            snapshot,
            head=target.head,
            base=target.base,
            progress=PullProgress(
                handled_remarks=frozenset(remark.id for remark in target.remarks),
                remark_rounds=target.remark_rounds,
                was_queued=target.was_queued,
            ),
            rules=PullRules(
                auto_merge=settings.auto_merge,
                checks=settings.checks,
                max_remark_rounds=settings.max_remark_rounds,
                use_merge_queue=settings.use_merge_queue,
            ),
        )

    def _is_push_pending(self, pull: PullRequest) -> bool:
        """Return whether the branch is at our commit, but its pull request is not yet."""
        target = self.target
        if pull.state is not PullState.OPEN or pull.head == target.head:
            return False
        return get_remote_branch(self.project.repository, self.remote, target.branch) == target.head

    def _merge(self) -> StepResult[E]:
        """Check the merged tree, then let the forge merge the reviewed head."""
        checked = self.check_before_merge()
        # An event means that the pull request must not be merged.
        if checked.events:
            return checked

        settings = self.project.config.merge
        queue = settings.use_merge_queue
        # The checks took time: people and CI may have changed their verdict. The next poll says so
        if not queue and self._decide().step is not PullStep.MERGE:
            return StepResult(())

        answer = self.forge.merge_pull(
            self.target.number, self.target.head, settings.method, queue=queue
        )
        if answer.outcome is MergeOutcome.MERGED:
            return self._confirm_merge(answer.detail)._replace(trail_notes=checked.trail_notes)

        if answer.outcome is MergeOutcome.REFUSED:
            return self.hold(
                ForgeProblem(
                    f"the forge refuses the merge: {answer.detail}",
                    "check its rules and the rights of the token, then resolve; "
                    "or merge it on the forge",
                )
            )

        if answer.outcome is MergeOutcome.QUEUED:
            waiting = PullDecision(PullStep.WAIT, "it is in the merge queue")
            return self._wait(waiting, queued=self.forge.shows_queue)

        # As far as was known, it could be merged: what is in the way may need a user
        reason = f"the forge does not merge it yet: {answer.detail or answer.outcome}"
        needs_user = answer.outcome is MergeOutcome.NOT_YET
        return self._wait(PullDecision(PullStep.WAIT, reason, needs_user=needs_user))

    def _confirm_merge(self, commit: str) -> StepResult[E]:
        """Accept a merge that the forge reports only if the base on the forge contains it."""
        base = self.target.base
        repository = self.project.repository
        tip = fetch_branch(repository, self.remote, base)
        if tip and commit and _is_contained(repository, commit, tip):
            if _has_changes(repository, self.target.head, commit):
                return self.finish_merge(commit)
            missing = f"the changes of {self.target.branch} are not in it"
        else:
            missing = f"{base} on the forge does not contain it"

        return self.hold(
            ForgeProblem(
                f"the forge reports a merge as {commit[:12] or 'nothing'}, but {missing}",
                f"see what was merged: {self.target.url}; then resolve",
            )
        )

    def hold(self, problem: ForgeProblem) -> StepResult[E]:
        return StepResult((self.held(*problem),))

    def _wait(self, decision: PullDecision, *, queued: bool | None = None) -> StepResult[E]:
        """Record why it waits, if that has changed."""
        target = self.target
        is_queued = target.was_queued if queued is None else queued
        if (decision.reason, is_queued) == (target.wait_reason, target.was_queued):
            return StepResult((), notices=(f"waiting for {target.url}: {decision.reason}",))

        return StepResult((self.waits(decision.reason, is_queued, decision.needs_user),))


def _is_contained(repository: Repository, commit: str, head: str) -> bool:
    """Return whether a commit, which the local repository may lack, is in the history of a head."""
    return resolve_commit(repository, commit) is not None and is_ancestor(repository, commit, head)


def _has_changes(repository: Repository, head: str, commit: str) -> bool:
    """Return whether a commit contains the work of a head.

    A squash or a rebase leaves the head out of the history: then merging it must change nothing.
    """
    if is_ancestor(repository, head, commit):
        return True

    merged = merge_trees(repository, commit, head)
    return not merged.conflicts and merged.tree == resolve_tree(repository.place(), commit)


def delete_remote_branch(
    project: Project, branch: str, head: str, *notices_when_deleted: str
) -> tuple[str, ...]:
    """Delete a branch on the forge if it is still at this head. Return notices.

    A failure is reported and stops nothing.
    """
    repository = project.repository
    try:
        remote = open_forge(project).remote
        if get_remote_branch(repository, remote, branch) != head:
            return ()

        push_branch(repository, remote, branch, head, None)
    except EnvironmentUnavailable as error:
        return (f"{branch} may still exist on the forge: {error.message}",)

    return notices_when_deleted
