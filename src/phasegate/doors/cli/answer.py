"""`answer parse`: what the parser makes of an agent's answer, for people who write templates or agents."""

from __future__ import annotations

import click

from phasegate.doors.cli.group import Group
from phasegate.doors.cli.render import read_input, show
from phasegate.rules.answer import parse_answer
from phasegate.rules.answer_words import ALLOWED


@click.group(cls=Group)
def answer() -> None:
    """Read an agent's answer."""


@answer.command()
@click.option("--phase", required=True, type=click.Choice([*ALLOWED]), help="The phase that the answer belongs to.")
@click.option("--json", is_flag=True, expose_value=False, help="Changes nothing: the output is always one JSON object.")
@click.argument("source", metavar="[FILE|-]", default="-")
def parse(phase: str, source: str) -> int:
    """Print what an answer says as one JSON object.

    The answer is read from FILE, or from stdin. Its fields: verdict, error (and the reason in words), task_statuses,
    text (without thoughts and escape sequences), result and response (as given, and typed), result_error, blockers,
    block, truncated, warnings. Exit code 1 means that the answer is refused: error says why.

    \b
    Example:
      printf 'All tests pass.\\n<review>PASS</review>\\n' | phasegate answer parse --phase review
    """
    parsed = parse_answer(read_input(source).decode("utf-8", "replace"), phase)
    show(parsed, "", as_json=True)
    return 1 if parsed.error else 0
