"""`phasegate audit`: show, verify and copy the audit trails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.views.audit import (
    AuditReport,
    JobWork,
    TrailSummary,
    decode_payload,
    describe_job_work,
    find_location,
    list_feature_trails,
    read_chain,
    verify_audit_trail,
)
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.live_display import show_waiting
from phasegate.interfaces.cli.options import fleet_view_option
from phasegate.interfaces.cli.render import current_folder, json_option, print_result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from phasegate.engine.views.job import JobView

_OMITTED_FIELDS = (
    "ts",
    "actor",
    "action",
    "source",
    "agent",
    "job",
    "prev",
    "entry_hash",
    "argv",
    "env",
    "cwd",
)
_HASH_FIELDS = ("hash", "sha", "commit", "evidence", "taken_from", "prompt_sha256", "output_sha256")
_UNLABELED_FIELDS = ("path", "command", "message", "text", "detail")
_SHORT_HASH_CHARS = 12
_ACTION_WIDTH = len("scope_violation")


@click.group(cls=Group)
def audit() -> None:
    """Show the audit trails, or verify that nothing in them was changed."""


@audit.command("show")
@click.option(
    "--job", metavar="ID", help="Show the entries of this job; a prefix of its id is enough."
)
@click.option("--feature", metavar="SLUG", help="Only this feature.")
@click.option(
    "--chain", is_flag=True, help="Show the journal of state changes instead of the trails."
)
@fleet_view_option(with_trails=True)
@json_option
def show_command(job: str | None, feature: str | None, chain: bool, as_json: bool) -> None:
    """List the trails, or show the entries of one.

    \b
    Examples:
      phasegate audit show
      phasegate audit show --job 3a6b8c9d
      phasegate audit show --chain --feature 001-user-login
    """
    folder = current_folder()

    if job is not None:
        # Imports half of the engine, which `verify` does not need.
        from phasegate.engine.views.job import job_view

        view = job_view(find_location(folder), job, feature)
        print_result(view, "\n".join(map(escape_unprintable, _format_job(view))), as_json)
    elif chain:
        _show_chain(feature, as_json)
    else:
        trails = list_feature_trails(folder, feature)
        text = "\n".join(map(_format_trail, trails)) or _format_no_trails(feature)
        print_result({"trails": trails}, text, as_json)


def _format_no_trails(feature: str | None) -> str:
    if feature:
        return f"no trails for {escape_unprintable(feature)}"
    return "no trails yet"


def _show_chain(feature: str | None, as_json: bool) -> None:
    events = read_chain(current_folder(), feature)
    lines = [
        f"{e.position}  {e.ts}  {e.feature or '-'}  {e.kind}  {e.payload.decode(errors='replace')}"
        for e in events
    ]
    data = [event._asdict() | {"payload": decode_payload(event)} for event in events]
    text = "\n".join(map(escape_unprintable, lines)) or "nothing is recorded yet"
    print_result({"chain": data}, text, as_json)


@audit.command("verify")
@click.option(
    "--remote",
    is_flag=True,
    help="Check the copy in the bucket that [storage] names, from any machine.",
)
@json_option
def verify_command(remote: bool, as_json: bool) -> int:
    """Check the journal, its tables, all trails and the chain heads outside for consistency.

    With --remote: check the copy in the bucket, by itself and against the local record. Without a
    local record, every repository in the bucket is checked. Exit 0: everything is unchanged.
    Exit 1: the first bad entry is shown.

    \b
    Examples:
      phasegate audit verify
      phasegate audit verify --remote
      PHASEGATE_STORAGE__URL=s3://team-records phasegate audit verify --remote --json
    """
    with show_waiting("verifying"):
        if remote:
            report = _verify_remotely()
        else:
            report = verify_audit_trail(current_folder())

    print_result(report, "\n".join(_format_report(report)), as_json)
    if report.ok:
        return 0

    return 1


def _verify_remotely() -> AuditReport:
    # Imports obstore.
    from phasegate.engine.bucket import verify_bucket_copy

    return verify_bucket_copy(current_folder())


@audit.command("push")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 86400),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="How long to retry when the bucket is unreachable.",
)
@json_option
def push_command(wait_s: float, as_json: bool) -> int:
    """Copy missing entries to the bucket that [storage] names.

    `run` and every order do this automatically; use it after an outage. Exit 0: the copy is
    complete. Exit 1: the bucket was unreachable for the given time; the rest stays queued.

    \b
    Examples:
      phasegate audit push
      phasegate audit push --wait 600
    """
    from phasegate.engine.bucket import push_to_bucket

    with show_waiting("copying"):
        pushed = push_to_bucket(current_folder(), wait_s)

    text = f"{pushed.bucket}: {pushed.copied} entries copied"
    if pushed.waiting:
        text += f"; {pushed.waiting} not copied: {pushed.why_not}"

    print_result(pushed, escape_unprintable(text), as_json)
    if pushed.waiting:
        return 1

    return 0


def _format_report(report: AuditReport) -> list[str]:
    """Return the lines of a verification report."""
    notes = [escape_unprintable(f"note: {note}") for note in report.notes]
    if report.ok:
        counted = f"verified: {report.entries} entries, {report.trails} trails"
        if report.entries:
            return [counted, *notes]
        return notes or ["nothing is recorded yet"]

    first, *more = [
        f"{escape_unprintable(problem.where)}: {escape_unprintable(problem.why)}"
        for problem in report.problems
    ]
    return [f"NOT VERIFIED. First problem: {first}", *(f"  also: {line}" for line in more), *notes]


def _format_trail(trail: TrailSummary) -> str:
    work = f"  {_format_job_work(trail.about)}" if trail.about else ""
    times = f"{trail.first_ts} to {trail.last_ts}"
    return escape_unprintable(
        f"{trail.feature}/{trail.job}{work}  {trail.entries} entries  {times}  {trail.last_action}"
    )


def _format_job_work(about: JobWork) -> str:
    outcome = about.outcome or "running"
    return f"{about.work}, {about.role}, round {about.round}, {about.agent}, {outcome}"


def _format_job(view: JobView) -> Iterator[str]:
    """Yield a line about the job, its trail entries, and the paths of its logs."""
    work = f": {_format_job_work(describe_job_work(view.row))}" if view.row else ""
    yield f"job {view.job} of {view.feature}{work}"
    width = max((len(str(entry.get("actor", "?"))) for entry in view.entries), default=0)
    yield from (format_trail_entry(entry, width) for entry in view.entries)
    yield from (f"output: {log.path}" for log in view.logs)


def format_trail_entry(entry: Mapping[str, object], width: int = 0) -> str:
    """Format one entry of a trail as a line."""
    ts, actor, action = (str(entry.get(name, "?")) for name in ("ts", "actor", "action"))
    source = entry.get("source", "unreadable")
    fields = " ".join(_format_fields(entry))
    return f"{ts}  {actor.ljust(width)}  {action.ljust(_ACTION_WIDTH)}  {fields}  ({source})"


def _format_fields(entry: Mapping[str, object]) -> Iterator[str]:
    """Yield the fields of an entry: hashes shortened, long fields omitted (`--json` has them)."""
    for name, value in entry.items():
        if name in _HASH_FIELDS:
            yield f"{name} {str(value)[:_SHORT_HASH_CHARS]}"
        elif name in _UNLABELED_FIELDS:
            yield str(value)
        elif name not in _OMITTED_FIELDS and value not in (None, ""):
            yield f"{name} {value}"
