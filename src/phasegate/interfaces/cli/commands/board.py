"""`phasegate board`: serve the web board, and choose the repositories that it shows."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from pathlib import Path

import click

from phasegate.engine.project.ports import format_timestamp
from phasegate.engine.project.settings import find_repository_root
from phasegate.engine.views.board_registry import (
    add_repository,
    announce_board,
    list_repositories,
    remove_repository,
)
from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import fleet_view_option, keep_fleet_copy_current
from phasegate.interfaces.cli.render import (
    FLEET_COPY_KEY,
    current_folder,
    json_option,
    make_printable,
    print_result,
)

DEFAULT_PORT = 7477


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"Port on 127.0.0.1; default: {DEFAULT_PORT} if it is free.",
)
@fleet_view_option(with_trails=True)
@click.pass_context
def board(ctx: click.Context, port: int | None) -> None:
    """Serve the web board: pending decisions, running work, and every feature, package and job.

    It listens on 127.0.0.1 only, and the printed link signs in one browser, once. It shows this
    repository and those that were added. With --fleet it shows the features of the fleet read-only;
    use the command line for orders. Requires: the extra `board`.

    \b
    Examples:
      phasegate board
      phasegate board --port 8000
      phasegate board add ../another-repository
      phasegate board --fleet
    """
    if ctx.invoked_subcommand is None:
        _serve_board(port)


def _serve_board(port: int | None) -> None:
    """Listen on the port, print the sign-in link, and serve the board."""
    try:
        from phasegate.interfaces.board.access import BoardCredentials
        from phasegate.interfaces.board.server import open_socket, serve_board
    except ModuleNotFoundError as error:
        raise EnvironmentUnavailable(
            f"{error.name} is not installed", "in a checkout of Phasegate: pip install '.[board]'"
        ) from error

    here = _find_start_root()
    if here is None and not list_repositories():
        raise ConfigError("not in a repository, and none was added", "phasegate board add PATH")

    try:
        try:
            listening = open_socket(DEFAULT_PORT if port is None else port)
        except OSError:
            if port is not None:
                raise

            listening = open_socket(0)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"cannot listen on port {port}: {error.strerror}", "choose another --port"
        ) from error

    with listening:
        credentials = BoardCredentials(listening.getsockname()[1])
        with (
            announce_board(credentials.url, format_timestamp(time.time())),
            keep_fleet_copy_current(),
        ):
            serve_board(
                here,
                listening,
                credentials,
                lambda: _print_link(credentials.sign_in_url, credentials.port),
            )


def _find_start_root() -> Path | None:
    copy = click.get_current_context().meta.get(FLEET_COPY_KEY)
    if copy:
        return Path(copy)

    try:
        return find_repository_root(current_folder())
    except ConfigError:
        return None


def _print_link(link: str, port: int) -> None:
    click.echo(f"board: {link}\n  stop with Ctrl-C; the link works once, for one browser")
    if os.environ.get("SSH_CONNECTION"):
        command = f"ssh -N -L {port}:127.0.0.1:{port} {getpass.getuser()}@{socket.gethostname()}"
        click.echo(f"  first run this on your own machine: {command}")
    sys.stdout.flush()


@board.command("add")
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def add(path: Path, as_json: bool) -> None:
    """Add the repository at PATH to the board.

    \b
    Example:
      phasegate board add ../another-repository
    """
    root = add_repository(path)
    print_result({"repository": str(root)}, f"{make_printable(root)}: added to the board", as_json)


@board.command("remove")
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def remove(path: Path, as_json: bool) -> None:
    """Remove the repository at PATH from the board. The repository itself is not changed.

    \b
    Example:
      phasegate board remove ../another-repository
    """
    root = remove_repository(path)
    print_result(
        {"repository": str(root)}, f"{make_printable(root)}: removed from the board", as_json
    )


@board.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the repositories that were added.

    \b
    Example:
      phasegate board list
    """
    roots = [str(root) for root in list_repositories()]
    text = "\n".join(map(make_printable, roots)) or "no repository was added"
    print_result({"repositories": roots}, text, as_json)
