"""`phasegate audit show|verify`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from phasegate.core.text.visible import visible
from phasegate.engine.views.audit import (
    AuditReport,
    JobWork,
    TrailSummary,
    chain,
    location_of,
    payload_of,
    trails,
    verified,
    work_of,
)
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.live_display import waiting
from phasegate.interfaces.cli.options import reading_the_fleet
from phasegate.interfaces.cli.render import current_folder, json_option, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from phasegate.engine.views.job import JobView

_LEFT_OUT = ("ts", "actor", "action", "source", "agent", "job", "prev", "entry_hash", "argv", "env", "cwd")
_HASHES = ("hash", "sha", "commit", "evidence", "taken_from", "prompt_sha256", "output_sha256")
_PLAIN = ("path", "command", "message", "text", "detail")
_SHORT, _ACTIONS = 12, len("scope_violation")


@click.group(cls=Group)
def audit() -> None:
    """Show the audit trails, and verify that nothing in them was changed."""


@audit.command("show")
@click.option("--job", metavar="ID", help="The entries of this job; the beginning of its id is enough.")
@click.option("--feature", metavar="SLUG", help="Only what belongs to this feature.")
@click.option("--chain", is_flag=True, help="The chain of state changes instead of the trails.")
@reading_the_fleet(trails=True)
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
        from phasegate.engine.views.job import job_view  # half the engine: `verify` does without

        view = job_view(location_of(folder), job, feature)
        show(view, "\n".join(map(visible, _story(view))), as_json)
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
@click.option("--remote", is_flag=True, help="Check the copy in the bucket that [storage] names, from any machine.")
@json_option
def verify_command(remote: bool, as_json: bool) -> int:
    """Check the journal, its tables and all trails against each other and against the heads kept outside.

    With --remote: the copy in the bucket, by itself and against what is here. Where nothing was recorded here, every
    repository in the bucket is checked. Exit 0 when everything is as it was written; 1 and the first bad entry
    otherwise.

    \b
    Examples:
      phasegate audit verify
      phasegate audit verify --remote
      PHASEGATE_STORAGE__URL=s3://team-records phasegate audit verify --remote --json
    """
    with waiting("verifying"):
        report = _remotely_verified() if remote else verified(current_folder())
    show(report, "\n".join(_report_lines(report)), as_json)
    return 0 if report.ok else 1


def _remotely_verified() -> AuditReport:
    from phasegate.engine.bucket import verified_remotely  # it loads obstore

    return verified_remotely(current_folder())


@audit.command("push")
@click.option("--wait", "wait_s", type=click.FloatRange(0, 86400), default=60, show_default=True, metavar="SECONDS")
@json_option
def push_command(wait_s: float, as_json: bool) -> int:
    """Copy to the bucket that [storage] names what is not there yet.

    `run` and every order do so by themselves; this is for what an outage left over. Exit 0 when all is there; 1 when
    the bucket could not be reached for so many seconds: then it is still known what is missing.

    \b
    Examples:
      phasegate audit push
      phasegate audit push --wait 600
    """
    from phasegate.engine.bucket import push

    with waiting("copying"):
        pushed = push(current_folder(), wait_s)
    rest = f"; {pushed.waiting} are not there: {pushed.why_not}" if pushed.waiting else ""
    show(pushed, visible(f"{pushed.bucket}: {pushed.copied} entries copied{rest}"), as_json)
    return 1 if pushed.waiting else 0


def _report_lines(report: AuditReport) -> list[str]:
    notes = [visible(f"note: {note}") for note in report.notes]
    if report.ok:
        counted = f"verified: {report.entries} entries, {report.trails} trails"
        return [counted, *notes] if report.entries else notes or ["nothing is recorded yet"]
    first, *more = [f"{visible(problem.where)}: {visible(problem.why)}" for problem in report.problems]
    return [f"NOT VERIFIED. First: {first}", *(f"  also: {line}" for line in more), *notes]


def _trail_line(trail: TrailSummary) -> str:
    work = f"  {_work(trail.about)}" if trail.about else ""
    times = f"{trail.first_ts} to {trail.last_ts}"
    return visible(f"{trail.feature}/{trail.job}{work}  {trail.entries} entries  {times}  {trail.last_action}")


def _work(about: JobWork) -> str:
    return f"{about.work}, {about.role}, round {about.round}, {about.agent}, {about.outcome or 'at work'}"


def _story(view: JobView) -> Iterator[str]:
    """Who did what for which work and how it ended; then what happened, line by line."""
    known = f": {_work(work_of(view.row))}" if view.row else ""
    yield f"job {view.job} of {view.feature}{known}"
    width = max((len(str(entry.get("actor", "?"))) for entry in view.entries), default=0)
    yield from (entry_line(entry, width) for entry in view.entries)
    yield from (f"what it wrote: {log.path}" for log in view.logs)


def entry_line(entry: Mapping[str, object], width: int = 0) -> str:
    """One entry of a trail."""
    ts, actor, action = (str(entry.get(name, "?")) for name in ("ts", "actor", "action"))
    told = " ".join(_told(entry))
    return f"{ts}  {actor.ljust(width)}  {action.ljust(_ACTIONS)}  {told}  ({entry.get('source', 'unreadable')})"


def _told(entry: Mapping[str, object]) -> Iterator[str]:
    """The fields of an entry as people read them: hashes by their beginning, what is long left to `--json`."""
    for name, value in entry.items():
        if name in _HASHES:
            yield f"{name} {str(value)[:_SHORT]}"
        elif name in _PLAIN:
            yield str(value)
        elif name not in _LEFT_OUT and value not in (None, ""):
            yield f"{name} {value}"
