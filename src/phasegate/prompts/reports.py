"""The documents that we write ourselves, from parsed answers and our own checks (W7)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from phasegate.rules.template import fill_all


def report(name: str, values: Mapping[str, str]) -> str:
    """A shipped form with its facts filled in."""
    form = (files(__package__) / "reports" / f"{name}.md").read_text(encoding="utf-8")
    return fill_all(form, values).rstrip() + "\n"
