"""`phasegate check`: the setup and all checks on the base, in a clean checkout, without an agent."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Self

import click

from phasegate.engine.checks.baseline import BaselineReport, CheckRow, check_branch, make_check_rows
from phasegate.engine.project.project import Project, open_project
from phasegate.engine.steps.workplace import current_branch
from phasegate.interfaces.cli.render import json_option, make_printable, print_line, print_result

REDRAW_INTERVAL_S = 0.5


@click.command()
@click.option(
    "--anew", is_flag=True, help="Run everything again, also what is known of this commit."
)
@json_option
def check(anew: bool, as_json: bool) -> int:
    """Set the project up and run all checks on the base, without an agent.

    The base is the commit of the branch that you have checked out; what is not committed is not seen. Each command runs
    in a clean checkout and in the cage. Shown are the command, why it was chosen, what came of it, how many tests ran,
    how long it took, and the file with its whole output. `run` and `dispatch` use the same result, and compare later
    failures with it. Exit 0: all passed. Exit 1: something failed.

    \b
    Examples:
      phasegate check
      phasegate check --anew --json
    """
    project = open_project(Path.cwd())
    with CheckProgress() as progress:
        reports = check_branch(project, current_branch(project), progress.show_command, force=anew)

    text = "\n".join(line for report in reports for line in _format_report(project, report))
    print_result(_as_data(project, reports), text, as_json)
    if any(report.failures for report in reports):
        return 1

    return 0


class CheckProgress:
    """What runs now, and for how long: one line on a terminal, a line a command elsewhere."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._stopped = Event()
        self._ticker = Thread(target=self._tick, daemon=True)
        self._purpose = ""
        self._started_s = 0.0

    def __enter__(self) -> Self:
        if self._is_live:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._is_live:
            self._ticker.join()
            sys.stderr.write("\r\x1b[2K")

    def show_command(self, purpose: str, command: str) -> None:
        self._purpose = purpose
        self._started_s = time.monotonic()
        if not self._is_live:
            print_line(f"{purpose}: {make_printable(command)}", err=True)

    def _tick(self) -> None:
        while not self._stopped.wait(REDRAW_INTERVAL_S):
            if self._purpose:
                seconds = int(time.monotonic() - self._started_s)
                sys.stderr.write(
                    f"\r\x1b[2K{self._purpose} running, {seconds // 60}:{seconds % 60:02d}"
                )
                sys.stderr.flush()


def _format_report(project: Project, report: BaselineReport) -> Iterator[str]:
    if report.profile:
        kind = f", {report.profile}"
    else:
        kind = ""

    if report.root:
        where = f" in {make_printable(report.root)}"
    else:
        where = ""

    name = report.name or report.root.rpartition("/")[2] or project.root.name
    yield f"{make_printable(name)}{kind}{where}, at {report.commit[:12]}"
    rows = make_check_rows(report)
    for row in rows:
        yield from format_check_row(row)

    yield from (f"note: {make_printable(note)}" for note in report.notes)
    failing = [row.name for row in rows if row.is_failed]

    if failing:
        policy = project.config.already_failing
        if policy == "tolerate":
            meaning = "new failures reject, these do not"
        else:
            meaning = "no agent begins before they pass"

        yield f'failing: {", ".join(failing)} (already_failing = "{policy}" in [checks]: {meaning})'

    if not any(row.is_asked for row in rows if row.name == "test"):
        yield "no tests are known: phasegate discover lets an agent find out, or set them in phasegate.toml"

    yield f"whole output: {make_printable(os.path.relpath(report.logs, project.root))}"


def format_check_row(row: CheckRow) -> Iterator[str]:
    if row.duration_s is not None:
        time_taken = f" ({row.duration_s:.1f} s)"
    else:
        time_taken = ""

    yield f"{row.name}: {row.outcome}{time_taken} - {make_printable(row.summary)}"
    if not row.is_asked:
        return

    if row.command:
        yield f"  {make_printable(row.command)}" + (
            f"  [{make_printable(row.why)}]" if row.why else ""
        )

    yield from (
        f"  {make_printable(note)}"
        for note in row.notes
        if not note.startswith(("chosen for", "command:"))
    )
    if row.is_failed:
        yield from (f"  | {make_printable(line)}" for line in row.output)
        yield f"  what to do: {make_printable(row.remedy)}"


def _as_data(project: Project, reports: tuple[BaselineReport, ...]) -> dict[str, object]:
    roots = [
        {
            "root": one.root,
            "profile": one.profile,
            "name": one.name,
            "notes": one.notes,
            "logs": one.logs,
        }
        for one in reports
    ]
    return {
        "commit": reports[0].commit,
        "already_failing": project.config.already_failing,
        "passed": not any(report.failures for report in reports),
        "roots": roots,
        "checks": [row._asdict() for report in reports for row in make_check_rows(report)],
    }
