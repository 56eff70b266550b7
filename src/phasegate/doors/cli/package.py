"""`phasegate package`, `status`, `worktree list` and `scope allow`: packages as people look at them."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from phasegate.doors.cli.feature_option import feature_option
from phasegate.doors.cli.group import Group
from phasegate.doors.cli.offering import offering, package_ids
from phasegate.doors.cli.render import json_option, printable, show
from phasegate.engine.packages import find_package
from phasegate.engine.project import open_project
from phasegate.errors import ConfigError
from phasegate.record.reader import Reader, read_store
from phasegate.record.rows import Package

NO_PACKAGES = "no work packages are loaded"


def open_reader() -> Reader:
    """The store of this repository, for reading."""
    reader = read_store(open_project(Path.cwd()).location)
    if reader is None:
        raise ConfigError("nothing is recorded in this repository yet", "phasegate plan load kitty-specs/NNN-name")
    return reader


def rows_of(reader: Reader, feature: str | None) -> list[Package]:
    """The packages of one feature, or of all."""
    slugs = [slug for slug in reader.features() if slug and feature in (None, slug)]
    return [row for slug in slugs for row in reader.packages(slug)]


def as_data(rows: list[Package]) -> list[dict[str, object]]:
    """The packages for a program to read."""
    return [row._asdict() for row in rows]


def line_of(row: Package) -> str:
    """A package on one line."""
    why = f"  {row.reason}" if row.reason else ""
    return printable(f"{row.feature}  {row.id}  {row.state:<10}  {row.title}{why}")


@click.group(cls=Group)
def package() -> None:
    """List the work packages of a feature, or show one."""


@package.command("list")
@feature_option
@json_option
def list_packages(feature: str | None, as_json: bool) -> None:
    """List the packages and their states.

    \b
    Examples:
      phasegate package list
      phasegate package list --feature 001-user-login --json
    """
    rows = rows_of(open_reader(), feature)
    show(as_data(rows), "\n".join(line_of(row) for row in rows) or NO_PACKAGES, as_json)


@package.command("show")
@click.argument("work_package", metavar="WPnn", shell_complete=offering(package_ids))
@feature_option
@json_option
def show_package(work_package: str, feature: str | None, as_json: bool) -> None:
    """Show a package: its document as it was loaded.

    \b
    Examples:
      phasegate package show WP01
      phasegate package show WP01 --feature 001-user-login --json
    """
    one = find_package(open_reader(), work_package, feature)
    show(msgspec.to_builtins(one.package), printable_document(one.document), as_json)


def printable_document(text: str) -> str:
    """A document with nothing in it that a terminal would obey."""
    return "\n".join(printable(line) for line in text.splitlines())
