"""What agents left in their checkouts.

Judged by the scope, taken over, remarked on for the reviewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from phasegate.checks.secrets import find_secrets
from phasegate.core.agents.secrets import NO_SECRETS, SecretMatcher
from phasegate.core.machine.package_events import AnyPackageEvent, Harvested
from phasegate.core.machine.package_machine import PackageRun
from phasegate.core.paths.scope import (
    LITTER_PATTERNS,
    Scope,
    Violation,
    find_violations,
    list_changed_lock_files,
)
from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.checks.manifest import find_added_lines
from phasegate.engine.jobs.assignment import MAX_NAMES_SHOWN
from phasegate.engine.jobs.step import StepContext, StepResult
from phasegate.engine.jobs.trail_notes import TrailNoteBuilder
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.errors import StateConflict
from phasegate.prompts.shipped_texts import render_note
from phasegate.workspace.changes import CheckoutTooLarge, Observation, observe_checkout
from phasegate.workspace.checkout import Checkout
from phasegate.workspace.checkout_files import DiskEntry
from phasegate.workspace.checkout_lifecycle import UnsavedWork, reset_checkout
from phasegate.workspace.commit_log import commits_between
from phasegate.workspace.harvest import Harvest, harvest_checkout
from phasegate.workspace.leaked_secrets import find_leaks
from phasegate.workspace.merge import AlreadyMerged, MergeConflict, prepare_merge
from phasegate.workspace.objects import Signature
from phasegate.workspace.refs import RefMoved, missing_branch_error
from phasegate.workspace.tree_diff import diff_trees


def harvest_package(
    workspace: PackageWorkspace, run: PackageRun, context: StepContext, *, is_resumed: bool = False
) -> StepResult[AnyPackageEvent]:
    """Look at every checkout.

    If all of them are within their scope, join them on the package's branch.

    `is_resumed`: a dispatcher before this one saw the agents end. If nothing is found then, a power
    failure may have taken it: that is no round that changed nothing, and another one goes on
    without a person.
    """
    notes = TrailNoteBuilder(workspace.project, context.workers)
    title = f"{workspace.package.work_package_id}: {workspace.package.title}"
    found = [
        AgentChanges(
            checkout,
            workspace.scope(index, context.scope_exceptions),
            title,
            workspace.signature(),
            workspace.litter,
            workspace.lent_secrets,
        )
        for index, checkout in enumerate(workspace.ensure_checkouts())
    ]

    for index in range(workspace.agent_count):
        workspace.disarm_checkout(index)

    strayed = [
        tuple(_add_owner(workspace, index, text) for text in left.find_violations())
        for index, left in enumerate(found)
    ]
    for index, texts in enumerate(strayed):
        notes.add_violations(texts, index)

    violations = tuple(text for texts in strayed for text in texts) or tuple(
        _find_conflicting_lock_files(found)
    )
    if violations:
        return StepResult((Harvested(violations=violations),), trail_notes=notes.entries)

    if leaking := [
        (left.checkout, texts)
        for left in found
        if (texts := tuple(dict.fromkeys(left.find_leaks())))
    ]:
        renewed = [
            reset_checkout(checkout, workspace.checkout_options()) for checkout, _ in leaking
        ]
        kept = tuple(
            f"{one.folder} is not reset: {one.reason}"
            for one in renewed
            if isinstance(one, UnsavedWork)
        )
        leaks = tuple(text for _, texts in leaking for text in texts)[:MAX_NAMES_SHOWN]
        notes.add_violations(f"{text}: it holds a key that was lent to the agent" for text in leaks)
        return StepResult(
            events=(Harvested(leaks=leaks),), rows=(), notices=kept, trail_notes=notes.entries
        )

    taken = [left.commit_to_branch() for left in found]
    remarks = (
        *(remark for left in found for remark in left.remarks()),
        *_renamed_commit_remarks(workspace, taken),
    )
    paper = write_remarks(
        workspace.project, remarks, workspace.evidence_path(run.round, ".remarks")
    )
    notes.add_commits(taken, run.commit or found[0].checkout.start)
    tip = taken[-1].tip
    if diff_trees(workspace.project.repository.place(), found[0].checkout.base, tip):
        commit = tip
    else:
        commit = ""

    base = () if commit else workspace.blobs_of(found[0].checkout.base)
    there = tuple(path for path in workspace.package.deliverables.all if path in base)[
        :MAX_NAMES_SHOWN
    ]
    event = Harvested(
        commit=commit,
        remarks=paper,
        there=there,
        unchanged=commit == run.previous_commit and not is_resumed,
    )

    return StepResult(events=(event,), notices=remarks, trail_notes=notes.entries)


def write_remarks(project: Project, remarks: Sequence[str], name: str) -> str:
    """A paper for the reviewer with these remarks; none at all is no paper."""
    if remarks:
        return project.document_store.put(
            "".join(f"- {remark}\n" for remark in remarks).encode(), name
        )
    return ""


def _renamed_commit_remarks(
    workspace: PackageWorkspace, harvests: Sequence[Harvest]
) -> Iterator[str]:
    """The commits that got the package's name in front, for the reviewer to know that it is not the
    agent's.
    """
    titles = [
        one.message.partition("\n")[0]
        for harvest in harvests
        for one in harvest.commits
        if one.message_changed
    ]

    if titles:
        yield render_note(
            "renamed", WP_ID=workspace.package.work_package_id, COMMITS=summarize_paths(titles)
        )


def _add_owner(workspace: PackageWorkspace, index: int, violation: str) -> str:
    """A violation, and whose file it is where another agent of the package owns it."""
    path = violation.partition(": ")[0]
    owners = (other for other in range(workspace.agent_count) if other != index)
    for other in owners:
        share = workspace.share(other)
        if share is not None and path in share.deliverables:
            return f"{violation}; it is the file of agent {other}"

    return violation


def _find_conflicting_lock_files(found: Sequence[AgentChanges]) -> Iterator[str]:
    """Lock files are everybody's: two agents may have changed one, each in another way."""
    first: dict[str, DiskEntry | None] = {}
    for left in found:
        for path, version in left.versions.items():
            if first.setdefault(path, version) != version:
                yield escape_unprintable(f"{path}: two agents changed it, each in another way")


def render_violations(violations: Sequence[Violation]) -> Iterator[str]:
    """Each violation as it goes on record: an agent's file names need not be text, nor few."""
    for violation in violations[:MAX_NAMES_SHOWN]:
        yield escape_unprintable(f"{violation.path}: {violation.detail}")
    if len(violations) > MAX_NAMES_SHOWN:
        yield f"and {len(violations) - MAX_NAMES_SHOWN} more"


def summarize_paths(paths: Sequence[str]) -> str:
    """The first of these paths, and how many more there are."""
    if len(paths) > MAX_NAMES_SHOWN:
        more = [f"and {len(paths) - MAX_NAMES_SHOWN} more"]
    else:
        more = []
    return ", ".join([*map(escape_unprintable, paths[:MAX_NAMES_SHOWN]), *more])


class AgentChanges:
    """What one agent left in its checkout."""

    def __init__(
        self,
        checkout: Checkout,
        scope: Scope,
        title: str,
        committer: Signature,
        litter: tuple[str, ...] = LITTER_PATTERNS,
        lent_secrets: SecretMatcher = NO_SECRETS,
    ) -> None:
        self.checkout = checkout
        self._lent_secrets = lent_secrets
        self._scope = scope
        self._title = title
        self._committer = committer
        self._observation: Observation | CheckoutTooLarge = observe_checkout(
            checkout, litter=litter
        )

    @property
    def versions(self) -> Mapping[str, DiskEntry | None]:
        if isinstance(self._observation, CheckoutTooLarge):
            return {}
        return self._observation.versions

    def find_violations(self) -> Iterator[str]:
        if isinstance(self._observation, CheckoutTooLarge):
            yield f"the checkout holds more than {self._observation.limit} {self._observation.what}"
            return

        outside = find_violations(
            self._observation.changes, self._scope, self._observation.tracked_files
        )
        yield from map(self._lent_secrets.redact, render_violations(outside))

    def find_leaks(self) -> Iterator[str]:
        """Where a key stands that was lent to the agent."""
        if not isinstance(self._observation, CheckoutTooLarge):
            yield from find_leaks(
                self.checkout, self._observation, self._is_deliverable, self._lent_secrets
            )

    def remarks(self) -> Iterator[str]:
        """What is no violation, and for the reviewer to know."""
        assert not isinstance(self._observation, CheckoutTooLarge)
        found = {
            "locks": list_changed_lock_files(self._observation.changes, self._scope),
            "passing": [change.path for change in self._observation.transient_changes],
            "git_directory": [change.path for change in self._observation.git_directory_changes],
        }
        for name, paths in found.items():
            if paths:
                yield render_note(name, FILES=self._lent_secrets.redact(summarize_paths(paths)))

    def _is_deliverable(self, path: str) -> bool:
        return not self._scope.is_litter(path) and (
            self._scope.covers(path) or self._scope.is_lock_file(path)
        )

    def commit_to_branch(self) -> Harvest:
        """The work's branch, with what this agent may deliver put on it.

        A second time is no harm.
        """
        assert not isinstance(self._observation, CheckoutTooLarge)
        taken = harvest_checkout(
            self.checkout,
            self._observation,
            self._is_deliverable,
            committer=self._committer,
            title=self._title,
        )

        if isinstance(taken, RefMoved) and taken.actual is None:
            raise missing_branch_error(self.checkout.repository, self.checkout.assignment.branch)
        if not isinstance(taken, Harvest):
            raise StateConflict(f"the work could not be taken over: {taken}", "try it again")

        return taken


_MAX_ATTEMPTS = 5


def harvest_documents(
    branch: FeatureBranch, changes: AgentChanges, notes: TrailNoteBuilder
) -> tuple[str, ...]:
    """Take over what a writer left, if it is within its scope; what stands against it.

    A second time is no harm.

    Documents are shown to other agents and merged: where something looks like a secret nothing is
    taken, and it is told where.
    """
    leaks = (
        f"{where}: it holds a key that was lent to the agent" for where in changes.find_leaks()
    )
    if violations := (*changes.find_violations(), *leaks):
        notes.add_violations(violations)
        return violations

    taken = changes.commit_to_branch()
    if secrets := _find_committed_secrets(branch, changes.checkout.start, taken.tip):
        notes.add_violations(secrets)
        return secrets

    notes.add_commits([taken], changes.checkout.start)
    if not branch.fast_forward(taken.tip):
        _merge_branch(branch, changes.checkout.assignment.branch)

    return ()


def _find_committed_secrets(branch: FeatureBranch, start: str, tip: str) -> tuple[str, ...]:
    commits = [one.id for one in commits_between(branch.project.repository, start, tip)]
    found = find_secrets(find_added_lines(branch.project, start, commits))
    return tuple(
        f"{secret.kind} in {escape_unprintable(secret.path)}:{secret.line}"
        for secret in found
        if not secret.is_allowed
    )


def _merge_branch(branch: FeatureBranch, source: str) -> None:
    """Somebody moved the feature's branch meanwhile: both histories are kept."""
    project = branch.project
    target = branch.name

    for _ in range(_MAX_ATTEMPTS):
        made = prepare_merge(
            project.repository, source, target, f"merge {source}\n", project.make_signature()
        )
        if isinstance(made, MergeConflict):
            raise StateConflict(
                f"{source} and {target} changed the same files: {', '.join(made.paths)}",
                f"merge {source} into {target} by hand, then run again",
            )

        if isinstance(made, AlreadyMerged):
            return
        if project.refs.move(target, made.target_commit, made.commit):
            return

    raise StateConflict(f"{target} keeps moving", "run again")
