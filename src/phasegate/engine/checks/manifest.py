"""The manifest of a package, checked by us on a clean checkout of what was harvested."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from phasegate.checks.commands import Bench
from phasegate.checks.evidence import Check, Evidence, Outcome
from phasegate.checks.excerpt import one_line
from phasegate.checks.manifest import ReturnedWork, RootAsk, gather_evidence
from phasegate.checks.plan import Plan, Purpose, Runner
from phasegate.checks.secrets import Added, added_lines
from phasegate.core.detection.project_kind import kind_of_root
from phasegate.core.machine.retry import Fault
from phasegate.core.plan.work_package import PROFILES, WorkPackage
from phasegate.engine.checks.baseline import Base, refuse_unsound, runner_in
from phasegate.engine.checks.plan import plans_for
from phasegate.engine.project.project import Project
from phasegate.errors import EnvironmentUnavailable
from phasegate.prompts.profiles import Profile, load_profile
from phasegate.prompts.shipped_texts import note
from phasegate.workspace.commit_log import blobs_of, commits_between
from phasegate.workspace.export import export
from phasegate.workspace.removal import remove_tree
from phasegate.workspace.repository import read_blobs
from phasegate.workspace.tree_diff import differences

_NO_ROOM = "No space left on device"


class Checker(NamedTuple):
    """Checks one package."""

    project: Project
    package: WorkPackage
    start: str  # the commit that the work began from

    def check(self, commit: str) -> Evidence:
        """What holds of a commit of the package."""
        base = self._base
        self.expect_base()
        baselines = {report.root: report.baseline for report in base.reports()}
        asks = [RootAsk(plan, baselines.get(plan.root), base.kept_for(commit, plan)) for plan in self._plans(commit)]
        self._export(commit)
        evidence = gather_evidence(
            asks[0].plan, self._work(commit), self._runner(), asks[0].baseline, asks[0].kept, beside=asks[1:]
        )
        _refuse_unmendable(evidence.checks)
        return evidence

    @property
    def tree(self) -> Path:
        """The clean checkout that was checked last."""
        return self._room / "tree"

    def run(self, commit: str, purposes: Collection[str], lines: Iterable[str] = ()) -> Evidence:
        """What commands of the project, and command lines of the person's own, say about a commit."""
        base, plans = self._base, self._plans(commit)
        self._export(commit)
        # Where nothing was changed there is nothing to compare with: a run of the tests says what they say.
        baselines = {one.root: one.baseline for one in base.reports()} if commit != self.start else {}
        benches = [
            Bench(
                plan,
                self.tree,
                self._runner(),
                base.kept_for(commit, plan),
                baselines.get(plan.root),
                is_persons=commit == base.origin,
            )
            for plan in plans
        ]
        checks = [check for bench in benches for check in bench.checks(purposes)]
        _refuse_unmendable(checks)
        if not any(check.name == Purpose.SETUP and check.outcome is Outcome.FAILED for check in checks):
            checks += [benches[0].own(line) for line in lines]
        return Evidence(tuple(checks))

    def expect_base(self) -> None:
        """Refuse to go on where the tree that the work begins from cannot be set up or tested."""
        for report in self._base.reports():
            refuse_unsound(self.project, report)

    @property
    def _base(self) -> Base:
        return Base(self.project, self.package, self.start)

    @property
    def _room(self) -> Path:
        name = f"{self.package.feature_slug}-{self.package.work_package_id}"
        return self.project.location.folder / "rooms" / name

    def _runner(self) -> Runner:
        return runner_in(self.project, self._room / "job", "check")

    def _export(self, commit: str) -> None:
        self._room.mkdir(parents=True, mode=0o700, exist_ok=True)
        for name in ("tree", "job"):
            if (self._room / name).exists():
                remove_tree(self._room / name)
        export(self.project.repository, commit, self._room / "tree", with_git=True)

    def _plans(self, commit: str) -> list[Plan]:
        return [one.plan for one in plans_for(self.project, self.package, self.start, commit)]

    def _work(self, commit: str) -> ReturnedWork:
        repository = self.project.repository
        commits = commits_between(repository, self.start, commit)
        return ReturnedWork(
            package=self.package.work_package_id,
            checkout=self._room / "tree",
            deliverables=self.package.deliverables.all,
            changed=tuple(one.path for one in differences(repository.place(), self.start, commit)),
            commits=tuple(commits),
            added=tuple(added_by(self.project, self.start, [one.id for one in commits])),
            blobs=blobs_of(repository, commit),
        )


def added_by(project: Project, start: str, commits: list[str]) -> Iterator[Added]:
    """What each commit brought in, so that a secret taken out again later is still seen."""
    place = project.repository.place()
    for before, commit in zip([start, *commits], commits, strict=False):
        changed = [one for one in differences(place, before, commit) if one.new and one.new.mode != "160000"]
        ids = [version.object_id for one in changed for version in (one.old, one.new) if version]
        contents = read_blobs(place, ids)
        for one in changed:
            old = contents[one.old.object_id] if one.old else None
            assert one.new is not None
            yield Added(one.path, added_lines(old, contents[one.new.object_id]), commit)


def _refuse_unmendable(checks: Iterable[Check]) -> None:
    """A setup that the machine or the network failed says nothing about the work: a person can mend it, no agent."""
    for setup in (check for check in checks if check.name == Purpose.SETUP and check.outcome is Outcome.FAILED):
        if setup.fault is None or not (setup.fault.is_transient or _NO_ROOM in setup.excerpt):
            continue
        is_offline = setup.fault is Fault.NETWORK
        why = "could not reach the network" if is_offline else f"failed ({setup.fault}: {_last_line(setup)})"
        raise EnvironmentUnavailable(
            f"the setup {why}, so nothing was tested: {' '.join(setup.argv[2:])}",
            'dispatch again when it can; if the tests need nothing installed, leave it out: setup = "" in the '
            "[checks.PROFILE] table of phasegate.toml (python, typescript, ...), or in the package's checks",
        )


def _last_line(check: Check) -> str:
    return one_line(check.excerpt.strip().rpartition("\n")[2], 200)


def profile_of(project: Project, named: str, root_files: Iterable[str]) -> Profile | None:
    """The profile that a package names, else what its repository looks like, else the only one that is configured."""
    kind = named or kind_of_root(frozenset(root_files))
    configured = [name for name in project.config.checks if name in PROFILES]
    if kind not in PROFILES and not named and len(configured) == 1:
        kind = configured[0]
    return load_profile(kind) if named or kind in PROFILES else None


def describe(evidence: Evidence) -> str:
    """The evidence as a reviewer reads it."""
    lines = [note("evidence"), ""]
    for check in evidence.checks:
        lines.append(f"- {check.name}: {check.outcome} - {check.summary}")
        if check.argv:
            status = "" if check.exit_status is None else f", exit status {check.exit_status}"
            lines.append(f"  - ran `{' '.join(check.argv)}`{status}")
        lines += [f"  - {remark}" for remark in check.notes]
        if check.excerpt and check.outcome is Outcome.FAILED:
            lines += ["", *(f"      {line}" for line in check.excerpt.splitlines()), ""]
    return "\n".join(lines) + "\n"


def failures_of(evidence: Evidence) -> tuple[str, ...]:
    """Each failure with what to do, for the next round."""
    return tuple(
        f"{check.name}: {check.summary}\n  What to do: {check.remedy}"
        + (f"\n  Output:\n{check.excerpt}" if check.excerpt else "")
        for check in evidence.failures
    )
