"""What agents left in their checkouts: judged by the scope, taken over, remarked on for the reviewer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from phasegate.checks.secrets import find_secrets
from phasegate.core.agents.secrets import NOTHING_LENT, LentValues
from phasegate.core.machine.package_events import Harvested, PackageHappened
from phasegate.core.machine.package_machine import Run
from phasegate.core.paths.scope import LITTER, Scope, Violation, changed_lock_files, judge
from phasegate.core.text.visible import visible
from phasegate.engine.checks.manifest import added_by
from phasegate.engine.jobs.assignment import MOST_NAMED
from phasegate.engine.jobs.step import Did, Known
from phasegate.engine.jobs.trail_notes import JobNotes
from phasegate.engine.project.feature_branch import Branch
from phasegate.engine.project.project import Project
from phasegate.engine.steps.workplace import Workplace
from phasegate.errors import StateConflict
from phasegate.prompts.shipped_texts import note
from phasegate.workspace.changes import Observation, TooMuch, observe
from phasegate.workspace.checkout import Checkout
from phasegate.workspace.checkout_files import Found
from phasegate.workspace.checkout_lifecycle import Unsaved, start_over
from phasegate.workspace.commit_log import commits_between
from phasegate.workspace.harvest import Harvest, harvest
from phasegate.workspace.leaked_secrets import leaks
from phasegate.workspace.merge import AlreadyMerged, Conflict, prepare_merge
from phasegate.workspace.objects import Signature
from phasegate.workspace.refs import RefMoved, branch_is_gone
from phasegate.workspace.tree_diff import differences


def take_over(place: Workplace, run: Run, known: Known, *, is_resumed: bool = False) -> Did[PackageHappened]:
    """Look at every checkout; if all of them are within their scope, join them on the package's branch.

    `is_resumed`: a dispatcher before this one saw the agents end. If nothing is found then, a power failure may have
    taken it: that is no round that changed nothing, and another one goes on without a person.
    """
    notes = JobNotes(place.project, known.workers)
    title = f"{place.package.work_package_id}: {place.package.title}"
    found = [
        Left(checkout, place.scope(index, known.allowed), title, place.signature(), place.litter, place.lent)
        for index, checkout in enumerate(place.checkouts())
    ]
    for index in range(place.count):
        place.disarm(index)
    strayed = [tuple(_with_owner(place, index, text) for text in left.violations()) for index, left in enumerate(found)]
    for index, texts in enumerate(strayed):
        notes.violations(texts, index)
    violations = tuple(text for texts in strayed for text in texts) or tuple(_contested(found))
    if violations:
        return Did((Harvested(violations=violations),), trail=notes.all)
    if leaking := [(left.checkout, texts) for left in found if (texts := tuple(dict.fromkeys(left.leaks())))]:
        renewed = [start_over(checkout, place.terms()) for checkout, _ in leaking]
        kept = tuple(f"{one.folder} is not reset: {one.reason}" for one in renewed if isinstance(one, Unsaved))
        leaks = tuple(text for _, texts in leaking for text in texts)[:MOST_NAMED]
        notes.violations(f"{text}: it holds a key that was lent to the agent" for text in leaks)
        return Did((Harvested(leaks=leaks),), (), kept, trail=notes.all)
    taken = [left.taken_over() for left in found]
    remarks = (*(remark for left in found for remark in left.remarks()), *_about_names(place, taken))
    paper = write_remarks(place.project, remarks, place.paper_name(run.round, ".remarks"))
    notes.taken(taken, run.commit or found[0].checkout.start)
    tip = taken[-1].tip
    commit = tip if differences(place.project.repository.place(), found[0].checkout.base, tip) else ""
    base = () if commit else place.blobs_of(found[0].checkout.base)
    there = tuple(path for path in place.package.deliverables.all if path in base)[:MOST_NAMED]
    event = Harvested(commit, remarks=paper, there=there, unchanged=commit == run.tried and not is_resumed)
    return Did((event,), notices=remarks, trail=notes.all)


def write_remarks(project: Project, remarks: Sequence[str], name: str) -> str:
    """A paper for the reviewer with these remarks; none at all is no paper."""
    return project.papers.put("".join(f"- {remark}\n" for remark in remarks).encode(), name) if remarks else ""


def _about_names(place: Workplace, taken: Sequence[Harvest]) -> Iterator[str]:
    """The commits that got the package's name in front, for the reviewer to know that it is not the agent's."""
    titles = [one.message.partition("\n")[0] for harvest in taken for one in harvest.commits if one.renamed]
    if titles:
        yield note("renamed", WP_ID=place.package.work_package_id, COMMITS=named(titles))


def _with_owner(place: Workplace, index: int, violation: str) -> str:
    """A violation, and whose file it is where another agent of the package owns it."""
    path = violation.partition(": ")[0]
    owners = (other for other in range(place.count) if other != index)
    for other in owners:
        share = place.share(other)
        if share is not None and path in share.deliverables:
            return f"{violation}; it is the file of agent {other}"
    return violation


def _contested(found: Sequence[Left]) -> Iterator[str]:
    """Lock files are everybody's: two agents may have changed one, each in another way."""
    first: dict[str, Found | None] = {}
    for left in found:
        for path, version in left.versions.items():
            if first.setdefault(path, version) != version:
                yield visible(f"{path}: two agents changed it, each in another way")


def told(violations: Sequence[Violation]) -> Iterator[str]:
    """Each violation as it goes on record: an agent's file names need not be text, nor few."""
    for violation in violations[:MOST_NAMED]:
        yield visible(f"{violation.path}: {violation.detail}")
    if len(violations) > MOST_NAMED:
        yield f"and {len(violations) - MOST_NAMED} more"


def named(paths: Sequence[str]) -> str:
    """The first of these paths, and how many more there are."""
    more = [f"and {len(paths) - MOST_NAMED} more"] if len(paths) > MOST_NAMED else []
    return ", ".join([*map(visible, paths[:MOST_NAMED]), *more])


class Left:
    """What one agent left in its checkout."""

    def __init__(
        self,
        checkout: Checkout,
        scope: Scope,
        title: str,
        committer: Signature,
        litter: tuple[str, ...] = LITTER,
        lent: LentValues = NOTHING_LENT,
    ) -> None:
        self.checkout, self._lent = checkout, lent
        self._scope, self._title, self._committer = scope, title, committer
        self._seen: Observation | TooMuch = observe(checkout, litter=litter)

    @property
    def versions(self) -> Mapping[str, Found | None]:
        return {} if isinstance(self._seen, TooMuch) else self._seen.versions

    def violations(self) -> Iterator[str]:
        if isinstance(self._seen, TooMuch):
            yield f"the checkout holds more than {self._seen.limit} {self._seen.what}"
            return
        outside = judge(self._seen.changes, self._scope, self._seen.tracked)
        yield from map(self._lent.hidden_in, told(outside))

    def leaks(self) -> Iterator[str]:
        """Where a key stands that was lent to the agent."""
        if not isinstance(self._seen, TooMuch):
            yield from leaks(self.checkout, self._seen, self._takes, self._lent)

    def remarks(self) -> Iterator[str]:
        """What is no violation, and for the reviewer to know."""
        assert not isinstance(self._seen, TooMuch)
        found = {
            "locks": changed_lock_files(self._seen.changes, self._scope),
            "passing": [change.path for change in self._seen.passing],
            "git_directory": [change.path for change in self._seen.git_directory],
        }
        for name, paths in found.items():
            if paths:
                yield note(name, FILES=self._lent.hidden_in(named(paths)))

    def _takes(self, path: str) -> bool:
        return not self._scope.is_litter(path) and (self._scope.covers(path) or self._scope.is_lock_file(path))

    def taken_over(self) -> Harvest:
        """The work's branch, with what this agent may deliver put on it. A second time is no harm."""
        assert not isinstance(self._seen, TooMuch)
        taken = harvest(self.checkout, self._seen, self._takes, committer=self._committer, title=self._title)
        if isinstance(taken, RefMoved) and taken.actual is None:
            raise branch_is_gone(self.checkout.repository, self.checkout.assignment.branch)
        if not isinstance(taken, Harvest):
            raise StateConflict(f"the work could not be taken over: {taken}", "try it again")
        return taken


_TRIES = 5


def take_documents(branch: Branch, left: Left, notes: JobNotes) -> tuple[str, ...]:
    """Take over what a writer left, if it is within its scope; what stands against it. A second time is no harm.

    Documents are shown to other agents and merged: where something looks like a secret nothing is taken, and it is
    told where.
    """
    leaks = (f"{where}: it holds a key that was lent to the agent" for where in left.leaks())
    if violations := (*left.violations(), *leaks):
        notes.violations(violations)
        return violations
    taken = left.taken_over()
    if secrets := _secrets(branch, left.checkout.start, taken.tip):
        notes.violations(secrets)
        return secrets
    notes.taken([taken], left.checkout.start)
    if not branch.take_in(taken.tip):
        _merge_in(branch, left.checkout.assignment.branch)
    return ()


def _secrets(branch: Branch, start: str, tip: str) -> tuple[str, ...]:
    commits = [one.id for one in commits_between(branch.project.repository, start, tip)]
    found = find_secrets(added_by(branch.project, start, commits))
    return tuple(f"{secret.kind} in {visible(secret.path)}:{secret.line}" for secret in found if not secret.allowed)


def _merge_in(branch: Branch, source: str) -> None:
    """Somebody moved the feature's branch meanwhile: both histories are kept."""
    project, target = branch.project, branch.name
    for _ in range(_TRIES):
        made = prepare_merge(project.repository, source, target, f"merge {source}\n", project.signature())
        if isinstance(made, Conflict):
            raise StateConflict(
                f"{source} and {target} changed the same files: {', '.join(made.paths)}",
                f"merge {source} into {target} by hand, then run again",
            )
        if isinstance(made, AlreadyMerged):
            return
        if project.refs.move(target, made.expected, made.commit):
            return
    raise StateConflict(f"{target} keeps moving", "run again")
