"""`answer parse`: what the parser makes of an agent's answer, for people who write templates or agents."""

from __future__ import annotations

import click

from phasegate.doors.cli import render
from phasegate.rules.answer import parse_answer
from phasegate.rules.verdict import ALLOWED


@click.group()
def answer() -> None:
    """Read an agent's answer."""


@answer.command()
@click.option("--phase", required=True, type=click.Choice([*ALLOWED]), help="The phase that the answer belongs to.")
@click.option("--json", is_flag=True, expose_value=False, help="Changes nothing: the output is always one JSON object.")
@click.argument("source", metavar="[FILE|-]", default="-")
@click.pass_context
def parse(ctx: click.Context, phase: str, source: str) -> None:
    """Print what an answer says as one JSON object.

    The answer is read from FILE, or from stdin. Its fields: verdict, error (and the reason in words), task_statuses,
    text (without thoughts and escape sequences), result and response (as given, and typed), result_error, blockers,
    block, truncated, warnings. Exit code 1 means that the answer is refused: error says why.

    \b
    Example:
      printf 'All tests pass.\\n<review>PASS</review>\\n' | phasegate answer parse --phase review
    """
    text = render.read_input(source).decode("utf-8", "replace")
    parsed = parse_answer(text, phase)
    render.show(parsed, "", as_json=True)
    ctx.exit(1 if parsed.error else 0)
