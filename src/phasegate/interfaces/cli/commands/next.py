"""`phasegate next` for the cases that its fast path does not handle: help, errors and --json."""

from __future__ import annotations

import click

from phasegate.core.answer.block import parse_menu
from phasegate.core.display.next_steps import EVENTS
from phasegate.engine.views.feature import read_block_of_feature
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import current_folder, json_option, print_result
from phasegate.interfaces.fast_path.next import HOOK_FORMATS, format_for_hook, read_current_block


@click.command("next")
@click.option(
    "--phase",
    metavar="KEY",
    help="Print the block of this phase, for example 03-architecture, or discover.",
)
@feature_option
@click.option("--event", type=click.Choice(EVENTS), help="Print the block of this event.")
@click.option(
    "--as",
    "form",
    type=click.Choice([*HOOK_FORMATS]),
    help="Format the block for the hook of an agent program.",
)
@json_option
def next_(
    phase: str | None, feature: str | None, event: str | None, form: str | None, as_json: bool
) -> None:
    """Print the suggested next steps of the active workflow, and nothing else.

    Without options: the block of the current phase, or nothing if no workflow is active.

    \b
    Examples:
      phasegate next
      phasegate next --phase 03-architecture
      phasegate next --event gate-passed
      phasegate next --feature 001
    """
    if phase is not None and event is not None:
        raise click.UsageError("--phase cannot be combined with --event.")

    if feature:
        block = read_block_of_feature(str(current_folder()), feature, event, phase)
    else:
        block = read_current_block(event, phase)
    if block and form and not as_json:
        block = format_for_hook(block, form)

    text = (block or "").removesuffix("\n")
    print_result({"block": block, "items": parse_menu(block) if block else []}, text, as_json)
