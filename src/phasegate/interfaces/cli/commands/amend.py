"""`phasegate amend`: change a requirement of a running feature."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from phasegate.core.display.event_lines import render_stop_summary
from phasegate.engine.drive.amend import amend_requirement, compute_impact, render_impact
from phasegate.engine.drive.orders import select_feature
from phasegate.engine.journal.feature import make_feature_option
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import (
    FreeText,
    json_option,
    make_printable,
    print_line,
    print_result,
)


@click.command()
@click.argument("requirement", metavar="FR-X")
@click.argument("text", type=FreeText())
@click.option("--impact", is_flag=True, help="Show what would be redone, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@feature_option
@json_option
def amend(
    requirement: str, text: str, impact: bool, yes: bool, feature: str | None, as_json: bool
) -> int:
    """Change a requirement of a running feature, at any time before its merge.

    First the impact is shown: tasks, packages, commits and sealed tests. Then the specification is
    changed, and only packages that implement the requirement are done again. The next run has the
    reason in its prompts.

    \b
    Examples:
      phasegate amend FR-AUTH-002 "A session ends after 30 minutes" --impact
      phasegate amend FR-AUTH-002 "A session ends after 30 minutes" --yes
    """
    project = open_project(Path.cwd())
    with open_project_store(project) as store:
        slug = select_feature(project, store, feature)
        found = compute_impact(project, store, slug, requirement, text)
        lines = [make_printable(line) for line in render_impact(found)]
        if impact:
            print_result(found, "\n".join(lines), as_json)
            return 0

        for line in lines:
            print_line(line, err=True)
        if not yes and not _is_confirmed():
            return 1

        after = amend_requirement(
            project, store, slug, requirement, text, project.make_origin("cli")
        )
        summary = (
            f"{requirement} is amended",
            *render_stop_summary(after, make_feature_option(store, slug)),
        )

    print_result(found, "\n".join(map(make_printable, summary)), as_json)
    return 0


def _is_confirmed() -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("an amendment needs a confirmation", "repeat the command with --yes")
    return click.confirm("Amend it?", err=True)
