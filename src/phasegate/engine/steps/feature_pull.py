"""The end of a feature at a forge.

Its branch published as a pull request, then one look at a time until it is merged.

Each step is safe to repeat: what is there is found before anything is made, and a merge that was
made is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phasegate.checks.excerpt import format_names
from phasegate.core.forge.pull_request import (
    PullBodyParts,
    PullStep,
    decide_pull_step,
    find_issue_reference,
    format_remark_finding,
    render_pull_body,
)
from phasegate.core.machine.feature_events import (
    AnyFeatureEvent,
    Merged,
    NotMerged,
    PullOpened,
    RemarksReceived,
    SentBack,
)
from phasegate.core.machine.feature_state import Feature
from phasegate.core.machine.package_events import AcceptedRemark
from phasegate.core.workflow.workflows import gate_name
from phasegate.engine.checks.phase_commands import check_merge
from phasegate.engine.jobs.step import StepContext, StepResult
from phasegate.engine.journal.package import parse_planned_packages
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.forge import open_forge
from phasegate.engine.project.project import Project
from phasegate.engine.steps.briefing import CHANGELOG
from phasegate.engine.steps.feature_merge import (
    check_commit_hooks,
    handle_failed_merge_checks,
    skipped_hook_notices,
)
from phasegate.engine.steps.pull_request import ForgeProblem, PullRequestPublisher, make_pull_title
from phasegate.errors import EnvironmentUnavailable
from phasegate.forge.port import MergeOutcome
from phasegate.workspace.merge import is_signing_required, merge_trees
from phasegate.workspace.objects import write_tree_commit
from phasegate.workspace.remote import fetch_branch, get_remote_branch, push_branch
from phasegate.workspace.repository import is_ancestor


class FeaturePullRequest:
    """The steps of one feature at its forge."""

    def __init__(self, project: Project, feature: Feature, context: StepContext) -> None:
        self._project = project
        self._feature = feature
        self._context = context
        self._branch = FeatureBranch(project, feature.workflow.feature)
        self._publisher = PullRequestPublisher(project, self._branch.slug, context.started_at)
        self._connection = self._publisher.connection

    # --- publishing

    def publish(self) -> StepResult[AnyFeatureEvent]:
        """Push what was judged, tested as merged, and have a pull request show it."""
        head = self._branch.read_head()
        feature = self._feature
        publisher = self._publisher
        name = self._branch.name
        hooked = check_commit_hooks(self._project, name, feature.base)
        stopped = hooked or self._check_reviewed(head) or self._check_merged_tree(head)
        if stopped is not None:
            return StepResult((stopped,))
        if refused := publisher.push(name, head, feature.pull.head if feature.pull else ""):
            return StepResult((NotMerged(*refused),))

        title = make_pull_title(self._branch.slug, feature.description or feature.workflow.type)
        pull = publisher.ensure_pull_request(name, feature.base, title, self._render_body())
        if isinstance(pull, ForgeProblem):
            return StepResult((NotMerged(*pull),))

        self._connection.forge.set_status(head, True, f"{len(feature.plan)} gates passed")
        publisher.answer_remarks(
            pull, feature.remarks[len(feature.remarks) - feature.unanswered :], head
        )

        return StepResult(
            (PullOpened(pull.number, pull.url, head),), notices=self._git_settings_notices()
        )

    def _git_settings_notices(self) -> tuple[str, ...]:
        """Their hooks and their key are not used on what is pushed.

        The forge makes the merge, with its own.
        """
        unsigned = "pushed without your signature (commit.gpgsign): the forge makes the merge, and may sign it"
        return (
            *skipped_hook_notices(self._project),
            *((unsigned,) if is_signing_required(self._project.repository) else ()),
        )

    def _check_reviewed(self, head: str) -> NotMerged | None:
        """Only the archive may have come after the commit that the last reviewer saw."""
        later = self._branch.list_changes_since(
            self._feature.judged, head, CHANGELOG, self._branch.folder
        )
        if not later:
            return None
        return NotMerged(
            f"changed on {self._branch.name} after its last review: {format_names(later)}",
            "look at what changed there, and resolve if it is to be published",
        )

    def _check_merged_tree(self, head: str) -> NotMerged | SentBack | None:
        """The tests must pass on the branch merged into its base as the forge has it."""
        base = self._feature.base
        repository = self._project.repository
        tip = fetch_branch(repository, self._connection.remote, base)
        if not tip:
            return NotMerged(f"the forge has no branch {base}", "push it there, then resolve")

        merged = merge_trees(repository, tip, head)
        if merged.conflicts:
            paths = ", ".join(merged.conflicts)
            remedy = f"merge {base} of the forge into {self._branch.name} and solve it there, then resolve"
            return NotMerged(
                f"{self._branch.name} and {base} changed the same lines: {paths}", remedy
            )

        signature = self._project.make_signature()
        commit = write_tree_commit(
            repository, merged.tree, (tip, head), signature, f"Try {self._branch.name}\n"
        )
        evidence = check_merge(self._project, self._branch.slug, tip, commit)
        if not evidence.failures:
            return None

        gone = NotMerged(
            f"{self._branch.name} was moved meanwhile", "see who moved it, then resolve"
        )
        return (
            handle_failed_merge_checks(
                branch=self._branch,
                base=base,
                base_tip=tip,
                source=head,
                tree=merged.tree,
                evidence=evidence,
            )
            or gone
        )

    def _render_body(self) -> str:
        feature = self._feature
        spent = self._context.spent
        commits = self._package_commits()
        if spent.tokens:
            cost = f"{spent.tokens} tokens, {spent.cost_usd:.2f} USD, as the agents report them"
        else:
            cost = ""

        return render_pull_body(
            PullBodyParts(
                marker=self._publisher.marker,
                description=feature.description or feature.workflow.type,
                issue=find_issue_reference(feature.description),
                requirements=[*self._requirement_rows(commits)],
                packages=[*self._package_rows(commits)],
                gates=[(gate_name(phase.key), "passed", phase.key) for phase in feature.plan],
                cost=cost,
                chain=self._context.chain_head,
            )
        )

    def _package_commits(self) -> dict[str, str]:
        """The last commit of each package, where its branch is still there."""
        branches = {row.id: f"{self._branch.name}-{row.id}" for row in self._context.packages}
        if branches:
            found = self._project.refs.fetch(*branches.values())
        else:
            found = {}

        return {name: found.get(branch, "")[:12] for name, branch in branches.items()}

    def _package_rows(self, commits: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        for row in self._context.packages:
            yield row.id, f"{row.title} ({row.state}, round {row.round})", commits[row.id]

    def _requirement_rows(self, commits: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
        packages = [
            one.package
            for one in parse_planned_packages(
                self._branch.slug, self._context.package_documents
            ).values()
        ]

        for name in dict.fromkeys(name for one in packages for name in one.requirements):
            serving = [one for one in packages if name in one.requirements]
            tests = dict.fromkeys(path for one in serving for path in one.deliverables.tests)
            names = [one.work_package_id for one in serving]
            heads = filter(None, (commits.get(package, "") for package in names))
            yield name, ", ".join(names), ", ".join(heads), ", ".join(tests)

    # --- waiting

    def poll(self) -> StepResult[AnyFeatureEvent]:
        """One look at the pull request; no event where nothing is to be done yet."""
        feature = self._feature
        pull = self._feature.pull
        assert pull is not None, "it was published before"
        look = self._connection.forge.fetch_pull(pull.number)
        known = frozenset(one.id for one in feature.remarks)
        automatic = self._project.config.merge.auto_merge
        found = decide_pull_step(
            look, head=pull.head, base=feature.base, handled_remarks=known, auto_merge=automatic
        )

        match found.step:
            case PullStep.STOP:
                return StepResult((NotMerged(found.reason, found.remedy),))
            case PullStep.FIX:
                return StepResult(
                    (
                        RemarksReceived(
                            tuple(
                                AcceptedRemark(one.id, one.thread, format_remark_finding(one))
                                for one in found.remarks
                            )
                        ),
                    )
                )
            case PullStep.MERGE:
                return self._merge(pull)
            case PullStep.MERGED:
                return self._confirm_merge(found.reason)
            case _:
                return StepResult((), notices=(f"waits: {found.reason}",))

    def _merge(self, pull: PullOpened) -> StepResult[AnyFeatureEvent]:
        settings = self._project.config.merge
        if not settings.use_merge_queue and (stopped := self._check_against_base(pull.head)):
            return StepResult((stopped,))

        answer = self._connection.forge.merge_pull(
            pull.number, pull.head, settings.method, queue=settings.use_merge_queue
        )
        if answer.outcome is MergeOutcome.MERGED:
            return self._confirm_merge(answer.detail)

        if answer.outcome is MergeOutcome.REFUSED:
            return StepResult(
                (
                    NotMerged(
                        f"the forge refuses the merge: {answer.detail}",
                        "see its rules, then resolve",
                    ),
                )
            )

        return StepResult((), notices=(f"waits: {answer.outcome} {answer.detail}".rstrip(),))

    def _check_against_base(self, head: str) -> NotMerged | SentBack | None:
        """What came to the base since is tested with it, too.

        A queue of the forge does that itself.
        """
        repository = self._project.repository
        base = self._feature.base
        tip = fetch_branch(repository, self._connection.remote, base)
        if tip and is_ancestor(repository, tip, head):
            return None

        return self._check_merged_tree(head)

    def _confirm_merge(self, commit: str) -> StepResult[AnyFeatureEvent]:
        """The forge says that it merged: its base must hold that."""
        base = self._feature.base
        if self._publisher.find_head_containing(base, commit):
            return StepResult((Merged(commit),))
        reason = f"the forge says that it merged as {commit[:12] or 'nothing'}, and {base} there does not hold that"
        return StepResult((NotMerged(reason, "look at the forge, then resolve"),))


def delete_remote_branch(project: Project, feature: Feature) -> tuple[str, ...]:
    """Remove the branch at the forge, if it is there and where we left it; what to tell of it.

    It stops nothing.
    """
    assert feature.pull is not None, "it was published before"
    name = f"feat/{feature.workflow.feature}"
    repository = project.repository

    try:
        remote = open_forge(project).remote
        if get_remote_branch(repository, remote, name) != feature.pull.head:
            return ()

        push_branch(repository, remote, name, feature.pull.head, None)
    except EnvironmentUnavailable as error:
        return (f"{name} may be left at the forge: {error.message}",)

    return (f"merged at the forge; your own {feature.base} is as it was: git pull",)
