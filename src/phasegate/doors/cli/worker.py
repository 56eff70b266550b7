"""`phasegate worker`: carry out features of a fleet in this clone."""

from __future__ import annotations

import click

from phasegate.doors.cli.render import current_folder, say


@click.command()
def worker() -> None:
    """Take steps of features that were given to the fleet, in this clone, until Ctrl-C.

    It needs [storage] and [fleet] in phasegate.toml, a remote, and: pip install 'phasegate[fleet]'. Told to
    end, it ends its agents and saves what they left; started again, it goes on. If it is away for long, other workers
    take its features over.

    \b
    Example:
      phasegate worker
    """
    from phasegate.engine.fleet import work  # Temporal is loaded by this command alone

    work(current_folder(), lambda queue: say(f"at work for: {queue}"))
