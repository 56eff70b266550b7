"""Publish a feature's branch as a pull request, and merge it on the forge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from phasegate.checks.evidence import Evidence
from phasegate.checks.excerpt import format_names
from phasegate.core.forge.outgoing_text import make_pull_title
from phasegate.core.forge.pull_body import PullBodyParts, render_pull_body
from phasegate.core.forge.pull_decision import find_issue_reference
from phasegate.core.machine.feature_events import (
    AnyFeatureEvent,
    Merged,
    NotMerged,
    PullOpened,
    PullWaits,
    RemarksReceived,
    SentBack,
)
from phasegate.core.machine.feature_state import Feature, Step
from phasegate.core.plan.delivery import shorten_subject
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.workflow.workflow_phases import gate_name
from phasegate.engine.checks.feature_checks import check_merge
from phasegate.engine.jobs.step import StepContext, StepResult
from phasegate.engine.journal.package import parse_planned_packages
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.forge import open_forge
from phasegate.engine.project.project import Project
from phasegate.engine.steps.delivery import Delivery, list_archive_paths, prepare_delivery
from phasegate.engine.steps.feature_merge import (
    check_commit_hooks,
    handle_conflict,
    handle_failed_merge_checks,
    skipped_hook_notices,
)
from phasegate.engine.steps.pull_description import (
    list_command_rows,
    list_pull_files,
    list_review_findings,
    list_risks,
    select_summary,
)
from phasegate.engine.steps.pull_request import (
    PullRequestSteps,
    PullTarget,
    delete_remote_branch,
)
from phasegate.engine.steps.spec_update import (
    SPEC_REMEDY,
    compute_merged_specs,
    describe_spec_problems,
)
from phasegate.workspace.repository.merge import is_signing_required, merge_trees
from phasegate.workspace.repository.objects import write_tree_commit
from phasegate.workspace.repository.remote import fetch_branch, get_remote_branch
from phasegate.workspace.repository.repository import is_ancestor


class FeaturePullRequest(PullRequestSteps[AnyFeatureEvent]):
    """Pull request of one feature."""

    published = PullOpened
    remarks_received = RemarksReceived
    waits = PullWaits
    merged = Merged
    held = NotMerged

    def __init__(self, project: Project, feature: Feature, context: StepContext) -> None:
        self._feature = feature
        self._context = context
        self._branch = FeatureBranch(project, feature.workflow.feature)
        self._description = feature.description or feature.workflow.type
        self._delivery = self._prepare_delivery(project)
        # Of the merged tree
        self._evidence: Evidence | None = None
        if isinstance(self._delivery, Delivery):
            head = self._delivery.commit
        elif feature.pull is not None:
            head = feature.pull.head
        else:
            head = self._branch.read_head()

        target = PullTarget(
            name=self._branch.slug,
            branch=self._branch.name,
            head=head,
            base=feature.base,
            title=make_pull_title(self._make_title()),
            status=f"{len(feature.plan)} gates passed",
            remarks=feature.remarks,
            unanswered=feature.unanswered,
            remark_rounds=feature.remark_rounds,
        )
        if feature.pull_wait is not None:
            target = target._replace(
                wait_reason=feature.pull_wait.reason, was_queued=feature.pull_wait.queued
            )
        if feature.pull is not None:
            target = target._replace(
                number=feature.pull.number,
                url=feature.pull.url,
                published_head=feature.pull.head,
            )

        super().__init__(project, target, context.started_at)

    def _make_title(self) -> str:
        if isinstance(self._delivery, Delivery):
            return self._delivery.title
        return shorten_subject(self._description)

    def _prepare_delivery(self, project: Project) -> Delivery | NotMerged | None:
        """Prepare the commits to publish; None while the pull request is only polled."""
        feature = self._feature
        if feature.pull is not None and feature.todo[0] is not Step.PUBLISH:
            return None

        remote = open_forge(project).remote
        tip = fetch_branch(project.repository, remote, feature.base)
        if not tip:
            return None

        # The branch may have been pushed before its pull request was refused
        remote_head = get_remote_branch(project.repository, remote, self._branch.name)
        return prepare_delivery(self._branch, feature, self._context, tip, remote_head)

    def check_before_publish(self) -> NotMerged | SentBack | None:
        if isinstance(self._delivery, NotMerged):
            return self._delivery
        return (
            check_commit_hooks(self.project, self._branch.slug, self.target.base)
            or self._check_reviewed()
            or self._check_merged_tree()
        )

    def publish_notices(self) -> tuple[str, ...]:
        """Report that the user's hooks and signing key are not used: the forge makes the merge."""
        notices = skipped_hook_notices(self.project)
        if is_signing_required(self.project.repository):
            return (
                *notices,
                "pushed unsigned despite commit.gpgsign: the forge may sign the merge",
            )
        return notices

    def _check_reviewed(self) -> NotMerged | None:
        """Refuse changes after the last reviewed commit, except changes by the archive phase."""
        target = self.target
        head = self._branch.read_head()
        changed_later = self._branch.list_changes_since(
            self._feature.evaluated_commit,
            head,
            *list_archive_paths(self._branch, target.base, head),
        )
        if not changed_later:
            return None
        return NotMerged(
            f"changed on {target.branch} after its last review: {format_names(changed_later)}",
            "review these changes, then resolve to publish them",
        )

    def _check_merged_tree(self) -> NotMerged | SentBack | None:
        """Run the checks on the branch merged into the forge's current base."""
        branch, head, base = self.target.branch, self.target.head, self.target.base
        repository = self.project.repository
        tip = fetch_branch(repository, self.remote, base)
        if not tip:
            return NotMerged(f"the forge has no branch {base}", "push it, then resolve")

        specs = compute_merged_specs(self._branch, self._branch.read_head(), tip, head)
        if specs.problems:
            return NotMerged(describe_spec_problems(specs), SPEC_REMEDY)

        merge = merge_trees(repository, tip, head)
        if merge.conflicts:
            conflict = handle_conflict(
                branch=self._branch,
                feature=self._feature,
                source=self._branch.read_head(),
                base_tip=tip,
                paths=merge.conflicts,
                remedy=f"merge the forge's {base} into {branch} and fix the conflicts, "
                "then resolve",
            )
            return conflict or self._moved_during_checks()

        signature = self.project.make_signature()
        commit = write_tree_commit(
            repository, merge.tree, (tip, head), signature, f"Try {branch}\n"
        )
        evidence = check_merge(
            self.project, self._branch.slug, tip, commit, self._context.acceptance
        )
        self._evidence = evidence
        if not evidence.failures:
            return None

        result = handle_failed_merge_checks(
            branch=self._branch,
            base=base,
            base_tip=tip,
            source=self._branch.read_head(),
            evidence=evidence,
        )
        return result or self._moved_during_checks()

    def _moved_during_checks(self) -> NotMerged:
        return NotMerged(
            f"{self.target.branch} was moved during the checks", "check who moved it, then resolve"
        )

    def handle_conflict(self) -> StepResult[AnyFeatureEvent]:
        repository = self.project.repository
        tip = fetch_branch(repository, self.remote, self.target.base)
        if not tip or not merge_trees(repository, tip, self.target.head).conflicts:
            return StepResult(())

        stop = self._check_merged_tree()
        return StepResult((stop,) if stop else ())

    def check_before_merge(self) -> StepResult[AnyFeatureEvent]:
        """Check the head with new commits of the base; a merge queue does that itself."""
        if self.project.config.merge.use_merge_queue:
            return StepResult(())

        repository = self.project.repository
        tip = fetch_branch(repository, self.remote, self.target.base)
        if tip and is_ancestor(repository, tip, self.target.head):
            return StepResult(())

        stop = self._check_merged_tree()
        return StepResult((stop,) if stop else ())

    # --- body

    def render_body(self) -> str:
        """Render the description of the feature's pull request."""
        feature = self._feature
        spent = self._context.spent
        commits = self._package_commits()
        cost = ""
        if spent.tokens:
            cost = f"{spent.tokens} tokens, {spent.cost_usd:.2f} USD, as reported by the agents"

        summary = specification = ""
        if isinstance(self._delivery, Delivery):
            summary = select_summary(self._delivery.message)
            if self._delivery.commit != self._delivery.code:
                specification = self._branch.document_path

        planned = parse_planned_packages(self._branch.slug, self._context.package_documents)
        packages = [one.package for one in planned.values()]
        requirements = [*_requirement_rows(packages, commits)]
        untested = [row[0] for row in requirements if not row[3]]
        # Fetched by the check of the merged tree
        tip = fetch_branch(self.project.repository, self.remote, self.target.base)

        return render_pull_body(
            PullBodyParts(
                marker=self.marker,
                description=self._description,
                summary=summary,
                issue=find_issue_reference(feature.description),
                specification=specification,
                changes=list_pull_files(self.project.repository, tip, self.target.head, packages),
                requirements=requirements,
                commands=[*list_command_rows(self._evidence)],
                findings=[*list_review_findings(self._context.reviews)],
                risks=[*list_risks(self._context, untested, self._evidence)],
                packages=[*self._package_rows(commits)],
                gates=[(gate_name(phase.key), "passed", phase.key) for phase in feature.plan],
                cost=cost,
                chain=self._context.chain_head,
            )
        )

    def _package_commits(self) -> dict[str, str]:
        """Return the last commit of each package; empty if its branch is deleted."""
        branches = {row.id: f"{self._branch.name}-{row.id}" for row in self._context.packages}
        heads = self.project.refs.fetch(*branches.values()) if branches else {}

        return {name: heads.get(branch, "")[:12] for name, branch in branches.items()}

    def _package_rows(self, commits: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        for row in self._context.packages:
            yield row.id, f"{row.title} ({row.state}, round {row.round})", commits[row.id]


def _requirement_rows(
    packages: Sequence[WorkPackage], commits: Mapping[str, str]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield each requirement with the packages, commits and tests that cover it."""
    for name in dict.fromkeys(name for one in packages for name in one.requirements):
        covering = [one for one in packages if name in one.requirements]
        tests = dict.fromkeys(path for one in covering for path in one.deliverables.tests)
        names = [one.work_package_id for one in covering]
        heads = filter(None, (commits.get(package, "") for package in names))
        yield name, ", ".join(names), ", ".join(heads), ", ".join(tests)


def delete_feature_branch(project: Project, feature: Feature) -> tuple[str, ...]:
    """Delete the feature's branch on the forge if it is still at the merged head."""
    assert feature.pull is not None, "published before"
    return delete_remote_branch(
        project,
        f"feat/{feature.workflow.feature}",
        feature.pull.head,
        f"merged on the forge; your local {feature.base} is unchanged: git pull",
    )
