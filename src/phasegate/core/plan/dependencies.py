"""Order of work packages: dependencies, scope overlaps, parallel waves and cycles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter

from phasegate.core.paths.glob import get_literal_prefix, may_overlap
from phasegate.core.plan.work_package import PackageProblem, PackageState, WorkPackage

DependencyMap = Mapping[str, frozenset[str]]


def find_plan_problems(packages: Sequence[WorkPackage]) -> Iterator[tuple[int, PackageProblem]]:
    """Yield problems between packages, such as cycles, each with a package's index.

    Problems are a duplicate id, an unknown dependency, a cycle, or more than one feature.
    """
    index_by_id: dict[str, int] = {}

    for index, package in enumerate(packages):
        id_ = package.work_package_id
        if index_by_id.setdefault(id_, index) != index:
            yield index, PackageProblem("work_package_id", f"{id_} appears twice")

        slug = packages[0].feature_slug
        if package.feature_slug != slug:
            message = f"is not {slug}, as in the other packages"
            yield index, PackageProblem("feature_slug", message)

    for index, package in enumerate(packages):
        for other in package.dependencies:
            if other not in index_by_id:
                message = f"names {other}, which is not a package here"
                yield index, PackageProblem("dependencies", message, other)

    needs = {package.work_package_id: package.dependencies for package in packages}
    for cycle in find_cycles(needs):
        message = f"form a dependency cycle: {' -> '.join(cycle)}"
        yield index_by_id[cycle[0]], PackageProblem("dependencies", message)


def compute_dependencies(packages: Sequence[WorkPackage]) -> DependencyMap:
    """Return the dependencies of each package: explicit ones and earlier overlapping packages.

    Of two packages with overlapping scopes, the later one waits: later by explicit order, then by
    number, so that an overlap never creates a cycle. The packages must be valid.
    """
    explicit = {package.work_package_id: frozenset(package.dependencies) for package in packages}
    order = [name for wave in compute_waves(explicit) for name in wave]
    position = {name: index for index, name in enumerate(order)}
    waits_for = {name: set(others) for name, others in explicit.items()}

    scopes = {package.work_package_id: package.file_scope for package in packages}
    for pair in find_scope_overlaps(scopes):
        earlier, later = sorted(pair, key=position.__getitem__)
        waits_for[later].add(earlier)

    return {name: frozenset(others) for name, others in waits_for.items()}


def find_scope_overlaps(scopes: Mapping[str, Iterable[str]]) -> set[tuple[str, str]]:
    """Return pairs of names whose scopes may cover the same path, smaller name first.

    Entries are indexed by their literal path prefix: two entries can only overlap if one prefix
    starts with the other.
    """
    by_prefix: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for name, entries in scopes.items():
        for entry in entries:
            by_prefix.setdefault(get_literal_prefix(entry), []).append((name, entry))

    pairs = set()
    for prefix, owned in by_prefix.items():
        candidates = [
            other
            for length in range(len(prefix) + 1)
            for other in by_prefix.get(prefix[:length], ())
        ]
        for name, entry in owned:
            for other, other_entry in candidates:
                pair = (name, other) if name < other else (other, name)
                if name != other and pair not in pairs and may_overlap(entry, other_entry):
                    pairs.add(pair)

    return pairs


def compute_waves(waits_for: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    """Return groups that can run in parallel, in order.

    A name that waits for a cycle or an unknown name is in no group.
    """
    sorter = TopologicalSorter(waits_for)
    with suppress(CycleError):
        sorter.prepare()

    waves = []
    # An unknown name is ready too, but never done
    while ready := [name for name in sorter.get_ready() if name in waits_for]:
        waves.append(tuple(sorted(ready, key=number_key)))
        sorter.done(*ready)

    return waves


def number_key(name: str) -> tuple[int, str]:
    """Sort WP9 before WP10: shorter names first, then by text."""
    return len(name), name


def find_ready_packages(
    waits_for: DependencyMap, states: Mapping[str, PackageState]
) -> tuple[str, ...]:
    """Return the planned packages whose dependencies are all DONE.

    A package without a recorded state is not ready.
    """
    done = {name for name, state in states.items() if state is PackageState.DONE}
    planned = (
        name
        for name, others in waits_for.items()
        if states.get(name) is PackageState.PLANNED and others <= done
    )
    return tuple(sorted(planned, key=number_key))


def find_cycles(needs: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    """Return one cycle for each group of cyclic dependencies, the first name repeated at the end.

    An empty list means that an order exists. Names that are not keys are ignored. Runs in linear
    time for any input.
    """
    finder = _CycleFinder(needs)
    cycles = []
    for name in needs:
        while cycle := finder.next_cycle(name):
            cycles.append((*cycle, cycle[0]))

    return cycles


class _CycleFinder:
    """Find cycles by removing the names that wait for nothing; takes linear time."""

    def __init__(self, needs: Mapping[str, Collection[str]]) -> None:
        waits_for = {
            name: [other for other in others if other in needs] for name, others in needs.items()
        }
        self._waited_for: dict[str, list[str]] = {name: [] for name in needs}
        for name, others in waits_for.items():
            for other in others:
                self._waited_for[other].append(name)

        # How many dependencies of a name are left, and those that were not followed yet
        self._open = {name: len(others) for name, others in waits_for.items()}
        self._left = {name: iter(others) for name, others in waits_for.items()}
        # Names of the path that is being followed, with their position in it
        self._path: dict[str, int] = {}
        self._remove([name for name, count in self._open.items() if not count])

    def next_cycle(self, start: str) -> tuple[str, ...]:
        """Follow open dependencies from `start` until a name repeats; return that cycle, or ().

        Every remaining name waits for a remaining name. Dependencies that were skipped are gone for
        good and not visited again; after a cycle, the search continues from where the path was.
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
        """Remove the end of the path from a position on, and return it."""
        cycle: list[str] = []
        while len(self._path) > position:
            cycle.append(self._path.popitem()[0])
        return tuple(reversed(cycle))

    def _remove(self, names: list[str]) -> None:
        """Remove names, and then all names that wait for nothing any more."""
        while names:
            name = names.pop()
            if self._open.pop(name, None) is None:
                continue

            for waiting in self._waited_for[name]:
                if waiting in self._open:
                    self._open[waiting] -= 1
                    if not self._open[waiting]:
                        names.append(waiting)
