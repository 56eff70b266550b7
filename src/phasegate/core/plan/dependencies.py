"""The order of work packages.

What waits for what, what can run side by side, and where they wait in a circle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from phasegate.core.paths.glob import get_literal_prefix, may_overlap
from phasegate.core.plan.work_package import PackageProblem, PackageState, WorkPackage

DependencyMap = Mapping[str, frozenset[str]]


def find_plan_problems(packages: Sequence[WorkPackage]) -> Iterator[tuple[int, PackageProblem]]:
    """What is wrong with packages as a whole, with the position of the package concerned.

    An id twice, an unknown dependency, a cycle, two features at once.
    """
    first: dict[str, int] = {}

    for at, package in enumerate(packages):
        if first.setdefault(package.work_package_id, at) != at:
            yield at, PackageProblem("work_package_id", f"{package.work_package_id} appears twice")

        if package.feature_slug != packages[0].feature_slug:
            yield (
                at,
                PackageProblem(
                    "feature_slug", f"is not {packages[0].feature_slug}, as in the other packages"
                ),
            )

    for at, package in enumerate(packages):
        for other in package.dependencies:
            if other not in first:
                yield (
                    at,
                    PackageProblem(
                        "dependencies", f"names {other}, which is not a package here", other
                    ),
                )

    for cycle in find_cycles(
        {package.work_package_id: package.dependencies for package in packages}
    ):
        yield (
            first[cycle[0]],
            PackageProblem("dependencies", f"form a dependency cycle: {' -> '.join(cycle)}"),
        )


def compute_dependencies(packages: Sequence[WorkPackage]) -> DependencyMap:
    """What each package waits for.

    Its explicit dependencies, and of two with overlapping scope the one that is first.

    First is by explicit order, then by number, so that an overlap never makes a cycle. The packages
    must be sound.
    """
    explicit = {package.work_package_id: frozenset(package.dependencies) for package in packages}
    order = {
        name: position
        for position, name in enumerate(name for wave in compute_waves(explicit) for name in wave)
    }
    found = {name: set(others) for name, others in explicit.items()}

    for one, other in find_scope_overlaps(
        {package.work_package_id: package.file_scope for package in packages}
    ):
        earlier, later = sorted((one, other), key=order.__getitem__)
        found[later].add(earlier)

    return {name: frozenset(others) for name, others in found.items()}


def find_scope_overlaps(scopes: Mapping[str, Iterable[str]]) -> set[tuple[str, str]]:
    """Pairs of names whose scopes may cover the same path, smaller name first.

    Entries are looked up by the leading parts without wildcard: only where those agree can two
    entries meet.
    """
    by_head: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for name, entries in scopes.items():
        for entry in entries:
            by_head.setdefault(get_literal_prefix(entry), []).append((name, entry))

    pairs = set()
    for head, owned in by_head.items():
        above = [
            other for length in range(len(head) + 1) for other in by_head.get(head[:length], ())
        ]
        for name, entry in owned:
            for other, other_entry in above:
                if name < other:
                    pair = (name, other)
                else:
                    pair = (other, name)

                if name != other and pair not in pairs and may_overlap(entry, other_entry):
                    pairs.add(pair)

    return pairs


def compute_waves(waits_for: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    """Groups that can run side by side, one after the other.

    A name that waits for a cycle or a stranger is in none.
    """
    left = {name: set(others) for name, others in waits_for.items()}
    waited_for: dict[str, list[str]] = {}
    for name, others in left.items():
        for other in others:
            waited_for.setdefault(other, []).append(name)

    found = []
    ready = sorted((name for name, others in left.items() if not others), key=_number_key)

    while ready:
        found.append(tuple(ready))
        following = set()

        for name in ready:
            for waiting in waited_for.get(name, ()):
                left[waiting].discard(name)
                if not left[waiting]:
                    following.add(waiting)

        ready = sorted(following, key=_number_key)

    return found


def _number_key(name: str) -> tuple[int, str]:
    return len(name), name


def find_ready_packages(
    waits_for: DependencyMap, states: Mapping[str, PackageState]
) -> tuple[str, ...]:
    """The planned packages whose dependencies are all DONE. One without a recorded state is not."""
    done = {name for name, state in states.items() if state is PackageState.DONE}
    planned = (
        name
        for name, others in waits_for.items()
        if states.get(name) is PackageState.PLANNED and others <= done
    )
    return tuple(sorted(planned, key=_number_key))


def find_cycles(needs: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    """Every knot of dependencies by one cycle each, the first name repeated at the end.

    Empty: there is an order.

    Names that are no key are left out. Linear, whoever wrote the names.
    """
    knots = _CycleFinder(needs)
    found = []
    for name in needs:
        while cycle := knots.next_cycle(name):
            found.append((*cycle, cycle[0]))

    return found


class _CycleFinder:
    """The names that wait for each other in a circle, or for such. Each is taken out once."""

    def __init__(self, needs: Mapping[str, Collection[str]]) -> None:
        waits_for = {
            name: [other for other in others if other in needs] for name, others in needs.items()
        }
        self._waited_for: dict[str, list[str]] = {name: [] for name in needs}
        for name, others in waits_for.items():
            for other in others:
                self._waited_for[other].append(name)

        self._open = {name: len(others) for name, others in waits_for.items()}
        self._left = {name: iter(others) for name, others in waits_for.items()}
        # The way that is being followed, and where each name stands in it
        self._path: dict[str, int] = {}
        self._remove([name for name, count in self._open.items() if not count])

    def next_cycle(self, start: str) -> tuple[str, ...]:
        """Follow one open dependency after the other until a name comes again.

        Empty when nothing is open here.

        Whatever is left waits for something that is left. What was passed over is gone for good: it
        is not asked again, and after a cycle the way goes on from where it was.
        """
        if start not in self._open:
            return ()

        if self._path:
            name = self._path.popitem()[0]
        else:
            name = start

        while name not in self._path:
            self._path[name] = len(self._path)
            name = next(other for other in self._left[name] if other in self._open)

        cycle = self._pop_cycle(self._path[name])
        self._remove(list(cycle))
        while self._path and next(reversed(self._path)) not in self._open:
            self._path.popitem()

        return cycle

    def _pop_cycle(self, position: int) -> tuple[str, ...]:
        """The end of the way, from a position on."""
        cycle: list[str] = []
        while len(self._path) > position:
            cycle.append(self._path.popitem()[0])
        return tuple(reversed(cycle))

    def _remove(self, names: list[str]) -> None:
        """Take names out, and after them all that then wait for nothing."""
        while names:
            name = names.pop()
            if self._open.pop(name, None) is None:
                continue

            for waiting in self._waited_for[name]:
                if waiting in self._open:
                    self._open[waiting] -= 1
                    if not self._open[waiting]:
                        names.append(waiting)
