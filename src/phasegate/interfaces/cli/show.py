"""`phasegate show`: everything that is kept of a package, a phase or a job, in one step."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import click

from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.project.project import open_project
from phasegate.engine.views.claims import render_agent_claims, render_claims
from phasegate.engine.views.job import JobView
from phasegate.engine.views.overview import AttemptView, JobRow, require_reader
from phasegate.engine.views.show import (
    PartKind,
    Subject,
    find_subject,
    follow_log,
    newest_job_id,
    read_part,
)
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.completion_values import (
    PackageIdParam,
    complete_from,
    list_package_ids,
)
from phasegate.interfaces.cli.live_display import format_clock
from phasegate.interfaces.cli.options import feature_option, fleet_view_option
from phasegate.interfaces.cli.render import (
    FLEET_COPY_KEY,
    current_folder,
    json_option,
    make_printable,
    print_result,
)

_PART_HELP = {
    PartKind.DIFF: "What was changed.",
    PartKind.PROMPT: "What its newest agent was told.",
    PartKind.LOG: "What its newest agent said and did, as a transcript.",
    PartKind.ANSWER: "The last words of its newest agent.",
    PartKind.EVIDENCE: "What our own checks found.",
}
_SHORT_ID_CHARS = 8
_POLL_INTERVAL_S = 0.3


def _add_part_options(command: click.Command) -> click.Command:
    options = [
        click.Option([f"--{kind}", "part"], flag_value=str(kind), help=text)
        for kind, text in _PART_HELP.items()
    ]
    command.params[1:1] = options
    return command


@_add_part_options
@click.command("show")
@click.argument(
    "subject",
    type=PackageIdParam(),
    metavar="WPnn|PHASE|JOB",
    shell_complete=complete_from(list_package_ids),
)
@click.option(
    "--follow", is_flag=True, help="With --log: go on with what comes, until the agent has ended."
)
@feature_option
@fleet_view_option(with_trails=True)
@json_option
def show_subject(
    subject: str, part: str | None, follow: bool, feature: str | None, as_json: bool
) -> None:
    """Show a package, a phase or a job: where it stands and which agents worked on it, or one thing that is kept of it.

    A phase is named by its key, its number or its name; what comes behind the last gate, `archive`; a job by the
    beginning of its id. Into a pipe or a file a part goes as it is; on a terminal its control characters are made
    visible. In a log `>` marks what the agent did, `|` what came back (folded), `!` a problem, `?` what is not in the
    program's protocol. `show JOB` names the whole files. Of a job of the fleet the log is its trail, as it comes into
    the bucket: the program's own output stays on the worker.

    \b
    Examples:
      phasegate show WP01
      phasegate show WP01 --diff
      phasegate show WP01 --log --follow
      phasegate show design --answer
      phasegate show 3a6b8c9d --prompt
      phasegate show WP01 --fleet
      phasegate show WP01 --log --follow --fleet
    """
    if follow and (part != PartKind.LOG or as_json):
        raise ConfigError(
            "--follow goes with --log, and not with --json",
            f"phasegate show {subject} --log --follow",
        )

    project = open_project(current_folder())
    with require_reader(str(current_folder())) as reader:
        found = find_subject(project, reader, subject, feature)
        if part is None:
            print_result(found, "\n".join(map(make_printable, _format_subject(found))), as_json)
            return
        if part == PartKind.LOG and (copy := click.get_current_context().meta.get(FLEET_COPY_KEY)):
            _show_trail(copy, found, follow=follow, as_json=as_json)
            return

        if follow:
            for line in follow_log(project, found, _wait_for_more):
                _print_text(line)
            return

        kept = read_part(project, reader, found, PartKind(part))

    if as_json:
        print_result(kept, "", as_json)
    else:
        _print_text(kept.text)


def _show_trail(fleet_copy: Path, subject: Subject, *, follow: bool, as_json: bool) -> None:
    """The log of a program stays on its worker.

    Its trail is in the bucket, a part of it while the job runs.
    """
    from phasegate.engine.fleet.view import follow_trail
    from phasegate.interfaces.cli.audit import format_trail_entry

    job = newest_job_id(subject)
    entries = follow_trail(fleet_copy, job, _wait_for_more if follow else lambda: False)
    if as_json:
        print_result({"job": job, "entries": [*entries]}, "", as_json)
        return

    for entry in entries:
        _print_text(make_printable(format_trail_entry(entry)))


def _wait_for_more() -> bool:
    time.sleep(_POLL_INTERVAL_S)
    return True


def _print_text(text: str) -> None:
    if sys.stdout.isatty():
        text = escape_unprintable(text, keep="\n\t")
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()


def _format_subject(subject: Subject) -> Iterator[str]:
    if subject.package is not None:
        card = subject.package
        yield f"{card.feature}  {card.id}  {card.state}  {card.title}"
        yield from _format_fact("waits for", ", ".join(card.waits_for or ()))
        yield from _format_fact("why", card.reason)
        yield from _format_fact("what to do", card.remediation)
        yield from map(_format_attempt, card.attempts or ())
        yield from _format_fact("pull request", card.pr_url)
        yield from _format_fact(
            "saved by delta reviews",
            f"about {card.saved_tokens} tokens" if card.saved_tokens else "",
        )
        yield from (f"  {line}" for line in render_agent_claims(card.said or ()))
    elif subject.phase is not None:
        yield f"{subject.feature}  {subject.phase.name}  {subject.phase.status}"
        for check in subject.phase.rounds:
            if check.reasons:
                why = f": {'; '.join(check.reasons)}"
            else:
                why = ""

            yield f"  {subject.phase.gate} round {check.round}: {check.outcome}{why}"
    elif subject.job is not None:
        yield f"{subject.feature}  job {subject.name}"
        yield from _format_job(subject.job)

    yield from _format_jobs(subject)
    yield f"  more: phasegate show {_format_name(subject)} {' | '.join(f'--{kind}' for kind in PartKind)}{_format_feature_option(subject)}"


def _format_attempt(attempt: AttemptView) -> str:
    if attempt.taken:
        kept = "taken"
    elif attempt.ref:
        kept = f"kept as {attempt.ref}"
    else:
        kept = "not taken"

    spent = f"{attempt.tokens} tokens" + (
        f", {attempt.cost_usd:.2f} USD" if attempt.cost_usd else ""
    )
    return f"  attempt {attempt.number}  {attempt.agent}  {attempt.outcome}  {spent}  {kept}"


def _format_fact(name: str, text: str) -> Iterator[str]:
    if text:
        yield f"  {name}: {text}"


def _format_job(view: JobView) -> Iterator[str]:
    if view.row is not None:
        yield f"  {view.row.wp or view.row.workflow_phase}, {view.row.started} to {view.row.ended or 'now'}"

    agent = view.row.agent if view.row else "it"
    yield from (
        f"  {line}" for line in render_claims(agent, view.claimed or {}, view.claimed_falsely)
    )
    for kept in (view.prompt, *view.logs, view.answer):
        if kept is not None:
            yield f"  {kept.path}  {kept.bytes} bytes"


def _format_jobs(subject: Subject) -> Iterable[str]:
    for job in subject.jobs:
        if job.wp and subject.package is None:
            package = f"{job.wp}  "
        else:
            package = ""

        told = f"{job.phase:<9}  {job.agent}  {job.outcome or 'running'}  {_format_job_duration(job)}  {_format_job_id(job)}"
        yield f"  {package}round {job.round}  {told}"


def _format_job_duration(job: JobRow) -> str:
    if not job.ended:
        return "-"
    return format_clock(
        (datetime.fromisoformat(job.ended) - datetime.fromisoformat(job.started)).total_seconds()
    )


def _format_job_id(job: JobRow) -> str:
    return f"job {job.id[:_SHORT_ID_CHARS]}"


def _format_name(subject: Subject) -> str:
    if subject.job is not None:
        return subject.name[:_SHORT_ID_CHARS]
    return subject.name


def _format_feature_option(subject: Subject) -> str:
    if subject.job is None:
        return f" --feature {subject.feature}"
    return ""
