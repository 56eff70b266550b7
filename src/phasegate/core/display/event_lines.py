"""What people are told of a feature's events: one line each, and at the emission points the block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.display.next_steps import next_steps
from phasegate.core.display.status import format_next_commands
from phasegate.core.machine import feature_events as events
from phasegate.core.machine import package_events
from phasegate.core.machine.feature_machine import apply_or_refuse, decide_feature_actions
from phasegate.core.machine.feature_state import Feature, FeatureAction, Step
from phasegate.core.machine.package_events import JobEndKind
from phasegate.core.machine.wait_reasons import WAITING_AT_FORGE_SUFFIX
from phasegate.core.workflow.gate import GateOutcome
from phasegate.core.workflow.lifecycle import Refusal, Stage, build_state_view
from phasegate.core.workflow.workflows import gate_name, resolve_display_name

_MAX_REASON_CHARS = 300
_MAX_FINDING_LINES = 20
# For machines; people are told the verdict in words
_REVIEW_MARKER = re.compile(r"<review>\s*\w+\s*</review>")


class EventText(NamedTuple):
    """A line for people, and the block that follows it, if this is an emission point."""

    line: str = ""
    block: str = ""


def render_event(
    before: Feature | None, event: events.AnyFeatureEvent, after: Feature
) -> EventText:
    """What an event is to people, given where the feature stood before and stands after it."""
    return EventText(_render_line(before, event, after), _render_block(before, event, after))


def _render_block(before: Feature | None, event: events.AnyFeatureEvent, after: Feature) -> str:
    """One block for each event of the lifecycle: the start, a gate, a blocker, the end (seed 001)."""
    point = _emission_point(before, event, after)
    if point is None:
        return ""
    return next_steps(build_state_view(after.workflow), point) or ""


def _emission_point(
    before: Feature | None, event: events.AnyFeatureEvent, after: Feature
) -> str | None:
    stage = after.workflow.stage
    if isinstance(event, events.Started):
        return "workflow-initialized"
    if isinstance(event, events.Completed):
        return "workflow-completed"
    if isinstance(event, events.Cancelled):
        return "workflow-cancelled"
    if before is None or before.workflow.stage is stage:
        return None

    points = {
        Stage.GATE_PASSED: "gate-passed",
        Stage.GATE_FAILED: "gate-failed",
        Stage.BLOCKED: "blocker",
    }
    if stage is Stage.GATE_PASSED and not isinstance(event, events.GateChecked):
        # A blocker behind the gate was resolved: the gate passed before
        return None

    return points.get(stage)


def _render_line(before: Feature | None, event: events.AnyFeatureEvent, after: Feature) -> str:  # noqa: C901 - a table
    workflow = after.workflow
    standing = before or after
    if standing.closing:
        phase = "archive"
    else:
        phase = standing.workflow.phase

    match event:
        case events.Started(feature, type_):
            # The block that follows asks for a description, in its fixed words: the person sees
            # that there is one.
            if event.description:
                described = f", described as: {_shorten(event.description)}"
            else:
                described = ""

            return (
                f"{feature}: workflow {type_} begins with {resolve_display_name(phase)}{described}"
            )
        case events.JobStarted(_, role, agent):
            return f"{phase}: round {after.round}, {role} by {agent}"
        case events.JobEnded(_, end, reason, _, verdict):
            if end is JobEndKind.DONE and verdict:
                said = f": {verdict}"
            else:
                said = f": {_shorten(reason)}" if reason else ""

            return f"{phase}: {end}{said}"
        case events.DocumentsWritten(_, missing):
            return f"{phase}: documents taken over" + (
                f", missing: {', '.join(missing)}" if missing else ""
            )
        case events.ScopeViolated(violations):
            return f"{phase}: {_shorten('; '.join(violations))}"
        case events.PackagesPlanned(packages, problems):
            new = [name for name in packages if before is None or name not in before.packages]
            if problems:
                return f"{phase}: {_shorten('; '.join(problems))}"
            return f"{phase}: packages {', '.join(new)}"
        case events.PackageStarted(package):
            return f"{package}: begins"
        case events.PackageEnded(package, state, reason):
            return f"{package}: {state}" + (f": {_shorten(reason)}" if reason else "")
        case events.CommandsRan(results):
            told = (
                f"{name} {'passed' if passed else 'FAILED'}" for name, passed in results.items()
            )
            return f"{phase}: {', '.join(told) or 'no command to run'}"
        case events.GateChecked(_, _, found):
            return _gate_line(before, after, found)
        case events.Retried():
            return f"{phase}: round {workflow.round} begins"
        case events.Merged(commit):
            return f"merged into {after.base} at {commit[:12]}"
        case events.PullOpened(_, url, head):
            return f"{url} is at {head[:12]}"
        case events.RemarksReceived(remarks):
            return f"{phase}: {len(remarks)} remarks on the pull request: {_shorten(remarks[0].finding)}"
        case events.SentBack(reason, findings):
            return f"sent back: {_shorten(f'{reason}: {findings}')}"
        case events.NotMerged(reason):
            return f"not merged: {_shorten(reason)}"
        case events.Resolved(how):
            return f"{phase}: resolved: {_shorten(how)}"
        case events.WentBack(_, why):
            return f"{phase}: back to {workflow.phase}: {_shorten(why)}"
        case events.Cancelled(reason):
            return f"{workflow.feature}: cancelled: {_shorten(reason)}"
        case events.Completed():
            return f"{workflow.feature}: completed"
        case _:
            return ""


def _gate_line(before: Feature | None, after: Feature, found: str) -> str:
    """A failed gate is told with what the agent of the next round is told.

    Our finding, else the critic's words.
    """
    passed = after.workflow.stage is Stage.GATE_PASSED
    phase = (before or after).workflow.phase
    if passed:
        return f"{gate_name(phase)} {GateOutcome.PASSED.upper()}"

    finding = found or (after.report if after.verdict is not Verdict.PASS else "")
    reasons = "; ".join(
        _shorten(text) for text in (after.workflow.reason, _REVIEW_MARKER.sub("", finding)) if text
    )

    return f"{gate_name(phase)} {GateOutcome.FAILED.upper()}: {reasons}"


def describe_attempt(checked: package_events.AttemptChecked) -> str:
    """What became of an attempt of a contest, in words."""
    if checked.harvested.violations:
        return f"violates the file scope: {'; '.join(checked.harvested.violations)}"
    if checked.harvested.leaks:
        return f"holds a key that was lent to it: {'; '.join(checked.harvested.leaks)}"
    if checked.validated is None:
        return "changed nothing"

    names = ", ".join(failure.partition(":")[0] for failure in checked.validated.failures)
    if names:
        return f"failed: {names}"

    return "passed the manifest"


def render_package_event(package: str, event: package_events.AnyPackageEvent) -> str:  # noqa: C901 - a table
    """What an event of a work package is to people."""
    match event:
        case package_events.PackageJobStarted(_, role, round_, _, agent, saved):
            if saved:
                of_delta = f", of what changed since the last one: about {saved} tokens less"
            else:
                of_delta = ""

            return (
                f"{package}: round {round_}, {role}" + (f" by {agent}" if agent else "") + of_delta
            )
        case package_events.PackageJobEnded(_, end, reason) if reason:
            return f"{package}: {end}: {_shorten(reason)}"
        case package_events.Harvested(leaks=leaks) if leaks:
            return f"{package}: a key that was lent to the agent is in {_shorten('; '.join(leaks))}"
        case package_events.Harvested(commit, violations):
            if commit:
                taken = "work taken over"
            else:
                taken = "nothing was changed"

            return f"{package}: {_shorten('; '.join(violations)) or taken}"
        case package_events.Validated(_, failures):
            names = ", ".join(failure.partition(":")[0] for failure in failures)
            return f"{package}: manifest {'failed: ' + names if names else 'passed'}"
        case package_events.AttemptChecked():
            return f"{package}: attempt {event.attempt + 1} {_shorten(describe_attempt(event))}"
        case package_events.AttemptsCompared(best):
            return f"{package}: attempt {best + 1} is the best, says the reviewer"
        case package_events.AttemptSelected(attempt):
            return f"{package}: attempt {attempt + 1} is taken"
        case package_events.Reviewed(verdict):
            return f"{package}: review says {verdict}"
        case package_events.PackagePublished(_, url):
            return f"{package}: pull request {url}"
        case package_events.PackageRemarksReceived(remarks):
            return f"{package}: {len(remarks)} remarks on the pull request: one more round deals with them"
        case package_events.PackageHeld(reason):
            return f"{package}: {_shorten(reason)}"
        case package_events.PackageMerged(commit):
            return f"{package}: merged at {commit[:12]}"
        case package_events.PackageNotMerged(reason):
            return f"{package}: not merged: {_shorten(reason)}"
        case _:
            return ""


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= _MAX_REASON_CHARS:
        return line
    return f"{line[:_MAX_REASON_CHARS]} ..."


def render_stop_summary(feature: Feature, command_suffix: str = "") -> tuple[str, ...]:
    """Where a feature stands when a run stops, in words.

    Why, what is kept, and the command that comes next.

    `naming`: ` --feature SLUG`, where another feature is in work too.
    """
    workflow = feature.workflow
    commands = format_next_commands(
        str(workflow.stage), is_last_phase=workflow.is_last_phase, command_suffix=command_suffix
    )
    then = f"  then: {commands}"
    branch = f"the work is on feat/{workflow.feature}"
    gate = gate_name(workflow.phase)

    match workflow.stage:
        case Stage.BLOCKED:
            remedy = (f"  what to do: {feature.remediation}",) if feature.remediation else ()
            return (
                f"{workflow.feature} is blocked in {workflow.phase}: {workflow.reason}",
                *_finding_lines(feature),
                *remedy,
                f"  {branch}; the logs: phasegate show {workflow.phase} --log{command_suffix}",
                then,
            )
        case Stage.GATE_PASSED if feature.pull is not None and not feature.merged:
            return (
                f"{feature.pull.url}{WAITING_AT_FORGE_SUFFIX}",
                f"  then: phasegate run{command_suffix}, or phasegate sync{command_suffix} for one look",
            )
        case Stage.GATE_PASSED if workflow.is_last_phase:
            return (f"{gate} was the last gate; {branch}", then)
        case Stage.GATE_PASSED:
            return (f"{gate} has passed; {branch}", then)
        case Stage.GATE_FAILED:
            return (f"{gate} has failed: {workflow.reason}", then)
        case Stage.WORKING:
            return (f"{resolve_display_name(workflow.phase)} is in progress; {branch}", then)
        case Stage.CANCELLED:
            return (f"{workflow.feature} is cancelled: {workflow.reason}",)
        case Stage.COMPLETED:
            return ()


def _finding_lines(feature: Feature) -> Iterator[str]:
    """What the checks and the reviewer of this round said: a person has to decide on it."""
    reason = feature.workflow.reason
    found = _REVIEW_MARKER.sub("", select_open_findings(feature))
    lines = [line for line in found.splitlines() if line.strip() and line.strip() not in reason]
    if lines:
        yield "  findings:"
        yield from (f"    {line}" for line in lines[:_MAX_FINDING_LINES])
    if len(lines) > _MAX_FINDING_LINES:
        yield f"    ... and {len(lines) - _MAX_FINDING_LINES} more lines"


def select_open_findings(feature: Feature) -> str:
    """The findings that a person has to decide on.

    Behind a passed gate something else is in the way.
    """
    workflow = feature.workflow
    if workflow.stage is not Stage.BLOCKED or workflow.blocked_at is not Stage.WORKING:
        return ""
    # A gate that was judged has added its own
    if feature.todo:
        return feature.report

    return feature.findings


def list_allowed_orders(feature: Feature) -> tuple[str, ...]:
    """What a person may order now, by the name of the command."""
    asked: dict[str, events.AnyFeatureEvent] = {
        "advance": events.Advanced(),
        "retry": events.Retried(),
        "resolve": events.Resolved("how"),
        "back": events.WentBack(feature.workflow.phases[0], "why"),
        "complete": events.CompletionRequested(),
        "escalate": events.Escalated("why"),
        "cancel": events.Cancelled("why"),
    }

    orders = tuple(
        name
        for name, event in asked.items()
        if not isinstance(apply_or_refuse(feature, event), Refusal)
    )
    if decide_feature_actions(feature)[:1] != (FeatureAction(Step.STOP),):
        return ("run", *orders)

    return orders
