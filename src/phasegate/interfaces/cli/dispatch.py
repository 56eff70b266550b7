"""`phasegate dispatch`: one work package from PLANNED to DONE or BLOCKED."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import click

from phasegate.core.display.activity import Activity, RunningCommand
from phasegate.engine.drive.package import Progress, Stopped
from phasegate.engine.drive.package import dispatch_package as carry
from phasegate.engine.journal.package import PackageReport, find_package
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.interfaces.cli.completion_values import (
    PackageIdParam,
    complete_from,
    list_agent_names,
    list_package_ids,
)
from phasegate.interfaces.cli.live_display import LiveLines, format_clock, redraw_periodically
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.progress import ProgressPrinter, print_warnings_with
from phasegate.interfaces.cli.render import json_option, make_printable, print_result
from phasegate.interfaces.cli.run import handle_stop_signals


@click.command()
@click.argument(
    "work_package",
    type=PackageIdParam(),
    metavar="WPnn",
    shell_complete=complete_from(list_package_ids),
)
@feature_option
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_from(list_agent_names),
    help="Let this agent do it, whatever [roles] says.",
)
@json_option
def dispatch(work_package: str, feature: str | None, agent: str | None, as_json: bool) -> int:
    """Carry a work package through implementation, checks, review and merge.

    Exit 0: the package is DONE, its work on feat/SLUG-WPnn and merged into feat/SLUG. Exit 1: it is blocked; the reason
    and what to do are shown. Called again, it continues where it stopped, also after a crash. Ctrl-C ends its agents.

    \b
    Examples:
      phasegate dispatch WP01
      phasegate dispatch WP01 --feature 001-user-login --agent claude --json
    """
    project = open_project(Path.cwd())
    with open_project_store(project) as store:
        one = find_package(store, work_package, feature)
        teller = ProgressPrinter()
        shown = _ProgressDisplay(teller.live, project.activities, project.running_commands)
        with (
            print_warnings_with(teller),
            redraw_periodically(teller.live, shown.render_lines),
            handle_stop_signals(project),
        ):
            by = project.make_origin("cli")
            report = carry(
                project,
                store,
                one,
                agent=agent,
                report_line=teller.print_line,
                report_progress=shown,
                by=by,
            )

            if isinstance(report, Stopped):
                teller.print_line(
                    f"{work_package}: stopped, its agents too; dispatch it again to continue"
                )
                raise KeyboardInterrupt

    print_result(
        report._asdict(),
        _format_report(report, f" --feature {report.feature}" if feature else ""),
        as_json,
    )
    if report.accepted:
        return 0

    return 1


class _ProgressDisplay:
    """What is going on, in a line.

    The clock counts from the beginning of a step; then what an agent did last.
    """

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
        now = self._progress
        # The base is looked at before the first step
        if now is None:
            if self._commands:
                return [self._render_activity().strip()]
            return []

        if now.agents:
            who = f" by {', '.join(now.agents)}"
        else:
            who = ""

        passed = format_clock(time.monotonic() - self._step_started_s)
        return [
            f"{now.package}  {now.state}  round {now.round}/{now.rounds}  {now.step}{who}  {passed}{self._render_activity()}"
        ]

    def _render_activity(self) -> str:
        """Of several agents, the one that was heard last.

        The tokens are those of all that are at work.
        """
        of_jobs = [*self._activities.values()]
        if not of_jobs:
            return "".join(f"  {one.line(time.monotonic())}" for one in [*self._commands.values()])

        line = of_jobs[-1]._replace(tokens=sum(one.tokens for one in of_jobs)).line
        if line:
            return f"  {line}"

        return ""


def _format_report(report: PackageReport, feature_argument: str) -> str:
    if report.accepted:
        return f"{report.package} DONE: {report.branch} at {report.commit[:12]}, merged into feat/{report.feature}"
    return "\n".join(
        (
            f"{report.package} {report.state}: {make_printable(report.reason)}",
            f"  what to do: {make_printable(report.remediation)}",
            f"  then: phasegate dispatch {report.package}{feature_argument}",
        )
    )
