"""What agents left in their checkouts: judged by the scope, taken over, remarked on for the reviewer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from phasegate.engine.job_end import MOST_NAMED
from phasegate.engine.workplace import Workplace
from phasegate.errors import StateConflict
from phasegate.prompts.shipped_words import note
from phasegate.rules.package_run import Harvested
from phasegate.rules.scope import Scope, Violation, changed_lock_files, judge
from phasegate.rules.visible_text import visible
from phasegate.workspace.changes import Observation, TooMuch, observe
from phasegate.workspace.checkout import Checkout
from phasegate.workspace.disk import Found
from phasegate.workspace.harvest import Harvest, harvest
from phasegate.workspace.refs import RefMoved, branch_is_gone
from phasegate.workspace.tree_diff import differences

Say = Callable[[str], None]


def take_over(place: Workplace, round_: int, say: Say) -> Harvested:
    """Look at every checkout; if all of them are within their scope, join them on the package's branch."""
    found = [_Left(place, index, checkout) for index, checkout in enumerate(place.checkouts())]
    for index in range(place.count):
        place.disarm(index)
    violations = tuple(text for left in found for text in left.violations()) or tuple(_contested(found))
    if violations:
        return Harvested(violations=violations)
    remarks = [remark for left in found for remark in left.remarks()]
    for remark in remarks:
        say(remark)
    place.remarks_file(round_).write_text("".join(f"- {remark}\n" for remark in remarks), encoding="utf-8")
    start = found[0].checkout.start
    tip = [left.taken_over() for left in found][-1]
    return Harvested(tip if differences(place.project.repository.place(), start, tip) else "")


def _contested(found: Sequence[_Left]) -> Iterator[str]:
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


class _Left:
    """What one agent left."""

    def __init__(self, place: Workplace, index: int, checkout: Checkout) -> None:
        self._place, self.checkout = place, checkout
        self._scope: Scope = place.scope(index)
        self._seen: Observation | TooMuch = observe(checkout, litter=place.litter)

    @property
    def versions(self) -> Mapping[str, Found | None]:
        return {} if isinstance(self._seen, TooMuch) else self._seen.versions

    def violations(self) -> Iterator[str]:
        if isinstance(self._seen, TooMuch):
            yield f"the checkout holds more than {self._seen.limit} {self._seen.what}"
            return
        yield from told(judge(self._seen.changes, self._scope, self._seen.tracked))

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
                yield note(name, FILES=named(paths))

    def taken_over(self) -> str:
        """The head of the package's branch, with what this agent may deliver."""
        assert not isinstance(self._seen, TooMuch)
        scope, package = self._scope, self._place.package
        taken = harvest(
            self.checkout,
            self._seen,
            lambda path: not scope.is_litter(path) and (scope.covers(path) or scope.is_lock_file(path)),
            committer=self._place.signature(),
            title=f"{package.work_package_id}: {package.title}",
        )
        if isinstance(taken, RefMoved) and taken.actual is None:
            raise branch_is_gone(self.checkout.repository, self.checkout.assignment.branch)
        if not isinstance(taken, Harvest):
            raise StateConflict(f"the work could not be taken over: {taken}", "dispatch again")
        return taken.tip
