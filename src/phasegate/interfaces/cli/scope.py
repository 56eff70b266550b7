"""`phasegate scope allow`: a person's exception to a package's scope, on record."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.core.plan.work_package import find_scope_entry_problem
from phasegate.engine.journal.package import find_package
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.steps.scope_exceptions import allow_path
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.completion_values import (
    PackageIdParam,
    complete_from,
    list_package_ids,
)
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import FreeText, json_option, make_printable, print_result


@click.group(cls=Group)
def scope() -> None:
    """Record an exception to the file scope of a work package."""


@scope.command("allow")
@click.argument(
    "work_package",
    type=PackageIdParam(),
    metavar="WPnn",
    shell_complete=complete_from(list_package_ids),
)
@click.argument("path")
@click.option(
    "--reason",
    metavar="TEXT",
    type=FreeText(),
    required=True,
    help="Why; it is kept in the audit trail.",
)
@feature_option
@json_option
def allow(work_package: str, path: str, reason: str, feature: str | None, as_json: bool) -> None:
    """Allow a package to change PATH too.

    A protected path (what steers Phasegate, agents, git or CI) is allowed as an agent changed it. The diff is shown;
    a further change to it must be allowed again.

    \b
    Example:
      phasegate scope allow WP01 src/services/auth.ts --reason "the login form needs a new call"
    """
    problem = find_scope_entry_problem(path)

    if problem or not reason.strip():
        raise ConfigError(
            f"{path!r} {problem}" if problem else "the reason is empty",
            "name a path in the repository",
        )

    project = open_project(Path.cwd())
    with open_project_store(project) as store:
        one = find_package(store, work_package, feature)
        diff = allow_path(
            project=project,
            record=store,
            package=one.package,
            path=path,
            reason=reason.strip(),
            by=project.make_origin("cli"),
        )

    data = {
        "feature": one.package.feature_slug,
        "id": work_package,
        "path": path,
        "reason": reason.strip(),
    }

    told = "\n".join(
        [
            *map(make_printable, diff.splitlines()),
            f"{work_package} may make this change to {make_printable(path)}",
        ]
    )

    print_result(
        {**data, "diff": diff},
        told if diff else f"{work_package} may change {make_printable(path)} from now on",
        as_json,
    )
