"""Findings of document checks, and quoting of untrusted text in messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from phasegate.core.text.visible import escape_unprintable
from phasegate.errors import ConfigError

MAX_QUOTED_CHARACTERS = 120


class Finding(msgspec.Struct, frozen=True, order=True):
    """One broken rule: its line (0: the whole document), its name, and what to do."""

    line: int
    code: str
    message: str


class LocatedFinding(msgspec.Struct, frozen=True, order=True):
    """A finding with the path of its document."""

    path: str
    line: int
    code: str
    message: str


def locate_findings(path: str, findings: Iterable[Finding]) -> Iterator[LocatedFinding]:
    """Add the path of their document to findings."""
    return (
        LocatedFinding(path, finding.line, finding.code, finding.message) for finding in findings
    )


def quote_text(text: str, max_characters: int = MAX_QUOTED_CHARACTERS) -> str:
    """Quote untrusted text on one line, shortened, without terminal control characters."""
    if len(text) > max_characters:
        text = f"{text[:max_characters]}..."
    return f"'{escape_unprintable(text)}'"


def raise_on_findings(path: str, findings: Iterable[Finding]) -> None:
    """Raise one error that lists all findings; do nothing if there are none."""
    lines = [f"{path}:{finding.line}: {finding.code} {finding.message}" for finding in findings]
    if lines:
        raise ConfigError("\n".join(lines), f"`phasegate spec check {path}` lists these again")


def suggest_closest(word: str, known: Iterable[str]) -> str:
    """Suggest the known word nearest to a misspelt one; empty if none is near."""
    # Importing it takes longer than most checks
    from difflib import get_close_matches

    near = get_close_matches(word[:100], list(known), n=1)
    if near:
        return f"; did you mean `{near[0]}`?"

    return ""
