"""`phasegate dispatch`: run one work package from PLANNED to DONE or BLOCKED."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import click

from phasegate.core.display.activity import Activity, RunningCommand
from phasegate.core.display.status import OR_INSTEAD
from phasegate.engine.drive.run_package import Progress, Stopped, dispatch_package
from phasegate.engine.journal.package import PackageReport, find_package
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.interfaces.cli.commands.run import handle_stop_signals
from phasegate.interfaces.cli.completion_values import (
    complete_from,
    list_agent_names,
)
from phasegate.interfaces.cli.live_display import LiveLines, format_clock, redraw_periodically
from phasegate.interfaces.cli.options import feature_option, package_argument
from phasegate.interfaces.cli.progress import ProgressPrinter, print_warnings_with
from phasegate.interfaces.cli.render import json_option, make_printable, print_result


@click.command()
@package_argument
@feature_option
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_from(list_agent_names),
    help="Use this agent instead of those in [roles].",
)
@json_option
def dispatch(work_package: str, feature: str | None, agent: str | None, as_json: bool) -> int:
    """Run a work package through implementation, checks, review and merge.

    Exit 0: the package is DONE, on the branch feat/SLUG-WPnn and merged into feat/SLUG.
    Exit 1: it is blocked; the reason and the remedy are shown. Called again, it continues where it
    stopped, also after a crash. Ctrl-C stops its agents.

    \b
    Examples:
      phasegate dispatch WP01
      phasegate dispatch WP01 --feature 001-user-login --agent claude --json
    """
    project = open_project(Path.cwd())
    with open_project_store(project) as store:
        package = find_package(store, work_package, feature)
        printer = ProgressPrinter(as_json=as_json)
        display = _ProgressDisplay(printer.live, project.activities, project.running_commands)
        with (
            print_warnings_with(printer),
            redraw_periodically(printer.live, display.render_lines),
            handle_stop_signals(project),
        ):
            report = dispatch_package(
                project,
                store,
                package,
                agent=agent,
                report_line=printer.print_line,
                report_progress=display,
                by=project.make_origin("cli"),
            )

            if isinstance(report, Stopped):
                printer.print_line(f"{work_package}: stopped; dispatch it again to continue")
                raise KeyboardInterrupt

    feature_argument = f" --feature {report.feature}" if feature else ""
    print_result(report._asdict(), _format_report(report, feature_argument), as_json)
    if report.accepted:
        return 0

    return 1


class _ProgressDisplay:
    """The live line of a dispatch: the step, its duration, and the last activity of an agent."""

    def __init__(
        self,
        live: LiveLines,
        activities: Mapping[str, Activity],
        commands: Mapping[str, RunningCommand],
    ) -> None:
        self._live = live
        self._activities = activities
        self._commands = commands
        self._progress: Progress | None = None
        self._step_started_s = 0.0

    def __call__(self, progress: Progress) -> None:
        if self._progress is None or self._progress[2:5] != progress[2:5]:
            self._step_started_s = time.monotonic()
        self._progress = progress
        self._live.draw(self.render_lines())

    def render_lines(self) -> list[str]:
        """Return the progress line of the package."""
        progress = self._progress
        # The base is checked before the first step.
        if progress is None:
            if self._commands:
                return [self._render_activity().strip()]
            return []

        agents = f" by {', '.join(progress.agents)}" if progress.agents else ""
        passed = format_clock(time.monotonic() - self._step_started_s)
        place = f"{progress.package}  {progress.state}  round {progress.round}/{progress.rounds}"
        return [f"{place}  {progress.step}{agents}  {passed}{self._render_activity()}"]

    def _render_activity(self) -> str:
        """Render the last activity of any agent, with the tokens of all running agents."""
        # Other threads change both mappings: iterate over copies.
        activities = [*self._activities.values()]
        if not activities:
            now_s = time.monotonic()
            return "".join(f"  {command.line(now_s)}" for command in [*self._commands.values()])

        tokens = sum(activity.tokens for activity in activities)
        line = activities[-1]._replace(tokens=tokens).line
        if line:
            return f"  {line}"

        return ""


def _format_report(report: PackageReport, feature_argument: str) -> str:
    """Return the text that reports the end of a package run."""
    if report.accepted:
        place = f"{report.branch} at {report.commit[:12]}"
        return f"{report.package} DONE: {place}, merged into feat/{report.feature}"

    again = f"phasegate dispatch {report.package}"
    # There may be no workflow to run, and none to resolve
    remedy = report.remediation.partition(f" {OR_INSTEAD}")[0].replace("phasegate run", again)
    return "\n".join(
        (
            f"{report.package} {report.state}: {make_printable(report.reason)}",
            f"  what to do: {make_printable(remedy)}",
            f"  then: {again}{feature_argument}",
        )
    )
