"""`phasegate status` with arguments; without them, its fast path answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Event

import click

from phasegate.engine.views.overview import (
    StoreReader,
    build_overview,
    find_package_cards,
    open_reader,
)
from phasegate.engine.views.run_obstacles import find_config_error, refuse_lost_store
from phasegate.engine.views.status_text import render_overview, render_packages, with_dependencies
from phasegate.errors import ConfigError, PhasegateError
from phasegate.interfaces.cli.completion_values import (
    PackageIdParam,
    complete_from,
    list_package_ids,
)
from phasegate.interfaces.cli.live_display import LiveLines, format_clock, redraw_periodically
from phasegate.interfaces.cli.options import (
    feature_option,
    fleet_view_option,
    keep_fleet_copy_current,
)
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_line,
    print_result,
)
from phasegate.interfaces.fast_path.status import build_status_page


@click.command()
@click.argument(
    "work_package",
    type=PackageIdParam(),
    metavar="[WPnn]",
    required=False,
    shell_complete=complete_from(list_package_ids),
)
@click.option("--all", "everything", is_flag=True, help="Show every package.")
@click.option("--watch", is_flag=True, help="Update the display until Ctrl-C.")
@feature_option
@fleet_view_option(with_trails=False)
@json_option
def status(
    work_package: str | None, everything: bool, watch: bool, feature: str | None, as_json: bool
) -> None:
    """Show the state of the workflow: its phases, gates, packages and blockers.

    With WPnn: one package with its jobs. On a terminal, long columns of packages are shortened
    unless --all is given.

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
            raise ConfigError(
                "--watch cannot be combined with WPnn or --json", "phasegate status --watch"
            )

        with keep_fleet_copy_current():
            _watch_status(folder, feature, everything)

    reader = open_reader(folder)
    if reader is None:
        refuse_lost_store(folder)

    if work_package:
        cards = find_package_cards(reader, work_package, feature)
        # Replays the journal, so only where it is shown.
        from phasegate.engine.views.verdicts import read_verdicts

        verdicts: dict[str, str] = {}
        if reader:
            for slug in {card.feature for card in cards}:
                verdicts |= read_verdicts(reader, slug)
        print_result(cards, render_packages(cards, verdicts).removesuffix("\n"), as_json)
    else:
        overview = build_overview(reader, folder, feature)
        page = build_status_page(everything)
        text = render_overview(
            with_dependencies(overview, reader, page), page, chosen=feature is not None
        )

        if as_json and reader and feature:
            # Replays the journal, so only where it is shown.
            from phasegate.engine.views.feature import feature_view

            overview = overview._replace(detail=feature_view(reader, feature))

        print_result(overview, text.removesuffix("\n"), as_json)

    if error := find_config_error(folder):
        print_line(make_printable(f"phasegate: `run` will fail: {error.message}"), err=True)
        if error.hint:
            print_line(make_printable(f"  hint: {error.hint}"), err=True)


def _watch_status(folder: str, feature: str | None, everything: bool) -> None:
    """Draw the status periodically until Ctrl-C."""
    live = LiveLines()
    if not live.is_live:
        raise ConfigError("--watch needs a terminal", "phasegate status")

    def render_lines() -> list[str]:
        try:
            return _render_status(folder, feature, everything)
        except PhasegateError as error:
            # It may be temporary, and must not end the redraw thread.
            return [error.message]

    live.draw(render_lines())

    try:
        with redraw_periodically(live, render_lines):
            Event().wait()
    except KeyboardInterrupt:
        return


def _render_status(folder: str, feature: str | None, everything: bool) -> list[str]:
    """Render the overview and the running jobs, without colours."""
    reader = open_reader(folder)
    overview = build_overview(reader, folder, feature)
    page = build_status_page(everything)._replace(style=lambda text, _: text)
    text = render_overview(
        with_dependencies(overview, reader, page), page, chosen=feature is not None
    )

    lines = text.splitlines()
    for card in (overview.workflow, *overview.others):
        if reader and card is not None and card.standing == "working":
            lines += _format_running_jobs(reader, card.feature)

    return lines


def _format_running_jobs(reader: StoreReader, feature: str) -> Iterator[str]:
    """Yield a line for each running job of a feature."""
    now = datetime.now(UTC)
    for job in reader.jobs(feature):
        if not job.ended:
            passed = format_clock((now - datetime.fromisoformat(job.started)).total_seconds())
            yield f"  {job.wp or job.workflow_phase}  {job.phase} by {job.agent}  {passed}"
