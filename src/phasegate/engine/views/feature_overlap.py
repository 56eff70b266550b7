"""Find active features that change the same files, before any of them is merged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from phasegate.core.plan.feature_overlap import FeatureOverlap, find_feature_overlaps
from phasegate.errors import PhasegateError
from phasegate.git import GitFailed
from phasegate.workspace.repository.commit_log import list_changed_paths
from phasegate.workspace.repository.merge import merge_trees
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import Repository, open_repository, read_refs

MAX_FEATURES = 12


def find_overlaps(folder: str, bases: Mapping[str, str]) -> tuple[FeatureOverlap, ...]:
    """Return the overlaps of these features, given by slug with their bases.

    Returns none if git fails: the overview must not depend on it.
    """
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

        feature_heads = {
            slug: head for slug in names if (head := heads.get(f"{BRANCH_PREFIX}feat/{slug}"))
        }
        changed = {
            slug: list_changed_paths(repository, base, head)
            for slug, head in feature_heads.items()
            if (base := heads.get(BRANCH_PREFIX + names[slug]))
        }
    except (PhasegateError, OSError):
        return ()

    return tuple(
        overlap._replace(
            conflicts=_find_conflicts(
                repository, feature_heads[overlap.first], feature_heads[overlap.second]
            )
        )
        for overlap in find_feature_overlaps(changed)
    )


def _find_conflicts(repository: Repository, one: str, other: str) -> tuple[str, ...] | None:
    """Merge two heads in memory, or return None if that is impossible, as it writes git objects."""
    try:
        return merge_trees(repository, one, other).conflicts
    except (GitFailed, OSError):
        return None
