"""`phasegate adopt`: draft requirements for existing code from its tests."""

from __future__ import annotations

import re
from pathlib import Path

import click

from phasegate.core.specs.deltas import is_capability
from phasegate.engine.project.project import open_project
from phasegate.engine.tools.spec_files import adopt_code, render_adoption
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)

_LIMIT = 50


@click.command()
@click.argument("folder")
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="A JUnit report of the tests: only tests that pass become requirements.",
)
@click.option("--capability", help="Name of the specification; default: the folder's name.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_LIMIT,
    help="Maximum number of requirements.",
)
@click.option("--write", is_flag=True, help="Write the proposal to the specification.")
@json_option
def adopt(
    folder: str, junit: Path, capability: str | None, limit: int, write: bool, as_json: bool
) -> int:
    """Draft requirements for the code in FOLDER from tests that pass today.

    Each test that names code of the folder becomes a requirement, marked as observed and bound to
    the test and the code, so that `phasegate drift` watches it. Code that no test names is listed
    as uncovered. Nothing is written without --write.

    \b
    Examples:
      phasegate adopt src/login --junit report.xml
      phasegate adopt src/login --junit report.xml --write
    """
    name = capability or re.sub(r"[^a-z0-9]+", "-", Path(folder).name.lower()).strip("-")
    if not is_capability(name):
        raise ConfigError(f"{name!r} is not a valid capability name", "set one: --capability NAME")

    project = open_project(current_folder())
    adopted = adopt_code(project, folder, name, junit, limit, write=write)
    text = "\n".join(render_adoption(adopted))
    print_result(adopted, "\n".join(map(make_printable, text.split("\n"))), as_json)
    return 0
