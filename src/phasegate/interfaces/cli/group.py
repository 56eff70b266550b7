"""A command that has commands of its own."""

from __future__ import annotations

import click


class Group(click.Group):
    """A group whose help page shows the first sentence of each command whole, not cut at the edge."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            (name, command.get_short_help_str(limit=1000))
            for name, command in sorted(self.commands.items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
