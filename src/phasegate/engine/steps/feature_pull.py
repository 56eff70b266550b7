"""The end of a feature at a forge: its branch published as a pull request, then one look at a time until it is merged.

Each step is safe to repeat: what is there is found before anything is made, and a merge that was made is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phasegate.checks.excerpt import listed
from phasegate.core.forge.pull_request import BodyParts, PullStep, finding_of, issue_of_wish, judge_pull, pull_body
from phasegate.core.machine.feature_events import Happened, Merged, NotMerged, PullOpened, Remarked, SentBack
from phasegate.core.machine.feature_state import Feature
from phasegate.core.machine.package_events import RemarkTaken
from phasegate.core.workflow.workflows import gate_name
from phasegate.engine.checks.phase_commands import check_merge
from phasegate.engine.jobs.step import Did, Known
from phasegate.engine.journal.package import planned_in
from phasegate.engine.project.feature_branch import Branch
from phasegate.engine.project.forge import open_forge
from phasegate.engine.project.project import Project
from phasegate.engine.steps.briefing import CHANGELOG
from phasegate.engine.steps.feature_merge import send_back, skipped_hooks, stopped_by_hooks
from phasegate.engine.steps.pull_request import ForgeStop, Publisher, title_of
from phasegate.errors import EnvironmentUnavailable
from phasegate.forge.port import MergeOutcome
from phasegate.workspace.merge import merge_trees, wants_signatures
from phasegate.workspace.objects import write_merge
from phasegate.workspace.remote import branch_there, fetch_branch, push_branch
from phasegate.workspace.repository import is_ancestor


class PullSteps:
    """The steps of one feature at its forge."""

    def __init__(self, project: Project, feature: Feature, known: Known) -> None:
        self._project, self._feature, self._known = project, feature, known
        self._branch = Branch(project, feature.workflow.feature)
        self._publisher = Publisher(project, self._branch.slug, known.begun)
        self._at = self._publisher.at

    # --- publishing

    def publish(self) -> Did[Happened]:
        """Push what was judged, tested as merged, and have a pull request show it."""
        head = self._branch.head()
        feature, publisher, name = self._feature, self._publisher, self._branch.name
        hooked = stopped_by_hooks(self._project, name, feature.base)
        stopped = hooked or self._unjudged(head) or self._untested(head)
        if stopped is not None:
            return Did((stopped,))
        if refused := publisher.push(name, head, feature.pull.head if feature.pull else ""):
            return Did((NotMerged(*refused),))
        title = title_of(self._branch.slug, feature.description or feature.workflow.type)
        pull = publisher.opened(name, feature.base, title, self._body())
        if isinstance(pull, ForgeStop):
            return Did((NotMerged(*pull),))
        self._at.forge.set_status(head, True, f"{len(feature.plan)} gates passed")
        publisher.answer(pull, feature.remarks[len(feature.remarks) - feature.unanswered :], head)
        return Did((PullOpened(pull.number, pull.url, head),), notices=self._not_as_the_person_does())

    def _not_as_the_person_does(self) -> tuple[str, ...]:
        """Their hooks and their key are not used on what is pushed; the forge makes the merge, with its own."""
        unsigned = "pushed without your signature (commit.gpgsign): the forge makes the merge, and may sign it"
        return (
            *skipped_hooks(self._project),
            *((unsigned,) if wants_signatures(self._project.repository) else ()),
        )

    def _unjudged(self, head: str) -> NotMerged | None:
        """Only the archive may have come after the commit that the last reviewer saw."""
        later = self._branch.changed_since(self._feature.judged, head, CHANGELOG, self._branch.folder)
        if not later:
            return None
        return NotMerged(
            f"changed on {self._branch.name} after its last review: {listed(later)}",
            "look at what changed there, and resolve if it is to be published",
        )

    def _untested(self, head: str) -> NotMerged | SentBack | None:
        """The tests must pass on the branch merged into its base as the forge has it."""
        base, repository = self._feature.base, self._project.repository
        tip = fetch_branch(repository, self._at.remote, base)
        if not tip:
            return NotMerged(f"the forge has no branch {base}", "push it there, then resolve")
        merged = merge_trees(repository, tip, head)
        if merged.conflicts:
            paths = ", ".join(merged.conflicts)
            remedy = f"merge {base} of the forge into {self._branch.name} and solve it there, then resolve"
            return NotMerged(f"{self._branch.name} and {base} changed the same lines: {paths}", remedy)
        signature = self._project.signature()
        commit = write_merge(repository, merged.tree, (tip, head), signature, f"Try {self._branch.name}\n")
        evidence = check_merge(self._project, self._branch.slug, tip, commit)
        if not evidence.failures:
            return None
        gone = NotMerged(f"{self._branch.name} was moved meanwhile", "see who moved it, then resolve")
        return send_back(self._branch, base, tip, head, merged.tree, evidence) or gone

    def _body(self) -> str:
        feature, spent = self._feature, self._known.spent
        commits = self._commits()
        cost = f"{spent.tokens} tokens, {spent.cost_usd:.2f} USD, as the agents report them" if spent.tokens else ""
        return pull_body(
            BodyParts(
                marker=self._publisher.marker,
                asked=feature.description or feature.workflow.type,
                refers_to=issue_of_wish(feature.description),
                requirements=[*self._requirements(commits)],
                packages=[*self._packages(commits)],
                gates=[(gate_name(phase.key), "passed", phase.key) for phase in feature.plan],
                cost=cost,
                chain=self._known.chain,
            )
        )

    def _commits(self) -> dict[str, str]:
        """The last commit of each package, where its branch is still there."""
        branches = {row.id: f"{self._branch.name}-{row.id}" for row in self._known.packages}
        found = self._project.refs.fetch(*branches.values()) if branches else {}
        return {name: found.get(branch, "")[:12] for name, branch in branches.items()}

    def _packages(self, commits: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        for row in self._known.packages:
            yield row.id, f"{row.title} ({row.state}, round {row.round})", commits[row.id]

    def _requirements(self, commits: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
        packages = [one.package for one in planned_in(self._branch.slug, self._known.documents).values()]
        for name in dict.fromkeys(name for one in packages for name in one.requirements):
            serving = [one for one in packages if name in one.requirements]
            tests = dict.fromkeys(path for one in serving for path in one.deliverables.tests)
            names = [one.work_package_id for one in serving]
            heads = filter(None, (commits.get(package, "") for package in names))
            yield name, ", ".join(names), ", ".join(heads), ", ".join(tests)

    # --- waiting

    def look(self) -> Did[Happened]:
        """One look at the pull request; no event where nothing is to be done yet."""
        feature, pull = self._feature, self._feature.pull
        assert pull is not None, "it was published before"
        look = self._at.forge.look(pull.number)
        known = frozenset(one.id for one in feature.remarks)
        automatic = self._project.config.merge.automatic
        found = judge_pull(look, head=pull.head, base=feature.base, known=known, automatic=automatic)
        match found.step:
            case PullStep.STOP:
                return Did((NotMerged(found.reason, found.remedy),))
            case PullStep.MEND:
                return Did(
                    (Remarked(tuple(RemarkTaken(one.id, one.thread, finding_of(one)) for one in found.remarks)),)
                )
            case PullStep.MERGE:
                return self._merge(pull)
            case PullStep.MERGED:
                return self._merged(found.reason)
            case _:
                return Did((), notices=(f"waits: {found.reason}",))

    def _merge(self, pull: PullOpened) -> Did[Happened]:
        settings = self._project.config.merge
        if not settings.queue and (stopped := self._unfit_for_base(pull.head)):
            return Did((stopped,))
        answer = self._at.forge.merge(pull.number, pull.head, settings.method, queue=settings.queue)
        if answer.outcome is MergeOutcome.MERGED:
            return self._merged(answer.detail)
        if answer.outcome is MergeOutcome.REFUSED:
            return Did((NotMerged(f"the forge refuses the merge: {answer.detail}", "see its rules, then resolve"),))
        return Did((), notices=(f"waits: {answer.outcome} {answer.detail}".rstrip(),))

    def _unfit_for_base(self, head: str) -> NotMerged | SentBack | None:
        """What came to the base since is tested with it, too. A queue of the forge does that itself."""
        repository, base = self._project.repository, self._feature.base
        tip = fetch_branch(repository, self._at.remote, base)
        return None if tip and is_ancestor(repository, tip, head) else self._untested(head)

    def _merged(self, commit: str) -> Did[Happened]:
        """The forge says that it merged: its base must hold that."""
        base = self._feature.base
        if self._publisher.holds(base, commit):
            return Did((Merged(commit),))
        reason = f"the forge says that it merged as {commit[:12] or 'nothing'}, and {base} there does not hold that"
        return Did((NotMerged(reason, "look at the forge, then resolve"),))


def tidy_remote(project: Project, feature: Feature) -> tuple[str, ...]:
    """Remove the branch at the forge, if it is there and where we left it; what to tell of it. It stops nothing."""
    assert feature.pull is not None, "it was published before"
    name, repository = f"feat/{feature.workflow.feature}", project.repository
    try:
        remote = open_forge(project).remote
        if branch_there(repository, remote, name) != feature.pull.head:
            return ()
        push_branch(repository, remote, name, feature.pull.head, None)
    except EnvironmentUnavailable as error:
        return (f"{name} may be left at the forge: {error.message}",)
    return (f"merged at the forge; your own {feature.base} is as it was: git pull",)
