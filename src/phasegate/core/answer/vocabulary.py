"""Define verdicts, task statuses, and which phase may give which verdict.

They are separate from the scanner, whose expressions take long to compile: gates and templates need
only these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Verdict(StrEnum):
    """A verdict of a review, the most severe last."""

    PASS = "PASS"  # noqa: S105 - no password
    NEEDS_REVISION = "NEEDS_REVISION"
    NEEDS_CHANGES = "NEEDS_CHANGES"
    REJECTED = "REJECTED"
    MAJOR_ISSUES = "MAJOR_ISSUES"


class TaskStatus(StrEnum):
    """A status that an implementer reports for a task."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


_REVIEW_VERDICTS = frozenset({Verdict.PASS, Verdict.NEEDS_CHANGES, Verdict.MAJOR_ISSUES})
ALLOWED_VERDICTS: Mapping[str, frozenset[Verdict]] = {
    "plan": frozenset({Verdict.PASS, Verdict.NEEDS_REVISION}),
    "challenge": frozenset({Verdict.PASS, Verdict.NEEDS_REVISION, Verdict.REJECTED}),
    "implement": frozenset(),
    "review": _REVIEW_VERDICTS,
    "archive": _REVIEW_VERDICTS,
}
