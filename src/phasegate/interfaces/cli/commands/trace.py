"""`phasegate trace`: show the packages, commits and tests of each requirement."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from phasegate.core.plan.trace import render_trace
from phasegate.engine.project.project import Project, open_project
from phasegate.engine.views.trace import TraceReport, choose_feature, trace_feature
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)


@click.command()
@click.option(
    "--check",
    is_flag=True,
    help="Exit 1 unless every requirement has a package, a commit and a test.",
)
@click.option(
    "--specs", is_flag=True, help="Trace the current specifications instead of a feature."
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --specs: a JUnit report in which the tests must have passed.",
)
@feature_option
@json_option
def trace(check: bool, specs: bool, junit: Path | None, feature: str | None, as_json: bool) -> int:
    """Show each requirement with its packages, commits and tests, and what is missing.

    Requirements come from the feature's spec.md, packages from tasks/WPnn.md, commits and tests
    from the branches feat/SLUG and feat/SLUG-WPnn. A commit or test that names requirement ids
    counts for those; otherwise it counts for all requirements of its package.

    With --specs: each requirement of the current specifications with its tests. --check then exits
    1 if one has no test, if a test is missing or did not pass, or if a test names an unknown
    requirement.

    \b
    Examples:
      phasegate trace
      phasegate trace --feature 001-user-login --check
      phasegate trace --specs --check --junit report.xml
    """
    project = open_project(current_folder())
    if specs:
        return _trace_specs(project, junit, as_json, check=check)
    if junit:
        raise ConfigError("--junit requires --specs", "phasegate trace --specs --junit FILE")

    report = trace_feature(project, choose_feature(project, feature))
    lines = [
        *render_trace(report.requirements),
        *(f"ignored: {problem}" for problem in report.problems),
    ]
    print_result(_as_data(report), "\n".join(make_printable(line) for line in lines), as_json)
    if check and not report.is_complete:
        return 1

    return 0


def _trace_specs(project: Project, junit: Path | None, as_json: bool, *, check: bool) -> int:
    from phasegate.engine.views.specs import render_specs_report, trace_specs

    report = trace_specs(project, junit)
    data = {**msgspec.to_builtins(report), "complete": report.is_complete}
    print_result(data, "\n".join(map(make_printable, render_specs_report(report))), as_json)
    return int(check and not report.is_complete)


def _as_data(report: TraceReport) -> dict[str, object]:
    rows = [{**msgspec.to_builtins(one), "missing": one.missing} for one in report.requirements]
    return {
        "feature": report.feature,
        "complete": report.is_complete,
        "requirements": rows,
        "problems": report.problems,
    }
