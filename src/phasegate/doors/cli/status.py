"""`phasegate status` with arguments; the plain question is answered before this is loaded."""

from __future__ import annotations

import click

from phasegate.doors.cli.feature_option import feature_option
from phasegate.doors.cli.offering import offering, package_ids
from phasegate.doors.cli.render import current_folder, json_option, show
from phasegate.doors.status import overview_text, package_text
from phasegate.engine.views import find_cards, open_reader, overview


@click.command()
@click.argument("work_package", metavar="[WPnn]", required=False, shell_complete=offering(package_ids))
@click.option("--all", "everything", is_flag=True, help="Every package, also where there are very many.")
@feature_option
@json_option
def status(work_package: str | None, everything: bool, feature: str | None, as_json: bool) -> None:
    """Show where things stand: the workflow, its phases and gates, the packages on a board, and what is blocked.

    With WPnn: one package with its jobs. On a terminal a column shows its first packages only; --all shows all.

    \b
    Examples:
      phasegate status
      phasegate status WP01
      phasegate status --feature 001-user-login --json
    """
    folder = str(current_folder())
    reader = open_reader(folder)
    if work_package:
        cards = find_cards(reader, work_package, feature)
        show(cards, package_text(cards).removesuffix("\n"), as_json)
    else:
        found = overview(reader, folder, feature)
        text = overview_text(found, everything=everything, chosen=feature is not None)
        if as_json and reader and feature:
            from phasegate.engine.feature_view import feature_view  # folds the journal: only where it is shown

            found = found._replace(detail=feature_view(reader, feature))
        show(found, text.removesuffix("\n"), as_json)
