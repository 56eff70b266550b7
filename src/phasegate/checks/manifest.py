"""The manifest: all that must hold before work counts as done, found out by us on a clean checkout.

An agent's word is not asked. What is unknown, unverified or empty is a failure, and each failure says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.checks.baseline import Baseline
from phasegate.checks.commands import Bench
from phasegate.checks.deliverables import problem_with
from phasegate.checks.evidence import Check, Evidence, Outcome, failed, not_asked, passed
from phasegate.checks.excerpt import listed, one_line
from phasegate.checks.plan import Plan, Purpose, Runner
from phasegate.checks.secrets import ALLOWED_BY, Added, find_secrets
from phasegate.checks.setup import SetupPlace
from phasegate.checks.snapshot import Snapshot, changed_files, take_snapshot
from phasegate.core.plan.commits import Commit, unnamed_commits

_PROOFS = frozenset(("deliverables", Purpose.BUILD, Purpose.TEST, Purpose.COVERAGE))


class ReturnedWork(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, as the workspace knows it from git and the disk."""

    package: str
    checkout: Path  # a clean checkout of the harvested tree, made by us and for us to spoil
    deliverables: tuple[str, ...]
    changed: tuple[str, ...]  # paths that differ from the base
    commits: tuple[Commit, ...]  # from the base on
    added: Iterable[Added]  # what each of them brought in
    blobs: Mapping[str, str]  # the files of the harvested tree, each with git's id of its content
    uncommitted: tuple[str, ...] = ()  # changes that are in no commit


class RootAsk(NamedTuple):
    """What is asked of one root of the tree."""

    plan: Plan
    baseline: Baseline | None = None
    kept: SetupPlace | None = None


def gather_evidence(
    plan: Plan,
    work: ReturnedWork,
    run: Runner,
    baseline: Baseline | None = None,
    kept: SetupPlace | None = None,
    *,
    beside: Sequence[RootAsk] = (),
) -> Evidence:
    """Check everything, whatever fails first: one round of mending should do. `beside` is asked of further roots."""
    asks = (RootAsk(plan, baseline, kept), *beside)
    benches = [Bench(ask.plan, work.checkout, run, ask.kept, ask.baseline) for ask in asks]
    before = benches[0].before if not plan.root else take_snapshot(work.checkout)
    checks = [_changes(work), _deliverables(work), _commits(work), _uncommitted(work), _secrets(work.added)]
    for bench in benches:
        checks += bench.checks(asked(bench.plan))
    if all(ask.plan.coverage_min is None for ask in asks):
        checks.append(not_asked(Purpose.COVERAGE, "no threshold is set"))
    return Evidence((*checks, _untouched(benches, before, work), *_unverified(checks)))


def asked(plan: Plan) -> tuple[Purpose, ...]:
    return tuple(purpose for purpose in Purpose if purpose is not Purpose.COVERAGE or plan.coverage_min is not None)


def _changes(work: ReturnedWork) -> Check:
    if not work.changed:
        return failed("changes", "nothing was changed", "Do what the package asks for, in the checkout, and commit it.")
    return passed("changes", f"{len(work.changed)} files changed", [listed(work.changed)])


def _deliverables(work: ReturnedWork) -> Check:
    if not work.deliverables:
        return not_asked("deliverables", "the package names none")
    found = {path: problem_with(work.checkout, path) for path in work.deliverables}
    problems = [f"{one_line(path)} {problem}" for path, problem in found.items() if problem]
    if problems:
        remedy = "Write each deliverable at exactly this path, as a plain file with content."
        return failed("deliverables", "; ".join(problems[:20]), remedy, problems[20:])
    return passed("deliverables", f"all {len(found)} are there and not empty")


def _commits(work: ReturnedWork) -> Check:
    if not work.commits:
        return failed("commits", "there is no commit", f'Commit the work: git commit -m "{work.package}: ..."')
    unnamed = unnamed_commits(work.package, work.commits)
    if unnamed:
        shown = listed([f"{commit.id[:10]} {commit.subject!r}" for commit in unnamed])
        remedy = f"Reword them to `{work.package}: what changed` or `feat({work.package}): what changed [FR-...]`."
        return failed("commits", f"{len(unnamed)} of {len(work.commits)} do not name {work.package}: {shown}", remedy)
    return passed("commits", f"all {len(work.commits)} name {work.package}")


def _uncommitted(work: ReturnedWork) -> Check:
    if work.uncommitted:
        remedy = "Commit what belongs to the work, and undo the rest."
        return failed("clean tree", f"not committed: {listed(work.uncommitted)}", remedy)
    return passed("clean tree", "everything is committed")


def _secrets(added: Iterable[Added]) -> Check:
    found = find_secrets(added)
    notes = [f"allowed by a comment: {secret}" for secret in found if secret.allowed]
    bad = [str(secret) for secret in found if not secret.allowed]
    if bad:
        remedy = (
            "Take the secret out of every commit, and revoke it where it is real. "
            f"A dummy gets the comment `{ALLOWED_BY.decode()}` on its line."
        )
        return failed("secrets", f"{len(bad)} found: {listed(bad)}", remedy, notes)
    return passed("secrets", "none of the known forms was added", notes)


def _untouched(benches: Sequence[Bench], before: Snapshot, work: ReturnedWork) -> Check:
    """Commands that rewrite the tree prove something about another tree. A lock file may be brought up to date."""
    changed = changed_files(work.checkout, before, work.blobs)
    named = {name for bench in benches for name in bench.plan.lock_files}
    reports = {f"{bench.plan.root}/{path}".lstrip("/") for bench in benches for path in bench.plan.coverage_reports}
    locks = [path for path in changed if path.rpartition("/")[2] in named]
    others = [path for path in changed if path not in locks and path not in reports]
    notes = [f"brought up to date by a command: {listed(locks)}"] if locks else []
    if others:
        remedy = "Let the commands check only, or commit what they write."
        return failed("tree kept", f"the commands changed {listed(others)}", remedy, notes)
    return passed("tree kept", "the commands left the tree as it was", notes)


def _unverified(checks: Iterable[Check]) -> list[Check]:
    if any(check.outcome is Outcome.PASSED and check.name in _PROOFS for check in checks):
        return []
    remedy = "Name deliverables in the package, or a test command in its `checks` or in phasegate.toml."
    return [failed("verified", "nothing shows that the work is done", remedy)]
