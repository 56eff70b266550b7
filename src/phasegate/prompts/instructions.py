"""The instructions of each kind of run: shipped words with the run's facts filled in (P5)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from tomllib import loads

from phasegate.rules.template import fill_all


def instructions(phase: str, values: Mapping[str, str]) -> str:
    """What an agent is asked to do in a run of a phase."""
    return fill_all(_shipped(f"{phase}.md"), values).rstrip() + "\n"


def note(name: str, **values: str) -> str:
    """One of the short remarks that a run may need."""
    return fill_all(loads(_shipped("notes.toml"))[name], values)


@cache
def _shipped(name: str) -> str:
    return (files(__package__) / "instructions" / name).read_text(encoding="utf-8")
