"""Render the events of features and packages: one line each, and the next-steps block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from phasegate.core.display.next_steps import next_steps
from phasegate.core.display.status import format_next_commands
from phasegate.core.machine import feature_events as events
from phasegate.core.machine import package_events
from phasegate.core.machine.feature_machine import apply_or_refuse, decide_feature_actions
from phasegate.core.machine.feature_state import Feature, FeatureAction, Step
from phasegate.core.machine.order_events import build_order_event
from phasegate.core.machine.package_events import JobEndKind
from phasegate.core.machine.wait_reasons import WAITING_AT_FORGE_SUFFIX
from phasegate.core.text.wording import pluralize
from phasegate.core.workflow.gate import GateOutcome
from phasegate.core.workflow.orders import ORDERS
from phasegate.core.workflow.phase_transitions import (
    Refusal,
    Stage,
    build_own_state,
    build_state_view,
)
from phasegate.core.workflow.workflow_phases import gate_name, resolve_display_name

_MAX_REASON_CHARS = 300
_MAX_FINDING_LINES = 20
# Machine-readable marker; the line shows the verdict as a word
_LIST_MARK = re.compile(r"^\s*(?:\d+[.)]|[-*])?\s*|\s+$")
_REVIEW_MARKER = re.compile(r"<review>\s*\w+\s*</review>")


class EventText(NamedTuple):
    """The line of an event, and the block that follows it at an emission point."""

    line: str = ""
    block: str = ""


def render_event(
    before: Feature | None, event: events.AnyFeatureEvent, after: Feature
) -> EventText:
    """Render an event, given the state of the feature before and after it."""
    return EventText(_render_line(before, event, after), _render_block(before, event, after))


def _render_block(before: Feature | None, event: events.AnyFeatureEvent, after: Feature) -> str:
    """Render the block of a lifecycle event: start, gate, blocker or end (seed 001)."""
    point = _emission_point(before, event, after)
    if point is None:
        return ""
    workflow = after.workflow
    own_state = build_own_state(workflow)
    return next_steps(build_state_view(workflow), point, own_state=own_state) or ""


def _emission_point(
    before: Feature | None, event: events.AnyFeatureEvent, after: Feature
) -> str | None:
    """Return the event whose block is due after a step, or None if none is."""
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
        # A blocker after the gate was resolved; the gate had passed before
        return None

    return points.get(stage)


def _render_line(before: Feature | None, event: events.AnyFeatureEvent, after: Feature) -> str:  # noqa: C901 - a table
    """Return the line that reports an event of a feature; empty for silent events."""
    workflow = after.workflow
    origin = before or after
    phase = "archive" if origin.closing else origin.workflow.phase

    match event:
        case events.Started(feature, type_):
            line = f"{feature}: workflow {type_} starts with {resolve_display_name(phase)}"
            # The block that follows asks for a description, in its fixed words: show that there
            # is one.
            if event.description:
                line += f", description: {_shorten(event.description)}"

            return line
        case events.JobStarted(_, role, agent):
            return f"{phase}: round {after.round}, {role} by {agent}"
        case events.JobEnded(_, end, reason, _, verdict):
            if end is JobEndKind.DONE and verdict:
                return _verdict_line(phase, before, verdict)
            return f"{phase}: {end}{_reason_suffix(reason)}"
        case events.DocumentsWritten(_, missing):
            line = f"{phase}: documents written"
            if event.documents:
                line = f"{phase}: plan written ({pluralize(event.documents, 'document')})"
            return f"{line}, missing: {', '.join(missing)}" if missing else line
        case events.ScopeViolated(violations):
            return f"{phase}: {_shorten('; '.join(violations))}"
        case events.PackagesPlanned(packages, problems):
            new = [name for name in packages if before is None or name not in before.packages]
            if problems:
                return f"{phase}: {_shorten('; '.join(problems))}"
            return f"{phase}: packages {', '.join(new)}"
        case events.PackageStarted(package):
            return f"{package}: started"
        case events.PackageEnded(package, state, reason):
            return f"{package}: {state}{_reason_suffix(reason)}"
        case events.PhasesFolded(estimate):
            return (
                f"{estimate}: one phase plans it (04-design instead of 02 to 05). "
                "All phases: run feature --full, or fit_to_size = false in [run]"
            )
        case events.ReviewWaived(package):
            return f"{phase}: no reviewer needed, the review of {package} covers everything"
        case events.CommandsRan(results):
            outcomes = (
                f"{name} {'passed' if passed else 'FAILED'}" for name, passed in results.items()
            )
            listed = ", ".join(outcomes) or "no command to run"
            waived = "; no reviewer needed" if after.is_review_waived else ""
            return f"{phase}: {listed}{waived}"
        case events.GateChecked():
            return _gate_line(before, after)
        case events.Retried():
            return f"{phase}: round {workflow.round} started"
        case events.Merged(commit):
            return f"merged into {after.base} at {commit[:12]}"
        case events.PullOpened(_, url, head):
            return f"{url} is at {head[:12]}"
        case events.PullWaits(reason):
            return f"the pull request waits: {_shorten(reason)}"
        case events.RemarksReceived(remarks):
            first = _shorten(remarks[0].finding)
            return f"{phase}: {len(remarks)} remarks on the pull request: {first}"
        case events.SentBack(reason, findings):
            return f"sent back: {_shorten(f'{reason}: {findings}')}"
        case events.NotMerged(reason):
            return f"not merged: {_shorten(reason)}"
        case events.Resolved(how):
            return f"{phase}: resolved: {_shorten(how)}"
        case events.WentBack(_, why):
            return f"{phase}: back to {workflow.phase}: {_shorten(why)}"
        case events.Amended(requirement, text):
            return f"{phase}: {requirement} is amended: {_shorten(text)}"
        case events.Cancelled(reason):
            return f"{workflow.feature}: cancelled: {_shorten(reason)}"
        case events.Completed():
            return f"{workflow.feature}: completed"
        case _:
            return ""


def _verdict_line(phase: str, before: Feature | None, verdict: str) -> str:
    """Render the verdict of a critic or reviewer; a writer's documents have their own line."""
    names = {"challenge": "critic", "review": "review"}
    role = before.open_job.role if before and before.open_job else ""
    return f"{phase}: {names[role]}: {verdict}" if role in names else ""


def _gate_line(before: Feature | None, after: Feature) -> str:
    """Render the outcome of a gate."""
    gate = gate_name((before or after).workflow.phase)
    if after.workflow.stage is Stage.GATE_PASSED:
        return f"{gate} {GateOutcome.PASSED.upper()}"

    return f"{gate} {GateOutcome.FAILED.upper()}: {_shorten(after.workflow.reason)}"


def describe_attempt(checked: package_events.AttemptChecked) -> str:
    """Describe the result of a contest attempt."""
    if checked.harvested.violations:
        return f"violates the file scope: {'; '.join(checked.harvested.violations)}"
    if checked.harvested.leaks:
        return f"contains a secret of the agent: {'; '.join(checked.harvested.leaks)}"
    if checked.validated is None:
        return "changed nothing"

    names = ", ".join(failure.partition(":")[0] for failure in checked.validated.failures)
    if names:
        return f"failed: {names}"

    return "passed the manifest"


def render_package_event(package: str, event: package_events.AnyPackageEvent) -> str:  # noqa: C901 - a table
    """Render the line of a package event, or return "" if it has none."""
    match event:
        case package_events.PackageJobStarted(_, role, round_, _, agent, saved):
            line = f"{package}: round {round_}, {role}"
            if agent:
                line += f" by {agent}"
            if saved:
                line += f", only the changes since the last review: about {saved} tokens saved"

            return line
        case package_events.PackageJobEnded(_, end, reason) if reason:
            return f"{package}: {end}: {_shorten(reason)}"
        case package_events.Harvested(leaks=leaks) if leaks:
            return f"{package}: a secret of the agent is in {_shorten('; '.join(leaks))}"
        case package_events.Harvested(_, violations) if violations:
            return f"{package}: {_shorten('; '.join(violations))}"
        case package_events.Harvested(commit):
            return f"{package}: {'changes collected' if commit else 'nothing was changed'}"
        case package_events.Validated(_, failures):
            names = ", ".join(failure.partition(":")[0] for failure in failures)
            if names:
                return f"{package}: checks failed: {names}"
            return f"{package}: checks passed{_reason_suffix(event.tests)}"
        case package_events.AttemptChecked():
            return f"{package}: attempt {event.attempt + 1} {_shorten(describe_attempt(event))}"
        case package_events.AttemptsCompared(best):
            return f"{package}: the reviewer chose attempt {best + 1}"
        case package_events.AttemptSelected(attempt):
            return f"{package}: attempt {attempt + 1} selected"
        case package_events.Reviewed(verdict):
            return f"{package}: review: {verdict}"
        case package_events.PackagePublished(_, url):
            return f"{package}: pull request {url}"
        case package_events.PackagePullWaits(reason):
            return f"{package}: the pull request waits: {_shorten(reason)}"
        case package_events.PackageRemarksReceived(remarks):
            return f"{package}: {len(remarks)} remarks on the pull request: starting another round"
        case package_events.PackageHeld(reason):
            return f"{package}: {_shorten(reason)}"
        case package_events.PackageMerged(commit):
            return f"{package}: merged at {commit[:12]}"
        case package_events.PackageNotMerged(reason):
            return f"{package}: not merged: {_shorten(reason)}"
        case _:
            return ""


def _reason_suffix(reason: str) -> str:
    if reason:
        return f": {_shorten(reason)}"
    return ""


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= _MAX_REASON_CHARS:
        return line
    return f"{line[:_MAX_REASON_CHARS]} ..."


def render_stop_summary(feature: Feature, command_suffix: str = "") -> tuple[str, ...]:
    """Describe the state of a feature when a run stops: why, where the work is, the next command.

    `command_suffix` is ` --feature SLUG` if several features are active.
    """
    workflow = feature.workflow
    commands = format_next_commands(
        str(workflow.stage),
        is_last_phase=workflow.is_last_phase,
        remediation=feature.remediation,
        command_suffix=command_suffix,
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
        case Stage.GATE_PASSED if feature.pull is not None and feature.is_published:
            return (
                workflow.reason or f"{feature.pull.url}{WAITING_AT_FORGE_SUFFIX}",
                f"  then: phasegate run{command_suffix}, "
                f"or phasegate sync{command_suffix} to poll once",
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
    """Yield the findings of this round's checks and reviewer that the user has to decide on."""
    reason = feature.workflow.reason
    findings = _REVIEW_MARKER.sub("", select_open_findings(feature))
    lines = [line for line in findings.splitlines() if _LIST_MARK.sub("", line) not in reason]
    if lines:
        yield "  findings:"
        yield from (f"    {line}" for line in lines[:_MAX_FINDING_LINES])
    if len(lines) > _MAX_FINDING_LINES:
        yield f"    ... and {len(lines) - _MAX_FINDING_LINES} more lines"


def select_open_findings(feature: Feature) -> str:
    """Return the findings that the user has to decide on, or "" after a passed gate."""
    workflow = feature.workflow
    if workflow.stage is not Stage.BLOCKED or workflow.blocked_at is not Stage.WORKING:
        return ""
    # An evaluated gate has added its own findings
    if feature.todo:
        return feature.report

    return feature.findings


def list_allowed_orders(feature: Feature) -> tuple[str, ...]:
    """Return the names of the commands that the user may order now."""
    first_phase = feature.workflow.phases[0]
    orders = tuple(
        name
        for name in ORDERS
        if not isinstance(
            apply_or_refuse(feature, build_order_event(name, "text", first_phase)), Refusal
        )
    )
    if decide_feature_actions(feature)[:1] != (FeatureAction(Step.STOP),):
        return ("run", *orders)

    return orders
