"""`phasegate package`: list and show the work packages of a feature."""

from __future__ import annotations

import click

from phasegate.engine.views.overview import list_features, package_cards, require_reader
from phasegate.engine.views.package import package_view
from phasegate.engine.views.status_text import NO_PACKAGES, render_package_line
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import feature_option, fleet_view_option, package_argument
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)


@click.group(cls=Group)
def package() -> None:
    """List the work packages of a feature, or show one."""


@package.command("list")
@feature_option
@fleet_view_option(with_trails=False)
@json_option
def list_packages(feature: str | None, as_json: bool) -> None:
    """List the packages and their states.

    \b
    Examples:
      phasegate package list
      phasegate package list --feature 001-user-login --json
    """
    reader = require_reader(str(current_folder()))
    cards = [
        card for slug in list_features(reader, feature) for card in package_cards(reader, slug)
    ]
    print_result(cards, "\n".join(map(render_package_line, cards)) or NO_PACKAGES, as_json)


@package.command("show")
@package_argument
@feature_option
@fleet_view_option(with_trails=False)
@json_option
def show_package(work_package: str, feature: str | None, as_json: bool) -> None:
    """Show the document of a package as it was loaded.

    \b
    Examples:
      phasegate package show WP01
      phasegate package show WP01 --feature 001-user-login --json
    """
    card, document = package_view(require_reader(str(current_folder())), work_package, feature)
    print_result(card, make_document_printable(document), as_json)


def make_document_printable(text: str) -> str:
    """Escape control characters in a document, so that it cannot control the terminal."""
    return "\n".join(make_printable(line) for line in text.splitlines())
