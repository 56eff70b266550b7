"""`phasegate check`: run the setup and all checks on the base, in a clean checkout."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import click

from phasegate.core.display.activity import RunningCommand
from phasegate.engine.checks.run_baseline import (
    BaselineReport,
    CheckRow,
    OnCommand,
    check_branch,
    list_quarantine,
    make_check_rows,
)
from phasegate.engine.project.project import Project, open_project, open_project_store
from phasegate.engine.steps.workplace import current_branch
from phasegate.interfaces.cli.live_display import LiveLines, redraw_periodically
from phasegate.interfaces.cli.render import json_option, make_printable, print_line, print_result


@click.command()
@click.option("--no-cache", is_flag=True, help="Ignore cached results of this commit.")
@json_option
def check(no_cache: bool, as_json: bool) -> int:
    """Run the setup and all checks on the base, without an agent.

    The base is the commit of the branch that is checked out; uncommitted changes are ignored. Each
    command runs in a clean checkout in the sandbox. The output shows the command, the reason for
    choosing it, its result, the number of tests, the duration and the log file. `run` and
    `dispatch` reuse the result, and compare later failures with it. Exit 0: all passed. Exit 1: a
    check failed.

    \b
    Examples:
      phasegate check
      phasegate check --no-cache --json
    """
    project = open_project(Path.cwd())
    with _record_results(project), show_running_command() as show_command:
        reports = check_branch(project, current_branch(project), show_command, force=no_cache)

    lines = [line for report in reports for line in _format_report(project, report)]
    lines += [f"quarantined: {make_printable(test)}" for test in list_quarantine(project)]
    text = "\n".join(lines)
    print_result(_as_data(project, reports), text, as_json)
    if any(report.failures for report in reports):
        return 1

    return 0


def _record_results(project: Project) -> AbstractContextManager[object]:
    """Open the store, in which later runs find the results; a fleet's copy is read-only."""
    if project.location.fleet_copy:
        return nullcontext()
    return open_project_store(project)


@contextmanager
def show_running_command() -> Iterator[OnCommand]:
    """Show the running command: a live line on a terminal, one line per command elsewhere."""
    live = LiveLines()
    running: list[RunningCommand] = []

    def show_command(purpose: str, command: str) -> None:
        running[:] = [RunningCommand(purpose, time.monotonic())]
        if not live.is_live:
            print_line(f"{purpose}: {make_printable(command)}", err=True)

    def render_lines() -> list[str]:
        return [command.line(time.monotonic()) for command in running]

    with redraw_periodically(live, render_lines):
        yield show_command


def _format_report(project: Project, report: BaselineReport) -> Iterator[str]:
    """Yield the lines of a root's report, then what failing checks mean."""
    name = report.name or report.root.rpartition("/")[2] or project.root.name
    profile = f", {report.profile}" if report.profile else ""
    root = f" in {make_printable(report.root)}" if report.root else ""
    yield f"{make_printable(name)}{profile}{root}, at {report.commit[:12]}"
    rows = make_check_rows(report)
    for row in rows:
        yield from format_check_row(row)

    yield from (f"note: {make_printable(note)}" for note in report.notes)
    failing = [row.name for row in rows if row.is_failed]

    if failing:
        policy = project.config.already_failing
        if policy == "tolerate":
            meaning = "only new failures reject a change"
        else:
            meaning = "no agent starts until they pass"

        yield f'failing: {", ".join(failing)} (already_failing = "{policy}" in [checks]: {meaning})'

    if not any(row.is_asked for row in rows if row.name == "test"):
        yield "no test command found: run `phasegate discover`, or set one in phasegate.toml"

    if report.logs:
        yield f"full output: {make_printable(os.path.relpath(report.logs, project.root))}"


def format_check_row(row: CheckRow) -> Iterator[str]:
    """Yield the lines of a check: outcome, command, notes, and the output if it failed."""
    duration = "" if row.duration_s is None else f" ({row.duration_s:.1f} s)"
    yield f"{row.name}: {row.outcome}{duration} - {make_printable(row.summary)}"
    if not row.is_asked:
        return

    if row.command:
        reason = f"  [{make_printable(row.why)}]" if row.why else ""
        yield f"  {make_printable(row.command)}{reason}"

    yield from (
        f"  {make_printable(note)}"
        for note in row.notes
        if not note.startswith(("chosen for", "command:"))
    )
    if row.is_failed:
        yield from (f"  | {make_printable(line)}" for line in row.output)
        yield f"  what to do: {make_printable(row.remedy)}"


def _as_data(project: Project, reports: tuple[BaselineReport, ...]) -> dict[str, object]:
    """Return the reports as data for --json."""
    roots = [
        {
            "root": report.root,
            "profile": report.profile,
            "name": report.name,
            "notes": report.notes,
            "logs": report.logs,
        }
        for report in reports
    ]
    return {
        "commit": reports[0].commit,
        "already_failing": project.config.already_failing,
        "passed": not any(report.failures for report in reports),
        "roots": roots,
        "quarantine": list_quarantine(project),
        "checks": [row._asdict() for report in reports for row in make_check_rows(report)],
    }
