"""`phasegate prompt show`: the exact XML that an agent would be sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from phasegate.core.prompt.budget import Truncation
from phasegate.core.prompt.hidden_characters import HiddenCharacter, quote_name
from phasegate.engine.tools.prompt_preview import (
    AssembledPrompt,
    PromptContext,
    PromptPreview,
    as_utf8,
    read_recorded_prompt,
)
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import current_folder, json_option, read_input


@click.group(cls=Group)
def prompt() -> None:
    """Show the exact prompt that an agent would be sent."""


@prompt.command()
@click.argument("instructions", required=False)
@click.option("--phase", help="plan, challenge, implement, review or archive.")
@click.option("--agent", help="For whom: an agent of the configuration, or claude, codex, ...")
@click.option(
    "--file", "files", multiple=True, metavar="F", help="A file of the repository, as context."
)
@click.option(
    "--artifact", "artifacts", multiple=True, metavar="F", help="A document of an earlier phase."
)
@click.option("--thought", "thoughts", multiple=True, metavar="TEXT", help="A thought, as context.")
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="At most so many tokens, by our estimate.",
)
@click.option(
    "--workflow-phase",
    metavar="KEY",
    help="Skeletons of what this phase writes, like 01-requirements.",
)
@click.option("--job", metavar="ID", help="The prompt that this recorded run was given; alone.")
@json_option
def show(
    instructions: str | None,
    phase: str | None,
    agent: str | None,
    files: tuple[str, ...],
    artifacts: tuple[str, ...],
    thoughts: tuple[str, ...],
    budget: int | None,
    workflow_phase: str | None,
    job: str | None,
    as_json: bool,
) -> None:
    """Write the XML for INSTRUCTIONS to stdout; `-` takes them from stdin.

    Without a budget everything goes in, up to 64 MB of files.
    With one, what had to be cut or left out is listed in the prompt and on stderr.

    \b
    Examples:
      phasegate prompt show --phase plan --agent gemini "Add login"
      phasegate prompt show --phase review --agent codex --file src/login.py --budget 50000 "Review this"
      phasegate prompt show --job 3a6b8c9d-1e2f-4a5b-8c9d-1e2f4a5b8c9d
    """
    if job is not None:
        sys.stdout.buffer.write(read_recorded_prompt(current_folder(), job))
        _end_terminal_line()
        return

    if instructions is None or phase is None or agent is None:
        raise click.UsageError("Give --phase, --agent and instructions; or --job alone.")

    if instructions == "-":
        text = read_input("-").decode("utf-8", "surrogateescape")
    else:
        text = as_utf8(instructions)

    preview = PromptPreview(
        agent, phase, text, PromptContext(files, artifacts, thoughts), budget, workflow_phase
    )
    _print_prompt(preview.assemble_prompt(), as_json)


def _print_prompt(assembled: AssembledPrompt, as_json: bool) -> None:
    if as_json:
        # In ASCII: a name may hold bytes that are no UTF-8
        click.echo(json.dumps(_to_data(assembled)))
    else:
        sys.stdout.buffer.write(assembled.prompt.to_xml().encode())
        _end_terminal_line()

    _print_omissions(assembled.left_out, assembled.cut, assembled.hidden)


def _end_terminal_line() -> None:
    """The output is the exact XML; only a terminal gets a line end behind it."""
    if sys.stdout.isatty():
        click.echo()


def _to_data(assembled: AssembledPrompt) -> dict[str, object]:
    return {
        "prompt": assembled.prompt.to_dict(),
        "tokens": assembled.tokens,
        "left_out": assembled.left_out,
        "cut": [one._asdict() for one in assembled.cut],
        "hidden": [one._asdict() for one in assembled.hidden],
    }


def _print_omissions(
    left_out: Sequence[str], cut: Sequence[Truncation], hidden: Sequence[HiddenCharacter]
) -> None:
    """Say on stderr what the prompt says about itself, in full."""
    for name in left_out:
        click.echo(f"left out: {quote_name(name)}", err=True)

    for one in cut:
        click.echo(
            f"cut: {quote_name(one.name)}, {one.shown_bytes} of {one.total_bytes} bytes are shown",
            err=True,
        )

    for found in hidden:
        click.echo(
            f"hidden character: {quote_name(found.item)}, line {found.line}: {found.character}",
            err=True,
        )
