"""The grounds of a decision: question and reason, changes, checks, requirements and cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from phasegate.core.answer.prose import cut_result
from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.display.status import RUN_AFTERWARDS
from phasegate.core.machine.feature_events import CommandsRan, Merged
from phasegate.core.machine.feature_state import Feature
from phasegate.core.machine.package_events import PackageJobEnded, Reviewed, first_finding
from phasegate.core.paths.glob import compile_any
from phasegate.core.plan.trace import RequirementTrace
from phasegate.core.plan.work_package import shorten_slug
from phasegate.core.prompt.role_needs import CHARACTERS_PER_TOKEN
from phasegate.core.test_strength.page import list_doubts
from phasegate.core.text.elapsed import describe_age
from phasegate.core.text.markdown_lines import collapse_whitespace
from phasegate.core.text.wording import pluralize, shorten
from phasegate.core.workflow.orders import ORDERS
from phasegate.core.workflow.spending import Spending, format_spending
from phasegate.engine.journal.entries import SCOPE_ALLOWED, ScopeException
from phasegate.engine.journal.package import read_planned_packages
from phasegate.engine.journal.questions import (
    AgentQuestion,
    list_answer_commands,
    read_open_questions,
)
from phasegate.engine.project.project import Project
from phasegate.engine.views.check_lines import (
    CheckLine,
    find_test_check,
    parse_check_lines,
    summarize_checks,
)
from phasegate.engine.views.feature import feature_status_view
from phasegate.engine.views.follow import JournalFollower, StreamEvent
from phasegate.engine.views.job import MAX_EVIDENCE_CHARS, read_evidence
from phasegate.engine.views.minor_findings import list_minor_findings
from phasegate.engine.views.overview import PackageCard, find_worker, package_cards
from phasegate.engine.views.refused import RefusedChange, list_refused_changes
from phasegate.engine.views.strength import read_strength
from phasegate.engine.views.trace import trace_feature
from phasegate.errors import ConfigError
from phasegate.files import read_regular_file
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import JobRow
from phasegate.typed import read_json
from phasegate.workspace.repository.commit_log import diff_changes, list_changed_files
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import resolve_commit

MAX_SHOWN_FILES = 40
# Lines of a refused change in the text; the rest is in `show WPnn --diff`
MAX_REFUSED_LINES = 20
_MAX_CLAIM_CHARS = 800
_QUESTIONS = {
    "complete": "Merge {feature} into {base}?",
    "resolve": "{feature} is blocked in {phase}. How should it continue?",
    "run": "{feature} is stopped in {phase}. Continue it?",
    "working": "{feature} is running in {phase}.",
    "": "{feature}: {stage}",
}


class FeatureFile(NamedTuple):
    """A changed file, with the packages and requirements that it belongs to."""

    path: str
    # Both are 0 for binary files
    added: int
    deleted: int
    # Packages whose file scope has it, or that the user allowed to change it
    packages: tuple[str, ...] = ()
    # Requirements of these packages
    requirements: tuple[str, ...] = ()


class PackageGrounds(NamedTuple):
    """One package: its state, its last review verdict, and the last check results."""

    id: str
    title: str
    state: str
    # Empty before the first review
    verdict: str
    rounds: int
    checks: tuple[CheckLine, ...]
    # What the measurement of the tests leaves open, the worst first
    doubts: tuple[str, ...] = ()
    # Summary of the implementer of a blocked package, in its own words
    claimed: str = ""
    # Of the reviewer that blocked it
    findings: str = ""


class DecisionGrounds(NamedTuple):
    """Everything that a user needs in order to decide."""

    feature: str
    request: str
    # One sentence
    asked: str
    since: str
    # Seconds since then
    waiting_s: int
    # The first finding, else the recorded reason
    reason: str
    findings: str
    remediation: str
    # Changes that block a package, because they are outside its file scope
    refused: tuple[RefusedChange, ...]
    files: tuple[FeatureFile, ...]
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
    # Questions of agents that are not answered
    questions: tuple[AgentQuestion, ...] = ()
    # Checks of the whole change, if they ran
    whole: tuple[CheckLine, ...] = ()
    # Changes, tests, requirements and cost, in one line each; only before a merge
    summary: tuple[str, ...] = ()
    # Files outside of their scope that the user allowed, each with the reason
    allowed: tuple[str, ...] = ()
    # Minor findings of reviews that passed
    minor: tuple[str, ...] = ()
    # Size of all prompts that are kept here
    prompt_tokens: int = 0


def decision_grounds(project: Project, reader: StoreReader, slug: str) -> DecisionGrounds:
    """Collect the grounds of the decision that a feature waits for, or of its current state."""
    follower = JournalFollower(reader, slug, after=0)
    events = [*follower.read_events()]
    feature = follower.feature
    if feature is None:
        raise ConfigError(f"no workflow was started for {slug}", "phasegate status --all")

    now = feature_status_view(feature)
    kind = next((order for order in ("complete", "resolve", "run") if order in now.orders), "")
    if find_worker(reader, slug):
        kind = "working"
    question = _QUESTIONS[kind].format(
        feature=slug, base=now.base, phase=now.phase, stage=now.stage
    )
    exceptions = [
        read_json(event.payload, ScopeException)
        for event in reader.events(slug)
        if event.kind == SCOPE_ALLOWED
    ]
    changed = _list_changes(project, reader, slug, now.base, events, exceptions)
    folder = f"{project.config.paths.features.rstrip('/')}/{slug}/"
    files = tuple(file for file in changed if not file.path.startswith(folder))
    requirements, untraced = _trace(project, slug)
    packages = tuple(_package_grounds(project, reader, slug, events))
    blocked = [package.id for package in packages if package.state == "BLOCKED"]
    jobs = reader.jobs(slug)
    effects = {name: ORDERS[name].effect for name in now.orders if name in ORDERS}
    if kind == "run":
        effects = {"run": "continue from here", **effects}

    grounds = DecisionGrounds(
        feature=slug,
        request=feature.description,
        asked=question,
        since=events[-1].ts,
        waiting_s=_seconds_since(events[-1].ts),
        reason=first_finding(now.findings) or now.reason,
        findings=now.findings,
        remediation=now.remediation,
        refused=list_refused_changes(project, slug, events, blocked),
        files=files,
        documents=len(changed) - len(files),
        packages=packages,
        checks=tuple(_phase_checks(events)),
        requirements=requirements,
        untraced=untraced,
        spent=reader.total_spent(slug),
        agent_runs=len(jobs),
        effects=effects,
        allowed=tuple(f"{one.package}: {one.describe()}" for one in exceptions),
        minor=list_minor_findings(reader, slug),
        prompt_tokens=_count_prompt_tokens(project, jobs),
        questions=read_open_questions(reader, slug) if feature.workflow.is_active else (),
    )
    if kind != "complete":
        return grounds

    grounds = grounds._replace(whole=_read_whole_checks(project, feature, events, packages))
    return grounds._replace(summary=tuple(_summarize(grounds)))


def _read_whole_checks(
    project: Project,
    feature: Feature,
    events: list[StreamEvent],
    packages: tuple[PackageGrounds, ...],
) -> tuple[CheckLine, ...]:
    """Return the checks of the whole change.

    The last review has them for its tree, else the last phase that ran the tests. A single package
    is the whole change.
    """
    workflow = feature.workflow
    name = f"{workflow.phase}-{feature.round}.md"
    path = project.location.data_folder / "evidence" / workflow.feature / name
    content = read_regular_file(path, MAX_EVIDENCE_CHARS)
    candidates = [parse_check_lines(content.decode("utf-8", "replace"))] if content else []
    candidates += [
        parse_check_lines(event.event.findings)
        for event in reversed(events)
        if isinstance(event.event, CommandsRan)
    ]
    if len(packages) == 1:
        candidates.append(packages[0].checks)
    with_tests = (checks for checks in candidates if find_test_check(checks))
    return next(with_tests, ())


def _summarize(grounds: DecisionGrounds) -> Iterator[str]:
    """Yield the facts that a user needs first: changes, tests, requirements and cost."""
    added = sum(file.added for file in grounds.files)
    deleted = sum(file.deleted for file in grounds.files)
    yield f"changes: {pluralize(len(grounds.files), 'file')}, +{added} -{deleted}"

    test = find_test_check(grounds.whole)
    if test is None:
        yield "tests: none ran on the whole change"
    else:
        before = f"; before: {test.before}" if test.before else ""
        outcome = "" if test.outcome == "passed" else f"{test.outcome.upper()} - "
        yield f"tests: {outcome}{test.counts or test.summary}{before}"

    named = sum(any(test.names_it for test in one.tests) for one in grounds.requirements)
    untested = [one.id for one in grounds.requirements if not one.tests]
    count = pluralize(len(grounds.requirements), "requirement")
    if untested:
        yield f"requirements: {count}, without a test: {', '.join(untested)}"
    elif named < len(grounds.requirements):
        yield f"requirements: {count}, each with a test in its package; named by a test: {named}"
    elif named:
        yield f"requirements: {count}, each with a test"
    else:
        yield "requirements: none traced"
    yield f"cost: {_describe_cost(grounds)}"


def _describe_cost(grounds: DecisionGrounds) -> str:
    runs = pluralize(grounds.agent_runs, "agent run")
    if grounds.prompt_tokens:
        runs += f" with prompts of {grounds.prompt_tokens:,} tokens".replace(",", " ")
    if not any(grounds.spent):
        return f"{runs}; the agents reported neither tokens nor cost"
    return f"{runs}, {format_spending(grounds.spent)}"


def _count_prompt_tokens(project: Project, jobs: Iterable[JobRow]) -> int:
    prompts = (project.jobs_folder / job.id / "prompt.xml" for job in jobs)
    sizes = (prompt.stat().st_size for prompt in prompts if prompt.is_file())
    return sum(sizes) // CHARACTERS_PER_TOKEN


def _seconds_since(ts: str) -> int:
    return int((datetime.now(UTC) - datetime.fromisoformat(ts)).total_seconds())


def _list_changes(
    project: Project,
    reader: StoreReader,
    slug: str,
    base: str,
    events: list[StreamEvent],
    exceptions: list[ScopeException],
) -> tuple[FeatureFile, ...]:
    """List the changed files of the merge, which may be done or due."""
    ends = _find_change_ends(project, slug, base, events)
    if ends is None:
        return ()

    plans = [one.package for one in read_planned_packages(reader, slug).values()]
    allowed = {(one.package, one.path) for one in exceptions}
    changed = []
    for file in list_changed_files(project.repository, *ends):
        owners = [
            plan
            for plan in plans
            if (plan.work_package_id, file.path) in allowed
            or compile_any(plan.file_scope).match(file.path)
        ]
        requirements = (id_ for plan in owners for id_ in plan.requirements)
        changed.append(
            FeatureFile(
                path=file.path,
                added=file.added,
                deleted=file.deleted,
                packages=tuple(plan.work_package_id for plan in owners),
                requirements=tuple(dict.fromkeys(requirements)),
            )
        )
    return tuple(changed)


def _find_change_ends(
    project: Project, slug: str, base: str, events: list[StreamEvent]
) -> tuple[str, str] | None:
    """Return the commits between which the changes of a feature are; None before its branch."""
    for event in events:
        if isinstance(event.event, Merged):
            return f"{event.event.commit}^1", event.event.commit

    branch = resolve_commit(project.repository, f"{BRANCH_PREFIX}feat/{slug}")
    start = resolve_commit(project.repository, f"{BRANCH_PREFIX}{base}") if base else None
    if branch is None or start is None:
        return None
    return start, branch


def read_feature_diff(project: Project, reader: StoreReader, slug: str, path: str = "") -> str:
    """Return the diff that the merge of a feature brings, of one file or of all.

    The feature's own documents are left out, unless nothing else has changed.
    """
    follower = JournalFollower(reader, slug, after=0)
    events = [*follower.read_events()]
    if follower.feature is None:
        raise ConfigError(f"no workflow was started for {slug}", "phasegate status --all")

    ends = _find_change_ends(project, slug, follower.feature.base, events)
    if ends is None:
        return ""
    if path:
        return diff_changes(project.repository, *ends, [path])

    folder = f"{project.config.paths.features.rstrip('/')}/{slug}/"
    paths = [file.path for file in list_changed_files(project.repository, *ends)]
    code = [one for one in paths if not one.startswith(folder)]
    return diff_changes(project.repository, *ends, code or paths)


def _trace(project: Project, slug: str) -> tuple[tuple[RequirementTrace, ...], str]:
    try:
        return trace_feature(project, slug).requirements, ""
    except ConfigError as error:
        return (), error.message


def _package_grounds(
    project: Project, reader: StoreReader, slug: str, events: list[StreamEvent]
) -> Iterator[PackageGrounds]:
    """Yield state, verdict and test findings of each package."""
    answers = {
        event.package: cut_result(event.event.answer)
        for event in events
        if isinstance(event.event, PackageJobEnded) and event.event.answer
    }
    reviews = {event.package: event.event for event in events if isinstance(event.event, Reviewed)}
    for card in package_cards(reader, slug):
        strength = read_strength(project, reader, slug, card.id)
        review = reviews.get(card.id)
        findings = ""
        if card.state == "BLOCKED" and review is not None and review.verdict is not Verdict.PASS:
            findings = review.findings
        yield PackageGrounds(
            id=card.id,
            title=card.title,
            state=card.state,
            verdict=str(review.verdict) if review else "",
            rounds=card.round,
            checks=_package_checks(project, reader, card),
            doubts=tuple(list_doubts(strength)) if strength else (),
            claimed=answers.get(card.id, "") if card.state == "BLOCKED" else "",
            findings=findings,
        )


def _package_checks(
    project: Project, reader: StoreReader, card: PackageCard
) -> tuple[CheckLine, ...]:
    for job in reversed([job for job in reader.jobs(card.feature) if job.wp == card.id]):
        if text := read_evidence(project.location, job):
            return parse_check_lines(text)
    return ()


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
    yield f"  since: {describe_age(grounds.waiting_s)} ago"
    if grounds.remediation and not grounds.refused:
        yield f"  what to do: {grounds.remediation}"
    if grounds.request:
        yield f"  request: {grounds.request}"

    yield ""
    yield from _render_section("In short", [*grounds.summary])
    yield from _render_section("Open questions", _render_questions(grounds))
    yield from _render_section("Refused changes", _render_refused(grounds))
    yield from _render_section("The implementer says", _render_claims(grounds))
    yield from _render_section("Findings", _render_findings(grounds))
    yield from _render_section("Weakest evidence", _render_doubts(grounds))
    yield from _render_changes(grounds)
    yield from _render_section("Allowed outside of the file scope", [*grounds.allowed])
    yield from _render_section("Minor findings", [*grounds.minor])
    yield from _render_section("Packages", map(_render_package, grounds.packages))
    yield from _render_section("Checks", _render_checks(grounds))
    yield from _render_section("Requirements", _render_requirements(grounds))
    yield from _render_section("Cost", [_describe_cost(grounds)])
    yield from _render_section("You can", _render_effects(grounds))


def _render_effects(grounds: DecisionGrounds) -> Iterator[str]:
    """Yield each allowed command with its effect, the one that continues first."""
    placeholders = {"back": " PHASE WHY", "resolve": " HOW", "escalate": " WHY", "cancel": " WHY"}
    names = sorted(grounds.effects, key=lambda name: name not in ("complete", "resolve", "run"))
    for name in names:
        command = f"phasegate {name}{placeholders.get(name, '')}"
        yield f"{command}: {grounds.effects[name]}"


def _render_questions(grounds: DecisionGrounds) -> Iterator[str]:
    """Yield the open questions, each with the commands that answer it."""
    for one in grounds.questions:
        yield one.text
        yield from (
            f"  {command}" for command in list_answer_commands(one.id, one.options, one.feature)
        )


def _render_findings(grounds: DecisionGrounds) -> Iterator[str]:
    """Yield the findings unless the reason has all of them, and those of blocked packages."""
    lines = [line for line in grounds.findings.splitlines() if line.strip()]
    if len(lines) > 1:
        yield from lines[:MAX_SHOWN_FILES]
    for package in grounds.packages:
        if package.findings:
            found = package.findings.splitlines()[:MAX_SHOWN_FILES]
            yield from (f"{package.id}: {line}" for line in found if line.strip())


def _render_refused(grounds: DecisionGrounds) -> Iterator[str]:
    """Yield the refused changes, with the commands that accept or reject them."""
    of = f" --feature {shorten_slug(grounds.feature)}"
    for change in grounds.refused:
        yield f"{change.package}  {change.path}: {change.why}"
        lines = change.diff.splitlines()
        yield from (f"    {line}" for line in lines[:MAX_REFUSED_LINES])
        if len(lines) > MAX_REFUSED_LINES:
            more = len(lines) - MAX_REFUSED_LINES
            yield f"    and {more} more lines: phasegate show {change.package} --diff"
        yield f"  accept it: {change.command} {RUN_AFTERWARDS}{of}"

    if grounds.refused:
        resolve = f'phasegate resolve "what to do instead"{of}'
        yield f"  or send it back: {resolve} {RUN_AFTERWARDS}{of}"


def _render_claims(grounds: DecisionGrounds) -> Iterator[str]:
    for package in grounds.packages:
        if package.claimed:
            yield f"{package.id}: {shorten(collapse_whitespace(package.claimed), _MAX_CLAIM_CHARS)}"
            if not grounds.refused:
                allow = f'phasegate scope allow {package.id} PATH --reason "..."'
                yield f"  if it needs another file: {allow}, then phasegate run"


def _render_section(title: str, lines: Iterator[str] | list[str]) -> Iterator[str]:
    listed = [*lines]
    if listed:
        yield from (f"{title}:", *(f"  {line}" for line in listed), "")


def _render_changes(grounds: DecisionGrounds) -> Iterator[str]:
    added = sum(file.added for file in grounds.files)
    deleted = sum(file.deleted for file in grounds.files)
    shown = [*map(_render_file, grounds.files[:MAX_SHOWN_FILES])]
    hidden = len(grounds.files) - len(shown)
    if hidden:
        shown.append(f"and {hidden} more")
    if grounds.documents:
        shown.append(f"and {pluralize(grounds.documents, 'document')} of the feature")
    if shown:
        shown.append(f"the diff: phasegate show {grounds.feature} --diff")
    title = f"Changes ({pluralize(len(grounds.files), 'file')}, +{added} -{deleted})"
    yield from _render_section(title, shown or ["none yet"])


def _render_file(file: FeatureFile) -> str:
    line = f"{file.path}  +{file.added} -{file.deleted}"
    owners = ", ".join((*file.packages, *file.requirements))
    return f"{line}  ({owners})" if owners else line


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
    yield from (f"the whole change: {line}" for line in summarize_checks(grounds.whole))
    for package in grounds.packages:
        yield from (f"{package.id}: {line}" for line in summarize_checks(package.checks))


def _render_requirements(grounds: DecisionGrounds) -> Iterator[str]:
    for one in grounds.requirements:
        tests = ", ".join(dict.fromkeys(test.path for test in one.tests)) or "no test names it"
        packages = ", ".join(one.packages) or "no package"
        yield f"{one.id}  {one.text}"
        yield f"    {packages}; tests: {tests}"
    if grounds.untraced:
        yield f"not traced: {grounds.untraced}"
