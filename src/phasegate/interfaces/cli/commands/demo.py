"""`phasegate demo`: run a feature from its description to the merge in a temporary repository."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from phasegate.engine.drive import orders
from phasegate.engine.drive.run_feature import RunOptions
from phasegate.engine.project.project import open_project_store
from phasegate.engine.tools.demo import DemoCheck, check_merged_demo, make_demo_project
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.commands.run import run_and_report

DESCRIPTION = "Say goodbye to people in their own language"


@click.command()
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Use DIR and keep it.")
@click.option(
    "--hostile", is_flag=True, help="Use misbehaving agents, and show how each one is stopped."
)
def demo(keep: Path | None, hostile: bool) -> int:
    """Run a complete feature in a temporary repository, with scripted agents.

    The feature goes from one sentence through all phases and gates to its merge, in the same way as
    with `phasegate run`. It needs no key and no network. Exit 1: a check failed.

    \b
    Examples:
      phasegate demo
      phasegate demo --hostile
      phasegate demo --keep /tmp/phasegate-demo
    """
    with TemporaryDirectory(prefix="phasegate-demo-") as temporary:
        folder = keep or Path(temporary)
        if keep and keep.exists() and any(keep.iterdir()):
            raise ConfigError(f"{keep} is not empty", "name a new folder")

        folder.mkdir(parents=True, exist_ok=True)
        if hostile:
            from phasegate.engine.tools.demo_hostile import run_hostile_demo

            code = _print_checks(run_hostile_demo(folder.resolve(), click.echo))
        else:
            code = _print_checks(_run_demo_feature(folder.resolve()))

    if keep:
        kept = shlex.quote(str(keep.resolve()))
        click.echo(f"\nTo inspect it: export XDG_STATE_HOME={kept}/state; cd {kept}/repository")

    return code


def _print_checks(checks: Iterator[DemoCheck]) -> int:
    """Print each check with its result. Return 1 if one failed."""
    failed = 0
    for text, passed in checks:
        click.echo(f"  {'ok ' if passed else 'FAIL'} {text}")
        if not passed:
            failed += 1

    if failed:
        click.echo(f"\n{failed} of the checks above failed.")
        return 1

    click.echo("\nAll checks passed. In your own project: phasegate init, then phasegate check")
    return 0


def _run_demo_feature(folder: Path) -> Iterator[DemoCheck]:
    """Run the demo feature, and yield the checks of its result."""
    project = make_demo_project(folder, ("project",), "feature.toml")
    click.echo(f'$ phasegate run feature "{DESCRIPTION}" --merge')
    with open_project_store(project) as store:
        by = project.make_origin("cli")
        slug = orders.start_workflow(project, store, "feature", DESCRIPTION, by=by)
        code = run_and_report(
            project,
            store,
            slug,
            RunOptions(merge=True, by=by),
            as_json=False,
            from_start=True,
            show_hints=False,
        )

        sys.stdout.flush()
        click.echo("\nChecks of the result:")
        yield from check_merged_demo(project, store, slug, code)
