"""The grounds of a decision: what is asked and why, changes, checks, requirements and cost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from phasegate.core.machine.feature_events import CommandsRan, Merged
from phasegate.core.machine.package_events import Reviewed, first_finding
from phasegate.core.plan.trace import RequirementTrace
from phasegate.core.test_strength.page import list_doubts
from phasegate.core.workflow.orders import ORDERS
from phasegate.core.workflow.spending import Spending, format_spending
from phasegate.engine.project.project import Project
from phasegate.engine.views.feature import feature_status_view
from phasegate.engine.views.follow import JournalFollower, StreamEvent
from phasegate.engine.views.job import read_evidence
from phasegate.engine.views.overview import PackageCard, package_cards
from phasegate.engine.views.strength import read_strength
from phasegate.engine.views.trace import trace_feature
from phasegate.errors import ConfigError
from phasegate.storage.reader import StoreReader
from phasegate.workspace.commit_log import FileStat, list_changed_files
from phasegate.workspace.refs import BRANCH_PREFIX
from phasegate.workspace.repository import resolve_commit

MAX_SHOWN_FILES = 40
# A check in the evidence of a package: `- test: passed - 3 tests ran and passed`
_CHECK_LINE = re.compile(r"- ([a-z -]+): (passed|failed|not asked for|[a-z ]+?) - (.*)")
_QUESTIONS = {
    "complete": "Merge {feature} into {base}?",
    "resolve": "{feature} is blocked in {phase}. How should it continue?",
    "run": "{feature} is stopped in {phase}. Continue it?",
    "": "{feature}: {stage}",
}


class PackageGrounds(NamedTuple):
    """One package: its state, its last review verdict, and the last check results."""

    id: str
    title: str
    state: str
    # Empty before the first review
    verdict: str
    rounds: int
    checks: tuple[str, ...]
    # What the measurement of the tests leaves open, the worst first
    doubts: tuple[str, ...] = ()


class DecisionGrounds(NamedTuple):
    """Everything that a user needs in order to decide."""

    feature: str
    request: str
    # One sentence
    asked: str
    since: str
    # The first finding, else the recorded reason
    reason: str
    findings: str
    remediation: str
    files: tuple[FileStat, ...]
    # Changed documents of the feature itself, which are not listed in `files`
    documents: int
    packages: tuple[PackageGrounds, ...]
    # Results of the last commands of each phase
    checks: tuple[str, ...]
    requirements: tuple[RequirementTrace, ...]
    # Why the requirements could not be traced
    untraced: str
    spent: Spending
    agent_runs: int
    # What each allowed order does
    effects: dict[str, str]


def decision_grounds(project: Project, reader: StoreReader, slug: str) -> DecisionGrounds:
    """Collect the grounds of the decision that a feature waits for, or of its current state."""
    follower = JournalFollower(reader, slug, after=0)
    events = [*follower.read_events()]
    feature = follower.feature
    if feature is None:
        raise ConfigError(f"{slug} has no workflow here", "phasegate status")

    now = feature_status_view(feature)
    kind = next((order for order in ("complete", "resolve", "run") if order in now.orders), "")
    question = _QUESTIONS[kind].format(
        feature=slug, base=now.base, phase=now.phase, stage=now.stage
    )
    changed = _list_changes(project, slug, now.base, events)
    folder = f"{project.config.paths.features.rstrip('/')}/{slug}/"
    files = tuple(file for file in changed if not file.path.startswith(folder))
    requirements, untraced = _trace(project, slug)
    effects = {name: ORDERS[name].effect for name in now.orders if name in ORDERS}

    return DecisionGrounds(
        feature=slug,
        request=feature.description,
        asked=question,
        since=events[-1].ts,
        reason=first_finding(now.findings) or now.reason,
        findings=now.findings,
        remediation=now.remediation,
        files=files,
        documents=len(changed) - len(files),
        packages=tuple(_package_grounds(project, reader, slug, events)),
        checks=tuple(_phase_checks(events)),
        requirements=requirements,
        untraced=untraced,
        spent=reader.total_spent(slug),
        agent_runs=len(reader.jobs(slug)),
        effects=effects,
    )


def _list_changes(
    project: Project, slug: str, base: str, events: list[StreamEvent]
) -> tuple[FileStat, ...]:
    """List what the merge brings, or brought if the feature is merged."""
    for event in events:
        if isinstance(event.event, Merged):
            commit = event.event.commit
            return list_changed_files(project.repository, f"{commit}^1", commit)

    branch = resolve_commit(project.repository, f"{BRANCH_PREFIX}feat/{slug}")
    start = resolve_commit(project.repository, f"{BRANCH_PREFIX}{base}") if base else None
    if branch is None or start is None:
        return ()
    return list_changed_files(project.repository, start, branch)


def _trace(project: Project, slug: str) -> tuple[tuple[RequirementTrace, ...], str]:
    try:
        return trace_feature(project, slug).requirements, ""
    except ConfigError as error:
        return (), error.message


def _package_grounds(
    project: Project, reader: StoreReader, slug: str, events: list[StreamEvent]
) -> Iterator[PackageGrounds]:
    verdicts = {
        event.package: str(event.event.verdict)
        for event in events
        if isinstance(event.event, Reviewed)
    }
    for card in package_cards(reader, slug):
        strength = read_strength(project, reader, slug, card.id)
        yield PackageGrounds(
            id=card.id,
            title=card.title,
            state=card.state,
            verdict=verdicts.get(card.id, ""),
            rounds=card.round,
            checks=_package_checks(project, reader, card),
            doubts=tuple(list_doubts(strength)) if strength else (),
        )


def _package_checks(project: Project, reader: StoreReader, card: PackageCard) -> tuple[str, ...]:
    for job in reversed([job for job in reader.jobs(card.feature) if job.wp == card.id]):
        text = read_evidence(project.location, job)
        if text:
            return tuple(summarize_checks(text))
    return ()


def summarize_checks(evidence: str) -> Iterator[str]:
    """Yield what did not pass, then the test result, then the number of passed checks."""
    checks = [
        match.groups() for match in map(_CHECK_LINE.fullmatch, evidence.splitlines()) if match
    ]
    for name, outcome, note in checks:
        if outcome not in ("passed", "not asked for"):
            yield f"{name}: {outcome.upper()} - {note}"

    for name, outcome, note in checks:
        if name == "test" and outcome == "passed":
            yield f"test: {note}"

    passed = [name for name, outcome, _ in checks if outcome == "passed"]
    yield f"{len(passed)} checks passed: {', '.join(passed)}"


def _phase_checks(events: list[StreamEvent]) -> Iterator[str]:
    """Yield one line for the last commands of each phase."""
    last = {event.phase: event.event for event in events if isinstance(event.event, CommandsRan)}
    for phase, ran in last.items():
        results = [f"{name} {'passed' if ok else 'FAILED'}" for name, ok in ran.results.items()]
        yield f"{phase}: {', '.join(results) or 'no commands'} on {ran.commit[:12]}"


def render_grounds(grounds: DecisionGrounds) -> Iterator[str]:
    """Yield the grounds as lines of text, the reason first."""
    yield grounds.asked
    if grounds.reason:
        yield f"  why: {grounds.reason}"
    if grounds.remediation:
        yield f"  what to do: {grounds.remediation}"
    if grounds.request:
        yield f"  request: {grounds.request}"

    yield ""
    yield from _render_section("Weakest evidence", _render_doubts(grounds))
    yield from _render_changes(grounds)
    yield from _render_section("Packages", map(_render_package, grounds.packages))
    yield from _render_section("Checks", _render_checks(grounds))
    yield from _render_section("Requirements", _render_requirements(grounds))
    yield from _render_section(
        "Cost", [f"{grounds.agent_runs} agent runs, {format_spending(grounds.spent)}"]
    )
    yield from _render_section(
        "You can", [f"{name}: {effect}" for name, effect in grounds.effects.items()]
    )


def _render_section(title: str, lines: Iterator[str] | list[str]) -> Iterator[str]:
    listed = [*lines]
    if listed:
        yield from (f"{title}:", *(f"  {line}" for line in listed), "")


def _render_changes(grounds: DecisionGrounds) -> Iterator[str]:
    added = sum(file.added for file in grounds.files)
    deleted = sum(file.deleted for file in grounds.files)
    shown = [
        f"{file.path}  +{file.added} -{file.deleted}" for file in grounds.files[:MAX_SHOWN_FILES]
    ]
    hidden = len(grounds.files) - len(shown)
    if hidden:
        shown.append(f"and {hidden} more")
    if grounds.documents:
        shown.append(f"and {grounds.documents} documents of the feature")
    title = f"Changes ({len(grounds.files)} files, +{added} -{deleted})"
    yield from _render_section(title, shown or ["none yet"])


def _render_package(package: PackageGrounds) -> str:
    verdict = f", review: {package.verdict}" if package.verdict else ""
    return f"{package.id}  {package.state}{verdict}, round {package.rounds}  {package.title}"


def _render_doubts(grounds: DecisionGrounds) -> Iterator[str]:
    for package in grounds.packages:
        yield from (f"{package.id}: {line}" for line in package.doubts)
        if package.doubts:
            yield f"{package.id}: all of it: phasegate show {package.id} --evidence"


def _render_checks(grounds: DecisionGrounds) -> Iterator[str]:
    yield from grounds.checks
    for package in grounds.packages:
        yield from (f"{package.id}: {line}" for line in package.checks)


def _render_requirements(grounds: DecisionGrounds) -> Iterator[str]:
    for one in grounds.requirements:
        tests = ", ".join(dict.fromkeys(test.path for test in one.tests)) or "no test names it"
        packages = ", ".join(one.packages) or "no package"
        yield f"{one.id}  {one.text}"
        yield f"    {packages}; tests: {tests}"
    if grounds.untraced:
        yield f"not traced: {grounds.untraced}"
