"""What two runs of the same feature have in common: their events without ids and times, and their trees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

from phasegate.storage.rows import RecordedEvent
from support.feature_run import FeatureRun, make_feature_run

ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b|(?<=\")[0-9a-f]{16}(?=\")"
)
TIME = re.compile(r"\b20\d\d-\d\d-\d\dT[\d:.]+Z|(?<= in )\d+\.\d+s\b")
# What shows that a check's result is one that was recorded for the same tree
REUSE = re.compile(
    r"(?<=- setup: not asked for - )"
    r"(?:disabled by configuration|not needed: the results of this tree are recorded)"
    r"|(?<=kept in \.phasegate/checks/)[\w.-]+"
    r'|"recorded":true,|(?<="evidence":")[0-9a-f]{40,64}'
)
TIMES = {
    "since",
    "at",
    "started",
    "ended",
    "last_seen",
    "duration_s",
    "duration_ms",
    "duration_seconds",
    "parts",
    "bytes",
}


def alike(
    events: Sequence[RecordedEvent], *roots: Path, but: Set[str] = TIMES
) -> Iterator[tuple[str, Any]]:
    """Events without ids and times: the first id that is named is the first in both."""
    names: dict[str, str] = {}
    for one in events:
        text = one.payload.decode().replace(events[0].ts, "BEGUN")
        for root in roots:
            text = text.replace(str(root), "ROOT")
        text = ID.sub(
            lambda found: names.setdefault(found[0], f"id-{len(names)}"), TIME.sub("TIME", text)
        )
        yield one.kind, _without(but, json.loads(text))


def _without(names: Set[str], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(names, inner) for key, inner in value.items() if key not in names}
    return [_without(names, inner) for inner in value] if isinstance(value, list) else value


def without_reuse(events: Sequence[RecordedEvent]) -> list[RecordedEvent]:
    """Leave out whether a check was run or its result was recorded already; the result stays."""
    return [one._replace(payload=REUSE.sub("", one.payload.decode()).encode()) for one in events]


def alike_side_by_side(events: Sequence[RecordedEvent], *roots: Path) -> Iterator[tuple[str, Any]]:
    """The same where packages were at work at once: whose merge came last, and was checked again, is not compared."""
    return alike(by_package(events), *roots, but=TIMES | {"lines"})


def by_package(events: Sequence[RecordedEvent]) -> list[RecordedEvent]:
    """The events of the feature itself, then those of each package."""
    works: dict[str, list[RecordedEvent]] = {"": []}
    started = (json.loads(one.payload) for one in events if one.kind == "job.started")
    jobs = {fields["id"]: fields["wp"] for fields in started}
    work = ""
    for one in events:
        fields = json.loads(one.payload)
        if one.kind == "package.changed":
            work = fields["id"]
        elif one.kind in {"trail.sealed", "job.prompted"}:
            work = jobs.get(fields["job"], "")
        elif isinstance(fields, dict):  # else it is recorded together with what is before it
            event = fields.get("event", {})
            work = (
                fields.get("package")
                or fields.get("wp")
                or fields.get("work")
                or event.get("package")
                or ""
            )
        works.setdefault(work, []).append(one)
    return [one for work in sorted(works) for one in works[work]]


def one_at_a_time(folder: Path) -> FeatureRun:
    run = make_feature_run(folder)
    config = run.root / "phasegate.toml"
    config.write_text(config.read_text() + "[run]\nparallel = 1\n")
    run.git("commit", "-q", "-am", "One package at a time")
    return run


def tree_of(run: FeatureRun, begun: str) -> dict[str, str]:
    return {name: text for name, text in run.tree(begun).items() if name != "phasegate.toml"}
