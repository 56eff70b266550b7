"""What two runs of the same feature have in common: their events without ids and times, and their trees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from phasegate.record.rows import Recorded
from support.feature_run import FeatureRun, make_feature_run

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{64}\b|\b[0-9a-f]{40}\b")
TIMES = {"since", "at", "started", "ended", "last_seen", "duration_s", "parts", "bytes"}


def alike(events: Sequence[Recorded], *roots: Path) -> Iterator[tuple[str, Any]]:
    """Events without ids and times: the first id that is named is the first in both."""
    names: dict[str, str] = {}
    for one in events:
        text = one.payload.decode().replace(events[0].ts, "BEGUN")
        for root in roots:
            text = text.replace(str(root), "ROOT")
        fields = json.loads(ID.sub(lambda found: names.setdefault(found[0], f"id-{len(names)}"), text))
        yield one.kind, _without_times(fields)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(inner) for key, inner in value.items() if key not in TIMES}
    return value


def one_at_a_time(folder: Path) -> FeatureRun:
    run = make_feature_run(folder)
    config = run.root / "phasegate.toml"
    config.write_text(config.read_text() + "[run]\nparallel = 1\n")
    run.git("commit", "-q", "-am", "One package at a time")
    return run


def tree_of(run: FeatureRun, begun: str) -> dict[str, str]:
    return {name: text for name, text in run.tree(begun).items() if name != "phasegate.toml"}
