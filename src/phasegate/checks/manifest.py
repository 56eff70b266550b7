"""The manifest: the checks that work must pass on a clean checkout before it counts as done.

Claims of agents are ignored. Anything unknown, unverified or empty is a failure, and each failure
has a remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.checks.baseline import Baseline
from phasegate.checks.commands import PlanRunner
from phasegate.checks.deliverables import find_deliverable_problem
from phasegate.checks.evidence import (
    CheckOutcome,
    CheckResult,
    Evidence,
    failed_check,
    not_requested_check,
    passed_check,
)
from phasegate.checks.excerpt import format_names, to_one_line
from phasegate.checks.plan import CommandPlan, CommandRunner, Purpose
from phasegate.checks.secrets import ALLOW_MARKER, AddedContent, find_secrets
from phasegate.checks.setup import SetupCacheSlot
from phasegate.checks.snapshot import TreeSnapshot, find_changed_files, take_snapshot
from phasegate.core.detection.dependency_rules import RuleViolation
from phasegate.core.plan.commits import Commit, find_unlabelled_commits
from phasegate.core.text.wording import pluralize

RULES_CHECK = "governance"
_PROOF_CHECKS = frozenset(("deliverables", Purpose.BUILD, Purpose.TEST, Purpose.COVERAGE))


class HarvestedWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work that was harvested, as found in git and on disk."""

    package: str
    # A clean checkout of the harvested tree, which the checks may modify
    checkout: Path
    deliverables: tuple[str, ...]
    # Deliverables that may stay as they were
    may_stay_unchanged: tuple[str, ...] = ()
    # Paths that differ from the base
    changed_paths: tuple[str, ...]
    # Commits since the base
    commits: tuple[Commit, ...]
    # Content that the commits added
    added_content: Iterable[AddedContent]
    # Blob ids of the files in the harvested tree, by path
    blobs: Mapping[str, str]
    # Violations of the package's rules about dependencies and frozen files
    rule_violations: tuple[RuleViolation, ...] = ()
    # Changes that are in no commit
    uncommitted: tuple[str, ...] = ()


class RootPlan(NamedTuple):
    """The checks that one root of the tree must pass."""

    plan: CommandPlan
    baseline: Baseline | None = None
    cache_slot: SetupCacheSlot | None = None


def gather_evidence(
    plan: CommandPlan,
    work: HarvestedWork,
    run: CommandRunner,
    baseline: Baseline | None = None,
    cache_slot: SetupCacheSlot | None = None,
    *,
    other_roots: Sequence[RootPlan] = (),
    logs: Path | None = None,
    reports: Path | None = None,
    known_checks: Sequence[CheckResult] | None = None,
    on_finished: Callable[[PlanRunner], None] = lambda _: None,
) -> Evidence:
    """Run all checks of the work and return their results.

    A failed check does not stop the others, so that an agent can fix everything in one round.
    `other_roots` are the other roots of the tree, which are checked with their own plans. With
    `known_checks`, the results of all commands on this tree, no command is run. `on_finished` is
    called with each runner after its commands. `logs` is a folder for the complete output of each
    command, `reports` one for the reports of test runs.
    """
    roots = (RootPlan(plan, baseline, cache_slot), *other_roots)
    checks = [
        _check_changes(work),
        _check_deliverables(work),
        _check_commits(work),
        _check_uncommitted(work),
        _check_secrets(work.added_content),
        _check_rules(work.rule_violations),
    ]
    # Nothing is installed or run that the package may not add
    if work.rule_violations:
        return Evidence(tuple(checks))

    if known_checks is not None:
        checks += known_checks
        kept = passed_check("tree kept", "the recorded commands did not change the tree")
    else:
        runners = [
            PlanRunner(
                root.plan,
                work.checkout,
                run,
                root.cache_slot,
                root.baseline,
                logs=logs,
                reports=reports / str(number) if reports else None,
            )
            for number, root in enumerate(roots)
        ]
        before = take_snapshot(work.checkout) if plan.root else runners[0].initial_files
        for runner in runners:
            checks += runner.run_checks(get_requested_purposes(runner.plan))
            on_finished(runner)

        kept = _check_tree_untouched(runners, before, work)

    if all(root.plan.coverage_min is None for root in roots):
        checks.append(not_requested_check(Purpose.COVERAGE, "no threshold is set"))

    return Evidence((*checks, kept, *_check_verified(checks)))


def get_requested_purposes(plan: CommandPlan) -> tuple[Purpose, ...]:
    return tuple(
        purpose
        for purpose in Purpose
        if purpose is not Purpose.COVERAGE or plan.coverage_min is not None
    )


def _check_changes(work: HarvestedWork) -> CheckResult:
    if not work.changed_paths:
        return failed_check(
            "changes",
            "nothing was changed",
            "Make the changes that the package asks for in the checkout, and commit them.",
        )

    return passed_check(
        "changes",
        f"{pluralize(len(work.changed_paths), 'file')} changed",
        [format_names(work.changed_paths)],
    )


def _check_deliverables(work: HarvestedWork) -> CheckResult:
    """Check that each deliverable exists, and was changed unless the plan permits otherwise."""
    if not work.deliverables:
        return not_requested_check("deliverables", "the package names none")

    found = {path: find_deliverable_problem(work.checkout, path) for path in work.deliverables}
    problems = [f"{to_one_line(path)} {problem}" for path, problem in found.items() if problem]
    if problems:
        remedy = "Write each deliverable at exactly this path, as a non-empty regular file."
        return failed_check("deliverables", "; ".join(problems[:20]), remedy, problems[20:])

    unchanged = [path for path in work.deliverables if path not in work.changed_paths]
    due = [to_one_line(path) for path in unchanged if path not in work.may_stay_unchanged]
    # That nothing was changed at all is reported by the check `changes`
    if due and work.changed_paths:
        remedy = (
            "Change each of them as the package asks. If one is right as it is, say so in your "
            "answer: the plan must then list it under `Unchanged` of its task, or under "
            "`may_stay_unchanged` of the package."
        )
        return failed_check("deliverables", f"not changed: {format_names(due)}", remedy)

    notes = [f"not changed, which the plan permits: {format_names(unchanged)}"] if unchanged else []
    return passed_check("deliverables", f"all {len(found)} exist and are not empty", notes)


def _check_commits(work: HarvestedWork) -> CheckResult:
    """Check that there are commits and that each names the package."""
    if not work.commits:
        return failed_check(
            "commits", "there is no commit", f'Commit the work: git commit -m "{work.package}: ..."'
        )

    unnamed = find_unlabelled_commits(work.package, work.commits)
    if unnamed:
        shown = format_names([f"{commit.id[:10]} {commit.subject!r}" for commit in unnamed])
        remedy = (
            f"Reword them to `{work.package}: what changed` or `feat({work.package}): what changed"
            " [FR-...]`."
        )
        return failed_check(
            "commits",
            f"{len(unnamed)} of {len(work.commits)} do not name {work.package}: {shown}",
            remedy,
        )

    return passed_check("commits", f"all {len(work.commits)} name {work.package}")


def _check_uncommitted(work: HarvestedWork) -> CheckResult:
    if work.uncommitted:
        remedy = "Commit what belongs to the work, and undo the rest."
        return failed_check(
            "clean tree", f"not committed: {format_names(work.uncommitted)}", remedy
        )
    return passed_check("clean tree", "everything is committed")


def _check_secrets(added: Iterable[AddedContent]) -> CheckResult:
    """Check that the added content contains no known kind of secret."""
    found = find_secrets(added)
    notes = [f"allowed by a comment: {secret}" for secret in found if secret.is_allowed]
    bad = [str(secret) for secret in found if not secret.is_allowed]

    if bad:
        remedy = (
            "Remove the secret from every commit, and revoke it if it is real. "
            f"Mark a dummy with the comment `{ALLOW_MARKER.decode()}` on its line."
        )
        return failed_check("secrets", f"{len(bad)} found: {format_names(bad)}", remedy, notes)

    return passed_check("secrets", "no known kind of secret was added", notes)


def _check_rules(violations: Sequence[RuleViolation]) -> CheckResult:
    if not violations:
        return passed_check(RULES_CHECK, "no rule about dependencies or frozen files is violated")

    approvals = ", ".join(dict.fromkeys(one.approval for one in violations))
    remedy = f"Undo it. Only the user can permit it: phasegate scope allow WPnn {approvals}"
    reasons = [to_one_line(one.reason, 300) for one in violations]
    return failed_check(RULES_CHECK, "; ".join(reasons[:20]), remedy, reasons[20:])


def _check_tree_untouched(
    runners: Sequence[PlanRunner], before: TreeSnapshot, work: HarvestedWork
) -> CheckResult:
    """Check that the commands did not modify the tree.

    Otherwise, later commands would have tested a different tree. Lock files may be updated.
    """
    changed = find_changed_files(work.checkout, before, work.blobs)
    named = {name for bench in runners for name in bench.plan.lock_files}
    reports = {
        f"{bench.plan.root}/{path}".lstrip("/")
        for bench in runners
        for path in bench.plan.coverage_reports
    }
    locks = [path for path in changed if path.rpartition("/")[2] in named]
    others = [path for path in changed if path not in locks and path not in reports]
    if locks:
        notes = [f"updated by a command: {format_names(locks)}"]
    else:
        notes = []

    if others:
        remedy = "Use commands that only check, or commit what they write."
        return failed_check(
            "tree kept", f"the commands changed {format_names(others)}", remedy, notes
        )

    return passed_check("tree kept", "the commands did not change the tree", notes)


def _check_verified(checks: Iterable[CheckResult]) -> list[CheckResult]:
    if any(
        check.outcome is CheckOutcome.PASSED and check.name in _PROOF_CHECKS for check in checks
    ):
        return []

    remedy = (
        "Name deliverables in the package, or a test command in its `checks` or in phasegate.toml."
    )
    return [failed_check("verified", "there is no evidence that the work is done", remedy)]
