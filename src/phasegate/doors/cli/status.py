"""`phasegate status`: where things stand."""

from __future__ import annotations

import click

from phasegate.doors.cli.feature_option import feature_option
from phasegate.doors.cli.package import as_data, line_of, open_reader, rows_of
from phasegate.doors.cli.render import json_option, printable, show
from phasegate.errors import ConfigError


@click.command()
@click.argument("work_package", metavar="[WPnn]", required=False)
@feature_option
@json_option
def status(work_package: str | None, feature: str | None, as_json: bool) -> None:
    """Show where things stand: all packages, or one with its jobs.

    \b
    Examples:
      phasegate status
      phasegate status WP01
    """
    reader = open_reader()
    rows = [row for row in rows_of(reader, feature) if work_package in (None, row.id)]
    if work_package and not rows:
        raise ConfigError(f"there is no package {work_package}", "phasegate package list")
    lines = []
    for row in rows:
        lines.append(line_of(row))
        if row.remediation:
            lines.append(printable(f"    what to do: {row.remediation}"))
        if work_package:
            jobs = [job for job in reader.jobs(row.feature) if job.wp == row.id]
            lines += [
                printable(f"    {j.started}  round {j.round}  {j.phase:<9}  {j.agent}  {j.outcome}") for j in jobs
            ]
    show(as_data(rows), "\n".join(lines), as_json)
