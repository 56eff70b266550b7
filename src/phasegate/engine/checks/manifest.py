"""Check the work of a package against its manifest, in a clean checkout."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.checks.baseline import Baseline
from phasegate.checks.changed_lines import describe_changed_coverage
from phasegate.checks.commands import PlanRunner
from phasegate.checks.evidence import CheckOutcome, CheckResult, Evidence, passed_check
from phasegate.checks.excerpt import to_one_line
from phasegate.checks.manifest import (
    HarvestedWork,
    RootPlan,
    gather_evidence,
    get_requested_purposes,
)
from phasegate.checks.plan import CommandPlan, CommandRunner, Purpose
from phasegate.checks.secrets import AddedContent, keep_added_lines
from phasegate.core.detection.dependency_rules import (
    ChangedFile,
    find_rule_violations,
    is_dependency_file,
)
from phasegate.core.detection.project_kind import detect_root_kind
from phasegate.core.machine.retry import Fault
from phasegate.core.plan.work_package import PROFILES, WorkPackage
from phasegate.core.test_strength.model import StrengthReport
from phasegate.engine.checks.flaky import Quarantine, excuse_flaky_tests
from phasegate.engine.checks.known_checks import (
    export_for_checks,
    list_checked_blobs,
    list_known_checks,
)
from phasegate.engine.checks.plan import make_check_plans
from phasegate.engine.checks.run_baseline import BaseTree, make_runner, refuse_unusable_base
from phasegate.engine.checks.strength import (
    AcceptedEvidence,
    StrengthMeasurement,
    make_strength_check,
)
from phasegate.engine.project.project import Project
from phasegate.errors import EnvironmentUnavailable
from phasegate.prompts.profiles import Profile, load_profile
from phasegate.workspace.checkout.removal import remove_tree
from phasegate.workspace.repository.commit_log import commits_between, diff_commits, list_blobs
from phasegate.workspace.repository.objects import PathVersion
from phasegate.workspace.repository.repository import read_blobs
from phasegate.workspace.repository.tree_diff import Difference, diff_trees

# Folder of the data folder with the output of checks
LOGS_FOLDER = "checks"
_DISK_FULL = "No space left on device"


class PackageChecker(NamedTuple):
    """Checks the commits of one package."""

    project: Project
    package: WorkPackage
    # The commit that the work started from
    base_commit: str
    # Paths and dependencies that the user permits besides those of the package
    approved: tuple[str, ...] = ()
    # What is checked, if it is not the package: a phase
    purpose: str = ""

    def check_commit(self, commit: str) -> Evidence:
        """Check a commit of the package against its manifest."""
        return self._gather_evidence(commit)[0]

    def check_with_strength(
        self, commit: str, document: str, accepted: AcceptedEvidence
    ) -> tuple[Evidence, StrengthReport | None]:
        """Check a commit, and measure whether its tests would notice the change."""
        evidence, root_plans = self._gather_evidence(commit)
        report = StrengthMeasurement(
            project=self.project,
            package=self.package,
            document=document,
            base_commit=self.base_commit,
            commit=commit,
            roots=root_plans,
            folder=self._folder,
            run=self._make_runner(),
            accepted=accepted,
        ).measure(evidence)
        check = make_strength_check(report, self.package.work_package_id)
        if report is None and not evidence.has_passed:
            return evidence, None
        return Evidence((*evidence.checks, check)), report

    def _gather_evidence(self, commit: str) -> tuple[Evidence, list[RootPlan]]:
        """Check a commit in all roots of the package; return evidence and plans."""
        base = self._base
        self.refuse_unusable_base()
        baselines = {report.root: report.baseline for report in base.get_reports()}
        plans = self._make_plans(commit)
        roots = [
            RootPlan(plan, baselines.get(plan.root), base.find_setup_place(commit, plan))
            for plan in plans
        ]
        self._export_commit(commit)
        evidence = gather_evidence(
            roots[0].plan,
            self._describe_work(commit),
            self._make_runner(),
            roots[0].baseline,
            roots[0].cache_slot,
            other_roots=roots[1:],
            known_checks=self._list_known_checks(commit, plans, baselines, tuple(Purpose)),
            on_finished=lambda runner: base.find_known_checks(commit, runner.plan).record(runner),
            logs=self.logs_folder,
            reports=self._folder / "reports",
        )
        _refuse_environment_faults(evidence.checks)
        evidence = self._excuse_flaky_tests(commit, evidence, roots)
        changed_lines = self._measure_changed_lines(commit, plans)
        return Evidence((*evidence.checks, *changed_lines)), roots

    def _excuse_flaky_tests(
        self, commit: str, evidence: Evidence, roots: Sequence[RootPlan]
    ) -> Evidence:
        """Run failed tests that may be flaky on the base too, and excuse those that flake there."""
        changes = diff_trees(self.project.repository.place(), self.base_commit, commit)
        pending = [*roots]
        checks = []
        for check in evidence.checks:
            if check.name != Purpose.TEST or not pending:
                checks.append(check)
                continue
            root = pending.pop(0)
            prefix = f"{root.plan.root}/" if root.plan.root else ""
            excused = excuse_flaky_tests(
                check,
                root.baseline,
                {change.path.removeprefix(prefix) for change in changes},
                Quarantine(self.project),
                partial(self._make_base_runner, root),
            )
            checks.append(excused)

        return Evidence(tuple(checks))

    def _make_base_runner(self, root: RootPlan) -> PlanRunner:
        """Set up a checkout of the tree that the work started from."""
        folder = self._folder / "base"
        if folder.exists():
            remove_tree(folder)
        export_for_checks(self.project, self.base_commit, folder)
        runner = PlanRunner(
            root.plan,
            folder,
            self._make_runner(),
            self._base.find_setup_place(self.base_commit, root.plan),
            reports=self._folder / "reports" / "base",
        )
        runner.run_checks((Purpose.SETUP,))
        return runner

    def _measure_changed_lines(
        self, commit: str, plans: Iterable[CommandPlan]
    ) -> Iterator[CheckResult]:
        """Yield how many changed lines the tests covered, for each root that wrote a report."""
        tracked = list_blobs(self.project.repository, commit)
        for plan in plans:
            names = (f"{plan.root}/{name}".lstrip("/") for name in plan.coverage_reports)
            for name in names:
                if name in tracked or not (self.tree / name).exists():
                    continue

                diff = diff_commits(self.project.repository, self.base_commit, commit)
                with suppress(ValueError, msgspec.DecodeError):
                    if text := describe_changed_coverage(self.tree / name, diff):
                        yield passed_check("changed lines", f"{text} ({name})")
                break

    @property
    def tree(self) -> Path:
        """The clean checkout of the last checked commit."""
        return self._folder / "tree"

    @property
    def logs_folder(self) -> Path:
        """The folder with the complete output of the commands of the last check."""
        name = f"{self.package.feature_slug}-{self.purpose or self.package.work_package_id}"
        return self.project.location.data_folder / LOGS_FOLDER / name

    def run_checks(
        self,
        commit: str,
        purposes: Collection[str],
        lines: Iterable[str] = (),
        own_files: Mapping[str, bytes] | None = None,
    ) -> Evidence:
        """Run commands of the project and command lines of the user on a commit.

        With `own_files`, which are added to the checkout, the lines get no network.
        """
        base = self._base
        plans = self._make_plans(commit)
        # The base commit is not compared with itself
        baselines = {}
        if commit != self.base_commit:
            baselines = {report.root: report.baseline for report in base.get_reports()}

        known = self._list_known_checks(commit, plans, baselines, purposes)
        if known is not None and not lines:
            return Evidence(tuple(known))

        self._export_commit(commit)
        for name, data in (own_files or {}).items():
            path = self.tree / plans[0].root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

        runners = [
            PlanRunner(
                plan,
                self.tree,
                self._make_runner(),
                base.find_setup_place(commit, plan),
                baselines.get(plan.root),
                is_user_tree=commit == base.user_commit,
                known_results=base.find_known_checks(commit, plan).find_passing(
                    _select_purposes(plan, purposes), baselines.get(plan.root)
                ),
                logs=self.logs_folder,
                reports=self._folder / "reports" / str(number),
            )
            for number, plan in enumerate(plans)
        ]
        checks = []
        for runner in runners:
            checks += runner.run_checks(_select_purposes(runner.plan, purposes))
            base.find_known_checks(commit, runner.plan).record(runner)

        _refuse_environment_faults(checks)
        if not _list_failed_setups(checks):
            network = own_files is None
            checks += [runners[0].run_custom_command(line, network=network) for line in lines]

        return Evidence(tuple(checks))

    def _list_known_checks(
        self,
        commit: str,
        plans: Iterable[CommandPlan],
        baselines: Mapping[str, Baseline],
        purposes: Collection[str],
    ) -> list[CheckResult] | None:
        """Return the recorded checks at every root, or None unless all are known and pass."""
        found = []
        for plan in plans:
            baseline = baselines.get(plan.root)
            asked = _select_purposes(plan, purposes)
            results = self._base.find_known_checks(commit, plan).find_passing(asked, baseline)
            checks = list_known_checks(plan, asked, results, baseline)
            if checks is None:
                return None
            found += checks

        return found

    def refuse_unusable_base(self) -> None:
        """Refuse to continue if the tree that the work starts from cannot be set up or tested."""
        for report in self._base.get_reports():
            refuse_unusable_base(self.project, report)

    def get_base_checks(self) -> dict[str, CheckResult]:
        """Return the checks of the tree that the work starts from, by name."""
        return {check.name: check for report in self._base.get_reports() for check in report.checks}

    @property
    def _base(self) -> BaseTree:
        return BaseTree(self.project, self.package, self.base_commit)

    @property
    def _folder(self) -> Path:
        name = f"{self.package.feature_slug}-{self.package.work_package_id}"
        return self.project.location.data_folder / "rooms" / name

    def _make_runner(self) -> CommandRunner:
        return make_runner(self.project, self._folder / "job", "check")

    def _export_commit(self, commit: str) -> None:
        self._folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        for folder in (self._folder / "tree", self._folder / "job", self.logs_folder):
            if folder.exists():
                remove_tree(folder)

        self.logs_folder.mkdir(parents=True, mode=0o700)
        export_for_checks(self.project, commit, self._folder / "tree")

    def _make_plans(self, commit: str) -> list[CommandPlan]:
        return [
            one.plan
            for one in make_check_plans(self.project, self.package, self.base_commit, commit)
        ]

    def _describe_work(self, commit: str) -> HarvestedWork:
        """Describe the changes of a commit for the manifest."""
        repository = self.project.repository
        commits = commits_between(repository, self.base_commit, commit)
        changes = diff_trees(repository.place(), self.base_commit, commit)
        changed_paths = tuple(change.path for change in changes)
        return HarvestedWork(
            package=self.package.work_package_id,
            checkout=self._folder / "tree",
            deliverables=self.package.deliverables.all,
            may_stay_unchanged=self.package.may_stay_unchanged,
            changed_paths=changed_paths,
            rule_violations=find_rule_violations(
                self.package,
                changed_paths,
                self._read_dependency_files(changes),
                self.approved,
            ),
            commits=tuple(commits),
            added_content=tuple(
                find_added_lines(self.project, self.base_commit, [one.id for one in commits])
            ),
            blobs=list_checked_blobs(self.project, commit),
        )

    def _read_dependency_files(self, changes: Iterable[Difference]) -> list[ChangedFile]:
        """Read the changed manifests and lock files, before and after."""
        relevant = [change for change in changes if is_dependency_file(change.path)]
        versions = [version for change in relevant for version in (change.old, change.new)]
        ids = [version.object_id for version in versions if version]
        contents = read_blobs(self.project.repository.place(), ids)

        def read(version: PathVersion | None) -> str:
            return contents[version.object_id].decode(errors="replace") if version else ""

        return [ChangedFile(change.path, read(change.old), read(change.new)) for change in relevant]


def find_added_lines(
    project: Project, base_commit: str, commits: list[str]
) -> Iterator[AddedContent]:
    """Yield the lines that each commit added: a secret that was removed later is still found."""
    place = project.repository.place()

    for before, commit in zip([base_commit, *commits], commits, strict=False):
        # 160000 is the mode of a submodule
        changes = [
            change
            for change in diff_trees(place, before, commit)
            if change.new and change.new.mode != "160000"
        ]
        ids = [
            version.object_id
            for change in changes
            for version in (change.old, change.new)
            if version
        ]
        contents = read_blobs(place, ids)

        for change in changes:
            assert change.new is not None
            old = contents[change.old.object_id] if change.old else None
            added = keep_added_lines(old, contents[change.new.object_id])
            yield AddedContent(change.path, added, commit)


def _select_purposes(plan: CommandPlan, purposes: Collection[str]) -> list[str]:
    """Drop checks that the plan does not request, such as coverage without a threshold."""
    asked = get_requested_purposes(plan)
    return [purpose for purpose in purposes if purpose in asked]


def _refuse_environment_faults(checks: Iterable[CheckResult]) -> None:
    """Refuse to continue if a setup failed because of the machine or the network.

    Such a failure says nothing about the work, and no agent can fix it.
    """
    for setup in _list_failed_setups(checks):
        if setup.fault is None or not (setup.fault.is_transient or _DISK_FULL in setup.excerpt):
            continue

        problem = f"failed ({setup.fault}: {_last_line(setup)})"
        if setup.fault is Fault.NETWORK:
            problem = "could not reach the network"

        raise EnvironmentUnavailable(
            f"the setup {problem}, so nothing was tested: {' '.join(setup.argv[2:])}",
            "dispatch again later; if the tests need no setup, disable it: "
            'setup = "" in the [checks.PROFILE] table of phasegate.toml (python, typescript, ...), '
            "or in the package's checks",
        )


def _list_failed_setups(checks: Iterable[CheckResult]) -> list[CheckResult]:
    return [
        check
        for check in checks
        if check.name == Purpose.SETUP and check.outcome is CheckOutcome.FAILED
    ]


def _last_line(check: CheckResult) -> str:
    return to_one_line(check.excerpt.strip().rpartition("\n")[2], 200)


def choose_profile(project: Project, requested: str, root_files: Iterable[str]) -> Profile | None:
    """Return the requested profile, else the detected one, else the only configured one."""
    kind = requested or detect_root_kind(frozenset(root_files))
    configured = [name for name in project.config.checks if name in PROFILES]
    if kind not in PROFILES and not requested and len(configured) == 1:
        kind = configured[0]
    if requested or kind in PROFILES:
        return load_profile(kind)

    return None
