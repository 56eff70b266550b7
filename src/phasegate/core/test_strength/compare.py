"""Compare the tests of the base with those of the work: lost, weakened, and failing without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from phasegate.core.test_strength.blocks import TestBlock, split_tests
from phasegate.core.test_strength.model import (
    MutantResult,
    ReportedTest,
    RevertedRequirement,
    Severity,
    StrengthFinding,
    TestOutcome,
    names_requirement,
)
from phasegate.core.test_strength.mutants import EMPTIED

MAX_FINDINGS = 100
# Mutants that alter the result of the code: they are seldom equivalent to it
_RESULT_KINDS = (EMPTIED, "arithmetic", "comparison", "return value")


class ChangedText(msgspec.Struct, frozen=True):
    """A changed file; None where it does not exist."""

    path: str
    old: str | None
    new: str | None


class PackagePlanFacts(msgspec.Struct, frozen=True):
    """What the plan says about a package. The implementer cannot change it."""

    requirements: tuple[str, ...] = ()
    # The text of the package's document
    document: str = ""
    # False if no test file is in its scope
    can_write_tests: bool = True
    # It fixes what a gate found: the gate is its test
    is_fix: bool = False


Outcomes = Mapping[str, TestOutcome]


def summarize_outcomes(cases: Iterable[ReportedTest]) -> dict[str, TestOutcome]:
    """Return the outcome of each test by id; of several, the worst."""
    found: dict[str, TestOutcome] = {}
    for case in cases:
        known = found.get(case.id)
        if known is None or _rank(case.outcome) > _rank(known):
            found[case.id] = case.outcome
    return found


def _rank(outcome: TestOutcome) -> int:
    if outcome is TestOutcome.PASSED:
        return 0
    return 2 if outcome.is_failure else 1


def find_lost_tests(base: Outcomes, work: Outcomes) -> dict[str, str]:
    """Return the tests that passed on the base and do not run any more, with what became of them.

    A failed one is not lost: the test check rejects it. Parameters may change their names, so a
    test with as many passed cases as before is not lost either.
    """
    lost = {}
    before = _count_passed(base)
    after = _count_passed(work)
    for name, outcome in base.items():
        now = work.get(name)
        if outcome is not TestOutcome.PASSED or now is TestOutcome.PASSED:
            continue
        function = name.partition("[")[0]
        if (now is not None and now.is_failure) or after[function] >= before[function]:
            continue
        if now is None:
            lost[name] = "is no longer run"
        else:
            lost[name] = f"is {now} now"
    return lost


def _count_passed(outcomes: Outcomes) -> Counter[str]:
    """Count the passed cases of each test function."""
    return Counter(
        name.partition("[")[0]
        for name, outcome in outcomes.items()
        if outcome is TestOutcome.PASSED
    )


class SourceIndex:
    """The tests of the base and of the work, by file and name, from the changed files."""

    def __init__(self, changed: Sequence[ChangedText]) -> None:
        self.old = {one.path: split_tests(one.path, one.old or "") for one in changed}
        self.new = {one.path: split_tests(one.path, one.new or "") for one in changed}

    def find_old(self, test: str) -> TestBlock | None:
        return _find_block(self.old, test)

    def find_new(self, test: str) -> TestBlock | None:
        return _find_block(self.new, test)

    def find_same_body(self, block: TestBlock) -> list[tuple[str, TestBlock]]:
        """Return the tests of the work that have the same body under another name or path."""
        return [
            (path, other)
            for path, blocks in self.new.items()
            for other in blocks
            if other.body == block.body and not other.is_skipped
        ]


def _find_block(blocks: Mapping[str, Sequence[TestBlock]], test: str) -> TestBlock | None:
    path, _, name = test.partition("::")
    function = _function_name(name)
    for block in blocks.get(path, ()):
        if function in (block.name, block.name.rpartition(".")[2]):
            return block
        if function.rpartition("::")[2] == block.name:
            return block
    return None


def _function_name(name: str) -> str:
    plain = name.partition("[")[0]
    if " " in plain:
        return plain
    return plain.replace("::", ".")


def judge_lost_tests(
    lost: Mapping[str, str], work: Outcomes, sources: SourceIndex, plan: PackagePlanFacts
) -> tuple[list[StrengthFinding], list[str]]:
    """Return a finding for each lost test, and the ones that are explained.

    A test with the same body that runs under another name or path was only moved. A test that the
    plan names, or that names a requirement of the package on the base, was changed by it.
    """
    findings = []
    explained = []
    cases = Counter(test.partition("[")[0] for test in lost)
    for test, what in lost.items():
        block = sources.find_old(test)
        function = test.partition("[")[0]
        moved = ""
        if block is not None:
            moved = _find_moved(block, function, cases[function], work, sources)
        if moved:
            explained.append(f"{test} runs as {moved}")
        elif reason := _find_reason(test, block, plan):
            explained.append(f"{test} {what}: {reason}")
        else:
            path = test.partition("::")[0]
            findings.append(
                StrengthFinding(
                    kind="lost test",
                    severity=Severity.REJECT,
                    path=path,
                    line=block.line if block else 0,
                    text=f"{test} passed on the base and {what}",
                    detail=test,
                )
            )
    return findings[:MAX_FINDINGS], explained


def _find_moved(
    block: TestBlock, function: str, cases: int, work: Outcomes, sources: SourceIndex
) -> str:
    """Return a test of the work with the same body and as many cases under another name."""
    passed = _count_passed(work)
    for path, other in sources.find_same_body(block):
        for test in passed:
            if test == function or passed[test] < cases or not test.startswith(f"{path}::"):
                continue
            name = _function_name(test.partition("::")[2])
            if name == other.name or name.endswith(f"::{other.name}"):
                return test
    return ""


def _find_reason(test: str, block: TestBlock | None, plan: PackagePlanFacts) -> str:
    name = test.partition("::")[2].partition("[")[0].replace("::", ".").rpartition(".")[2]
    text = f"{test}\n{block.text if block else ''}"
    for requirement in plan.requirements:
        if names_requirement(text, requirement):
            return f"it belongs to {requirement}, which the package changes"
    if len(name) > 4 and name in plan.document:
        return "the plan of the package names it"
    return ""


def judge_base_tests(
    base: Outcomes,
    over_work: Outcomes,
    work: Outcomes,
    sources: SourceIndex,
    plan: PackagePlanFacts,
) -> tuple[list[StrengthFinding], list[str]]:
    """Judge the base's test files that ran over the new code.

    A test that passed on the base and fails now was weakened, or its expectation was changed.
    """
    findings = []
    explained = []
    broken_files = {
        test.partition("::")[0]
        for test, outcome in over_work.items()
        if outcome is TestOutcome.ERROR and test.endswith("::")
    }
    for test, outcome in base.items():
        path = test.partition("::")[0]
        now = over_work.get(test)
        if now is None and path in broken_files:
            now = TestOutcome.ERROR
        if outcome is not TestOutcome.PASSED or now is None or not now.is_failure:
            continue
        # The manifest judges a test that still exists as it was
        if work.get(test) is TestOutcome.FAILED:
            continue

        block = sources.find_old(test)
        reason = _find_reason(test, block, plan)
        if reason:
            explained.append(f"{test} fails as it was on the base: {reason}")
            continue
        findings.append(
            StrengthFinding(
                kind="weakened test",
                severity=Severity.REJECT,
                path=path,
                line=block.line if block else 0,
                text=f"{test} fails over the new code as it was on the base, and passes as changed",
                detail=test,
            )
        )
    return findings[:MAX_FINDINGS], explained


def judge_probe(
    test: str, altered: str, sources: SourceIndex, plan: PackagePlanFacts
) -> tuple[StrengthFinding, str]:
    """Return the finding for a rewritten test that notices less, and the reason if it has one."""
    block = sources.find_old(test)
    finding = StrengthFinding(
        kind="notices less",
        severity=Severity.ASK,
        path=test.partition("::")[0] if block else "",
        line=block.line if block else 0,
        text=f"{test} noticed this as it was on the base, and passes as changed: {altered}",
        detail=f"less {test}",
    )
    return finding, _find_reason(test, block, plan)


def find_dependent_tests(base: Outcomes, reverted: Outcomes, work: Outcomes) -> list[str]:
    """Find the tests that pass with the change and fail without it.

    `reverted`: the work's tests over the base's code. A test that failed on the base itself counts
    too: it was written before the code.
    """
    broken_files = {
        test.partition("::")[0]
        for test, outcome in reverted.items()
        if outcome is TestOutcome.ERROR and test.endswith("::")
    }
    bites = []
    for test, outcome in work.items():
        before = reverted.get(test)
        if before is None and test.partition("::")[0] in broken_files:
            before = TestOutcome.ERROR
        if outcome is not TestOutcome.PASSED:
            continue
        was_red = base.get(test, TestOutcome.PASSED).is_failure
        # A file that cannot be loaded says nothing about its old tests
        is_old = base.get(test) is TestOutcome.PASSED and before is TestOutcome.ERROR
        if was_red or (before is not None and before.is_failure and not is_old):
            bites.append(test)

    return bites


def match_requirements(
    requirements: Sequence[str], found: Sequence[str], texts: Mapping[str, str]
) -> tuple[RevertedRequirement, ...]:
    """Return the tests of each requirement and those that notice the change.

    `texts` has the name and source of every changed test, by id. A test that names no requirement
    counts for the requirements that no test names.
    """
    named = {
        requirement: [test for test, text in texts.items() if names_requirement(text, requirement)]
        for requirement in requirements
    }
    with_name = {test for tests in named.values() for test in tests}
    general = [test for test in found if test not in with_name]

    rows = []
    for requirement in requirements:
        tests = named[requirement]
        bites = [test for test in tests if test in found]
        if not tests:
            bites = general
        rows.append(RevertedRequirement(requirement, tuple(tests), tuple(bites)))
    return tuple(rows)


def judge_reverted_code(
    found: Sequence[str],
    rows: Sequence[RevertedRequirement],
    plan: PackagePlanFacts,
    changed_code: str,
) -> list[StrengthFinding]:
    """Return a finding for every requirement that no test notices.

    If no test notices the change at all, the package is rejected; where no requirement or no test
    file is in its scope, the reviewer has to answer.
    """
    if plan.is_fix:
        return []
    severity = Severity.ASK
    if not found and plan.requirements and plan.can_write_tests:
        severity = Severity.REJECT

    findings = []
    for row in rows:
        if row.bites:
            continue
        text = f"no test notices {row.requirement}: all pass without the change"
        if row.tests:
            text += f", also {', '.join(row.tests[:5])}"
        findings.append(
            StrengthFinding(
                kind="unnoticed requirement", severity=severity, text=text, detail=row.requirement
            )
        )

    if not rows and not found:
        findings.append(
            StrengthFinding(
                kind="unnoticed change",
                severity=severity,
                text=f"no test notices the change of {changed_code}: all pass without it",
                detail=changed_code,
            )
        )
    return findings


def judge_mutants(mutants: Sequence[MutantResult], plan: PackagePlanFacts) -> list[StrengthFinding]:
    """Judge the mutants that no test noticed.

    Tests that notice none of them, not even an emptied body, may fail without the change, but only
    because a name is missing: they assert nothing. The reviewer has to answer for many survivors,
    and for one that another result of the code survived; others are listed.
    """
    survivors = [one for one in mutants if not one.killed]
    emptied = [one for one in survivors if one.kind in (EMPTIED, "return value")]
    if not survivors or plan.is_fix:
        return []

    shown = "; ".join(str(one) for one in survivors[:3])
    if emptied and len(survivors) == len(mutants):
        severity = Severity.ASK
        if plan.requirements and plan.can_write_tests:
            severity = Severity.REJECT
        text = f"no test notices an emptied body of the changed code: {shown}"
        return [
            StrengthFinding(
                kind="asserts nothing about the change", severity=severity, text=text, detail="all"
            )
        ]

    is_weak = 2 * len(survivors) > len(mutants)
    if not is_weak and not any(one.kind in _RESULT_KINDS for one in survivors):
        return []
    text = f"{len(survivors)} of {len(mutants)} mutants were not noticed: {shown}"
    return [
        StrengthFinding(
            kind="survived mutant", severity=Severity.ASK, text=text, detail=survivors[0].before
        )
    ]
