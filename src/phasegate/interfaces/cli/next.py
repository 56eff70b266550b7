"""`phasegate next` for the arguments that the hook's fast path does not take.

Help, mistakes, --json.
"""

from __future__ import annotations

import click

from phasegate.core.answer.block import parse_menu
from phasegate.core.display.next_steps import EVENTS
from phasegate.interfaces.cli.render import json_option, print_result
from phasegate.interfaces.fast_path.next import HOOK_FORMATS, format_for_hook, read_current_block


@click.command("next")
@click.option(
    "--phase",
    metavar="KEY",
    help="The block of this phase's agent, e.g. 03-architecture, or discover.",
)
@click.option("--event", type=click.Choice(EVENTS), help="The block of this emission point.")
@click.option(
    "--as",
    "form",
    type=click.Choice([*HOOK_FORMATS]),
    help="As a hook of an agent program must print it.",
)
@json_option
def next_(phase: str | None, event: str | None, form: str | None, as_json: bool) -> None:
    """Print the suggested-next-steps block of the active workflow, and nothing else.

    Without options: the block of the current phase's agent, or nothing when no workflow is active.

    \b
    Examples:
      phasegate next
      phasegate next --phase 03-architecture
      phasegate next --event gate-passed
    """
    if phase is not None and event is not None:
        raise click.UsageError("--phase and --event exclude each other.")

    block = read_current_block(event, phase)
    if block and form and not as_json:
        block = format_for_hook(block, form)

    print_result(
        {"block": block, "items": parse_menu(block) if block else []},
        (block or "").removesuffix("\n"),
        as_json,
    )
