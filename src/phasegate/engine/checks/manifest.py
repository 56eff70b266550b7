"""Check the work of a package against its manifest, in a clean checkout."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from phasegate.checks.commands import PlanRunner
from phasegate.checks.evidence import CheckOutcome, CheckResult, Evidence
from phasegate.checks.excerpt import to_one_line
from phasegate.checks.manifest import HarvestedWork, RootPlan, gather_evidence
from phasegate.checks.plan import CommandPlan, CommandRunner, Purpose
from phasegate.checks.secrets import AddedContent, keep_added_lines
from phasegate.core.detection.project_kind import detect_root_kind
from phasegate.core.machine.retry import Fault
from phasegate.core.plan.work_package import PROFILES, WorkPackage
from phasegate.engine.checks.plan import make_check_plans
from phasegate.engine.checks.run_baseline import BaseTree, make_runner, refuse_unusable_base
from phasegate.engine.project.project import Project
from phasegate.errors import EnvironmentUnavailable
from phasegate.prompts.profiles import Profile, load_profile
from phasegate.prompts.shipped_texts import render_note
from phasegate.workspace.commit_log import commits_between, list_blobs
from phasegate.workspace.export import export_tree
from phasegate.workspace.removal import remove_tree
from phasegate.workspace.repository import read_blobs
from phasegate.workspace.tree_diff import diff_trees

_DISK_FULL = "No space left on device"


class PackageChecker(NamedTuple):
    """Checks the commits of one package."""

    project: Project
    package: WorkPackage
    # The commit that the work started from
    start: str

    def check_commit(self, commit: str) -> Evidence:
        """Check a commit of the package against its manifest."""
        base = self._base
        self.refuse_unusable_base()
        baselines = {report.root: report.baseline for report in base.get_reports()}
        root_plans = [
            RootPlan(plan, baselines.get(plan.root), base.find_setup_place(commit, plan))
            for plan in self._make_plans(commit)
        ]
        self._export_commit(commit)
        evidence = gather_evidence(
            root_plans[0].plan,
            self._describe_work(commit),
            self._make_runner(),
            root_plans[0].baseline,
            root_plans[0].cache_slot,
            other_roots=root_plans[1:],
        )
        _refuse_environment_faults(evidence.checks)
        return evidence

    @property
    def tree(self) -> Path:
        """The clean checkout of the last checked commit."""
        return self._folder / "tree"

    def run_checks(
        self, commit: str, purposes: Collection[str], lines: Iterable[str] = ()
    ) -> Evidence:
        """Run commands of the project and command lines of the user on a commit."""
        base = self._base
        plans = self._make_plans(commit)
        self._export_commit(commit)
        # The start commit is not compared with itself
        baselines = {}
        if commit != self.start:
            baselines = {report.root: report.baseline for report in base.get_reports()}

        plan_runners = [
            PlanRunner(
                plan,
                self.tree,
                self._make_runner(),
                base.find_setup_place(commit, plan),
                baselines.get(plan.root),
                is_user_tree=commit == base.user_commit,
            )
            for plan in plans
        ]

        checks = [check for runner in plan_runners for check in runner.run_checks(purposes)]
        _refuse_environment_faults(checks)
        if not _list_failed_setups(checks):
            checks += [plan_runners[0].run_custom_command(line) for line in lines]

        return Evidence(tuple(checks))

    def refuse_unusable_base(self) -> None:
        """Refuse to continue if the tree that the work starts from cannot be set up or tested."""
        for report in self._base.get_reports():
            refuse_unusable_base(self.project, report)

    @property
    def _base(self) -> BaseTree:
        return BaseTree(self.project, self.package, self.start)

    @property
    def _folder(self) -> Path:
        name = f"{self.package.feature_slug}-{self.package.work_package_id}"
        return self.project.location.data_folder / "rooms" / name

    def _make_runner(self) -> CommandRunner:
        return make_runner(self.project, self._folder / "job", "check")

    def _export_commit(self, commit: str) -> None:
        self._folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        for name in ("tree", "job"):
            if (self._folder / name).exists():
                remove_tree(self._folder / name)
        export_tree(self.project.repository, commit, self._folder / "tree", with_git=True)

    def _make_plans(self, commit: str) -> list[CommandPlan]:
        return [
            one.plan for one in make_check_plans(self.project, self.package, self.start, commit)
        ]

    def _describe_work(self, commit: str) -> HarvestedWork:
        repository = self.project.repository
        commits = commits_between(repository, self.start, commit)
        return HarvestedWork(
            package=self.package.work_package_id,
            checkout=self._folder / "tree",
            deliverables=self.package.deliverables.all,
            changed_paths=tuple(
                one.path for one in diff_trees(repository.place(), self.start, commit)
            ),
            commits=tuple(commits),
            added_content=tuple(
                find_added_lines(self.project, self.start, [one.id for one in commits])
            ),
            blobs=list_blobs(repository, commit),
        )


def find_added_lines(project: Project, start: str, commits: list[str]) -> Iterator[AddedContent]:
    """Yield the lines that each commit added: a secret that was removed later is still found."""
    place = project.repository.place()

    for before, commit in zip([start, *commits], commits, strict=False):
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


def describe_evidence(evidence: Evidence) -> str:
    """Render the evidence for a reviewer."""
    lines = [render_note("evidence"), ""]

    for check in evidence.checks:
        lines.append(f"- {check.name}: {check.outcome} - {check.summary}")
        if check.argv:
            status = ""
            if check.exit_status is not None:
                status = f", exit status {check.exit_status}"
            lines.append(f"  - ran `{' '.join(check.argv)}`{status}")

        lines += [f"  - {remark}" for remark in check.notes]
        if check.excerpt and check.outcome is CheckOutcome.FAILED:
            lines += ["", *(f"      {line}" for line in check.excerpt.splitlines()), ""]

    return "\n".join(lines) + "\n"


def describe_failures(evidence: Evidence) -> tuple[str, ...]:
    """Render every failure with its remedy, for the next round."""
    return tuple(
        f"{check.name}: {check.summary}\n  What to do: {check.remedy}"
        + (f"\n  Output:\n{check.excerpt}" if check.excerpt else "")
        for check in evidence.failures
    )
