"""Features that are merged into the same base: overlaps, and failures of their combination."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from phasegate.core.paths.glob import may_overlap
from phasegate.core.text.wording import join_names

_FEATURE_SUBJECT = re.compile(r"(\d{3,}-[a-z0-9-]+): ")
_MAX_NAMED = 5


def explain_failed_combination(branch: str, base: str, merged_subjects: Iterable[str]) -> str:
    """Explain why a branch that passes alone is not merged into a base that passes alone.

    `merged_subjects` are the commit subjects that were merged since the branch started.
    """
    return (
        f"the checks fail on {branch} merged into {base}, but pass on each alone; "
        f"merged since it started: {format_merged(merged_subjects)}"
    )


def format_merged(merged_subjects: Iterable[str]) -> str:
    """Name the features that were merged, else the subjects of the commits."""
    subjects = [*merged_subjects]
    matches = (_FEATURE_SUBJECT.match(subject) for subject in subjects)
    features = [*dict.fromkeys(match[1] for match in matches if match)]
    return join_names(features or [f'"{subject}"' for subject in subjects], _MAX_NAMED)


def describe_scope_overlaps(
    own: Iterable[str], others: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """Describe which planned files of other open features this feature may change too."""
    mine = [*own]
    notices = []
    for slug, scope in others.items():
        shared = [path for path in scope if any(may_overlap(path, one) for one in mine)]
        if shared:
            paths = join_names([*dict.fromkeys(shared)], _MAX_NAMED)
            notices.append(
                f"{slug} is planned to change the same files: {paths}; whichever is merged second "
                "may need another round"
            )
    return tuple(notices)


class FeatureOverlap(NamedTuple):
    """Two active features that change the same files.

    `conflicts` are the conflicting paths of a trial merge; None: not known.
    """

    first: str
    second: str
    paths: tuple[str, ...]
    conflicts: tuple[str, ...] | None = None


def find_feature_overlaps(changed: Mapping[str, Collection[str]]) -> Iterator[FeatureOverlap]:
    """Yield each pair of features that changes the same files."""
    for first, second in combinations(sorted(changed), 2):
        if shared := tuple(sorted(set(changed[first]) & set(changed[second]))):
            yield FeatureOverlap(first, second, shared)


def format_overlap(overlap: FeatureOverlap) -> str:
    """Describe an overlap in one line."""
    numbers = [slug.partition("-")[0] for slug in (overlap.first, overlap.second)]
    if len(set(numbers)) == len(numbers):
        names = numbers
    else:
        names = [overlap.first, overlap.second]

    line = f"{names[0]} and {names[1]} both change {join_names(overlap.paths, _MAX_NAMED)}"
    if overlap.conflicts is None:
        return line
    if overlap.conflicts:
        return f"{line}: they conflict in {join_names(overlap.conflicts, _MAX_NAMED)}"

    return f"{line}: no conflict in a trial merge"
