"""Compare an agent's claims with git, the files on disk and the checks.

Decisions are based on the facts; false claims are only reported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.checks.deliverables import find_deliverable_problem
from phasegate.checks.evidence import CheckOutcome, Evidence
from phasegate.checks.excerpt import to_one_line
from phasegate.checks.plan import Purpose
from phasegate.core.answer.json_result import AgentResponse, ReportedArtifacts, ReportedCommit
from phasegate.core.plan.commits import Commit

MAX_CLAIMS = 200
# In percentage points
COVERAGE_TOLERANCE_POINTS = 0.5
DURATION_TOLERANCE_S = 60.0
DURATION_TOLERANCE_RATIO = 0.25
_SHA = re.compile(r"([0-9a-f]{7,64})(?:\.\.\.|…)?")
_PERCENT = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%?\s*")


class ObservedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that Phasegate observed itself.

    `commits` are those in the agent's own repository that descend from the base.
    """

    commits: tuple[Commit, ...]
    # A clean checkout of the harvested tree
    checkout: Path
    base_paths: Collection[str]
    duration_s: float
    evidence: Evidence


class FalseClaim(NamedTuple):
    """A claim, and the observed fact that contradicts it."""

    claim: str
    truth: str


def find_false_claims(response: AgentResponse, facts: ObservedFacts) -> list[FalseClaim]:
    """Return every difference between an agent's claims and the observed facts.

    Decisions are based on the facts; claims are only recorded.
    """
    artifacts = response.artifacts or ReportedArtifacts()
    found = [
        *_find_false_commits((response.commits or ())[:MAX_CLAIMS], facts.commits),
        *_find_false_files((artifacts.files_created or ())[:MAX_CLAIMS], facts),
        *_find_false_coverage(artifacts.test_coverage, facts.evidence.coverage_percent),
        *_find_false_lint(artifacts.lint_status, facts.evidence),
        *_find_false_duration(response.duration_seconds, facts.duration_s),
    ]
    return [FalseClaim(to_one_line(claim), to_one_line(truth)) for claim, truth in found]


def find_false_failure_claims(
    response: AgentResponse, commits: Sequence[Commit], duration_s: float
) -> list[FalseClaim]:
    """Return the false claims of a failure response: nothing was checked, but git and the clock are
    known.
    """
    found = [
        *_find_false_commits((response.commits or ())[:MAX_CLAIMS], commits),
        *_find_false_duration(response.duration_seconds, duration_s),
    ]
    return [FalseClaim(to_one_line(claim), to_one_line(truth)) for claim, truth in found]


def _find_false_commits(
    claimed: Sequence[ReportedCommit], real: Sequence[Commit]
) -> list[FalseClaim]:
    return [
        FalseClaim(f"commit {commit.sha}", truth)
        for commit in claimed
        if (truth := _describe_commit_mismatch(commit, real))
    ]


def _describe_commit_mismatch(commit: ReportedCommit, real: Sequence[Commit]) -> str:
    """Return the mismatch of a claimed commit, or an empty text if it matches.

    An abbreviated id is accepted if it is unambiguous.
    """
    written = _SHA.fullmatch(commit.sha.lower())
    if written is None:
        return "that is not a commit id"

    meant = [one for one in real if one.id.startswith(written[1])]
    if len(meant) != 1:
        if meant:
            return "the id is ambiguous"
        return "there is no such commit after the base"

    said = _first_line(commit.message)
    message = _first_line(meant[0].message)
    if said in ("", message):
        return ""

    return f"its message is {message!r}, not {said!r}"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()


def _find_false_files(claimed: Sequence[str], facts: ObservedFacts) -> list[FalseClaim]:
    found = [(path, find_deliverable_problem(facts.checkout, path)) for path in claimed]
    wrong = [FalseClaim(f"created {path}", f"it {problem}") for path, problem in found if problem]
    known = [path for path, problem in found if not problem and path in facts.base_paths]
    return [*wrong, *(FalseClaim(f"created {path}", "it existed before") for path in known)]


def _find_false_coverage(claimed: str | float | None, measured: float | None) -> list[FalseClaim]:
    """Compare a claimed coverage with the measured one."""
    if claimed is None:
        return []

    written = _PERCENT.fullmatch(str(claimed))
    if written is None:
        return [FalseClaim(f"coverage {claimed}", "that is not a percentage")]
    if measured is None:
        return [FalseClaim(f"coverage {claimed}", "coverage was not measured")]
    if abs(float(written[1]) - measured) <= COVERAGE_TOLERANCE_POINTS:
        return []

    return [FalseClaim(f"coverage {claimed}", f"the measured coverage is {measured:.1f} %")]


def _find_false_lint(claimed: str | None, evidence: Evidence) -> list[FalseClaim]:
    """Compare a claim that the linter passed with the check."""
    check = evidence.find_check(Purpose.LINT)
    if claimed is None or claimed.strip().lower() not in (
        "passed",
        "pass",
        "ok",
        "clean",
        "success",
    ):
        return []

    if check is None or check.outcome is not CheckOutcome.PASSED:
        return [
            FalseClaim(
                f"lint {claimed}", "it failed" if check and check.remedy else "it was not run"
            )
        ]

    return []


def _find_false_duration(claimed_s: float | None, measured_s: float) -> list[FalseClaim]:
    slack_s = DURATION_TOLERANCE_S + DURATION_TOLERANCE_RATIO * measured_s
    if claimed_s is None or abs(claimed_s - measured_s) <= slack_s:
        return []
    return [FalseClaim(f"took {claimed_s:g} s", f"the measured time is {measured_s:.0f} s")]
