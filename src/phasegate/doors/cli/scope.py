"""`phasegate scope allow`: a person's exception to a package's scope, on record."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.doors.cli.feature_option import feature_option
from phasegate.engine.packages import allow_path, find_package
from phasegate.engine.project import open_project, opened_store
from phasegate.errors import ConfigError
from phasegate.rules.work_package import entry_problem


@click.group()
def scope() -> None:
    """Record an exception to the file scope of a work package."""


@scope.command("allow")
@click.argument("work_package", metavar="WPnn")
@click.argument("path")
@click.option("--reason", required=True, help="Why; it is kept in the audit trail.")
@feature_option
def allow(work_package: str, path: str, reason: str, feature: str | None) -> None:
    """Allow a package to change PATH too.

    \b
    Example:
      phasegate scope allow WP01 src/services/auth.ts --reason "the login form needs a new call"
    """
    problem = entry_problem(path)
    if problem or not reason.strip():
        raise ConfigError(f"{path!r} {problem}" if problem else "the reason is empty", "name a path in the repository")
    with opened_store(open_project(Path.cwd())) as store:
        one = find_package(store, work_package, feature)
        allow_path(store, one.package, path, reason.strip())
    click.echo(f"{work_package} may change {path} from now on")
