"""The manifest of a package, checked by us on a clean checkout of what was harvested."""

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
from phasegate.engine.checks.baseline import BaseTree, make_runner, refuse_unusable_base
from phasegate.engine.checks.plan import make_check_plans
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
    """Checks one package."""

    project: Project
    package: WorkPackage
    # The commit that the work began from
    start: str

    def check_commit(self, commit: str) -> Evidence:
        """What holds of a commit of the package."""
        base = self._base
        self.refuse_unusable_base()
        baselines = {report.root: report.baseline for report in base.get_reports()}
        asks = [
            RootPlan(plan, baselines.get(plan.root), base.find_setup_place(commit, plan))
            for plan in self._make_plans(commit)
        ]
        self._export_commit(commit)
        evidence = gather_evidence(
            asks[0].plan,
            self._describe_work(commit),
            self._make_runner(),
            asks[0].baseline,
            asks[0].cache_slot,
            other_roots=asks[1:],
        )

        _refuse_environment_faults(evidence.checks)

        return evidence

    @property
    def tree(self) -> Path:
        """The clean checkout that was checked last."""
        return self._folder / "tree"

    def run_checks(
        self, commit: str, purposes: Collection[str], lines: Iterable[str] = ()
    ) -> Evidence:
        """What commands of the project, and command lines of the person's own, say about a commit."""
        base = self._base
        plans = self._make_plans(commit)
        self._export_commit(commit)
        # Where nothing was changed there is nothing to compare with: a run of the tests says what
        # they say.
        if commit != self.start:
            baselines = {one.root: one.baseline for one in base.get_reports()}
        else:
            baselines = {}

        benches = [
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

        checks = [check for bench in benches for check in bench.run_checks(purposes)]
        _refuse_environment_faults(checks)
        if not any(
            check.name == Purpose.SETUP and check.outcome is CheckOutcome.FAILED for check in checks
        ):
            checks += [benches[0].run_custom_command(line) for line in lines]

        return Evidence(tuple(checks))

    def refuse_unusable_base(self) -> None:
        """Refuse to go on where the tree that the work begins from cannot be set up or tested."""
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
    """What each commit brought in, so that a secret taken out again later is still seen."""
    place = project.repository.place()

    for before, commit in zip([start, *commits], commits, strict=False):
        changed = [
            one for one in diff_trees(place, before, commit) if one.new and one.new.mode != "160000"
        ]
        ids = [version.object_id for one in changed for version in (one.old, one.new) if version]
        contents = read_blobs(place, ids)

        for one in changed:
            if one.old:
                old = contents[one.old.object_id]
            else:
                old = None

            assert one.new is not None
            yield AddedContent(one.path, keep_added_lines(old, contents[one.new.object_id]), commit)


def _refuse_environment_faults(checks: Iterable[CheckResult]) -> None:
    """A setup that the machine or the network failed says nothing about the work.

    A person can mend it, no agent.
    """
    for setup in (
        check
        for check in checks
        if check.name == Purpose.SETUP and check.outcome is CheckOutcome.FAILED
    ):
        if setup.fault is None or not (setup.fault.is_transient or _DISK_FULL in setup.excerpt):
            continue

        is_offline = setup.fault is Fault.NETWORK
        if is_offline:
            why = "could not reach the network"
        else:
            why = f"failed ({setup.fault}: {_last_line(setup)})"

        raise EnvironmentUnavailable(
            f"the setup {why}, so nothing was tested: {' '.join(setup.argv[2:])}",
            'dispatch again when it can; if the tests need nothing installed, leave it out: setup = "" in the '
            "[checks.PROFILE] table of phasegate.toml (python, typescript, ...), or in the package's checks",
        )


def _last_line(check: CheckResult) -> str:
    return to_one_line(check.excerpt.strip().rpartition("\n")[2], 200)


def choose_profile(project: Project, requested: str, root_files: Iterable[str]) -> Profile | None:
    """The profile that a package names, else what its repository looks like, else the only one that
    is configured.
    """
    kind = requested or detect_root_kind(frozenset(root_files))
    configured = [name for name in project.config.checks if name in PROFILES]
    if kind not in PROFILES and not requested and len(configured) == 1:
        kind = configured[0]
    if requested or kind in PROFILES:
        return load_profile(kind)

    return None


def describe_evidence(evidence: Evidence) -> str:
    """The evidence as a reviewer reads it."""
    lines = [render_note("evidence"), ""]

    for check in evidence.checks:
        lines.append(f"- {check.name}: {check.outcome} - {check.summary}")
        if check.argv:
            if check.exit_status is None:
                status = ""
            else:
                status = f", exit status {check.exit_status}"

            lines.append(f"  - ran `{' '.join(check.argv)}`{status}")

        lines += [f"  - {remark}" for remark in check.notes]
        if check.excerpt and check.outcome is CheckOutcome.FAILED:
            lines += ["", *(f"      {line}" for line in check.excerpt.splitlines()), ""]

    return "\n".join(lines) + "\n"


def describe_failures(evidence: Evidence) -> tuple[str, ...]:
    """Each failure with what to do, for the next round."""
    return tuple(
        f"{check.name}: {check.summary}\n  What to do: {check.remedy}"
        + (f"\n  Output:\n{check.excerpt}" if check.excerpt else "")
        for check in evidence.failures
    )
