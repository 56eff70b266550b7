"""The documents of a feature, checked before anybody works from them."""

from __future__ import annotations

from pathlib import Path

from phasegate.prompts.feature_folder import check_path
from phasegate.rules.feature import FeatureReport


def check_documents(path: Path) -> FeatureReport:
    """Every finding in a specification, a tasks.md, a WPnn.md, or a feature's folder with all of them."""
    return check_path(path)
