"""Collect the changes, checks and reviews that the text of a feature's pull request describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from phasegate.checks.evidence import CheckOutcome, CheckResult, Evidence
from phasegate.checks.test_output import TestRun
from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.forge.pull_body import PullFile, PullFinding
from phasegate.core.machine.package_events import first_finding
from phasegate.core.paths.scope import Scope
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.test_strength.paths import is_test_path
from phasegate.engine.jobs.step import PackageReview, StepContext
from phasegate.workspace.repository.commit_log import list_changed_files
from phasegate.workspace.repository.repository import Repository


def select_summary(message: str) -> str:
    """Return the part of a merge message between its subject and the requirements."""
    paragraphs = message.split("\n\n")[1:]
    shown = [
        text for text in paragraphs if not text.startswith(("Requirements:", "Specification:"))
    ]
    return "\n\n".join(shown).strip()


def list_pull_files(
    repository: Repository, base: str, head: str, packages: Sequence[WorkPackage]
) -> list[PullFile]:
    """List the changed files, each with the first package whose scope has it."""
    scopes = {one.work_package_id: Scope(tuple(one.file_scope)) for one in packages}
    return [
        PullFile(
            path=file.path,
            added=file.added,
            deleted=file.deleted,
            package=next((name for name, scope in scopes.items() if scope.covers(file.path)), ""),
            is_test=is_test_path(file.path),
        )
        for file in list_changed_files(repository, base, head)
    ]


def list_command_rows(evidence: Evidence | None) -> Iterator[tuple[str, str, str]]:
    """Yield each command that ran on the merged tree, with its result before and now."""
    for check in evidence.checks if evidence else ():
        if check.argv and check.outcome is not CheckOutcome.NOT_REQUESTED:
            yield " ".join(check.argv), _format_tests(check.tests_before), _format_result(check)


def _format_result(check: CheckResult) -> str:
    return _format_tests(check.tests) or str(check.outcome)


def _format_tests(run: TestRun | None) -> str:
    if run is None:
        return ""
    text = f"{run.passed} passed"
    if run.failed:
        text += f", {run.failed} failed"
    if run.skipped:
        text += f", {run.skipped} skipped"
    return text


def list_review_findings(reviews: Sequence[PackageReview]) -> Iterator[PullFinding]:
    """Yield the first finding of every review that did not pass, and whether a later one did."""
    for position, review in enumerate(reviews):
        if review.verdict is Verdict.PASS:
            continue

        yield PullFinding(
            package=review.package,
            verdict=str(review.verdict),
            finding=first_finding(review.findings) or str(review.verdict),
            is_settled=any(
                later.package == review.package and later.verdict is Verdict.PASS
                for later in reviews[position + 1 :]
            ),
        )


def list_risks(
    context: StepContext, untested: Sequence[str], evidence: Evidence | None
) -> Iterator[str]:
    """Yield the reasons to review the pull request closely."""
    if untested:
        yield f"no test covers {', '.join(untested)}"
    for row in context.packages:
        if row.round > 1:
            yield f"{row.id} ({row.title}) needed {row.round} rounds"
    for accepted in context.accepted_evidence:
        yield f"a user accepted a finding: {accepted.reason}"

    flaky: Mapping[str, int] = {
        check.name: len(check.flaky) for check in (evidence.checks if evidence else ())
    }
    for name, count in flaky.items():
        if count:
            yield f"{count} tests of {name} are flaky"
