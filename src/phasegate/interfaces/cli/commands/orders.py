"""Single orders for a workflow: gate, advance, retry, escalate, resolve, back, cancel, complete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from phasegate.core.display.event_lines import render_stop_summary
from phasegate.core.display.next_steps import next_steps
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.gate import GateOutcome
from phasegate.core.workflow.phase_transitions import Stage, build_own_state, build_state_view
from phasegate.core.workflow.workflow_phases import gate_name
from phasegate.engine.drive import orders
from phasegate.engine.drive.orders import OrderRequest
from phasegate.engine.drive.run_feature import RunOptions
from phasegate.engine.fleet.entry import run_on_fleet, signal_order
from phasegate.engine.journal.feature import make_feature_option, read_feature
from phasegate.engine.project.project import Project, Store, open_project, open_project_store
from phasegate.engine.views.feature import feature_status_view
from phasegate.engine.views.follow import follow_feature
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.commands.run import run_and_report, show_fleet_run
from phasegate.interfaces.cli.completion_values import (
    complete_from,
    list_agent_names,
    list_phase_keys,
)
from phasegate.interfaces.cli.live_display import show_waiting
from phasegate.interfaces.cli.options import feature_option, fleet_order_option
from phasegate.interfaces.cli.progress import ProgressPrinter
from phasegate.interfaces.cli.render import FreeText, json_option, print_result

NOT_READY = "not ready"
_fleet_option = fleet_order_option("The feature runs on the fleet.")


@contextmanager
def _open_feature(feature: str | None) -> Iterator[tuple[Project, Store, str]]:
    project = open_project(Path.cwd())
    with open_project_store(project) as store:
        yield project, store, orders.select_feature(project, store, feature)


def _run_order(
    feature: str | None,
    as_json: bool,
    order: OrderRequest,
    fleet: bool = False,
) -> int:
    """Execute an order on a feature and print the result. Return the exit code."""
    if fleet:
        return _send_order_to_fleet(feature, as_json, order)

    with _open_feature(feature) as (project, store, slug):
        printer = ProgressPrinter(quiet=as_json)
        with follow_feature(store, slug, printer):
            after = orders.execute_order(project, store, slug, order, project.make_origin("cli"))

        if as_json:
            print_result(feature_status_view(after), "", as_json)

        printer.finish(render_stop_summary(after, make_feature_option(store, slug)))

    return 0


def _send_order_to_fleet(feature: str | None, as_json: bool, order: OrderRequest) -> int:
    """Record an order in the bucket, and stop the step that is running on a worker."""
    # Imports obstore.
    from phasegate.engine.bucket import open_fleet_record

    project = open_project(Path.cwd())
    by = project.make_origin("cli")
    with open_fleet_record(project) as record:
        slug = orders.select_feature(project, record, feature)
        orders.execute_order(project, record, slug, order, by)
        # Makes the order visible to every machine.
        record.anchor()
        after = read_feature(record, slug)

    assert after is not None
    lines = [render_stop_summary(after, "")[0]]
    failure = signal_order(project, slug, by, ends_feature=not after.workflow.is_active)
    if failure:
        lines.append(f"  a running step stops only at its next record: {failure}")
    if after.workflow.is_active:
        lines.append("  then: phasegate run --fleet")

    print_result(feature_status_view(after), "\n".join(lines), as_json)

    return 0


def _print_gate_result(
    printer: ProgressPrinter, feature: Feature, outcome: str, reasons: Sequence[str]
) -> None:
    """Print the result of a gate like a run does: its line, the reasons, and its block.

    Prints nothing if the check was recorded, since the printer has already shown that event.
    """
    if printer.gates_printed:
        return

    workflow = feature.workflow
    point: str | None = f"gate-{outcome}"
    note = ""
    if outcome == NOT_READY:
        point = None
        note = f": {workflow.phase} is still in progress"
        if workflow.stage is Stage.BLOCKED:
            note = f": {workflow.phase} is blocked"

    printer.print_line(f"{gate_name(workflow.phase)} {outcome.upper()}{note}", err=False)
    for reason in reasons:
        printer.print_line(f"  {reason}")

    block = next_steps(build_state_view(workflow), point, own_state=build_own_state(workflow))
    printer.hold_block(block or "")


@click.command()
@feature_option
@json_option
def gate(feature: str | None, as_json: bool) -> int:
    """Check the gate of the current phase now.

    Exit 0: it passes. Exit 1: it does not, and every reason is shown. While the phase is still in
    progress or blocked, it is not ready; the check is recorded only when the work of the phase is
    complete.

    \b
    Examples:
      phasegate gate
      phasegate gate --feature 001-user-login --json
    """
    with _open_feature(feature) as (project, store, slug):
        printer = ProgressPrinter(quiet=as_json)
        with follow_feature(store, slug, printer):
            after, result = orders.check_gate(project, store, slug)

        passed = after.workflow.stage is Stage.GATE_PASSED or result.outcome is GateOutcome.PASSED
        outcome = "passed"
        if not passed:
            # `retry` is refused unless a gate check was recorded as failed
            recorded = after.workflow.stage is Stage.GATE_FAILED
            outcome = "failed" if recorded else NOT_READY

        reasons = () if passed else result.reasons

        if as_json:
            data = {
                "gate": gate_name(after.workflow.phase),
                "outcome": outcome,
                "reasons": list(reasons),
            }
            print_result(data, "", as_json)
        else:
            _print_gate_result(printer, after, outcome, reasons)

        printer.finish()

    if passed:
        return 0
    return 1


@click.command()
@feature_option
@_fleet_option
@json_option
def advance(feature: str | None, fleet: bool, as_json: bool) -> int:
    """Continue with the next phase after a passed gate.

    \b
    Examples:
      phasegate advance
    """
    return _run_order(feature, as_json, OrderRequest("advance"), fleet)


@click.command()
@feature_option
@_fleet_option
@json_option
def retry(feature: str | None, fleet: bool, as_json: bool) -> int:
    """Start another round of the phase after a failed gate.

    \b
    Examples:
      phasegate retry
    """
    return _run_order(feature, as_json, OrderRequest("retry"), fleet)


@click.command()
@click.argument("why", type=FreeText())
@feature_option
@_fleet_option
@json_option
def escalate(why: str, feature: str | None, fleet: bool, as_json: bool) -> int:
    """Block the workflow until a user resolves it.

    \b
    Examples:
      phasegate escalate "the API key of the payment provider is missing"
    """
    return _run_order(feature, as_json, OrderRequest("escalate", why), fleet)


@click.command()
@click.argument("how", type=FreeText())
@feature_option
@_fleet_option
@json_option
def resolve(how: str, feature: str | None, fleet: bool, as_json: bool) -> int:
    """Record how a blocker was resolved. The next run retries the blocked step.

    Later agents are given HOW; the merge message and the delivered document list it as a decision.

    For a phase without commands, this is the statement that it was checked, and how.

    \b
    Examples:
      phasegate resolve "merged main by hand on the feature's branch"
      phasegate resolve "deployed to staging and checked the dashboards"
    """
    return _run_order(feature, as_json, OrderRequest("resolve", how), fleet)


@click.command()
@click.argument("phase", shell_complete=complete_from(list_phase_keys))
@click.argument("why", type=FreeText())
@feature_option
@_fleet_option
@json_option
def back(phase: str, why: str, feature: str | None, fleet: bool, as_json: bool) -> int:
    """Return a feature to an earlier phase. The reason is part of the next prompts.

    PHASE is a key, number or name. Its gate and all later gates must pass again. The content of the
    feature's branch is kept. Work packages are planned again from the tasks; unchanged ones stay
    DONE.

    \b
    Examples:
      phasegate back design "the totals must be kept per currency"
      phasegate back 06 "errors of the parser need a line number" --feature 001
    """
    return _run_order(feature, as_json, OrderRequest("back", why, phase), fleet)


@click.command()
@click.argument("why", type=FreeText(), required=False)
@click.option("--reason", metavar="TEXT", type=FreeText(), help="The same as WHY.")
@feature_option
@_fleet_option
@json_option
def cancel(
    why: str | None, reason: str | None, feature: str | None, fleet: bool, as_json: bool
) -> int:
    """Cancel the workflow without a merge. Its branches are kept and listed.

    \b
    Examples:
      phasegate cancel "the customer has changed their mind"
      phasegate cancel --reason "the customer has changed their mind"
    """
    reasons = [*filter(None, (why, reason))]
    if len(reasons) != 1:
        raise ConfigError("give one reason; it is recorded", 'phasegate cancel "why"')

    order = OrderRequest("cancel", reasons[0])
    if fleet:
        return _send_order_to_fleet(feature, as_json, order)

    with _open_feature(feature) as (project, store, slug):
        printer = ProgressPrinter(quiet=as_json)
        with follow_feature(store, slug, printer):
            after = orders.execute_order(project, store, slug, order, project.make_origin("cli"))

        kept = orders.list_kept_branches(project, store, after)
        if as_json:
            print_result({"feature": slug, "stage": "cancelled", "kept": kept}, "", as_json)
            printer.finish()
        else:
            printer.finish((f"kept: {', '.join(kept) or 'no branch'}",))

    return 0


@click.command()
@feature_option
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_from(list_agent_names),
    help="Use this agent for the archive.",
)
@_fleet_option
@json_option
def complete(feature: str | None, agent: str | None, fleet: bool, as_json: bool) -> int:
    """Archive the feature and merge it, after its last gate has passed.

    The merged tree is built and tested before the branch is updated. New commits on the branch are
    never overwritten.

    \b
    Examples:
      phasegate complete
      phasegate complete --fleet
    """
    if fleet:
        return _complete_on_fleet(feature, agent, as_json)

    with _open_feature(feature) as (project, store, slug):
        orders.refuse_if_incomplete(project, store, slug)
        return run_and_report(
            project,
            store,
            slug,
            RunOptions(merge=True, agent=agent, by=project.make_origin("cli")),
            as_json,
        )


def _complete_on_fleet(feature: str | None, agent: str | None, as_json: bool) -> int:
    """Have a worker archive and merge a feature, and wait for it."""
    # Imports obstore.
    from phasegate.engine.bucket import open_fleet_record

    project = open_project(Path.cwd())
    with open_fleet_record(project) as record:
        slug = orders.select_feature(project, record, feature)
        orders.refuse_if_incomplete(project, record, slug)

    options = RunOptions(merge=True, agent=agent, by=project.make_origin("cli"))
    with show_waiting("merging on the fleet"):
        merged = run_on_fleet(project, None, "", slug, options, wait=True)
    return show_fleet_run(merged, as_json)
