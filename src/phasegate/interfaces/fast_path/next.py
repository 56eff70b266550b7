"""`phasegate next`: reads one file and prints the block or nothing, without the command line."""

from __future__ import annotations

import os
import sys

from phasegate.core.display.next_steps import EVENTS, next_steps
from phasegate.engine.project.active_state import read_active_state, read_own_state

# JSON key that an agent program reads from a hook: a message for the user, or context for the agent
HOOK_FORMATS = {"message": "systemMessage", "context": "additional_context"}


def run_fast_path(arguments: list[str]) -> int | None:
    """Print the next-steps block.

    Return None if the full command line must handle the arguments (help, mistakes, --json).
    """
    options = _parse_options(arguments)
    if options is None:
        return None

    event, phase, hook_format = options
    block = read_current_block(event, phase)
    if block:
        return write_stdout(format_for_hook(block, hook_format))

    return 0


def format_for_hook(block: str, hook_format: str | None) -> str:
    """Format the block for the hook of an agent program: a JSON object.

    The block is printable ASCII, which needs little escaping.
    """
    if hook_format is None:
        return block

    escaped = (
        block.removesuffix("\n").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    )
    return f'{{"{HOOK_FORMATS[hook_format]}": "{escaped}"}}\n'


def read_current_block(event: str | None, phase: str | None) -> str | None:
    """Return the block for the repository around the current folder."""
    try:
        folder = os.getcwd()
        state = read_active_state(folder)
        own_state = read_own_state(folder)
    except OSError:
        # The current folder was removed
        state = own_state = None

    return next_steps(state, event, phase, own_state)


def _parse_options(arguments: list[str]) -> tuple[str | None, str | None, str | None] | None:
    """Return event, phase and hook format, if the arguments are one well-formed option or none."""
    if not arguments:
        return None, None, None

    name, sign, value = arguments[0].partition("=")
    if sign and len(arguments) == 1:
        pair = (name, value)
    elif len(arguments) == 2 and not arguments[1].startswith("-"):
        pair = (arguments[0], arguments[1])
    else:
        return None

    if pair[0] == "--event" and pair[1] in EVENTS:
        return pair[1], None, None
    if pair[0] == "--as" and pair[1] in HOOK_FORMATS:
        return None, None, pair[1]
    if pair[0] == "--phase":
        return (None, pair[1], None)

    return None


def write_stdout(text: str) -> int:
    """Write a text to stdout at once; a closed or missing reader is not an error."""
    try:
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes stdout again at exit and would report the error
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            print(f"phasegate: cannot write: {error.strerror}", file=sys.stderr)
            return 3

    return 0
