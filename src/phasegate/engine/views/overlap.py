"""Which features in work change the same files, before any of them is merged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from phasegate.core.plan.overlap import FeatureOverlap, find_feature_overlaps
from phasegate.errors import PhasegateError
from phasegate.git import GitFailed
from phasegate.workspace.commit_log import list_changed_paths
from phasegate.workspace.merge import merge_trees
from phasegate.workspace.refs import BRANCH_PREFIX
from phasegate.workspace.repository import Repository, open_repository, read_refs

MAX_FEATURES = 12


def find_overlaps(folder: str, bases: Mapping[str, str]) -> tuple[FeatureOverlap, ...]:
    """Of these features, by slug with their bases. What git cannot tell is not told."""
    try:
        repository = open_repository(Path(folder))
        names = {slug: base for slug, base in [*bases.items()][:MAX_FEATURES] if base}
        heads = read_refs(
            repository,
            *(
                BRANCH_PREFIX + name
                for slug, base in names.items()
                for name in (f"feat/{slug}", base)
            ),
        )

        begun = {slug: head for slug in names if (head := heads.get(f"{BRANCH_PREFIX}feat/{slug}"))}
        changed = {
            slug: list_changed_paths(repository, base, head)
            for slug, head in begun.items()
            if (base := heads.get(BRANCH_PREFIX + names[slug]))
        }
    except (PhasegateError, OSError):
        return ()

    return tuple(
        one._replace(conflicts=_find_conflicts(repository, begun[one.first], begun[one.second]))
        for one in find_feature_overlaps(changed)
    )


def _find_conflicts(repository: Repository, one: str, other: str) -> tuple[str, ...] | None:
    """A merge on paper writes objects: where nothing can be written, it is not known."""
    try:
        return merge_trees(repository, one, other).conflicts
    except (GitFailed, OSError):
        return None
