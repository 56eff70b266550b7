"""Two trees of a tiny project, and what the measurement of the tests says about the step from one to the other.

Commands run without a sandbox and without git: what is tested with this is the judging.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.checks.commands import PlanRunner
from phasegate.checks.evidence import CheckOutcome, CheckResult
from phasegate.checks.plan import Purpose
from phasegate.checks.test_strength import (
    ChangedContent,
    FileVersion,
    StrengthInputs,
    StrengthRunner,
)
from phasegate.core.test_strength.compare import PackagePlanFacts
from phasegate.core.test_strength.dilution import find_signs
from phasegate.core.test_strength.model import StrengthFinding, StrengthReport, sort_findings
from phasegate.core.test_strength.paths import is_test_path
from support.checkout import PYTEST_ALONE, plan, run_plainly, write

UNITTEST = "python3 -m unittest"
PYTEST = f"python -m pytest -q {PYTEST_ALONE}"
NODE = "node --test"
Files = Mapping[str, str | None]


class Judgement(NamedTuple):
    """What stops a change: the failed test check, or findings that reject; and what the reviewer is asked."""

    test: CheckResult
    report: StrengthReport

    @property
    def rejects(self) -> dict[str, str]:
        """The kinds of what rejects the change, with their texts."""
        found = _by_kind(self.report.rejecting)
        if self.test.outcome is CheckOutcome.FAILED:
            found["test"] = self.test.summary
        return found

    @property
    def asks(self) -> dict[str, str]:
        return _by_kind(self.report.asked)

    @property
    def all(self) -> dict[str, str]:
        return {**self.asks, **self.rejects}


def _by_kind(findings: tuple[StrengthFinding, ...]) -> dict[str, str]:
    kinds = dict.fromkeys(finding.kind for finding in findings)
    return {
        kind: "\n".join(str(finding) for finding in findings if finding.kind == kind)
        for kind in kinds
    }


def judge(
    folder: Path,
    base: Mapping[str, str],
    change: Files,
    command: str = UNITTEST,
    *,
    facts: PackagePlanFacts | None = None,
    mutants: bool = True,
    budget_s: float = 20.0,
    flaky: frozenset[str] = frozenset(),
) -> Judgement:
    """Run the tests of both trees, and measure those of the change. A file that is None is deleted."""
    work = {path: text for path, text in {**base, **change}.items() if text is not None}
    trees = {"base": base, "work": work, "strength": work}
    for name, files in trees.items():
        write(folder / name, files)
    checks = {name: _run(folder, name, command)[0] for name in ("base", "work")}
    contents = [
        ChangedContent(path, _version(base.get(path)), _version(text))
        for path, text in change.items()
        if base.get(path) != text
    ]
    signs = find_signs([one.decode() for one in contents])
    ran = checks["work"].tests
    if ran is None or checks["work"].outcome is CheckOutcome.FAILED:
        return Judgement(checks["work"], StrengthReport(findings=sort_findings(signs)))

    inputs = StrengthInputs(
        changed=tuple(contents),
        facts=facts or PackagePlanFacts(requirements=("FR-CALC-002",)),
        base_run=checks["base"].tests,
        work_run=ran,
        suite_s=checks["work"].duration_s or 0.0,
        budget_s=budget_s,
        has_test_files=any(is_test_path(path) for path in {**base, **work}),
        with_mutants=mutants,
        flaky=flaky,
    )
    runner = _runner(folder, "strength", command)
    report = StrengthRunner(inputs, runner).measure()
    findings = sort_findings((*signs, *report.findings))
    return Judgement(
        checks["work"],
        StrengthReport(
            findings=findings,
            requirements=report.requirements,
            mutants=report.mutants,
            explained=report.explained,
            notes=report.notes,
            suite_s=report.suite_s,
            cost_s=report.cost_s,
        ),
    )


def _version(text: str | None) -> FileVersion | None:
    return None if text is None else FileVersion(text.encode())


def _runner(folder: Path, name: str, command: str) -> PlanRunner:
    return PlanRunner(
        plan(commands={"setup": "", "test": command}),
        folder / name,
        run_plainly,
        reports=folder / f"{name}-reports",
    )


def _run(folder: Path, name: str, command: str) -> tuple[CheckResult, PlanRunner]:
    runner = _runner(folder, name, command)
    [check] = [one for one in runner.run_checks((Purpose.TEST,)) if one.name == Purpose.TEST]
    return check, runner


def time_suite(folder: Path, files: Mapping[str, str]) -> float:
    """How long one run of the tests of a tree takes."""
    write(folder / "suite", files)
    return _run(folder, "suite", UNITTEST)[0].duration_s or 0.0
