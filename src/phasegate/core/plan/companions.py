"""Find files that earlier commits changed together with the files of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

_MIN_COMMITS = 4
_MIN_SHARE = 0.4
# A larger commit is a mass change, such as a new format
_MAX_FILES_IN_COMMIT = 30
_MAX_COMPANIONS = 8


class Companion(NamedTuple):
    """A file that no task names, and the planned file that it was changed with most often."""

    path: str
    planned: str
    # Commits that changed both
    together: int
    # Commits that changed the planned file
    commits: int


def find_companions(
    commits: Iterable[Collection[str]], planned: Collection[str], existing: Collection[str]
) -> list[Companion]:
    """Return existing files that commits often changed with a planned one, the closest first."""
    totals: Counter[str] = Counter()
    together: Counter[tuple[str, str]] = Counter()

    for paths in commits:
        if len(paths) > _MAX_FILES_IN_COMMIT:
            continue

        named = [path for path in paths if path in planned]
        totals.update(named)
        others = [path for path in paths if path not in planned and path in existing]
        together.update((other, name) for other in others for name in named)

    closest: dict[str, Companion] = {}
    for (path, name), count in sorted(
        together.items(), key=lambda item: (-item[1] / totals[item[0][1]], item[0])
    ):
        if count >= _MIN_COMMITS and count >= _MIN_SHARE * totals[name]:
            closest.setdefault(path, Companion(path, name, count, totals[name]))

    return list(closest.values())[:_MAX_COMPANIONS]
