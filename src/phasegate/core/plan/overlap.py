"""Features that get into one base one after the other.

With whom a combination is red, which overlap.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

_FEATURE_SUBJECT = re.compile(r"(\d{3,}-[a-z0-9-]+): ")
_MAX_NAMED = 5


def explain_failed_combination(branch: str, base: str, merged_subjects: Iterable[str]) -> str:
    """Why a branch is not merged that passes alone, on a base that does.

    `merged`: the subjects since it began.
    """
    subjects = [*merged_subjects]
    features = [found[1] for one in subjects if (found := _FEATURE_SUBJECT.match(one))]
    since = _join_names([*dict.fromkeys(features)] or [f'"{one}"' for one in subjects])

    return f"the checks fail on {branch} merged into {base}, and pass on each alone; since it began came {since}"


class FeatureOverlap(NamedTuple):
    """Two features in work that change the same files.

    `conflicts`: where, merged on paper; None: not known.
    """

    first: str
    second: str
    paths: tuple[str, ...]
    conflicts: tuple[str, ...] | None = None


def find_feature_overlaps(changed: Mapping[str, Collection[str]]) -> Iterator[FeatureOverlap]:
    """Each pair of features that changes the same files."""
    for one, other in combinations(sorted(changed), 2):
        if both := tuple(sorted(set(changed[one]) & set(changed[other]))):
            yield FeatureOverlap(one, other, both)


def format_overlap(overlap: FeatureOverlap) -> str:
    """What a person is told of it."""
    numbers = [slug.partition("-")[0] for slug in (overlap.first, overlap.second)]
    if len(set(numbers)) == len(numbers):
        short = numbers
    else:
        short = [overlap.first, overlap.second]

    told = f"{short[0]} and {short[1]} both change {_join_names(overlap.paths)}"
    if overlap.conflicts is None:
        return told
    if overlap.conflicts:
        return f"{told}: they conflict in {_join_names(overlap.conflicts)}"

    return f"{told}: no conflict on paper"


def _join_names(names: Sequence[str]) -> str:
    """A few by name, the rest by number."""
    if len(names) > _MAX_NAMED:
        more = f" and {len(names) - _MAX_NAMED} more"
    else:
        more = ""
    return ", ".join(names[:_MAX_NAMED]) + more
