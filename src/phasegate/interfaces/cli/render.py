"""Print results: as text, or as one JSON object."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from phasegate.core.text.light_json import to_plain_data
from phasegate.core.text.visible import escape_json, escape_unprintable
from phasegate.errors import ConfigError

# Key in the context of a command: the folder with the copy of the fleet's record.
FLEET_COPY_KEY = "phasegate.fleet"
# Key in the context of a command: it is set for an order to the fleet.
FLEET_ORDER_KEY = "phasegate.fleet-order"
# In the context: `--feature` before the command
FEATURE_KEY = "phasegate.feature"
F = TypeVar("F", bound=Callable[..., Any])


class FreeText(click.ParamType[str]):
    """Free text of the user.

    Invalid UTF-8 is replaced by U+FFFD, since the text is recorded and sent to agents.
    """

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


json_option: Callable[[F], F] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of text."
)


def print_result(data: object, text: str, as_json: bool) -> None:
    """Write the result to stdout: `data` as JSON, or `text` unchanged."""
    if as_json:
        # Importing msgspec costs more than most commands without --json.
        import msgspec

        click.echo(escape_json(msgspec.json.encode(to_plain_data(data)).decode()))
    elif text:
        click.echo(text)


def print_line(text: str, *, err: bool = False) -> None:
    """Write a line while work continues. A closed stream does not stop the work."""
    try:
        click.echo(text, err=err)
    except OSError:
        # The pipe or the terminal was closed, or the disk of the log file is full.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if err else 1)


def is_stdout_separate_file() -> bool:
    """Return whether stdout is a file, as with `> log`, and stderr is not the same file."""
    try:
        out = os.fstat(sys.stdout.fileno())
        err = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False

    return stat.S_ISREG(out.st_mode) and not os.path.samestat(out, err)


def make_printable(text: object) -> str:
    """Escape characters that could control a terminal or break a line."""
    return escape_unprintable(str(text))


def current_folder() -> Path:
    """Return the current folder; with `--fleet`, the folder with the copy of the record."""
    context = click.get_current_context(silent=True)
    if context is not None and FLEET_COPY_KEY in context.meta:
        return Path(context.meta[FLEET_COPY_KEY])

    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError(
            "the current folder no longer exists", "change to an existing folder"
        ) from error


def read_input(source: str) -> bytes:
    """Read a file, or stdin for `-`. Raises ConfigError if it cannot be read."""
    if source == "-":
        return _read_stdin()

    try:
        return Path(source).read_bytes()
    except IsADirectoryError as error:
        raise ConfigError(
            f"{source} is a folder, not a file", "pass a file in it, or - for stdin"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {source}: {error.strerror}", "pass a readable file, or - for stdin"
        ) from error


def _read_stdin() -> bytes:
    """Read all of stdin. On a terminal, print how to end the input."""
    if sys.stdin is None:
        raise ConfigError("stdin is closed", "pass a readable file")

    if sys.stdin.isatty():
        print(
            "phasegate: reading from the terminal; end the input with Ctrl-D on an empty line",
            file=sys.stderr,
        )

    return sys.stdin.buffer.read()
