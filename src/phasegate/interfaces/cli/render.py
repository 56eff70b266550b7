"""How results are shown: text for people, one JSON object for programs."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from phasegate.core.text.light_json import to_plain_data
from phasegate.core.text.visible import escape_unprintable
from phasegate.errors import ConfigError

# In the context of a command: the folder that the fleet's record was copied to
FLEET_COPY_KEY = "phasegate.fleet"
F = TypeVar("F", bound=Callable[..., Any])


class FreeText(click.ParamType[str]):
    """What a person says in words.

    Bytes that are no UTF-8 become U+FFFD: it is recorded, and shown to agents.
    """

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


json_option: Callable[[F], F] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of text."
)


def print_result(data: object, text: str, as_json: bool) -> None:
    """Write the result to stdout: `data` as JSON, or `text` as it is."""
    if as_json:
        # Costs more than most commands do in text
        import msgspec

        click.echo(msgspec.json.encode(to_plain_data(data)).decode())
    elif text:
        click.echo(text)


def print_line(text: str, *, err: bool = False) -> None:
    """Write a line while work goes on.

    That nobody can read it any more is no reason to stop the work.
    """
    try:
        click.echo(text, err=err)
    except OSError:
        # `| head` has gone, the terminal was closed, the disk of the log is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if err else 1)


def is_stdout_separate_file() -> bool:
    """Whether it goes to a file, as with `> log`, and stderr elsewhere."""
    try:
        out = os.fstat(sys.stdout.fileno())
        err = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False

    return stat.S_ISREG(out.st_mode) and not os.path.samestat(out, err)


def make_printable(text: object) -> str:
    """A file name, or any text from outside, without what could steer a terminal or break a line."""
    return escape_unprintable(str(text))


def current_folder() -> Path:
    """Where the person is; with `--fleet`, the copy of the fleet's record."""
    context = click.get_current_context(silent=True)
    if context is not None and FLEET_COPY_KEY in context.meta:
        return Path(context.meta[FLEET_COPY_KEY])

    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError("the current folder is gone", "change into one that exists") from error


def read_input(source: str) -> bytes:
    """The bytes of a file, or of stdin for `-`; a file that cannot be read is the person's to mend."""
    if source == "-":
        return _read_stdin()

    try:
        return Path(source).read_bytes()
    except IsADirectoryError as error:
        raise ConfigError(
            f"{source} is a folder, and a file is meant", "name a file in it, or - for stdin"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {source}: {error.strerror}", "name a readable file, or - for stdin"
        ) from error


def _read_stdin() -> bytes:
    """All of stdin; a person at a terminal is told what we wait for."""
    if sys.stdin is None:
        raise ConfigError("there is no stdin to read", "name a readable file")

    if sys.stdin.isatty():
        print(
            "phasegate: reading from the terminal; end with Ctrl-D on a line of its own",
            file=sys.stderr,
        )

    return sys.stdin.buffer.read()
