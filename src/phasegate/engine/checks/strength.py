"""Measure the strength of a package's tests, once per tree, and turn it into a check."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from phasegate.checks.commands import PlanRunner
from phasegate.checks.evidence import (
    CheckResult,
    Evidence,
    failed_check,
    not_requested_check,
    passed_check,
)
from phasegate.checks.excerpt import format_names
from phasegate.checks.manifest import RootPlan
from phasegate.checks.plan import CommandRunner, Purpose
from phasegate.checks.test_strength import (
    ChangedContent,
    FileVersion,
    StrengthInputs,
    StrengthRunner,
)
from phasegate.config.settings import EvidenceSettings
from phasegate.core.plan.planning import classify_file
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.test_strength.compare import PackagePlanFacts
from phasegate.core.test_strength.dilution import (
    TASK_FILES,
    find_rewritten_scripts,
    find_signs,
)
from phasegate.core.test_strength.model import (
    FlakyTest,
    Severity,
    StrengthFinding,
    StrengthReport,
    sort_findings,
)
from phasegate.core.test_strength.paths import is_test_path
from phasegate.engine.checks.flaky import Quarantine
from phasegate.engine.checks.known_checks import export_for_checks
from phasegate.engine.project.project import Project
from phasegate.files.durable_write import replace_file
from phasegate.prompts.shipped_texts import render_note
from phasegate.typed import read_json
from phasegate.workspace.checkout.removal import remove_tree
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.objects import PathVersion
from phasegate.workspace.repository.repository import read_blobs
from phasegate.workspace.repository.tree_diff import diff_trees, resolve_tree

TESTS_BITE = "tests bite"
# Part of the key of stored reports: raise it when the measurement changes
_VERSION = 5
_MAX_FILE_BYTES = 2_000_000
_MAX_FILES = 2_000
# Tests that fail without the change, as named in the summary
_MAX_BITES = 5
_LINK_MODES = ("120000", "160000")


class AcceptedEvidence(NamedTuple):
    """What the user has accepted for a package."""

    # Reasons by finding id
    findings: Mapping[str, str] = {}
    # Paths outside of the scope whose change was approved
    paths: tuple[str, ...] = ()


NOTHING_ACCEPTED = AcceptedEvidence()


class StrengthMeasurement(NamedTuple):
    """The inputs of a measurement of one commit of a package."""

    project: Project
    package: WorkPackage
    # The package's document, as loaded with the plan
    document: str
    base_commit: str
    commit: str
    roots: Sequence[RootPlan]
    folder: Path
    run: CommandRunner
    accepted: AcceptedEvidence = NOTHING_ACCEPTED

    def measure(self, evidence: Evidence) -> StrengthReport | None:
        """Return the report on a commit whose checks passed.

        Where no tests were counted, it has the signs in the diff; None if there are none.
        """
        tests = [check for check in evidence.checks if check.name == Purpose.TEST]
        counted = [
            (root, check)
            for root, check in zip(self.roots, tests, strict=False)
            if check.tests is not None
        ]
        if not self._settings.enabled or not evidence.has_passed:
            return None
        if not counted:
            signs = self._measure_roots(())
            return self._complete(signs) if signs.findings else None

        path = self.project.location.data_folder / "strength" / f"{self._make_key()}.json"
        report = _read_stored(path)
        if report is None:
            report = self._measure_roots(counted)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, msgspec.json.encode(report))

        return self._complete(report)

    def _complete(self, report: StrengthReport) -> StrengthReport:
        return replace(
            report, base=self.base_commit, commit=self.commit, accepted=dict(self.accepted.findings)
        )

    @property
    def _settings(self) -> EvidenceSettings:
        return self.project.config.evidence

    def _make_key(self) -> str:
        """Return the key of the measurement: an unchanged tree is not measured again."""
        place = self.project.repository.place()
        parts = [
            _VERSION,
            resolve_tree(place, self.base_commit),
            resolve_tree(place, self.commit),
            [root.plan for root in self.roots],
            self._settings,
            self.document,
            self.accepted.paths,
            self._list_quarantined(),
            os.environ.get("PATH", ""),
        ]
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()

    def _measure_roots(self, counted: Iterable[tuple[RootPlan, CheckResult]]) -> StrengthReport:
        changed = self._read_changes()
        patterns = self._settings.test_files
        signs = find_signs([one.decode() for one in changed], patterns, self.accepted.paths)
        for root in self.roots:
            signs += self._find_scripts(root, changed)
        reports = [self._measure_root(root, check, changed) for root, check in counted]
        signs += _ask_about_flaky(test for report in reports for test in report.flaky)
        return _join_reports(signs, reports)

    def _list_quarantined(self) -> list[str]:
        return sorted(one.test for one in Quarantine(self.project).list_tests())

    def _find_scripts(
        self, root: RootPlan, changed: Sequence[ChangedContent]
    ) -> list[StrengthFinding]:
        """Ask about changed scripts that the test command of a root runs."""
        prefix = f"{root.plan.root}/" if root.plan.root else ""
        blobs = list_blobs(self.project.repository, self.base_commit)
        ids = [blobs[prefix + name] for name in TASK_FILES if prefix + name in blobs]
        texts = read_blobs(self.project.repository.place(), ids).values()
        found = find_rewritten_scripts(
            root.plan.commands.get(Purpose.TEST, ""),
            "\n".join(text.decode(errors="replace") for text in texts),
            [
                one._replace(path=one.path.removeprefix(prefix)).decode()
                for one in changed
                if one.path.startswith(prefix) and one.path not in self.accepted.paths
            ],
            self._settings.test_files,
        )
        return [replace(finding, path=f"{prefix}{finding.path}") for finding in found]

    def _measure_root(
        self, root: RootPlan, check: CheckResult, changed: Sequence[ChangedContent]
    ) -> StrengthReport:
        """Compare the tests of a root with those of the base in a new checkout."""
        assert check.tests is not None
        checkout = self.folder / "strength"
        if checkout.exists():
            remove_tree(checkout)
        export_for_checks(self.project, self.commit, checkout)

        prefix = f"{root.plan.root}/" if root.plan.root else ""
        inside = tuple(
            one._replace(path=one.path.removeprefix(prefix))
            for one in changed
            if one.path.startswith(prefix)
        )
        suite_s = check.duration_s or 0.0
        inputs = StrengthInputs(
            changed=inside,
            facts=self._collect_facts(),
            base_run=root.baseline.test_run if root.baseline else None,
            work_run=check.tests,
            suite_s=suite_s,
            budget_s=max(self._settings.min_time_s, self._settings.max_suite_ratio * suite_s),
            test_files=self._settings.test_files,
            has_test_files=any(path.startswith(prefix) for path in self._list_test_files()),
            with_mutants=self._settings.mutants,
            flaky=frozenset((*self._list_quarantined(), *(one.test for one in check.flaky))),
        )
        runner = PlanRunner(
            root.plan, checkout, self.run, root.cache_slot, reports=self.folder / "reports"
        )
        report = StrengthRunner(inputs, runner).measure()
        remove_tree(checkout)
        return replace(
            report,
            flaky=check.flaky,
            findings=tuple(
                replace(finding, path=f"{prefix}{finding.path}") if finding.path else finding
                for finding in report.findings
            ),
        )

    def _collect_facts(self) -> PackagePlanFacts:
        """Collect the properties of the package that decide which tests it must have."""
        scope = self.package.build_scope()
        can_write_tests = (
            bool(self.package.deliverables.tests)
            or any(classify_file(entry) == "tests" for entry in self.package.file_scope)
            or any(scope.covers(path) for path in self._list_test_files())
        )
        return PackagePlanFacts(
            requirements=self.package.requirements,
            document=self.document,
            can_write_tests=can_write_tests,
            is_fix=_is_fix(self.package),
        )

    def _list_test_files(self) -> list[str]:
        """Return the test files of the base and of the work."""
        repository = self.project.repository
        paths = {**list_blobs(repository, self.base_commit), **list_blobs(repository, self.commit)}
        features = f"{self.project.config.paths.features}/"
        return [
            path
            for path in paths
            if is_test_path(path, self._settings.test_files) and not path.startswith(features)
        ]

    def _read_changes(self) -> list[ChangedContent]:
        """Read both versions of every changed regular file of the repository."""
        place = self.project.repository.place()
        features = f"{self.project.config.paths.features}/"
        changes = [
            change
            for change in diff_trees(place, self.base_commit, self.commit)
            if not change.path.startswith(features)
            and all(one.mode not in _LINK_MODES for one in (change.old, change.new) if one)
        ][:_MAX_FILES]
        ids = [one.object_id for change in changes for one in (change.old, change.new) if one]
        blobs = read_blobs(place, ids)

        return [
            ChangedContent(
                change.path, _make_version(change.old, blobs), _make_version(change.new, blobs)
            )
            for change in changes
            if all(
                len(blobs[one.object_id]) <= _MAX_FILE_BYTES
                for one in (change.old, change.new)
                if one
            )
        ]


def _is_fix(package: WorkPackage) -> bool:
    """Return True for a package that fixes the finding of a gate: the gate is its test."""
    titles = [render_note(note, GATE="\0") for note in ("fix_title", "asked_title")]
    return package.title.startswith(tuple(title.partition("\0")[0] for title in titles))


def _ask_about_flaky(tests: Iterable[FlakyTest]) -> list[StrengthFinding]:
    """Ask the reviewer about tests that flaked on the work, but not on the base."""
    return [
        StrengthFinding(kind="flaky test", severity=Severity.ASK, text=str(test), detail=test.test)
        for test in tests
        if not test.on_base
    ]


def _make_version(version: PathVersion | None, blobs: Mapping[str, bytes]) -> FileVersion | None:
    if version is None:
        return None
    return FileVersion(blobs[version.object_id], version.mode == "100755")


def _read_stored(path: Path) -> StrengthReport | None:
    try:
        return read_json(path.read_bytes(), StrengthReport)
    except (OSError, msgspec.DecodeError):
        return None


def _join_reports(
    signs: Sequence[StrengthFinding], reports: Sequence[StrengthReport]
) -> StrengthReport:
    """Join the reports of all roots and the findings of the scan."""
    return StrengthReport(
        findings=sort_findings((*signs, *(one for report in reports for one in report.findings))),
        requirements=tuple(row for report in reports for row in report.requirements),
        explained=tuple(text for report in reports for text in report.explained),
        mutants=tuple(mutant for report in reports for mutant in report.mutants),
        flaky=tuple(test for report in reports for test in report.flaky),
        notes=tuple(note for report in reports for note in report.notes),
        suite_s=sum(report.suite_s for report in reports),
        cost_s=sum(report.cost_s for report in reports),
    )


def make_strength_check(report: StrengthReport | None, package: str) -> CheckResult:
    """Turn a report into a check: findings that reject fail it, the others are notes."""
    if report is None:
        return not_requested_check(TESTS_BITE, "no tests were counted, or it is disabled")

    notes = [f"for the reviewer: {finding}" for finding in report.asked]
    notes += [f"accepted by the user: {id_}: {why}" for id_, why in report.accepted.items()]
    notes += [*report.explained, *report.notes]
    if not report.rejecting:
        bites = [bite for row in report.requirements for bite in row.bites]
        summary = "no sign of weakened tests"
        if bites:
            names = format_names([*dict.fromkeys(bites)], _MAX_BITES)
            summary += f"; without the change fail {names}"
        return passed_check(TESTS_BITE, summary, notes)

    remedy = (
        "Restore the tests, and write tests that fail without the change. What has to stay as it is"
        f" needs the user: phasegate evidence accept {package} ID --reason TEXT"
    )
    check = failed_check(
        TESTS_BITE,
        f"{len(report.rejecting)} findings: {format_names([str(one) for one in report.rejecting])}",
        remedy,
        notes,
    )
    return replace(check, excerpt="\n".join(str(finding) for finding in report.rejecting))
