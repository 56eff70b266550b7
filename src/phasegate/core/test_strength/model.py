"""Values about test strength: reported tests, findings, and their consequence for the gate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from hashlib import sha256

import msgspec

_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]+")


class TestOutcome(StrEnum):
    """The outcome of one test, as our own reporter saw it."""

    # Prevents pytest from collecting this class
    __test__ = False

    PASSED = "passed"
    FAILED = "failed"
    # It could not be run: an error in its file, or in its set-up
    ERROR = "error"
    SKIPPED = "skipped"
    DESELECTED = "deselected"

    @property
    def is_failure(self) -> bool:
        return self in (TestOutcome.FAILED, TestOutcome.ERROR)


class ReportedTest(msgspec.Struct, frozen=True):
    """One test of a run. `file` is relative to the folder in which the tests ran."""

    file: str
    # Empty if a whole file could not be loaded
    name: str
    outcome: TestOutcome

    @property
    def id(self) -> str:
        return f"{self.file}::{self.name}"


class Severity(StrEnum):
    """What a finding means for the gate."""

    # The package is rejected until it is fixed or the user accepts it
    REJECT = "rejects"
    # The reviewer has to answer it by its id
    ASK = "for the reviewer"


class StrengthFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the tests of a change that has to be fixed, answered or accepted."""

    kind: str
    severity: Severity
    # What was found, in one line
    text: str
    path: str = ""
    line: int = 0
    # What it depends on besides kind and path: another detail is another finding
    detail: str = ""

    @property
    def id(self) -> str:
        """The id that answers and acceptances refer to. It does not depend on the line number."""
        key = "\0".join((self.kind, self.path, self.detail or self.text))
        return f"E-{sha256(key.encode(errors='surrogateescape')).hexdigest()[:6]}"

    @property
    def where(self) -> str:
        if self.line:
            return f"{self.path}:{self.line}"
        return self.path

    def __str__(self) -> str:
        where = f"{self.where}: " if self.path else ""
        return f"{self.id} {self.kind}: {where}{self.text}"


class RevertedRequirement(msgspec.Struct, frozen=True):
    """The tests that fail without the change, for one requirement."""

    requirement: str
    # Tests that name the requirement
    tests: tuple[str, ...] = ()
    # Tests that fail without the change
    bites: tuple[str, ...] = ()


class MutantResult(msgspec.Struct, frozen=True, kw_only=True):
    """One mutated line of the work, and whether a test detected it."""

    path: str
    line: int
    kind: str
    before: str
    after: str
    killed: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {self.before} -> {self.after}"


class FlakyTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test that passed and failed on one tree."""

    test: str
    passed: int
    failed: int
    # Also on the base, where no agent could make it so
    on_base: bool

    def __str__(self) -> str:
        where = ", also on the base" if self.on_base else ""
        return f"{self.test}: passed {self.passed} times, failed {self.failed} times{where}"


class StrengthReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that was found out about the tests of a commit."""

    base: str = ""
    commit: str = ""
    findings: tuple[StrengthFinding, ...] = ()
    requirements: tuple[RevertedRequirement, ...] = ()
    # Tests of the base that the work no longer runs, and why that is not a finding
    explained: tuple[str, ...] = ()
    mutants: tuple[MutantResult, ...] = ()
    flaky: tuple[FlakyTest, ...] = ()
    # What was not measured, and why
    notes: tuple[str, ...] = ()
    suite_s: float = 0.0
    cost_s: float = 0.0
    # Findings that the user accepted: the reason, by id
    accepted: Mapping[str, str] = {}

    @property
    def rejecting(self) -> tuple[StrengthFinding, ...]:
        return self._select(Severity.REJECT)

    @property
    def asked(self) -> tuple[StrengthFinding, ...]:
        return self._select(Severity.ASK)

    def _select(self, severity: Severity) -> tuple[StrengthFinding, ...]:
        return tuple(
            finding
            for finding in self.findings
            if finding.severity is severity and finding.id not in self.accepted
        )


def fold_id(text: str) -> str:
    """Fold a requirement id or a text to the form in which both are compared.

    `FR-AUTH-001` matches `test_fr_auth_001_login`.
    """
    return f"_{_NOT_ALPHANUMERIC.sub('_', text).strip('_').lower()}_"


def names_requirement(text: str, requirement: str) -> bool:
    """Return True if a text contains a requirement id, alone or in an identifier."""
    return fold_id(requirement) in fold_id(text)


def sort_findings(findings: Iterable[StrengthFinding]) -> tuple[StrengthFinding, ...]:
    """Return findings without repetitions, the ones that reject first."""
    unique = {finding.id: finding for finding in findings}
    order = list(Severity)
    return tuple(
        sorted(unique.values(), key=lambda one: (order.index(one.severity), one.path, one.line))
    )
