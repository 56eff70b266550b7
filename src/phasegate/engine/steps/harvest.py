"""Collect the changes that agents left in their checkouts.

Changes are checked against the scope, committed, and summarized in remarks for the reviewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from phasegate.checks.secrets import find_secrets
from phasegate.core.agents.secrets import NO_SECRETS, SecretMatcher
from phasegate.core.display.status import OR_INSTEAD, RUN_AFTERWARDS
from phasegate.core.machine.package_events import AnyPackageEvent, Harvested
from phasegate.core.machine.package_state import PackageRun
from phasegate.core.paths.scope import (
    LITTER_PATTERNS,
    Scope,
    Violation,
    find_violations,
    list_changed_lock_files,
)
from phasegate.core.plan.work_package import shorten_slug
from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.checks.manifest import find_added_lines
from phasegate.engine.jobs.assignment import MAX_NAMES_SHOWN
from phasegate.engine.jobs.step import StepContext, StepResult
from phasegate.engine.jobs.trail_notes import TrailNoteBuilder
from phasegate.engine.journal.entries import ScopeException
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.errors import StateConflict
from phasegate.prompts.shipped_texts import render_note
from phasegate.workspace.changes.changes import CheckoutTooLarge, Observation, observe_checkout
from phasegate.workspace.changes.harvest import Harvest, HarvestConflict, harvest_checkout
from phasegate.workspace.changes.leaked_secrets import find_leaks
from phasegate.workspace.checkout.checkout import Checkout
from phasegate.workspace.checkout_lifecycle import UnsavedWork, reset_checkout
from phasegate.workspace.repository.commit_log import commits_between
from phasegate.workspace.repository.disk_files import DiskEntry
from phasegate.workspace.repository.merge import AlreadyMerged, MergeConflict, prepare_merge
from phasegate.workspace.repository.objects import Signature
from phasegate.workspace.repository.refs import RefMoved, missing_branch_error
from phasegate.workspace.repository.tree_diff import diff_trees
from phasegate.workspace.repository.user_checkout import Obstacle


def harvest_package(
    workspace: PackageWorkspace, run: PackageRun, context: StepContext, *, is_resumed: bool = False
) -> StepResult[AnyPackageEvent]:
    """Inspect every checkout; if all stay within their scope, join them on the package's branch.

    `is_resumed`: an earlier process saw the agents end. If there are no changes then, a power
    failure may have lost them: the round does not count as unchanged, and the next round starts
    without asking the user.
    """
    notes = TrailNoteBuilder(workspace.project, context.workers)
    title = f"{workspace.package.work_package_id}: {workspace.package.title}"
    changes = [
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
        workspace.remove_dangerous_git_files(index)

    violations: tuple[str, ...] = ()
    for index, one in enumerate(changes):
        texts = tuple(_add_owner(workspace, index, text) for text in one.find_violations())
        notes.add_violations(texts, index)
        violations += texts

    violations = violations or tuple(_find_conflicting_lock_files(changes))
    if violations:
        name = workspace.package.work_package_id
        of = f" --feature {shorten_slug(workspace.package.feature_slug)}"
        outside = list(dict.fromkeys(path for one in changes for path in one.list_outside_paths()))
        paths = " ".join(map(quote, outside[:MAX_NAMES_SHOWN]))
        remedy = (
            f"see it: phasegate show {name} --diff{of}. Accept the work as it is: phasegate scope "
            f"allow {name} {paths} --reason 'the change needs it'{of} {RUN_AFTERWARDS}{of}. "
            f'{OR_INSTEAD} phasegate resolve "what to do instead"{of} '
            f"{RUN_AFTERWARDS}{of}"
        )
        event = Harvested(violations=violations, remedy=remedy if outside else "")
        return StepResult((event,), trail_notes=notes.entries)

    leaks: list[str] = []
    kept = []
    for one in changes:
        if locations := dict.fromkeys(one.find_leaks()):
            leaks += locations
            reset = reset_checkout(one.checkout, workspace.checkout_options())
            if isinstance(reset, UnsavedWork):
                kept.append(f"{reset.folder} is not reset: {reset.reason}")

    if leaks:
        leaks = leaks[:MAX_NAMES_SHOWN]
        notes.add_violations(map(_describe_leak, leaks))
        return StepResult(
            events=(Harvested(leaks=tuple(leaks)),), notices=tuple(kept), trail_notes=notes.entries
        )

    harvests = [one.commit_to_branch() for one in changes]
    remarks = (
        *map(ScopeException.describe, context.scope_exceptions),
        *(remark for one in changes for remark in one.remarks()),
        *_renamed_commit_remarks(workspace, harvests),
    )
    remarks_document = store_remarks(
        workspace.project, remarks, workspace.evidence_path(run.round, ".remarks")
    )
    first = changes[0].checkout
    notes.add_commits(harvests, run.commit or first.start)
    tip = harvests[-1].tip
    commit = tip if diff_trees(workspace.project.repository.place(), first.base, tip) else ""

    # Without changes, the package may have been delivered before.
    base_paths = () if commit else workspace.blobs_of(first.base)
    delivered = [path for path in workspace.package.deliverables.all if path in base_paths]
    event = Harvested(
        commit=commit,
        remarks=remarks_document,
        there=tuple(delivered[:MAX_NAMES_SHOWN]),
        unchanged=commit == run.previous.commit and not is_resumed,
    )

    return StepResult(events=(event,), notices=remarks, trail_notes=notes.entries)


def _describe_leak(location: str) -> str:
    return f"{location}: contains a key that was given to the agent"


def store_remarks(project: Project, remarks: Sequence[str], name: str) -> str:
    """Store remarks or claims as a document for the reviewer, with the file name `name`.

    Returns the hash of the document; empty if there are no remarks.
    """
    if remarks:
        return project.document_store.put(
            "".join(f"- {remark}\n" for remark in remarks).encode(), name
        )
    return ""


def _renamed_commit_remarks(
    workspace: PackageWorkspace, harvests: Sequence[Harvest]
) -> Iterator[str]:
    """Yield a remark on commits whose message was prefixed with the package's id.

    The reviewer should know that the prefix is not the agent's.
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

    defused = [
        one.message.partition("\n")[0]
        for harvest in harvests
        for one in harvest.commits
        if one.defused
    ]
    if defused:
        yield render_note("defused", COMMITS=summarize_paths(defused))


def _add_owner(workspace: PackageWorkspace, index: int, violation: str) -> str:
    """Add the owner to a violation if the file belongs to another agent of the package."""
    path = violation.partition(": ")[0]
    owners = (other for other in range(workspace.agent_count) if other != index)
    for other in owners:
        share = workspace.share(other)
        if share is not None and path in share.deliverables:
            return f"{violation}; the file belongs to agent {other}"

    return violation


def _find_conflicting_lock_files(changes: Sequence[AgentChanges]) -> Iterator[str]:
    """Yield lock files that two agents changed differently: they are in everyone's scope."""
    first: dict[str, DiskEntry | None] = {}
    for one in changes:
        for path, version in one.versions.items():
            if first.setdefault(path, version) != version:
                yield escape_unprintable(f"{path}: two agents changed it in different ways")


def render_violations(violations: Sequence[Violation]) -> Iterator[str]:
    """Render violations for the journal: escaped, and limited in number.

    An agent chooses its file names, which may be unprintable or very many.
    """
    for violation in violations[:MAX_NAMES_SHOWN]:
        yield escape_unprintable(f"{violation.path}: {violation.detail}")
    if len(violations) > MAX_NAMES_SHOWN:
        yield f"and {len(violations) - MAX_NAMES_SHOWN} more"


def summarize_paths(paths: Sequence[str]) -> str:
    """Join the first paths, followed by the number of the others."""
    if len(paths) > MAX_NAMES_SHOWN:
        more = [f"and {len(paths) - MAX_NAMES_SHOWN} more"]
    else:
        more = []
    return ", ".join([*map(escape_unprintable, paths[:MAX_NAMES_SHOWN]), *more])


class AgentChanges:
    """Changes that one agent left in its checkout."""

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
        """Yield every change outside of the scope, as text."""
        if isinstance(self._observation, CheckoutTooLarge):
            yield f"the checkout has more than {self._observation.limit} {self._observation.what}"
            return

        outside = find_violations(
            self._observation.changes, self._scope, self._observation.tracked_files
        )
        yield from map(self._lent_secrets.redact, render_violations(outside))

    def list_outside_paths(self) -> list[str]:
        """Return the paths that an exception of the user could allow."""
        if isinstance(self._observation, CheckoutTooLarge):
            return []

        outside = find_violations(
            self._observation.changes, self._scope, self._observation.tracked_files
        )
        return [one.path for one in outside if one.path.isprintable()]

    def find_leaks(self) -> Iterator[str]:
        """Yield the places that contain a key that was passed to the agent."""
        if not isinstance(self._observation, CheckoutTooLarge):
            yield from find_leaks(
                self.checkout, self._observation, self._is_deliverable, self._lent_secrets
            )

    def remarks(self) -> Iterator[str]:
        """Yield remarks for the reviewer on changes that are not violations."""
        assert not isinstance(self._observation, CheckoutTooLarge)
        paths_by_note = {
            "locks": list_changed_lock_files(self._observation.changes, self._scope),
            "passing": [change.path for change in self._observation.transient_changes],
            "git_directory": [change.path for change in self._observation.git_directory_changes],
        }
        for note, paths in paths_by_note.items():
            if paths:
                yield render_note(note, FILES=self._lent_secrets.redact(summarize_paths(paths)))

    def _is_deliverable(self, path: str) -> bool:
        return not self._scope.is_litter(path) and (
            self._scope.covers(path) or self._scope.is_lock_file(path)
        )

    def commit_to_branch(self) -> Harvest:
        """Commit the changes that the agent may deliver to the work's branch. Safe to repeat."""
        assert not isinstance(self._observation, CheckoutTooLarge)
        harvest = harvest_checkout(
            self.checkout,
            self._observation,
            self._is_deliverable,
            committer=self._committer,
            title=self._title,
        )

        if isinstance(harvest, RefMoved) and harvest.actual is None:
            raise missing_branch_error(self.checkout.repository, self.checkout.assignment.branch)
        if not isinstance(harvest, Harvest):
            raise StateConflict(
                f"the changes could not be collected: {_describe_obstacle(harvest)}", "try again"
            )

        return harvest


def _describe_obstacle(obstacle: RefMoved | HarvestConflict | Obstacle) -> str:
    if isinstance(obstacle, RefMoved):
        return f"another process moved {obstacle.ref}"
    if isinstance(obstacle, HarvestConflict):
        return f"another process changed {', '.join(obstacle.paths)}"
    return f"{obstacle.folder}: {obstacle.reason}"


_MAX_ATTEMPTS = 5


def harvest_documents(
    branch: FeatureBranch, changes: AgentChanges, notes: TrailNoteBuilder
) -> tuple[str, ...]:
    """Commit a writer's documents to the feature's branch, or return their problems.

    Safe to repeat. Documents are given to other agents and merged: if a line looks like a secret,
    nothing is committed and its location is returned.
    """
    leaks = map(_describe_leak, changes.find_leaks())
    if violations := (*changes.find_violations(), *leaks):
        notes.add_violations(violations)
        return violations

    harvest = changes.commit_to_branch()
    if secrets := _find_committed_secrets(branch, changes.checkout.start, harvest.tip):
        notes.add_violations(secrets)
        return secrets

    notes.add_commits([harvest], changes.checkout.start)
    if not branch.fast_forward(harvest.tip):
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
    """Merge a branch into the feature's branch, which another process has moved."""
    project = branch.project
    target = branch.name

    for _ in range(_MAX_ATTEMPTS):
        merge = prepare_merge(
            project.repository, source, target, f"merge {source}\n", project.make_signature()
        )
        if isinstance(merge, MergeConflict):
            raise StateConflict(
                f"{source} and {target} changed the same files: {', '.join(merge.paths)}",
                f"git switch {target} && git merge {source}, then: phasegate run",
            )

        if isinstance(merge, AlreadyMerged):
            return
        if project.refs.move(target, merge.target_commit, merge.commit):
            return

    raise StateConflict(f"{target} was updated concurrently too often", "phasegate run")
