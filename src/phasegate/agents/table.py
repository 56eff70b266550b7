"""From the word in `harness = "..."` to the harness: its row says what it is, its module how it is driven."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from phasegate.agents.port import Harness, MakesHarness
from phasegate.errors import ConfigError
from phasegate.rules.harnesses import ROWS


@cache
def harness_of(kind: str) -> Harness:
    """The harness of that kind, or a ConfigError that lists the kinds. Only its own module is loaded."""
    row = ROWS.get(kind)
    if row is None:
        raise ConfigError(f"there is no harness {kind!r}", f"use one of: {', '.join(ROWS)}")
    make: MakesHarness = import_module(f"phasegate.agents.{row.driven_by or row.kind}").HARNESS
    return make(row)
