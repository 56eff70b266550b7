"""Render the evidence about the tests of a package as one page, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phasegate.core.test_strength.model import RevertedRequirement, StrengthReport

MAX_ROWS = 40
MAX_TESTS = 5
MAX_DOUBTS = 10


def render_strength(report: StrengthReport) -> str:
    """Return the page: rejections, questions, requirements, survivors, flaky tests, notes."""
    survivors = [mutant for mutant in report.mutants if not mutant.killed]
    accepted = [
        f"{finding}: {report.accepted[finding.id]}"
        for finding in report.findings
        if finding.id in report.accepted
    ]
    sections: dict[str, Iterable[object]] = {
        "Rejects the package": report.rejecting,
        "For the reviewer to answer, by id": report.asked,
        "Accepted by the user": accepted,
        "Requirements": map(_render_requirement, report.requirements),
        f"Mutants that no test noticed, of {len(report.mutants)}": survivors,
        "Flaky tests": report.flaky,
        "Changed tests with an explanation": report.explained,
        "Not measured": report.notes,
    }

    lines = ["# Would the tests notice?", ""]
    for title, rows in sections.items():
        lines += _render_section(title, [str(row) for row in rows])
    if report.suite_s:
        ratio = f"{report.cost_s / report.suite_s:.1f}"
        lines.append(
            f"Cost: {report.cost_s:.1f} s, {ratio} times the test run of {report.suite_s:.1f} s"
        )
    return "\n".join(lines)


def list_doubts(report: StrengthReport) -> list[str]:
    """Return the doubts that a user should know before a merge, the worst first."""
    survivors = [mutant for mutant in report.mutants if not mutant.killed]
    unnoticed = [row.requirement for row in report.requirements if not row.bites]

    # Rejections first, then decided findings, then mere facts
    doubts = [str(finding) for finding in report.rejecting]
    doubts += [
        f"accepted by you: {finding} ({report.accepted[finding.id]})"
        for finding in report.findings
        if finding.id in report.accepted
    ]
    doubts += [f"answered by the reviewer: {finding}" for finding in report.asked]
    doubts += [f"no test notices {requirement}" for requirement in unnoticed]
    doubts += [f"no test notices {mutant}" for mutant in survivors]
    doubts += [f"flaky: {test}" for test in report.flaky]
    doubts += [f"not measured: {note}" for note in report.notes]

    # The page of the package has all of them
    if len(doubts) > MAX_DOUBTS:
        doubts[MAX_DOUBTS:] = [f"and {len(doubts) - MAX_DOUBTS} more"]
    return doubts


def _render_section(title: str, rows: list[str]) -> Iterator[str]:
    if not rows:
        return
    yield f"## {title}"
    yield ""
    for row in rows[:MAX_ROWS]:
        yield f"- {row}"
    if len(rows) > MAX_ROWS:
        yield f"- and {len(rows) - MAX_ROWS} more"
    yield ""


def _render_requirement(row: RevertedRequirement) -> str:
    if row.bites:
        more = ""
        if len(row.bites) > MAX_TESTS:
            more = f" and {len(row.bites) - MAX_TESTS} more"
        return f"{row.requirement}: noticed by {', '.join(row.bites[:MAX_TESTS])}{more}"

    if row.tests:
        return f"{row.requirement}: no test notices it; {len(row.tests)} tests name it"
    return f"{row.requirement}: no test notices it"
