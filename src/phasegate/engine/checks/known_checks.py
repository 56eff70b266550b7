"""Find and record the results of the project's commands by tree, so that no tree is checked twice.

The key of a result has everything that the result depends on: the tree without Phasegate's own
documents and settings, the command, the setup and the machine. Only results of unmodified trees
are recorded. A recorded failure serves as a baseline; it never fails a gate, because a failed
command is run again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from phasegate.checks.baseline import Baseline
from phasegate.checks.commands import PlanRunner, add_root, compare_result
from phasegate.checks.evidence import CheckOutcome, CheckResult, not_requested_check
from phasegate.checks.plan import CommandPlan, Purpose
from phasegate.checks.snapshot import find_changed_files
from phasegate.core.machine.retry import Fault
from phasegate.core.paths.own_folders import CONFIG_FILE
from phasegate.core.plan.acceptance import is_acceptance_test
from phasegate.engine.project.project import Project
from phasegate.errors import StateConflict
from phasegate.git import git
from phasegate.typed import read_json
from phasegate.workspace.checkout.export import export_tree
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.repository import Repository
from phasegate.workspace.repository.tree_diff import list_tree_entries

CHANGELOG = "CHANGELOG.md"
# Commands that a changed changelog can affect only if some file names it
_CHANGELOG_READERS = r"changelog|\*\.md|doctest.glob"
_WITHOUT_CHANGELOG = (Purpose.BUILD, Purpose.TEST, Purpose.COVERAGE)
_NO_SETUP_NEEDED = "not needed: the results of this tree are recorded"


class KnownChecks:
    """The recorded results of one plan's commands on the tree of a commit."""

    def __init__(
        self, project: Project, plan: CommandPlan, commit: str, environment: tuple[str, ...]
    ) -> None:
        self._project = project
        self._plan = plan
        self._commit = commit
        self._environment = environment

    def find(self, purposes: Collection[str]) -> dict[str, CheckResult]:
        """Return the recorded results of these commands, by purpose."""
        found = {}
        for purpose in Purpose:
            if purpose not in purposes or purpose is Purpose.SETUP:
                continue
            digest = self._project.check_record.find(self._make_key(purpose))
            if digest and (result := self._read_result(digest)):
                found[purpose.value] = result

        # Coverage is read from a report of the test run
        if Purpose.COVERAGE in purposes and Purpose.COVERAGE not in found:
            found.pop(Purpose.TEST, None)

        return found

    def find_passing(
        self, purposes: Collection[str], baseline: Baseline | None
    ) -> dict[str, CheckResult]:
        """Return the recorded results that pass when they are compared with the baseline."""
        return {
            purpose: raw
            for purpose, raw in self.find(purposes).items()
            if compare_result(raw, self._plan, baseline).outcome is not CheckOutcome.FAILED
        }

    def record(self, runner: PlanRunner) -> None:
        """Record the results of a runner, if its commands did not modify the tree."""
        results = {
            purpose: check
            for purpose, check in runner.raw_results.items()
            if purpose != Purpose.SETUP and _is_reproducible(check)
        }
        if not results or self._find_modified_files(runner):
            return

        store = self._project.document_store
        self._project.check_record.add(
            self._project.now(),
            {
                self._make_key(purpose): store.put(msgspec.json.encode(check))
                for purpose, check in results.items()
            },
        )

    def _find_modified_files(self, runner: PlanRunner) -> list[str]:
        """Return the files that a command changed, except coverage reports and lock files."""
        prefix = f"{self._plan.root}/" if self._plan.root else ""
        blobs = {
            path.removeprefix(prefix): blob
            for path, blob in list_checked_blobs(self._project, self._commit).items()
            if path.startswith(prefix)
        }
        allowed = {*self._plan.coverage_reports}
        return [
            path
            for path in find_changed_files(runner.checkout, runner.initial_files, blobs)
            if path not in allowed and path.rpartition("/")[2] not in self._plan.lock_files
        ]

    def _read_result(self, digest: str) -> CheckResult | None:
        try:
            result = read_json(self._project.document_store.get(digest), CheckResult)
            return replace(result, is_recorded=True)
        except (StateConflict, msgspec.MsgspecError):
            return None

    def _make_key(self, purpose: str) -> str:
        """Hash everything that can affect the result of a check."""
        plan = self._plan
        tree = hash_code_tree(
            self._project, self._commit, with_changelog=purpose not in _WITHOUT_CHANGELOG
        )
        lines = {name: plan.commands.get(name) for name in (Purpose.SETUP, Purpose.TEST, purpose)}
        limits = (plan.coverage_min, plan.min_tests, plan.test_functions, plan.timeout_s)
        parts = [
            tree,
            plan.root,
            purpose,
            lines,
            plan.setups,
            limits,
            plan.coverage_reports,
            plan.bin_folders,
            self._environment,
            os.environ.get("PATH", ""),
            sys.platform,
        ]
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def hash_code_tree(project: Project, commit: str, *, with_changelog: bool = True) -> str:
    """Return a hash of the files of a commit without Phasegate's own documents and settings.

    Without `with_changelog`, the changelog is left out too, unless a file of the tree names it.
    """
    digest = hashlib.sha256()
    for entry in list_tree_entries(project.repository, commit):
        path = os.fsdecode(entry.partition(b"\t")[2])
        is_changelog = path == CHANGELOG and not with_changelog
        if is_own_document(path, project.config.paths.features):
            continue
        if is_changelog and not _names_changelog(project.repository, commit):
            continue

        digest.update(b"%d:%s" % (len(entry), entry))

    return digest.hexdigest()


def export_for_checks(project: Project, commit: str, folder: Path) -> None:
    """Export a commit without the acceptance tests of features.

    Linters and type checkers of the project would judge them, and nobody may change sealed tests.
    """
    features = project.config.paths.features
    paths = list_blobs(project.repository, commit)
    hidden = [path for path in paths if is_acceptance_test(path, features)]
    export_tree(project.repository, commit, folder, with_git=True, hidden=hidden)


def list_checked_blobs(project: Project, commit: str) -> dict[str, str]:
    """Return the blobs of a commit that a checkout for checks has, by path."""
    features = project.config.paths.features
    blobs = list_blobs(project.repository, commit)
    return {path: blob for path, blob in blobs.items() if not is_acceptance_test(path, features)}


def is_own_document(path: str, features_folder: str) -> bool:
    """Return True for documents of features and for Phasegate's settings.

    Other files in the features folder count as code: a test collector may run them. Acceptance
    tests do not: checks run without them, and their sealed copies run on their own.
    """
    if path == CONFIG_FILE or is_acceptance_test(path, features_folder):
        return True
    return path.endswith(".md") and path.startswith((f"{features_folder}/", "agentd/", ".agentd/"))


@lru_cache(maxsize=64)
def _names_changelog(repository: Repository, commit: str) -> bool:
    # Pathspecs are literal here: names are filtered afterwards
    arguments = ("grep", "-l", "-z", "-i", "-E", _CHANGELOG_READERS, commit)
    found = git(repository.place(), *arguments, accepted_exit_codes=(0, 1)).stdout
    return any(name and not name.endswith(b".md") for name in found.split(b"\0"))


def list_known_checks(
    plan: CommandPlan,
    purposes: Collection[str],
    results: Mapping[str, CheckResult],
    baseline: Baseline | None,
) -> list[CheckResult] | None:
    """Build the check results from recorded results; return None if any is missing."""
    wanted = [purpose for purpose in Purpose if purpose in purposes and purpose != Purpose.SETUP]
    if any(purpose not in results for purpose in wanted):
        return None

    compared = (compare_result(results[purpose], plan, baseline) for purpose in wanted)
    return [
        not_requested_check(Purpose.SETUP, _NO_SETUP_NEEDED),
        *(add_root(check, plan) for check in compared),
    ]


def _is_reproducible(check: CheckResult) -> bool:
    """Return True unless a failure may come from the machine, the time or a missing program."""
    if check.outcome is not CheckOutcome.FAILED:
        return True
    return check.exit_status is not None and check.fault is Fault.PERMANENT
