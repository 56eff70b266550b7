"""Features that get into one base one after the other: with whom a combination is red."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_OF_FEATURE = re.compile(r"(\d{3,}-[a-z0-9-]+): ")
_MOST_NAMED = 5


def red_combination(branch: str, base: str, merged: Iterable[str]) -> str:
    """Why a branch is not merged that passes alone, on a base that does; `merged`: the subjects since it began."""
    subjects = [*merged]
    features = [found[1] for one in subjects if (found := _OF_FEATURE.match(one))]
    since = _named([*dict.fromkeys(features)] or [f'"{one}"' for one in subjects])
    return f"the checks fail on {branch} merged into {base}, and pass on each alone; since it began came {since}"


def _named(names: Sequence[str]) -> str:
    """A few by name, the rest by number."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
