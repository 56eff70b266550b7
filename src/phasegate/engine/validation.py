"""The manifest of a package, checked by us on a clean checkout of what was harvested."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.checks.baseline import Baseline
from phasegate.checks.caged import CagedRunner
from phasegate.checks.commands import Bench
from phasegate.checks.commits import Commit
from phasegate.checks.evidence import Evidence, Outcome
from phasegate.checks.manifest import Work, gather_evidence, take_baseline
from phasegate.checks.plan import Plan, Purpose
from phasegate.checks.secrets import Added, added_lines
from phasegate.checks.setup_cache import SetupCache
from phasegate.config.settings import Checks as ProfileChecks
from phasegate.engine.jobs import wanted_level
from phasegate.engine.project import Project
from phasegate.errors import EnvironmentUnavailable
from phasegate.files.durable import replace_file
from phasegate.prompts.profiles import all_profiles, load_profile
from phasegate.prompts.shipped_words import note
from phasegate.rules.profile import Profile, commands_of, detect, files_asked
from phasegate.rules.retry import Fault, classify
from phasegate.rules.work_package import COMMANDS, PROFILES, PackageChecks, WorkPackage
from phasegate.workspace.agent_git_writer import object_stores
from phasegate.workspace.commit_log import blobs_of, commits_between
from phasegate.workspace.export import export
from phasegate.workspace.removal import remove_tree
from phasegate.workspace.repository import read_blobs
from phasegate.workspace.tree_diff import differences

LARGEST_ROOT_FILE_BYTES = 1_000_000


class Checker(NamedTuple):
    """Checks one package. Its room keeps its path: a setup's result is only good where it was made."""

    project: Project
    package: WorkPackage
    start: str  # the commit that the work began from

    def check(self, commit: str) -> Evidence:
        """What holds of a commit of the package."""
        self._export(commit)
        plan = self._plan()
        evidence = gather_evidence(plan, self._work(commit), self._runner(), self._baseline(plan), self._cache)
        setup = evidence.check(Purpose.SETUP)
        _refuse_offline(plan, setup.excerpt if setup and setup.outcome is Outcome.FAILED else None)
        return evidence

    @property
    def tree(self) -> Path:
        """The clean checkout that was checked last."""
        return self._room / "tree"

    def run(self, commit: str, purposes: Collection[str], lines: Iterable[str] = ()) -> Evidence:
        """What commands of the project, and command lines of the person's own, say about a commit."""
        self._export(commit)
        bench = Bench(self._plan(), self._room / "tree", self._runner(), self._cache, fills_cache=True)
        checks = bench.checks(purposes)
        if not any(check.outcome is Outcome.FAILED for check in checks[:1]):  # the setup
            checks += [bench.own(line) for line in lines]
        return Evidence(tuple(checks))

    @property
    def _room(self) -> Path:
        name = f"{self.package.feature_slug}-{self.package.work_package_id}"
        return self.project.location.folder / "rooms" / name

    @property
    def _cache(self) -> SetupCache:
        return SetupCache(self.project.location.folder / "setups")

    def _runner(self) -> CagedRunner:
        return self._runner_in(self._room / "job", "check")

    def _runner_in(self, folder: Path, kind: str) -> CagedRunner:
        """A build may ask git for its version: the clean checkout's git borrows the objects of the repository."""
        project = self.project
        stores = tuple(object_stores(project.repository))
        return CagedRunner(folder, f"{kind}-{project.clock.new_id()}", wanted_level(project), project.stop, stores)

    def _export(self, commit: str) -> None:
        self._room.mkdir(parents=True, mode=0o700, exist_ok=True)
        for name in ("tree", "job"):
            if (self._room / name).exists():
                remove_tree(self._room / name)
        export(self.project.repository, commit, self._room / "tree", with_git=True)

    def _baseline(self, plan: Plan) -> Baseline:
        """What the same commands say about the beginning; found out once for a commit and a plan."""
        key = hashlib.sha256(msgspec.json.encode([self.start, plan])).hexdigest()
        path = self.project.location.folder / "baselines" / f"{key}.json"
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=Baseline)
        beginning = self._replace_room("beginning")
        export(self.project.repository, self.start, beginning / "tree", with_git=True)
        runner = self._runner_in(beginning / "job", "baseline")
        baseline = take_baseline(plan, beginning / "tree", runner, self._cache)
        _refuse_offline(plan, baseline.failed.get(Purpose.SETUP))
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, msgspec.json.encode(baseline))
        remove_tree(beginning)
        return baseline

    def _replace_room(self, name: str) -> Path:
        folder = self._room / name
        if folder.exists():
            remove_tree(folder)
        folder.mkdir(mode=0o700)
        return folder

    def _plan(self) -> Plan:
        """What is asked of the tree: what it asks for itself, and what the one did that the work began from.

        So work that takes a check away, or makes the project look like one of another kind, is not spared the check.
        """
        named, entries = self.package.profile, [entry.name for entry in self.tree.iterdir()]
        profile = profile_of(self.project, named, root_texts(self.project, self.start)) or profile_of(
            self.project, named, entries
        )
        own = self._checks(profile)
        before = commands_of(profile, root_texts(self.project, self.start, profile), own)
        before.pop(Purpose.SETUP, None)  # it shows nothing, and what it would set up may be gone for good
        now = commands_of(profile, dict.fromkeys(entries, "") | self._texts(profile), own)
        plan = Plan(commands={**before, **now}, coverage_min=own.coverage_min, code=self.package.deliverables.code)
        return msgspec.structs.replace(plan, **_of_profile(profile))

    def _texts(self, profile: Profile | None) -> dict[str, str]:
        """The files that are asked for keys. An agent may have made a folder of one, or a link to nothing."""
        found = {name: self.tree / name for name in (files_asked(profile) if profile else ())}
        return {
            name: path.read_text(encoding="utf-8", errors="replace")
            for name, path in found.items()
            if path.is_file() and path.stat().st_size <= LARGEST_ROOT_FILE_BYTES
        }

    def _checks(self, profile: Profile | None) -> PackageChecks:
        """The package's own checks over those that the person configured for its profile."""
        configured = self.project.config.checks.get(profile.name if profile else "", ProfileChecks())
        names = (*COMMANDS, "coverage_min")
        chosen = {name: getattr(self.package.checks, name) for name in names}
        return PackageChecks(**{n: getattr(configured, n) if value is None else value for n, value in chosen.items()})

    def _work(self, commit: str) -> Work:
        repository = self.project.repository
        commits = commits_between(repository, self.start, commit)
        return Work(
            package=self.package.work_package_id,
            checkout=self._room / "tree",
            deliverables=self.package.deliverables.all,
            changed=tuple(one.path for one in differences(repository.place(), self.start, commit)),
            commits=tuple(Commit(one.id, one.message) for one in commits),
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


def _refuse_offline(plan: Plan, output: str | None) -> None:
    """A setup that could not reach the network says nothing about the work: no agent can mend it, a person can."""
    if output is not None and classify(1, output) is Fault.NETWORK:
        raise EnvironmentUnavailable(
            f"the setup could not reach the network, so nothing was tested: {plan.commands.get(Purpose.SETUP, '')}",
            'dispatch again when it can; if the tests need nothing installed, leave it out: setup = "" in the '
            "[checks.PROFILE] table of phasegate.toml (python, typescript, ...), or in the package's checks",
        )


def root_texts(project: Project, commit: str, profile: Profile | None = None) -> dict[str, str]:
    """The names at the root of a commit, with the text of those files that the profile asks for keys."""
    blobs = blobs_of(project.repository, commit)
    names = dict.fromkeys((path.partition("/")[0] for path in blobs), "")
    asked = {name: blobs[name] for name in (files_asked(profile) if profile else ()) if name in blobs}
    contents = read_blobs(project.repository.place(), asked.values())
    small = {name: contents[blob] for name, blob in asked.items() if len(contents[blob]) <= LARGEST_ROOT_FILE_BYTES}
    return names | {name: data.decode(errors="replace") for name, data in small.items()}


def profile_of(project: Project, named: str, root_files: Iterable[str]) -> Profile | None:
    """The profile that a package names, else what its repository looks like, else the only one that is configured."""
    if named:
        return load_profile(named)
    configured = [name for name in project.config.checks if name in PROFILES]
    return detect(all_profiles(), root_files) or (load_profile(configured[0]) if len(configured) == 1 else None)


def _of_profile(profile: Profile | None) -> dict[str, tuple[str, ...]]:
    if profile is None:
        return {}
    found = {
        "lock_files": profile.lock_files,
        "coverage_reports": tuple(report.path for report in profile.coverage_reports),
        "bin_folders": profile.bin_folders,
    }
    return {name: values for name, values in found.items() if values}


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
