"""Cycles among things that depend on each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def find_cycles(needs: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    """Every knot of dependencies by one cycle each, the first name repeated at the end; empty: there is an order.

    Names that are no key are left out. Linear, whoever wrote the names.
    """
    knots = _Knots(needs)
    found = []
    for name in needs:
        while cycle := knots.next_cycle(name):
            found.append((*cycle, cycle[0]))
    return found


class _Knots:
    """The names that wait for each other in a circle, or for such. Each is taken out once."""

    def __init__(self, needs: Mapping[str, Collection[str]]) -> None:
        waits_for = {name: [other for other in others if other in needs] for name, others in needs.items()}
        self._waited_for: dict[str, list[str]] = {name: [] for name in needs}
        for name, others in waits_for.items():
            for other in others:
                self._waited_for[other].append(name)
        self._open = {name: len(others) for name, others in waits_for.items()}
        self._left = {name: iter(others) for name, others in waits_for.items()}
        self._path: dict[str, int] = {}  # the way that is being followed, and where each name stands in it
        self._take_out([name for name, count in self._open.items() if not count])

    def next_cycle(self, start: str) -> tuple[str, ...]:
        """Follow one open dependency after the other until a name comes again; empty when nothing is open here.

        Whatever is left waits for something that is left. What was passed over is gone for good: it is not asked again,
        and after a cycle the way goes on from where it was.
        """
        if start not in self._open:
            return ()
        name = self._path.popitem()[0] if self._path else start
        while name not in self._path:
            self._path[name] = len(self._path)
            name = next(other for other in self._left[name] if other in self._open)
        cycle = self._cut(self._path[name])
        self._take_out(list(cycle))
        while self._path and next(reversed(self._path)) not in self._open:
            self._path.popitem()
        return cycle

    def _cut(self, position: int) -> tuple[str, ...]:
        """The end of the way, from a position on."""
        cycle: list[str] = []
        while len(self._path) > position:
            cycle.append(self._path.popitem()[0])
        return tuple(reversed(cycle))

    def _take_out(self, names: list[str]) -> None:
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
