"""`phasegate start`, `phasegate run` and `phasegate stop`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING

import click

from phasegate.config.layers import locate_config
from phasegate.core.display.event_lines import render_stop_summary
from phasegate.core.display.next_steps import COMPLETE_ITEM, RESOLVE_ITEM
from phasegate.core.machine.feature_events import GateChecked, Started
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.core.workflow.phases import PhaseWork
from phasegate.engine.drive import orders
from phasegate.engine.drive.detached import DetachedRun, start_detached, stop_runs
from phasegate.engine.drive.run_feature import RunOptions, drive_feature, merges_at_forge
from phasegate.engine.drive.run_package import Stopped
from phasegate.engine.fleet.entry import run_on_fleet
from phasegate.engine.journal.feature import make_feature_option, read_feature
from phasegate.engine.project.project import Project, Store, open_project, open_project_store
from phasegate.engine.project.settings import find_settings_place
from phasegate.engine.tools.preflight import refuse_unready_agents
from phasegate.engine.views.feature import feature_status_view
from phasegate.engine.views.follow import JournalFollower, StreamEvent, follow_feature
from phasegate.engine.views.minor_findings import list_minor_findings
from phasegate.errors import ConfigError, PhasegateError
from phasegate.interfaces.cli.completion_values import (
    complete_from,
    list_agent_names,
    list_workflow_types,
)
from phasegate.interfaces.cli.live_display import show_waiting
from phasegate.interfaces.cli.options import feature_option, fleet_order_option
from phasegate.interfaces.cli.progress import ProgressPrinter, print_warnings_with
from phasegate.interfaces.cli.render import (
    FreeText,
    current_folder,
    json_option,
    make_printable,
    print_line,
    print_result,
)

if TYPE_CHECKING:
    from phasegate.engine.fleet.client import FleetRun

_STOPPED_STAGES = (Stage.BLOCKED, Stage.CANCELLED, Stage.GATE_FAILED)
_full_option = click.option(
    "--full", is_flag=True, help="Run every phase and every review, however small the change is."
)
_ALL_PHASES = {"run.fit_to_size": "false"}
_agent_option = click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_from(list_agent_names),
    help="Use this agent for everything instead of those in [roles].",
)


@click.command()
@click.argument("type_", metavar="TYPE", shell_complete=complete_from(list_workflow_types))
@click.argument("description", default="", type=FreeText())
@_full_option
@_agent_option
@json_option
def start(type_: str, description: str, full: bool, agent: str | None, as_json: bool) -> int:
    """Start a workflow without running anything yet.

    TYPE is feature, fix, quick, test-run, test-generate, full-lifecycle, upgrade, or a workflow in
    phasegate.toml.

    \b
    Examples:
      phasegate start feature "Add a login form"
      phasegate start fix "Totals are wrong for empty carts"
      phasegate start test-run
    """
    project = open_project(Path.cwd(), _ALL_PHASES if full else None)
    with open_project_store(project) as store:
        slug = orders.start_workflow(
            project, store, type_, description, agent, project.make_origin("cli")
        )
        feature = read_feature(store, slug)
        assert feature is not None
        printer = ProgressPrinter(quiet=as_json)
        for event in JournalFollower(store, slug, after=0).read_reported_events():
            printer(event)

        next_command = f"  then: phasegate run{make_feature_option(store, slug)}"
        outlook = tuple(_describe_outlook(project, store, feature))

    if as_json:
        print_result(feature_status_view(feature), "", as_json)

    printer.finish((*outlook, next_command))
    return 0


@click.command()
@click.argument(
    "type_",
    metavar="[TYPE|DESCRIPTION]",
    required=False,
    shell_complete=complete_from(list_workflow_types),
)
@click.argument("description", default="", type=FreeText())
@feature_option
@click.option("--step", is_flag=True, help="Stop at each gate.")
@_full_option
@click.option("--merge", is_flag=True, help="Continue to the merge after the last gate.")
@_agent_option
@click.option(
    "--from-issue",
    type=click.IntRange(1),
    metavar="N",
    help="Use issue N of the forge as the description.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Run in the background; the run outlives this terminal.",
)
@fleet_order_option("Run on the workers of the fleet.")
@json_option
def run(
    type_: str | None,
    description: str,
    feature: str | None,
    step: bool,
    full: bool,
    merge: bool,
    agent: str | None,
    from_issue: int | None,
    detach: bool,
    fleet: bool,
    as_json: bool,
) -> int:
    """Start a workflow, or continue one, until its last gate has passed or it needs you.

    TYPE is feature, fix, quick, test-run, test-generate, full-lifecycle, upgrade, or a workflow in
    phasegate.toml. A description alone starts the workflow that `workflow` in [run] names. Without
    arguments, the active workflow continues, also after a crash.

    Exit 0: the last gate has passed, or with --merge the work is merged. Exit 1: it needs you; the
    reason and the remedy are shown. With --detach, exit 0: it was started; `phasegate status` shows
    its progress, `phasegate stop` stops it.

    \b
    Examples:
      phasegate run "Add a login form"
      phasegate run fix "Totals are wrong for empty carts"
      phasegate run
      phasegate run fix --from-issue 42
      phasegate run --step
      phasegate run --merge
      phasegate run --detach
    """
    project = open_project(Path.cwd(), _ALL_PHASES if full else None)
    if type_ is not None and " " in type_.strip():
        description = _join_description(type_, description)
        type_ = project.config.run.workflow

    if from_issue is not None:
        description = _read_issue_description(project, type_, description, from_issue)

    if fleet:
        if step:
            raise ConfigError("--step cannot be combined with --fleet", "remove --step")

        options = RunOptions(merge=merge, agent=agent, by=project.make_origin("cli"))
        with show_waiting("running on the fleet"):
            fleet_run = run_on_fleet(project, type_, description, feature, options, wait=not detach)
        return show_fleet_run(fleet_run, as_json)

    with open_project_store(project) as store:
        slug = _choose_feature(
            project=project,
            store=store,
            type_=type_,
            description=description,
            feature=feature,
            agent=agent,
        )

        options = RunOptions(
            stop_at_gates=step, merge=merge, agent=agent, by=project.make_origin("cli")
        )
        if not detach:
            return run_and_report(
                project, store, slug, options, as_json, from_start=type_ is not None
            )

    return _show_detached_run(start_detached(project, slug, options), as_json)


def _join_description(sentence: str, description: str) -> str:
    """Return a description that was given without TYPE."""
    if description:
        raise ConfigError(
            f"{sentence!r} is not a workflow", "give one description, or TYPE and a description"
        )
    return sentence


def show_fleet_run(run: FleetRun, as_json: bool) -> int:
    """Print where a feature on the fleet stands. Return the exit code."""
    text = f"{run.feature}: {run.stage or 'submitted to the fleet'}"
    if run.stage != Stage.COMPLETED:
        text += f"\n  branch: feat/{run.feature}"

    print_result(run, text, as_json)
    if run.stage in _STOPPED_STAGES:
        return 1
    return 0


def _read_issue_description(
    project: Project, type_: str | None, description: str, number: int
) -> str:
    """Read the description of a new workflow from an issue of the forge."""
    if type_ is None or description:
        raise ConfigError(
            "--from-issue needs TYPE and no description",
            "for example: phasegate run fix --from-issue 42",
        )

    # The forge clients are imported only when they are used.
    from phasegate.engine.project.forge import read_issue_description

    return read_issue_description(project, number)


def _show_detached_run(run: DetachedRun, as_json: bool) -> int:
    """Print how to follow and stop a detached run. Return the exit code."""
    if run.exit_code is None:
        lines = [
            f"{run.feature} runs as process {run.pid}",
            f"  follow it: phasegate status --watch --feature {run.feature}",
            f"  stop it:   phasegate stop --feature {run.feature}",
            f"  log:       {make_printable(run.log)}",
        ]
    else:
        lines = [
            f"{run.feature}: the run has already ended",
            f"  log: {make_printable(run.log)}",
            f"  then: phasegate status --feature {run.feature}",
        ]

    print_result(run, "\n".join(lines), as_json)
    return run.exit_code or 0


@click.command()
@feature_option
@json_option
def stop(feature: str | None, as_json: bool) -> int:
    """Stop the run of a feature, wherever it was started.

    Its agents are stopped, and their work is saved. Exit 0: it has stopped; `phasegate run`
    continues it. Exit 1: it is still stopping.

    \b
    Examples:
      phasegate stop
      phasegate stop --feature 001-user-login
    """
    with show_waiting("waiting for the run to stop"):
        report = stop_runs(open_project(current_folder()).location, feature)

    outcome = "has stopped" if report.ended else "is still stopping"
    next_command = "run" if report.ended else "status"
    lines = [f"{report.feature}: {outcome}"]
    for process in report.processes:
        lines.append(make_printable(f"  process {process.pid} ({process.command}) {outcome}"))

    lines.append(f"  then: phasegate {next_command} --feature {report.feature}")
    print_result(report, "\n".join(lines), as_json)

    if report.ended:
        return 0

    return 1


def run_and_report(
    project: Project,
    store: Store,
    slug: str,
    options: RunOptions,
    as_json: bool,
    *,
    from_start: bool = False,
    show_hints: bool = True,
) -> int:
    """Run a feature, print its progress, and return the exit code.

    `show_hints=False` leaves out the next command: the demo's repository is temporary.
    """
    printer = ProgressPrinter(
        quiet=as_json,
        activities=project.activities,
        commands=project.running_commands,
        ends_run=lambda event: _ends_run(event, project, options),
    )

    if from_start and not as_json:
        started = read_feature(store, slug)
        assert started is not None
        for line in _describe_outlook(project, store, started):
            print_line(line, err=True)

    try:
        with (
            print_warnings_with(printer),
            handle_stop_signals(project),
            follow_feature(store, slug, printer, printer.redraw, from_now=not from_start),
        ):
            feature = drive_feature(project, store, slug, options)
    except PhasegateError:
        printer.finish()
        raise

    feature_argument = make_feature_option(store, slug)
    if isinstance(feature, Stopped):
        hints = (f"  then: phasegate run{feature_argument}",) if show_hints else ()
        printer.finish((f"{slug} is stopped; the work of the agents is saved", *hints))
        raise KeyboardInterrupt

    if as_json:
        print_result(feature_status_view(feature), "", as_json)

    summary = render_stop_summary(feature, feature_argument)
    minor = [f"  minor: {make_printable(text)}" for text in list_minor_findings(store, slug)]
    printer.finish((*summary[:1], *minor, *(summary[1:] if show_hints else ())))
    if feature.workflow.stage in _STOPPED_STAGES:
        return 1

    return 0


def _ends_run(event: StreamEvent, project: Project, options: RunOptions) -> bool:
    """Return True if the run stops after this event, judging by the block of the event."""
    if not isinstance(event.event, GateChecked):
        return not isinstance(event.event, Started)
    # The gate has no round left, or its verdict stops the workflow
    if RESOLVE_ITEM in event.block:
        return True
    if COMPLETE_ITEM in event.block and not (options.merge or merges_at_forge(project)):
        return True
    return options.stop_at_gates


def _describe_outlook(project: Project, store: Store, feature: Feature) -> Iterator[str]:
    """Yield the phases ahead, a forecast of agent runs and tokens, a note in a linked worktree.

    A user may expect a feature to start from the branch of the linked worktree; it starts from the
    branch of the main one.
    """
    yield orders.describe_workload(feature)
    if any(phase.work is PhaseWork.PACKAGES for phase in feature.plan):
        yield orders.forecast_workload(store, feature)

    folder = current_folder()
    # False for the demo, whose repository is in another folder.
    is_same_repository = find_settings_place(folder).root == project.root
    is_main_worktree = os.path.realpath(locate_config(folder).root) == str(project.root)
    if is_same_repository and not is_main_worktree:
        base = f"{feature.base}, checked out in {project.root}"
        yield f"note: this is a linked worktree; the feature starts from {base}"


def _choose_feature(
    project: Project,
    store: Store,
    type_: str | None,
    description: str,
    feature: str | None,
    agent: str | None,
) -> str:
    """Return the feature to continue, or start a new one and return its slug."""
    if type_ is None:
        return orders.select_feature(project, store, feature)

    if feature is not None:
        raise ConfigError(
            "--feature cannot be combined with TYPE",
            "omit TYPE to continue the feature, or --feature to start a new one",
        )

    refuse_unready_agents(project, type_, agent)
    return orders.start_workflow(
        project, store, type_, description, agent, project.make_origin("cli")
    )


@contextmanager
def handle_stop_signals(project: Project) -> Iterator[None]:
    """Stop the run on Ctrl-C or SIGTERM, while the block runs.

    Agents are stopped, their work is saved, and `run` can continue. A second signal exits at once,
    which is safe: every step survives a crash.
    """
    stoppers: list[Thread] = []

    def stop(_number: int, _frame: FrameType | None) -> None:
        if stoppers:
            raise KeyboardInterrupt

        # In a thread: a handler must not wait for a lock that the interrupted code may hold.
        stoppers.append(Thread(target=project.stop.set, daemon=True))
        stoppers[0].start()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}

    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
