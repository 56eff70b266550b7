"""The assembler's own sentences, as data (P5)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

_FILE = Path(__file__).with_name("phrases.toml")


class Folded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    files: str
    nested: str


class Notes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    left_out: str
    cut: str
    hidden: str
    hidden_at: str
    hidden_in_name: str
    escaped: str
    entry: str
    more: str


class Phrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    missing: str
    artifacts: str
    tasks: str
    cut: str
    skeleton: str
    folded: Folded
    notes: Notes


@cache
def phrases() -> Phrases:
    """The shipped sentences, read once."""
    return msgspec.toml.decode(_FILE.read_bytes(), type=Phrases)
