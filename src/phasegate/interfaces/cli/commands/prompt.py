"""`phasegate prompt show`: print the exact XML that an agent would get."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from phasegate.core.prompt.budget import Truncation
from phasegate.core.prompt.document import UnifiedPrompt
from phasegate.core.prompt.hidden_characters import HiddenCharacter, quote_name
from phasegate.core.prompt.prompt_sizes import measure_feature_share
from phasegate.core.text.visible import escape_controls
from phasegate.engine.tools.prompt_preview import (
    AssembledPrompt,
    PromptContext,
    as_utf8,
    measure_prompt,
    preview_prompt,
    read_recorded_prompt,
)
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import current_folder, json_option, read_input


@click.group(cls=Group)
def prompt() -> None:
    """Show the exact prompt that an agent would get."""


@prompt.command()
@click.argument("instructions", required=False)
@click.option("--phase", help="Phase of the prompt: plan, challenge, implement, review or archive.")
@click.option("--agent", help="A configured agent, or claude, codex, ...")
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="F",
    help="A file of the repository to add as context.",
)
@click.option(
    "--artifact",
    "artifacts",
    multiple=True,
    metavar="F",
    help="A document of an earlier phase to add.",
)
@click.option(
    "--thought", "thoughts", multiple=True, metavar="TEXT", help="A note to add as context."
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum number of tokens (estimated).",
)
@click.option(
    "--workflow-phase",
    metavar="KEY",
    help="Add the skeletons of the documents of this phase, for example 01-requirements.",
)
@click.option(
    "--job",
    metavar="ID",
    help="Print the recorded prompt of this job; cannot be combined with other options.",
)
@click.option(
    "--sizes", is_flag=True, help="Print the size of each part instead, in tokens of 4 characters."
)
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
    sizes: bool,
    as_json: bool,
) -> None:
    """Write the XML for INSTRUCTIONS to stdout; `-` reads the instructions from stdin.

    Without a budget everything is included, up to 64 MB of files. With one, the prompt and stderr
    list what was truncated or omitted.

    \b
    Examples:
      phasegate prompt show --phase plan --agent gemini "Add login"
      phasegate prompt show --phase review --agent codex --file login.py --budget 50000 "Review"
      phasegate prompt show --job 3a6b8c9d-1e2f-4a5b-8c9d-1e2f4a5b8c9d --sizes
    """
    if job is not None:
        recorded = read_recorded_prompt(current_folder(), job)
        if sizes:
            _print_sizes(UnifiedPrompt.from_xml(recorded.decode()), as_json)
        else:
            _write_xml(recorded)
        return

    if instructions is None or phase is None or agent is None:
        raise click.UsageError("Give --phase, --agent and INSTRUCTIONS, or only --job.")

    if instructions == "-":
        text = read_input("-").decode("utf-8", "surrogateescape")
    else:
        text = as_utf8(instructions)

    context = PromptContext(files, artifacts, thoughts)
    assembled = preview_prompt(agent, phase, text, context, budget, workflow_phase)
    if sizes:
        _print_sizes(assembled.prompt, as_json)
    else:
        _print_prompt(assembled, as_json)


def _print_sizes(prompt: UnifiedPrompt, as_json: bool) -> None:
    """Print a line for each part, then the total and the share that is about the feature."""
    parts = measure_prompt(prompt)
    total = sum(part.tokens for part in parts)
    share = measure_feature_share(parts)
    if as_json:
        rows = [part._asdict() for part in parts]
        click.echo(json.dumps({"parts": rows, "tokens": total, "feature_share": round(share, 3)}))
        return

    for part in parts:
        click.echo(f"{part.tokens:>7}  {part.part:<12}  {quote_name(part.name)}".rstrip())
    click.echo(f"{total:>7}  total; {share:.0%} is about this feature")


def _print_prompt(assembled: AssembledPrompt, as_json: bool) -> None:
    if as_json:
        # As ASCII, because a name may hold invalid UTF-8.
        click.echo(json.dumps(_to_data(assembled)))
    else:
        _write_xml(assembled.prompt.to_xml().encode())

    _print_omissions(assembled.left_out, assembled.cut, assembled.hidden)


def _write_xml(xml: bytes) -> None:
    """Print the exact XML; on a terminal with what could control it escaped, and a line end."""
    if sys.stdout.isatty():
        click.echo(escape_controls(xml.decode("utf-8", "replace")))
    else:
        sys.stdout.buffer.write(xml)


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
    """Print truncated and omitted items and hidden characters to stderr."""
    for name in left_out:
        click.echo(f"omitted: {quote_name(name)}", err=True)

    for item in cut:
        size = f"{item.shown_bytes} of {item.total_bytes} bytes are included"
        click.echo(f"truncated: {quote_name(item.name)}, {size}", err=True)

    for found in hidden:
        place = f"{quote_name(found.item)}, line {found.line}"
        click.echo(f"hidden character: {place}: {found.character}", err=True)
