"""`phasegate start` and `phasegate run`: a workflow begun, and carried on."""

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

from phasegate.config import locate_config
from phasegate.core.display.event_lines import render_stop_summary
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.lifecycle import Stage
from phasegate.engine.drive import orders
from phasegate.engine.drive.detached import DetachedRun, start_detached, stop_runs
from phasegate.engine.drive.feature import RunOptions, drive_feature
from phasegate.engine.drive.package import Stopped
from phasegate.engine.fleet.entry import run_on_fleet
from phasegate.engine.journal.feature import make_feature_option, read_feature
from phasegate.engine.project.project import Project, Store, open_project, open_project_store
from phasegate.engine.project.settings import find_settings_place
from phasegate.engine.views.feature import feature_status_view
from phasegate.engine.views.follow import JournalFollower, follow_feature
from phasegate.errors import ConfigError, PhasegateError
from phasegate.interfaces.cli.completion_values import (
    complete_from,
    list_agent_names,
    list_workflow_types,
)
from phasegate.interfaces.cli.live_display import show_waiting
from phasegate.interfaces.cli.options import feature_option
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

_agent_option = click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_from(list_agent_names),
    help="Let this agent do it all, whatever [roles] says.",
)


@click.command()
@click.argument("type_", metavar="TYPE", shell_complete=complete_from(list_workflow_types))
@click.argument("description", default="", type=FreeText())
@_agent_option
@json_option
def start(type_: str, description: str, agent: str | None, as_json: bool) -> int:
    """Start a workflow without running anything yet.

    TYPE is feature, fix, quick, test-run, test-generate, full-lifecycle, upgrade, or a workflow in phasegate.toml.

    \b
    Examples:
      phasegate start feature "Add a login form"
      phasegate start fix "Totals are wrong for empty carts"
      phasegate start test-run
    """
    project = open_project(Path.cwd())
    with open_project_store(project) as store:
        slug = orders.start_workflow(
            project, store, type_, description, agent, project.make_origin("cli")
        )
        feature = read_feature(store, slug)
        assert feature is not None
        teller = ProgressPrinter(quiet=as_json)
        for told in JournalFollower(store, slug, after=0).read_reported_events():
            teller(told)

        go_on = f"  then: phasegate run{make_feature_option(store, slug)}"

    if as_json:
        print_result(feature_status_view(feature), "", as_json)

    teller.finish((*_describe_outlook(project, feature), go_on))
    return 0


@click.command()
@click.argument(
    "type_", metavar="[TYPE]", required=False, shell_complete=complete_from(list_workflow_types)
)
@click.argument("description", default="", type=FreeText())
@feature_option
@click.option("--step", is_flag=True, help="Stop at each gate.")
@click.option("--merge", is_flag=True, help="Continue to the merge after the last gate.")
@_agent_option
@click.option(
    "--from-issue",
    type=click.IntRange(1),
    metavar="N",
    help="Take issue N of the forge as the description.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Let it run in a process of its own, which outlives this terminal.",
)
@click.option("--fleet", is_flag=True, help="Let workers on other machines do it.")
@json_option
def run(
    type_: str | None,
    description: str,
    feature: str | None,
    step: bool,
    merge: bool,
    agent: str | None,
    from_issue: int | None,
    detach: bool,
    fleet: bool,
    as_json: bool,
) -> int:
    """Start a workflow, or continue one, until its last gate has passed or it needs you.

    TYPE is feature, fix, quick, test-run, test-generate, full-lifecycle, upgrade, or a workflow in phasegate.toml.
    Without it, `run` continues the active workflow, also after a crash. Exit 0: the last gate has passed, or with
    --merge the work is merged. Exit 1: it needs you; the reason and what to do are shown. With --detach, exit 0: it was
    started; `phasegate status` shows how it goes, `phasegate stop` ends it.

    \b
    Examples:
      phasegate run feature "Add a login form"
      phasegate run
      phasegate run fix --from-issue 42
      phasegate run --step
      phasegate run --merge
      phasegate run --detach
    """
    project = open_project(Path.cwd())
    if from_issue is not None:
        description = _read_issue_description(project, type_, description, from_issue)

    if fleet:
        if step:
            raise ConfigError("--fleet does not stop at each gate", "leave out --step")

        wishes = RunOptions(merge=merge, agent=agent, by=project.make_origin("cli"))
        with show_waiting("the fleet is at work"):
            ran = run_on_fleet(project, type_, description, feature, wishes, wait=not detach)
        return _show_fleet_run(ran, as_json)

    with open_project_store(project) as store:
        slug = _choose_feature(
            project=project,
            store=store,
            type_=type_,
            description=description,
            feature=feature,
            agent=agent,
        )

        wishes = RunOptions(
            stop_at_gates=step, merge=merge, agent=agent, by=project.make_origin("cli")
        )
        if not detach:
            return run_and_report(
                project, store, slug, wishes, as_json, from_start=type_ is not None
            )

    return _show_detached_run(start_detached(project, slug, wishes), as_json)


def _show_fleet_run(ran: FleetRun, as_json: bool) -> int:
    if ran.stage == Stage.COMPLETED:
        branch = ""
    else:
        branch = f"\n  its branch: feat/{ran.feature}"

    print_result(ran, f"{ran.feature}: {ran.stage or 'given to the fleet'}{branch}", as_json)
    if ran.stage in (Stage.BLOCKED, Stage.CANCELLED, Stage.GATE_FAILED):
        return 1
    return 0


def _read_issue_description(
    project: Project, type_: str | None, description: str, number: int
) -> str:
    """Only a new workflow takes its description from an issue."""
    if type_ is None or description:
        raise ConfigError(
            "--from-issue is for a new workflow without a description",
            "phasegate run fix --from-issue 42",
        )

    # A forge is loaded only where one is used
    from phasegate.engine.project.forge import read_issue_description

    return read_issue_description(project, number)


def _show_detached_run(run: DetachedRun, as_json: bool) -> int:
    """Say where a detached run can be followed, and how it is ended."""
    if run.exit_code is None:
        text = (
            f"{run.feature} runs as process {run.pid}\n  follow it: phasegate status --watch --feature {run.feature}\n"
            f"  end it:    phasegate stop --feature {run.feature}\n  log:       {make_printable(run.log)}"
        )
    else:
        then = f"  then: phasegate status --feature {run.feature}"
        text = f"{run.feature}: the run has ended already\n  log: {make_printable(run.log)}\n{then}"

    print_result(run, text, as_json)
    return run.exit_code or 0


@click.command()
@feature_option
@json_option
def stop(feature: str | None, as_json: bool) -> int:
    """End the run of a feature, wherever it was started: its agents are ended, and what they left is saved.

    Exit 0: it has ended; `phasegate run` continues from there. Exit 1: it was asked to end and has not yet.

    \b
    Examples:
      phasegate stop
      phasegate stop --feature 001-user-login
    """
    with show_waiting("waiting for the run to end"):
        report = stop_runs(open_project(current_folder()).location, feature)

    if report.ended:
        outcome, then = ("has ended", "run")
    else:
        outcome, then = ("is still ending", "status")

    lines = [
        make_printable(f"  process {one.pid} ({one.command}) {outcome}") for one in report.processes
    ]
    print_result(
        report,
        "\n".join(
            (
                f"{report.feature}: told to stop",
                *lines,
                f"  then: phasegate {then} --feature {report.feature}",
            )
        ),
        as_json,
    )

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
    """Drive a feature and tell what happens.

    Without `hints` no command is named: nobody could type it here.
    """
    teller = ProgressPrinter(
        quiet=as_json, activities=project.activities, commands=project.running_commands
    )

    if from_start and not as_json:
        begun = read_feature(store, slug)
        assert begun is not None
        for line in _describe_outlook(project, begun):
            print_line(line, err=True)

    try:
        with (
            print_warnings_with(teller),
            handle_stop_signals(project),
            follow_feature(store, slug, teller, teller.redraw, from_now=not from_start),
        ):
            feature = drive_feature(project, store, slug, options)
    except PhasegateError:
        teller.finish()
        raise

    of = make_feature_option(store, slug)
    if isinstance(feature, Stopped):
        then = (f"  then: phasegate run{of}",) if show_hints else ()
        teller.finish(
            (f"{slug} is stopped; what the agents left is saved, and what was done counts", *then)
        )
        raise KeyboardInterrupt

    if as_json:
        print_result(feature_status_view(feature), "", as_json)

    teller.finish(
        render_stop_summary(feature, of) if show_hints else render_stop_summary(feature, of)[:1]
    )
    stopped = (Stage.BLOCKED, Stage.CANCELLED, Stage.GATE_FAILED)
    if feature.workflow.stage in stopped:
        return 1

    return 0


def _describe_outlook(project: Project, feature: Feature) -> Iterator[str]:
    """What lies ahead.

    In a linked worktree a person may expect its branch: features start from the main one's.
    """
    yield orders.describe_workload(feature)
    # A demo's repository is elsewhere
    here = current_folder()
    if find_settings_place(here).root == project.root and os.path.realpath(
        locate_config(here).root
    ) != str(project.root):
        yield f"note: this is a linked worktree; the feature starts from {feature.base}, checked out in {project.root}"


def _choose_feature(
    project: Project,
    store: Store,
    type_: str | None,
    description: str,
    feature: str | None,
    agent: str | None,
) -> str:
    if type_ is None:
        return orders.select_feature(project, store, feature)

    if feature is not None:
        raise ConfigError(
            "--feature is for going on with a workflow",
            "leave out TYPE, or leave out --feature to begin a new one",
        )

    return orders.start_workflow(
        project, store, type_, description, agent, project.make_origin("cli")
    )


@contextmanager
def handle_stop_signals(project: Project) -> Iterator[None]:
    """SIGTERM is taken as Ctrl-C.

    Agents are ended, what they left is saved, and `run` goes on from there.

    A second signal leaves at once: no death does harm.
    """
    heard: list[Thread] = []

    def stop(_number: int, _frame: FrameType | None) -> None:
        if heard:
            raise KeyboardInterrupt

        # A handler must not wait for what it has interrupted
        heard.append(Thread(target=project.stop.set, daemon=True))
        heard[0].start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}

    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
