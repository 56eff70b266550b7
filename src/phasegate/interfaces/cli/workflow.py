"""The steps of a workflow by hand: `gate`, `advance`, `retry`, `escalate`, `resolve`, `back`, `cancel`, `complete`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from phasegate.core.display.event_lines import standing_lines
from phasegate.core.display.next_steps import next_steps
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.gate import GateOutcome
from phasegate.core.workflow.lifecycle import Stage, state_view
from phasegate.core.workflow.origin import By
from phasegate.core.workflow.workflows import gate_name
from phasegate.engine.drive import orders
from phasegate.engine.drive.feature import Wishes
from phasegate.engine.fleet.entry import tell_of_order
from phasegate.engine.journal.feature import naming, read_feature
from phasegate.engine.project.ports import RunRecord
from phasegate.engine.project.project import Project, Store, open_project, opened_store
from phasegate.engine.views.feature import standing_view
from phasegate.engine.views.follow import following
from phasegate.interfaces.cli.completion_values import agent_names, offering
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.progress import Teller
from phasegate.interfaces.cli.render import Sentence, json_option, show
from phasegate.interfaces.cli.run import carry_on

_fleet_option = click.option("--fleet", is_flag=True, help="It is a feature of the fleet.")


@contextmanager
def _opened(feature: str | None) -> Iterator[tuple[Project, Store, str]]:
    project = open_project(Path.cwd())
    with opened_store(project) as store:
        yield project, store, orders.chosen(project, store, feature)


def _carry_out(
    feature: str | None,
    as_json: bool,
    order: Callable[[Project, RunRecord, str, By], Feature],
    fleet: bool = False,
) -> int:
    """Carry out one order, and tell what came of it."""
    if fleet:
        return _order_to_fleet(feature, as_json, order)
    with _opened(feature) as (project, store, slug):
        teller = Teller(quiet=as_json)
        with following(store, slug, teller):
            after = order(project, store, slug, project.ordered_at("cli"))
        if as_json:
            show(standing_view(after), "", as_json)
        teller.end(standing_lines(after, naming(store, slug)))
    return 0


def _order_to_fleet(feature: str | None, as_json: bool, order: Callable[[Project, RunRecord, str, By], object]) -> int:
    """Record an order, and have the step ended that runs meanwhile."""
    from phasegate.engine.bucket import fleet_record  # it loads obstore

    project = open_project(Path.cwd())
    by = project.ordered_at("cli")
    with fleet_record(project) as record:
        slug = orders.chosen(project, record, feature)
        order(project, record, slug, by)
        record.anchor()  # so that every machine hears of it
        after = read_feature(record, slug)
    assert after is not None
    untold = tell_of_order(project, slug, by, is_end=not after.workflow.active)
    warning = (f"  a step that runs ends with its next record: {untold}",) if untold else ()
    go_on = ("  then: phasegate run --fleet",) if after.workflow.active else ()
    show(standing_view(after), "\n".join((standing_lines(after, "")[0], *warning, *go_on)), as_json)
    return 0


def _announce(teller: Teller, after: Feature, outcome: str, reasons: Sequence[str]) -> None:
    """Tell of a gate as a run does: its line, why, and its block. What was recorded just now is told already."""
    if teller.gates_told:
        return
    due = f": {after.workflow.phase} is still in progress" if after.todo else ""
    teller.say(f"{gate_name(after.workflow.phase)} {outcome.upper()}{due}", err=False)
    for reason in reasons:
        teller.say(f"  {reason}")
    teller.keep(next_steps(state_view(after.workflow), f"gate-{outcome}") or "")


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
    with _opened(feature) as (project, store, slug):
        teller = Teller(quiet=as_json)
        with following(store, slug, teller):
            after, result = orders.check_gate(project, store, slug)
        passed = after.workflow.stage is Stage.GATE_PASSED or result.outcome is GateOutcome.PASSED
        outcome = "passed" if passed else "failed"
        reasons = () if passed else result.reasons
        if as_json:
            data = {"gate": gate_name(after.workflow.phase), "outcome": outcome, "reasons": list(reasons)}
            show(data, "", as_json)
        else:
            _announce(teller, after, outcome, reasons)
        teller.end()
    return 0 if passed else 1


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
    return _carry_out(feature, as_json, orders.advance, fleet)


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
    return _carry_out(feature, as_json, orders.retry, fleet)


@click.command()
@click.argument("why", type=Sentence())
@feature_option
@_fleet_option
@json_option
def escalate(why: str, feature: str | None, fleet: bool, as_json: bool) -> int:
    """Stop the workflow for a person.

    \b
    Examples:
      phasegate escalate "the API key of the payment provider is missing"
    """
    return _carry_out(
        feature, as_json, lambda project, store, slug, by: orders.escalate(project, store, slug, why, by), fleet
    )


@click.command()
@click.argument("how", type=Sentence())
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
    return _carry_out(
        feature, as_json, lambda project, store, slug, by: orders.resolve(project, store, slug, how, by), fleet
    )


@click.command()
@click.argument("phase")
@click.argument("why", type=Sentence())
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
    return _carry_out(
        feature, as_json, lambda project, store, slug, by: orders.back(project, store, slug, phase, why, by), fleet
    )


@click.command()
@click.option("--reason", metavar="TEXT", type=Sentence(), required=True, help="Why; it is kept on record.")
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
        return _order_to_fleet(
            feature, as_json, lambda project, store, slug, by: orders.cancel(project, store, slug, reason, by)
        )
    with _opened(feature) as (project, store, slug):
        teller = Teller(quiet=as_json)
        with following(store, slug, teller):
            kept = orders.cancel(project, store, slug, reason, project.ordered_at("cli"))
        if as_json:
            show({"feature": slug, "stage": "cancelled", "kept": list(kept)}, "", as_json)
        teller.end((f"kept: {', '.join(kept) or 'no branch'}",) if not as_json else ())
    return 0


@click.command()
@feature_option
@click.option("--agent", metavar="NAME", shell_complete=offering(agent_names), help="Let this agent write the archive.")
@json_option
def complete(feature: str | None, agent: str | None, as_json: bool) -> int:
    """Archive the feature and merge it, after its last gate has passed.

    The merged tree is built and tested before the branch moves. Commits that came in meanwhile are never overwritten.

    \b
    Examples:
      phasegate complete
    """
    with _opened(feature) as (project, store, slug):
        orders.refuse_to_complete(store, slug)
        return carry_on(project, store, slug, Wishes(merge=True, agent=agent, by=project.ordered_at("cli")), as_json)
