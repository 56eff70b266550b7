"""`phasegate plan`: work packages from a feature's folder."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.doors.cli.feature_option import feature_option
from phasegate.doors.cli.render import json_option, show
from phasegate.engine.packages import load_plan, planned
from phasegate.engine.project import open_project, opened_store
from phasegate.errors import ConfigError
from phasegate.record.reader import read_store
from phasegate.rules.dependencies import waves


@click.group()
def plan() -> None:
    """Load a feature's work packages, and show how they hang together."""


@plan.command("load")
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def load(folder: Path, as_json: bool) -> None:
    """Load the packages (tasks/WPnn.md) of a feature's FOLDER, written by hand or by another tool.

    What is loaded is what is run: load again after a change. A package that is in work keeps its state.

    \b
    Example:
      phasegate plan load kitty-specs/001-user-login
    """
    project = open_project(Path.cwd())
    with opened_store(project) as store:
        packages = load_plan(project, store, folder)
    lines = [f"{package.work_package_id}  {package.title}" for package in packages]
    show([package.work_package_id for package in packages], "\n".join(lines), as_json)


@plan.command("show")
@feature_option
@json_option
def show_plan(feature: str | None, as_json: bool) -> None:
    """Show what waits for what, and what can run side by side."""
    project = open_project(Path.cwd())
    reader = read_store(project.location)
    slugs = [slug for slug in (reader.features() if reader else []) if slug and feature in (None, slug)]
    if reader is None or not slugs:
        raise ConfigError("no plan is loaded", "phasegate plan load kitty-specs/NNN-name")
    found = {slug: planned(reader, slug) for slug in slugs}
    waits_for = {slug: {name: sorted(one.waits_for) for name, one in every.items()} for slug, every in found.items()}
    lines = []
    for slug, needs in waits_for.items():
        lines.append(slug)
        for number, wave in enumerate(waves(needs), 1):
            lines += [
                f"  wave {number}: {name}  {found[slug][name].package.title}"
                + (f"  (after {', '.join(needs[name])})" if needs[name] else "")
                for name in wave
            ]
    show(waits_for, "\n".join(lines), as_json)
