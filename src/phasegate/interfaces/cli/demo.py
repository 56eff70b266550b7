"""`phasegate demo`: a feature from one sentence to its merge in a throw-away repository, and what
holds at its end.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from phasegate.engine.drive import orders
from phasegate.engine.drive.feature import RunOptions
from phasegate.engine.project.project import open_project_store
from phasegate.engine.tools.demo import DemoCheck, check_merged_demo, make_demo_project
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.run import run_and_report

DESCRIPTION = "Say goodbye to people in their own language"


@click.command()
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Work in DIR and leave it there."
)
@click.option(
    "--hostile", is_flag=True, help="The same with misbehaving agents, and how each was stopped."
)
def demo(keep: Path | None, hostile: bool) -> int:
    """Show the product at work in a throw-away repository.

    A feature is taken from one sentence through all phases and gates to its merge, by the engine that `phasegate run`
    uses. It needs no key and no network: the agents play scenarios. Exit 1: something did not hold.

    \b
    Examples:
      phasegate demo
      phasegate demo --hostile
      phasegate demo --keep /tmp/phasegate-demo
    """
    with TemporaryDirectory(prefix="phasegate-demo-") as room:
        folder = keep or Path(room)
        if keep and keep.exists() and any(keep.iterdir()):
            raise ConfigError(f"{keep} is not empty", "name a new folder")

        folder.mkdir(parents=True, exist_ok=True)
        if hostile:
            from phasegate.engine.tools.demo_hostile import run_hostile_demo

            code = _print_claims(run_hostile_demo(folder.resolve(), click.echo))
        else:
            code = _print_claims(_run_demo_feature(folder.resolve()))

    if keep:
        shown = shlex.quote(str(keep.resolve()))
        click.echo(f"\nTo look around: export XDG_STATE_HOME={shown}/state; cd {shown}/repository")

    return code


def _print_claims(claims: Iterator[DemoCheck]) -> int:
    """Print each claim with whether it holds; 1 if one does not."""
    failed = 0
    for text, holds in claims:
        click.echo(f"  {'ok ' if holds else 'NO '} {text}")
        failed += not holds

    click.echo(f"\n{failed} of the claims above do not hold." if failed else "\nAll of it holds.")
    if failed:
        return 1

    return 0


def _run_demo_feature(folder: Path) -> Iterator[DemoCheck]:
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
        click.echo("\nWhat holds now:")
        yield from check_merged_demo(project, store, slug, code)
