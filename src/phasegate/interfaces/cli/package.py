"""`phasegate package`: the work packages of a feature."""

from __future__ import annotations

import click

from phasegate.engine.views.overview import features_of, need_reader, package_cards
from phasegate.engine.views.package import package_view
from phasegate.engine.views.status_text import NO_PACKAGES, package_line
from phasegate.interfaces.cli.completion_values import PackageName, offering, package_ids
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import feature_option, reading_the_fleet
from phasegate.interfaces.cli.render import current_folder, json_option, printable, show


@click.group(cls=Group)
def package() -> None:
    """List the work packages of a feature, or show one."""


@package.command("list")
@feature_option
@reading_the_fleet(trails=False)
@json_option
def list_packages(feature: str | None, as_json: bool) -> None:
    """List the packages and their states.

    \b
    Examples:
      phasegate package list
      phasegate package list --feature 001-user-login --json
    """
    reader = need_reader(str(current_folder()))
    cards = [card for slug in features_of(reader, feature) for card in package_cards(reader, slug)]
    show(cards, "\n".join(map(package_line, cards)) or NO_PACKAGES, as_json)


@package.command("show")
@click.argument("work_package", type=PackageName(), metavar="WPnn", shell_complete=offering(package_ids))
@feature_option
@reading_the_fleet(trails=False)
@json_option
def show_package(work_package: str, feature: str | None, as_json: bool) -> None:
    """Show a package: its document as it was loaded.

    \b
    Examples:
      phasegate package show WP01
      phasegate package show WP01 --feature 001-user-login --json
    """
    card, document = package_view(need_reader(str(current_folder())), work_package, feature)
    show(card, printable_document(document), as_json)


def printable_document(text: str) -> str:
    """A document with nothing in it that a terminal would obey."""
    return "\n".join(printable(line) for line in text.splitlines())
