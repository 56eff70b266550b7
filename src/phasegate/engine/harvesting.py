"""What agents left in their checkouts: judged by the scope, taken over, remarked on for the reviewer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from phasegate.engine.job_end import MOST_NAMED
from phasegate.engine.job_notes import JobNotes
from phasegate.engine.project import Project
from phasegate.engine.steps import Did, Known
from phasegate.engine.workplace import Workplace
from phasegate.errors import StateConflict
from phasegate.prompts.shipped_words import note
from phasegate.rules.lent_values import NOTHING_LENT, LentValues
from phasegate.rules.package_events import Harvested, PackageHappened
from phasegate.rules.package_run import Run
from phasegate.rules.scope import LITTER, Scope, Violation, changed_lock_files, judge
from phasegate.rules.visible_text import visible
from phasegate.workspace.changes import Observation, TooMuch, observe
from phasegate.workspace.checkout import Checkout
from phasegate.workspace.checkout_lifecycle import Unsaved, start_over
from phasegate.workspace.disk import Found
from phasegate.workspace.harvest import Harvest, harvest
from phasegate.workspace.leaked_keys import leaks
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
