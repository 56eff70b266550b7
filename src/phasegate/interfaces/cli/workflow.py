"""The steps of a workflow by hand.

`gate`, `advance`, `retry`, `escalate`, `resolve`, `back`, `cancel`, `complete`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from phasegate.core.display.event_lines import render_stop_summary
from phasegate.core.display.next_steps import next_steps
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.gate import GateOutcome
from phasegate.core.workflow.lifecycle import Stage, build_state_view
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.core.workflow.workflows import gate_name
from phasegate.engine.drive import orders
from phasegate.engine.drive.feature import RunOptions
from phasegate.engine.fleet.entry import signal_order
from phasegate.engine.journal.feature import make_feature_option, read_feature
from phasegate.engine.project.ports import RunRecord
from phasegate.engine.project.project import Project, Store, open_project, open_project_store
from phasegate.engine.views.feature import feature_status_view
from phasegate.engine.views.follow import follow_feature
from phasegate.interfaces.cli.completion_values import complete_from, list_agent_names
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.progress import ProgressPrinter
from phasegate.interfaces.cli.render import FreeText, json_option, print_result
from phasegate.interfaces.cli.run import run_and_report

_fleet_option = click.option("--fleet", is_flag=True, help="It is a feature of the fleet.")


@contextmanager
def _open_feature(feature: str | None) -> Iterator[tuple[Project, Store, str]]:
    project = open_project(Path.cwd())
    with open_project_store(project) as store:
        yield project, store, orders.select_feature(project, store, feature)


def _run_order(
    feature: str | None,
    as_json: bool,
    order: Callable[[Project, RunRecord, str, OrderOrigin], Feature],
    fleet: bool = False,
) -> int:
    """Carry out one order, and tell what came of it."""
    if fleet:
        return _send_order_to_fleet(feature, as_json, order)

    with _open_feature(feature) as (project, store, slug):
        teller = ProgressPrinter(quiet=as_json)
        with follow_feature(store, slug, teller):
            after = order(project, store, slug, project.make_origin("cli"))

        if as_json:
            print_result(feature_status_view(after), "", as_json)

        teller.finish(render_stop_summary(after, make_feature_option(store, slug)))

    return 0


def _send_order_to_fleet(
    feature: str | None,
    as_json: bool,
    order: Callable[[Project, RunRecord, str, OrderOrigin], object],
) -> int:
    """Record an order, and have the step ended that runs meanwhile."""
    # It loads obstore
    from phasegate.engine.bucket import open_fleet_record

    project = open_project(Path.cwd())
    by = project.make_origin("cli")
    with open_fleet_record(project) as record:
        slug = orders.select_feature(project, record, feature)
        order(project, record, slug, by)
        # So that every machine hears of it
        record.anchor()
        after = read_feature(record, slug)

    assert after is not None
    untold = signal_order(project, slug, by, ends_feature=not after.workflow.is_active)
    warning = (f"  a step that runs ends with its next record: {untold}",) if untold else ()
    go_on = ("  then: phasegate run --fleet",) if after.workflow.is_active else ()
    print_result(
        feature_status_view(after),
        "\n".join((render_stop_summary(after, "")[0], *warning, *go_on)),
        as_json,
    )

    return 0


def _print_gate_result(
    printer: ProgressPrinter, feature: Feature, outcome: str, reasons: Sequence[str]
) -> None:
    """Tell of a gate as a run does: its line, why, and its block.

    What was recorded just now is told already.
    """
    if printer.gates_printed:
        return

    if feature.todo:
        due = f": {feature.workflow.phase} is still in progress"
    else:
        due = ""

    printer.print_line(f"{gate_name(feature.workflow.phase)} {outcome.upper()}{due}", err=False)
    for reason in reasons:
        printer.print_line(f"  {reason}")

    printer.hold_block(next_steps(build_state_view(feature.workflow), f"gate-{outcome}") or "")


@click.command()
@feature_option
@json_option
def gate(feature: str | None, as_json: bool) -> int:
    """Check the gate of the current phase now.

    Exit 0: it passes. Exit 1: it does not, and every reason is shown. It counts as a check of the gate only when the
    work of the phase is done.

    \b
    Examples:
      phasegate gate
      phasegate gate --feature 001-user-login --json
    """
    with _open_feature(feature) as (project, store, slug):
        teller = ProgressPrinter(quiet=as_json)
        with follow_feature(store, slug, teller):
            after, result = orders.check_gate(project, store, slug)

        passed = after.workflow.stage is Stage.GATE_PASSED or result.outcome is GateOutcome.PASSED
        outcome = "passed" if passed else "failed"
        reasons = () if passed else result.reasons

        if as_json:
            data = {
                "gate": gate_name(after.workflow.phase),
                "outcome": outcome,
                "reasons": list(reasons),
            }
            print_result(data, "", as_json)
        else:
            _print_gate_result(teller, after, outcome, reasons)

        teller.finish()

    if passed:
        return 0
    return 1


@click.command()
@feature_option
@_fleet_option
@json_option
def advance(feature: str | None, fleet: bool, as_json: bool) -> int:
    """Go on to the next phase, from a passed gate.

    \b
    Examples:
      phasegate advance
    """
    return _run_order(feature, as_json, orders.advance_phase, fleet)


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
    return _run_order(feature, as_json, orders.retry_phase, fleet)


@click.command()
@click.argument("why", type=FreeText())
@feature_option
@_fleet_option
@json_option
def escalate(why: str, feature: str | None, fleet: bool, as_json: bool) -> int:
    """Stop the workflow for a person.

    \b
    Examples:
      phasegate escalate "the API key of the payment provider is missing"
    """
    return _run_order(
        feature,
        as_json,
        lambda project, store, slug, by: orders.escalate_feature(project, store, slug, why, by),
        fleet,
    )


@click.command()
@click.argument("how", type=FreeText())
@feature_option
@_fleet_option
@json_option
def resolve(how: str, feature: str | None, fleet: bool, as_json: bool) -> int:
    """Say how a blocker was resolved; the blocked step is tried again by the next run.

    Where a phase has no command to run, this is the attestation that it was checked, and how.

    \b
    Examples:
      phasegate resolve "merged main by hand on the feature's branch"
      phasegate resolve "deployed to staging and looked at the dashboards"
    """
    return _run_order(
        feature,
        as_json,
        lambda project, store, slug, by: orders.resolve_blocker(project, store, slug, how, by),
        fleet,
    )


@click.command()
@click.argument("phase")
@click.argument("why", type=FreeText())
@feature_option
@_fleet_option
@json_option
def back(phase: str, why: str, feature: str | None, fleet: bool, as_json: bool) -> int:
    """Take a feature back to an earlier phase; what you say is in the next prompts.

    PHASE is its key, its number or its name. Its gate and those behind it must pass again. What was written and merged
    into the feature's branch stays; work packages are planned anew from the tasks, and those that stay as they were
    stay done.

    \b
    Examples:
      phasegate back design "the totals must be kept per currency"
      phasegate back 06 "errors of the parser need a line number" --feature 001
    """
    return _run_order(
        feature,
        as_json,
        lambda project, store, slug, by: orders.return_to_phase(
            project, store, slug, phase, why, by
        ),
        fleet,
    )


@click.command()
@click.option(
    "--reason", metavar="TEXT", type=FreeText(), required=True, help="Why; it is kept on record."
)
@feature_option
@_fleet_option
@json_option
def cancel(reason: str, feature: str | None, fleet: bool, as_json: bool) -> int:
    """End the workflow without a merge. Its branches are kept and named.

    \b
    Examples:
      phasegate cancel --reason "the customer has changed their mind"
    """
    if fleet:
        return _send_order_to_fleet(
            feature,
            as_json,
            lambda project, store, slug, by: orders.cancel_workflow(
                project, store, slug, reason, by
            ),
        )

    with _open_feature(feature) as (project, store, slug):
        teller = ProgressPrinter(quiet=as_json)
        with follow_feature(store, slug, teller):
            kept = orders.cancel_workflow(project, store, slug, reason, project.make_origin("cli"))

        if as_json:
            print_result({"feature": slug, "stage": "cancelled", "kept": list(kept)}, "", as_json)

        teller.finish((f"kept: {', '.join(kept) or 'no branch'}",) if not as_json else ())

    return 0


@click.command()
@feature_option
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_from(list_agent_names),
    help="Let this agent write the archive.",
)
@json_option
def complete(feature: str | None, agent: str | None, as_json: bool) -> int:
    """Archive the feature and merge it, after its last gate has passed.

    The merged tree is built and tested before the branch moves. Commits that came in meanwhile are never overwritten.

    \b
    Examples:
      phasegate complete
    """
    with _open_feature(feature) as (project, store, slug):
        orders.refuse_if_incomplete(store, slug)
        return run_and_report(
            project,
            store,
            slug,
            RunOptions(merge=True, agent=agent, by=project.make_origin("cli")),
            as_json,
        )
