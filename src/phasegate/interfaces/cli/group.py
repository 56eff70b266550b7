"""The base class of commands with subcommands."""

from __future__ import annotations

import click


class Group(click.Group):
    """A group whose help page shows the summary of each command in full, not truncated."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            (name, command.get_short_help_str(limit=1000))
            for name, command in sorted(self.commands.items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
