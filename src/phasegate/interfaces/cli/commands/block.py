"""`phasegate block check`: validate next-steps and status blocks."""

from __future__ import annotations

import click

from phasegate.core.answer.block import BLOCK_KINDS, check_block
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import json_option, print_result, read_input

EXPLANATIONS = {
    "no-block": "the output does not end with a block",
    "wrong-delimiter": "a block starts and ends with a line of exactly three hyphens",
    "wrong-header": "the header is 'SUGGESTED NEXT STEPS:' or 'STATUS: ' and one sentence, exactly",
    "item-prefix": "an item is two spaces, [n], one space and text",
    "numbering": "items are numbered 1, 2, 3 ... without gaps",
    "too-few-items": "a block has at least 2 items",
    "too-many-items": "a block has at most 4 items",
    "non-ascii": "a block is printable ASCII only",
    "crlf": "lines end in LF, not CRLF or CR",
    "blank-line": "there is no blank line inside a block",
    "not-last": "the block is the last thing in the output",
    "menu-in-status": "a sub-agent reports a status and offers no menu",
}


@click.group(cls=Group)
def block() -> None:
    """Check a SUGGESTED NEXT STEPS or STATUS block."""


@block.command()
@click.argument("source", metavar="[FILE|-]", default="-")
@click.option(
    "--kind",
    type=click.Choice(BLOCK_KINDS),
    default="next-steps",
    show_default=True,
    help="The expected kind of block.",
)
@json_option
def check(source: str, kind: str, as_json: bool) -> int:
    """Check the block at the end of an agent's output.

    Exit 0: the block is valid. Exit 1: one line for each broken rule.

    \b
    Examples:
      phasegate block check answer.txt
      my-agent | phasegate block check --kind status
    """
    text = read_input(source).decode("utf-8", "surrogateescape")
    broken = check_block(text, kind)
    lines = "\n".join(f"{name}: {EXPLANATIONS[name]}" for name in broken)
    print_result({"kind": kind, "ok": not broken, "errors": broken}, lines, as_json)
    if broken:
        return 1

    return 0
