"""Cycles among things that depend on each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def find_cycles(needs: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    """Every knot of dependencies by one cycle each, the first name repeated at the end; empty: there is an order.

    Names that are no key are left out. Linear: each name is removed once, when it waits for nothing that is left.
    """
    waits_for = {name: [other for other in others if other in needs] for name, others in needs.items()}
    waited_for: dict[str, list[str]] = {name: [] for name in needs}
    for name, others in waits_for.items():
        for other in others:
            waited_for[other].append(name)
    open_count = {name: len(others) for name, others in waits_for.items()}
    found = []
    _remove(open_count, waited_for, [name for name, count in open_count.items() if not count])
    for name in needs:
        if name in open_count:
            cycle = _walk(name, waits_for, open_count)
            found.append((*cycle, cycle[0]))
            _remove(open_count, waited_for, cycle)
    return found


def _remove(open_count: dict[str, int], waited_for: Mapping[str, list[str]], names: list[str]) -> None:
    """Take names out, and after them all that then wait for nothing."""
    ready = list(names)
    while ready:
        name = ready.pop()
        if open_count.pop(name, None) is None:
            continue
        for waiting in waited_for[name]:
            if waiting in open_count:
                open_count[waiting] -= 1
                if not open_count[waiting]:
                    ready.append(waiting)


def _walk(start: str, waits_for: Mapping[str, list[str]], remaining: Collection[str]) -> list[str]:
    """Follow one open dependency after the other until a name comes again. Whatever remains waits for something."""
    path: dict[str, int] = {}
    name = start
    while name not in path:
        path[name] = len(path)
        name = next(other for other in waits_for[name] if other in remaining)
    return list(path)[path[name] :]
