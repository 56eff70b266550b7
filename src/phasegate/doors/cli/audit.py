"""`phasegate audit show|verify`."""

from __future__ import annotations

from collections.abc import Mapping

import click
import msgspec

from phasegate.doors.cli.group import Group
from phasegate.doors.cli.live_lines import waiting
from phasegate.doors.cli.render import current_folder, json_option, show
from phasegate.engine.audit_view import AuditReport, TrailSummary, chain, location_of, payload_of, trails, verified
from phasegate.engine.job_view import job_view
from phasegate.rules.visible_text import visible

_SHOWN_APART = ("ts", "actor", "action", "source")
_LEFT_OUT = ("job", "prev", "entry_hash")


@click.group(cls=Group)
def audit() -> None:
    """Show the audit trails, and verify that nothing in them was changed."""


@audit.command("show")
@click.option("--job", metavar="ID", help="The entries of this job; the beginning of its id is enough.")
@click.option("--feature", metavar="SLUG", help="Only what belongs to this feature.")
@click.option("--chain", is_flag=True, help="The chain of state changes instead of the trails.")
@json_option
def show_command(job: str | None, feature: str | None, chain: bool, as_json: bool) -> None:
    """Show which trails there are, or what is in one.

    \b
    Examples:
      phasegate audit show
      phasegate audit show --job 3a6b8c9d
      phasegate audit show --chain --feature 001-user-login
    """
    folder = current_folder()
    if job is not None:
        view = job_view(location_of(folder), job, feature)
        wrote = (f"what it wrote: {visible(log.path)}" for log in view.logs)
        show(view, "\n".join([*map(_entry_line, view.entries), *wrote]), as_json)
    elif chain:
        _show_chain(feature, as_json)
    else:
        found = trails(folder, feature)
        show({"trails": found}, "\n".join(map(_trail_line, found)) or _none_of(feature), as_json)


def _none_of(feature: str | None) -> str:
    return f"no trails of {visible(feature)}" if feature else "no trails yet"


def _show_chain(feature: str | None, as_json: bool) -> None:
    events = chain(current_folder(), feature)
    lines = [
        f"{e.position}  {e.ts}  {e.feature or '-'}  {e.kind}  {e.payload.decode(errors='replace')}" for e in events
    ]
    data = [event._asdict() | {"payload": payload_of(event)} for event in events]
    show({"chain": data}, "\n".join(map(visible, lines)) or "nothing is recorded yet", as_json)


@audit.command("verify")
@json_option
def verify_command(as_json: bool) -> int:
    """Check the journal, its tables and all trails against each other and against the heads kept outside.

    Exit 0 when everything is as it was written; 1 and the first bad entry otherwise.

    \b
    Examples:
      phasegate audit verify
      phasegate audit verify --json
    """
    with waiting("verifying"):
        report = verified(current_folder())
    show(report, "\n".join(_report_lines(report)), as_json)
    return 0 if report.ok else 1


def _report_lines(report: AuditReport) -> list[str]:
    notes = [visible(f"note: {note}") for note in report.notes]
    if report.ok:
        counted = f"verified: {report.entries} entries, {report.trails} trails"
        return [counted, *notes] if report.entries else notes or ["nothing is recorded yet"]
    first, *more = [f"{visible(problem.where)}: {visible(problem.why)}" for problem in report.problems]
    return [f"NOT VERIFIED. First: {first}", *(f"  also: {line}" for line in more), *notes]


def _trail_line(trail: TrailSummary) -> str:
    entries = f"{trail.entries} entries"
    return visible(f"{trail.feature}/{trail.job}  {entries}  {trail.first_ts} to {trail.last_ts}  {trail.last_action}")


def _entry_line(entry: Mapping[str, object]) -> str:
    fields = {name: value for name, value in entry.items() if name not in (*_SHOWN_APART, *_LEFT_OUT)}
    details = msgspec.json.encode(fields).decode() if fields else ""
    return visible("  ".join([*(str(entry.get(name, "?")) for name in _SHOWN_APART), details]).rstrip())
