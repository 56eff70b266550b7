"""`phasegate status` with arguments; the plain question is answered before this is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Event

import click

from phasegate.engine.views.overview import Reader, find_cards, open_reader, overview
from phasegate.engine.views.status_text import drawn, overview_text, package_text
from phasegate.errors import ConfigError, PhasegateError
from phasegate.interfaces.cli.completion_values import PackageName, offering, package_ids
from phasegate.interfaces.cli.live_display import LiveLines, clock, kept_up_to_date
from phasegate.interfaces.cli.options import feature_option, fleet_kept_up_to_date, reading_the_fleet
from phasegate.interfaces.cli.render import current_folder, json_option, show
from phasegate.interfaces.fast_path.status import page


@click.command()
@click.argument(
    "work_package", type=PackageName(), metavar="[WPnn]", required=False, shell_complete=offering(package_ids)
)
@click.option("--all", "everything", is_flag=True, help="Every package, also where there are very many.")
@click.option("--watch", is_flag=True, help="Keep it up to date on the terminal; Ctrl-C ends it.")
@feature_option
@reading_the_fleet(trails=False)
@json_option
def status(work_package: str | None, everything: bool, watch: bool, feature: str | None, as_json: bool) -> None:
    """Show where things stand: the workflow, its phases and gates, the packages on a board, and what is blocked.

    With WPnn: one package with its jobs. On a terminal a column shows its first packages only; --all shows all.

    \b
    Examples:
      phasegate status
      phasegate status WP01
      phasegate status --watch
      phasegate status --feature 001-user-login --json
      phasegate status --fleet
    """
    folder = str(current_folder())
    if watch:
        if work_package or as_json:
            raise ConfigError("--watch goes with the whole picture alone", "phasegate status --watch")
        with fleet_kept_up_to_date():
            _watch(folder, feature, everything)
    reader = open_reader(folder)
    if work_package:
        cards = find_cards(reader, work_package, feature)
        show(cards, package_text(cards).removesuffix("\n"), as_json)
    else:
        found = overview(reader, folder, feature)
        shown = page(everything)
        text = overview_text(drawn(found, reader, shown), shown, chosen=feature is not None)
        if as_json and reader and feature:
            from phasegate.engine.views.feature import feature_view  # folds the journal: only where it is shown

            found = found._replace(detail=feature_view(reader, feature))
        show(found, text.removesuffix("\n"), as_json)


def _watch(folder: str, feature: str | None, everything: bool) -> None:
    """Draw where things stand until the person has seen enough; what is printed afterwards stays."""
    live = LiveLines()
    if not live.is_live:
        raise ConfigError("--watch needs a terminal", "phasegate status")

    def lines() -> list[str]:
        try:
            reader = open_reader(folder)
            found = overview(reader, folder, feature)
            plain = page(everything)._replace(style=lambda text, _: text)
            text = overview_text(drawn(found, reader, plain), plain, chosen=feature is not None)
            cards = (found.workflow, *found.others)
            at_work = [card.feature for card in cards if card is not None and card.standing == "working"]
            return [*text.splitlines(), *(line for slug in at_work if reader for line in _jobs(reader, slug))]
        except PhasegateError as error:  # it may pass, and a thread must not die of it
            return [error.message]

    live.draw(lines())
    try:
        with kept_up_to_date(live, lines):
            Event().wait()
    except KeyboardInterrupt:
        return


def _jobs(reader: Reader, feature: str) -> Iterator[str]:
    """What agents are at now."""
    now = datetime.now(UTC)
    for job in reader.jobs(feature):
        if not job.ended:
            passed = clock((now - datetime.fromisoformat(job.started)).total_seconds())
            yield f"  {job.wp or job.workflow_phase}  {job.phase} by {job.agent}  {passed}"
