"""Which package a command without a feature means."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.engine.journal.entries import encode_plan
from phasegate.engine.journal.package import find_package
from phasegate.errors import ConfigError
from phasegate.storage.row_events import workflow_changed_event
from phasegate.storage.rows import WorkflowRow
from support.dispatch_project import package
from support.plain_project import TS, MemoryStore


def record(store: MemoryStore, slug: str, stage: str) -> None:
    row = WorkflowRow(
        feature=slug,
        type="feature",
        description="",
        base="main",
        phases="06-implementation",
        position=0,
        stage=stage,
        round=1,
    )
    plan = encode_plan({"WP01": package(feature_slug=slug)})
    store.append_unconditionally(slug, TS, [workflow_changed_event(row), plan])


def test_a_package_of_a_feature_that_has_ended_is_meant_only_where_there_is_no_other(
    tmp_path: Path,
) -> None:
    with MemoryStore(tmp_path) as store:
        record(store, "001-a", "completed")
        assert find_package(store, "WP01", None).package.feature_slug == "001-a"
        record(store, "002-b", "blocked")
        assert find_package(store, "WP01", None).package.feature_slug == "002-b"
        record(store, "003-c", "working")  # the control: two that are open
        with pytest.raises(ConfigError, match="several features have a WP01") as refused:
            find_package(store, "WP01", None)
        assert "001-a" not in refused.value.hint
