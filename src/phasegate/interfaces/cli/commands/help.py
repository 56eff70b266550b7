"""`phasegate help`: the help of a command, or all commands by topic."""

from __future__ import annotations

import click

from phasegate.interfaces.cli.main import app, list_all_sections, write_commands


@click.command("help")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="List all commands by topic.")
@click.pass_context
def help_(ctx: click.Context, names: tuple[str, ...], everything: bool) -> None:
    """Show the help of a command, or all commands.

    \b
    Examples:
      phasegate help
      phasegate help run
      phasegate help --all
    """
    if everything:
        formatter = ctx.make_formatter()
        write_commands(formatter, list_all_sections())
        click.echo(formatter.getvalue(), nl=False)
        return

    with app.make_context("phasegate", [*names, "--help"]) as context:
        app.invoke(context)
