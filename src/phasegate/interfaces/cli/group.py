"""The base class of commands with subcommands."""

from __future__ import annotations

import click

# The subcommand that runs without a name: the first of these that the group has.
_DEFAULTS = ("list", "show")


class Group(click.Group):
    """A group that shows or lists if no subcommand is given.

    Its help page shows the summary of each command in full, not truncated.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default subcommand if none is named, or show the help."""
        if ctx.resilient_parsing or self.invoke_without_command:
            return super().parse_args(ctx, args)

        default = next((name for name in _DEFAULTS if name in self.commands), None)
        is_help = any(option in args for option in ctx.help_option_names)
        names_no_command = not args or args[0].startswith("-")
        if default is not None and names_no_command and not is_help:
            args = [default, *args]
        elif not args:
            click.echo(ctx.get_help())
            ctx.exit()

        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            (name, command.get_short_help_str(limit=1000))
            for name, command in sorted(self.commands.items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
