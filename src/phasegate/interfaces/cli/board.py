"""`phasegate board`: the pages for a browser, and which repositories they show."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from pathlib import Path

import click

from phasegate.engine.project.ports import stamp
from phasegate.engine.project.settings import root_around
from phasegate.engine.views.board_registry import announced, forget_repository, keep_repository, kept_repositories
from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import fleet_kept_up_to_date, reading_the_fleet
from phasegate.interfaces.cli.render import FLEET, current_folder, json_option, printable, show

PORT = 7477


@click.group(cls=Group, invoke_without_command=True)
@click.option("--port", type=click.IntRange(0, 65535), help=f"Where to listen on 127.0.0.1; {PORT} if it is free.")
@reading_the_fleet(trails=True)
@click.pass_context
def board(ctx: click.Context, port: int | None) -> None:
    """Serve a board for the browser: what waits for you, what is in work, every feature, package and job.

    It listens on 127.0.0.1 only, and the link that it prints lets one browser in, once. It shows this repository and
    those that were added. With --fleet, the features of its fleet: to look at; orders are given at the command line.
    Needs the extra: pip install 'phasegate[board]'.

    \b
    Examples:
      phasegate board
      phasegate board --port 8000
      phasegate board add ../another-repository
      phasegate board --fleet
    """
    if ctx.invoked_subcommand is None:
        _serve(port)


def _serve(port: int | None) -> None:
    try:
        from phasegate.interfaces.board.access import BoardEntry
        from phasegate.interfaces.board.server import open_socket, serve
    except ModuleNotFoundError as error:
        raise EnvironmentUnavailable(f"{error.name} is not installed", "pip install 'phasegate[board]'") from error
    here = _here()
    if here is None and not kept_repositories():
        raise ConfigError("there is no repository here, and none was added", "phasegate board add PATH")
    try:
        try:
            listening = open_socket(PORT if port is None else port)
        except OSError:
            if port is not None:
                raise
            listening = open_socket(0)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"cannot listen on port {port}: {error.strerror}", "name another --port"
        ) from error
    with listening:
        entry = BoardEntry(listening.getsockname()[1])
        with announced(entry.address, stamp(time.time())), fleet_kept_up_to_date():
            serve(here, listening, entry, lambda: _tell(entry.link, entry.port))


def _here() -> Path | None:
    if copy := click.get_current_context().meta.get(FLEET):
        return Path(copy)
    try:
        return root_around(current_folder())
    except ConfigError:
        return None


def _tell(link: str, port: int) -> None:
    click.echo(f"board: {link}\n  ends with Ctrl-C; the link works once, for one browser")
    if os.environ.get("SSH_CONNECTION"):
        line = f"ssh -N -L {port}:127.0.0.1:{port} {getpass.getuser()}@{socket.gethostname()}"
        click.echo(f"  from your own machine, first: {line}")
    sys.stdout.flush()


@board.command("add")
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def add(path: Path, as_json: bool) -> None:
    """Show the repository at PATH on the board too.

    \b
    Example:
      phasegate board add ../another-repository
    """
    root = keep_repository(path)
    show({"repository": str(root)}, f"{printable(root)} is on the board", as_json)


@board.command("remove")
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def remove(path: Path, as_json: bool) -> None:
    """Take the repository at PATH off the board. Nothing in it is touched.

    \b
    Example:
      phasegate board remove ../another-repository
    """
    root = forget_repository(path)
    show({"repository": str(root)}, f"{printable(root)} is off the board", as_json)


@board.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the repositories that were added.

    \b
    Example:
      phasegate board list
    """
    roots = [str(root) for root in kept_repositories()]
    show({"repositories": roots}, "\n".join(map(printable, roots)) or "none was added", as_json)
