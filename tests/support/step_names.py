"""The name of a recorded step: the same for the same step in whichever run, by what happens, without ids."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

# With whichever of several packages comes last; a trail that a dead life left open is sealed by the recovery.
_BESIDES = (
    "step.timed",
    "notice.given",
    "trail.sealed",
    "checks.ran",
    "job.prompted",
    "acceptance.checked",
)
_TELLING = ("event", "type", "role", "end", "package", "wp", "phase", "round", "outcome", "id")


def named(events: Sequence[tuple[str, bytes]]) -> str:
    """The name of a step that is recorded by these events: kind and payload of each."""
    telling = [event for event in events if event[0] not in _BESIDES] or events
    return " + ".join(f"{kind} {' '.join(_telling(payload))}" for kind, payload in telling)


def _telling(payload: bytes) -> Iterator[str]:
    values = json.loads(payload)
    for key in _TELLING:
        value = values.get(key, "")
        if isinstance(value, dict):
            yield from _telling(json.dumps(value).encode())
        elif str(value) and not (key == "id" and len(str(value)) > len("WP01")):
            yield str(value)
