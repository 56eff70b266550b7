"""`phasegate scope allow`: record an exception to the file scope of a package."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.core.plan.work_package import find_scope_entry_problem
from phasegate.engine.drive.orders import select_feature
from phasegate.engine.fleet.entry import fetch_published_checkouts, open_record
from phasegate.engine.journal.package import find_package
from phasegate.engine.project.project import open_project
from phasegate.engine.steps.scope_exceptions import allow_path
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import (
    feature_option,
    fleet_order_option,
    package_argument,
    reason_option,
)
from phasegate.interfaces.cli.render import json_option, make_printable, print_result


@click.group(cls=Group)
def scope() -> None:
    """Record an exception to the file scope of a work package."""


@scope.command("allow")
@package_argument
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@reason_option
@feature_option
@fleet_order_option("The fleet works on the package.")
@json_option
def allow(
    work_package: str,
    paths: tuple[str, ...],
    reason: str,
    feature: str | None,
    fleet: bool,
    as_json: bool,
) -> None:
    """Allow a package to change each PATH as well.

    For a protected path (settings of Phasegate, agents, git or CI) only the present change of the
    agent is allowed. The diff is shown; a further change needs another exception.

    \b
    Example:
      phasegate scope allow WP01 src/services/auth.ts --reason "the login form needs a new call"
    """
    for path in paths:
        if problem := find_scope_entry_problem(path):
            raise ConfigError(f"{path!r} {problem}", "name a path in the repository")
    if not reason.strip():
        raise ConfigError("the reason is empty", "give one with --reason")

    project = open_project(Path.cwd())
    with open_record(project, fleet=fleet) as store:
        if fleet:
            feature = select_feature(project, store, feature)

        try:
            package = find_package(store, work_package, feature).package
        except ConfigError as error:
            if fleet or not project.config.storage.is_set:
                raise
            raise ConfigError(
                error.message, f"{error.hint}; if the fleet works on it: add --fleet"
            ) from error

        published = fetch_published_checkouts(project, package) if fleet else None
        diffs = {
            path: allow_path(
                project=project,
                record=store,
                package=package,
                path=path,
                reason=reason.strip(),
                by=project.make_origin("cli"),
                published=published,
            )
            for path in paths
        }
        if fleet:
            # Makes the exception visible to the worker.
            store.anchor()

    data = {
        "feature": package.feature_slug,
        "id": work_package,
        "path": paths[0],
        "paths": list(paths),
        "reason": reason.strip(),
    }

    lines = []
    for path, diff in diffs.items():
        lines += [make_printable(line) for line in diff.splitlines()]
        if diff:
            lines.append(f"{work_package} may make this change to {make_printable(path)}")
        else:
            lines.append(f"{work_package} may change {make_printable(path)} from now on")

    print_result({**data, "diff": "".join(diffs.values())}, "\n".join(lines), as_json)
