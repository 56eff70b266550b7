"""`phasegate adopt`: draft requirements for existing code from tests, its own or an agent's."""

from __future__ import annotations

import re
from pathlib import Path

import click

from phasegate.core.specs.deltas import is_capability
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.tools.adopt_agent import adopt_with_agent
from phasegate.engine.tools.spec_files import (
    AdoptedCode,
    adopt_code,
    render_adoption,
    write_adoption,
)
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.completion_values import complete_from, list_agent_names
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
    help="A JUnit report of the tests: only tests that pass become requirements.",
)
@click.option(
    "--agent",
    shell_complete=complete_from(list_agent_names),
    help="Let this agent write requirements and tests; those that pass are kept.",
)
@click.option("--capability", help="Name of the specification; default: the folder's name.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_LIMIT,
    help="Maximum number of requirements.",
)
@click.option(
    "--write", "--yes", is_flag=True, help="Write the proposal to the specification without asking."
)
@json_option
def adopt(
    folder: str,
    junit: Path | None,
    agent: str | None,
    capability: str | None,
    limit: int,
    write: bool,
    as_json: bool,
) -> int:
    """Draft requirements for the code in FOLDER from tests that pass today.

    With --junit, each test that names code of the folder becomes a requirement, marked as observed
    and bound to the test and the code, so that `phasegate drift` watches it. With --agent, an agent
    proposes requirements with new tests, which are run on a clean checkout: observed are those
    whose test passes; those without a test are marked as inferred, and others are dropped. Code
    that no test names is listed as uncovered. Nothing is written before you agree.

    \b
    Examples:
      phasegate adopt src/login --junit report.xml
      phasegate adopt src/login --junit report.xml --write
      phasegate adopt src/login --agent claude
    """
    name = capability or re.sub(r"[^a-z0-9]+", "-", Path(folder).name.lower()).strip("-")
    if not is_capability(name):
        raise ConfigError(f"{name!r} is not a valid capability name", "set one: --capability NAME")

    project = open_project(current_folder())
    if agent and not junit:
        with open_project_store(project) as store:
            adopted = adopt_with_agent(project, store, folder, name, limit, agent)
        if not as_json and not write:
            _print_adoption(adopted)
            if not (adopted.requirements and click.confirm("Write this?", err=True)):
                return 0
            write = True
        if write:
            adopted = write_adoption(project, adopted)
    elif junit and not agent:
        adopted = adopt_code(project, folder, name, junit, limit, write=write)
    else:
        raise ConfigError("pass either --junit or --agent", "phasegate adopt FOLDER --agent NAME")

    _print_adoption(adopted, as_json)
    return 0


def _print_adoption(adopted: AdoptedCode, as_json: bool = False) -> None:
    text = "\n".join(render_adoption(adopted))
    print_result(adopted, "\n".join(map(make_printable, text.split("\n"))), as_json)
