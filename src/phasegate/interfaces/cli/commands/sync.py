"""`phasegate sync`: poll the forge once, for a user, a CI job or a timer."""

from __future__ import annotations

import signal
from pathlib import Path
from threading import Event
from types import FrameType

import click

from phasegate.engine.drive import orders
from phasegate.engine.drive.issue_sync import (
    list_features_at_forge,
    start_labelled_issues,
)
from phasegate.engine.drive.run_feature import RunOptions
from phasegate.engine.drive.webhook_listener import listen_for_events
from phasegate.engine.journal.feature import make_feature_option
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.errors import AlreadyRunning, PhasegateError, TemporarilyUnavailable
from phasegate.interfaces.cli.commands.run import run_and_report
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import json_option, make_printable, print_line

# Polls are the fallback of events
_FALLBACK_FACTOR = 10


@click.command()
@feature_option
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Go on until Ctrl-C: poll when the forge sends an event to this address.",
)
@json_option
def sync(feature: str | None, listen: str | None, as_json: bool) -> int:
    """Poll the forge once, and record what is new. No agent is started.

    A pull request that is approved and green is merged, unless [merge] auto_merge is false. Review
    comments are handled by the next `phasegate run`. An issue with a label of [forge]
    issue_workflows starts a workflow, once. Exit 0: nothing needs you, or there is nothing to do.
    Exit 1: a feature needs you.

    With --listen, a webhook of the forge replaces polling; put the address behind a proxy with TLS.
    Events must be signed with the secret of [forge] webhook_secret_env. Without events, it polls
    ten times less often than `run` does.

    \b
    Examples:
      phasegate sync
      phasegate sync --feature 001-user-login --json
      phasegate sync --listen 127.0.0.1:8090
    """
    if listen is not None:
        _sync_on_events(listen, feature, as_json)
        return 0

    return _sync_once(feature, as_json)


def _sync_on_events(address: str, feature: str | None, as_json: bool) -> None:
    """Poll the forge at each event, until a signal arrives."""
    project = open_project(Path.cwd())
    wake, ended = Event(), Event()
    interval_s = project.config.forge.poll_interval_s * _FALLBACK_FACTOR

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()
        wake.set()

    with listen_for_events(project, address, wake) as served:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)

        print_line(f"listening for events of the forge at {served}", err=True)
        while not ended.is_set():
            # An event during the look asks for another one
            wake.clear()
            try:
                _sync_once(feature, as_json)
            except PhasegateError as error:
                print_line(make_printable(f"{error.message} ({error.hint})"), err=True)
            except KeyboardInterrupt:
                return

            if not ended.is_set():
                wake.wait(interval_s)


def _sync_once(feature: str | None, as_json: bool) -> int:
    """Poll the forge once; return the exit code."""
    project = open_project(Path.cwd())
    options = RunOptions(by=project.make_origin("cli"), poll_once=True)
    with open_project_store(project) as store:
        if feature is not None:
            slug = orders.select_feature(project, store, feature)
            return run_and_report(project, store, slug, options, as_json)

        for slug in start_labelled_issues(project, store):
            next_command = f"phasegate run{make_feature_option(store, slug)}"
            print_line(f"{slug}: started; then: {next_command}", err=True)

        codes = []
        for slug in list_features_at_forge(project, store):
            try:
                codes.append(run_and_report(project, store, slug, options, as_json))
            except AlreadyRunning:
                # A run or another sync polls for it
                continue
            except TemporarilyUnavailable:
                # The others wait for the same forge
                raise
            except PhasegateError as error:
                print_line(make_printable(f"{slug}: {error.message} ({error.hint})"), err=True)
                codes.append(error.exit_code)

        return max(codes, default=0)
