"""`phasegate show`: print the recorded data of a package, a phase or a job."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from phasegate.core.display.status import ENDED_STAGE_NAMES
from phasegate.core.plan.work_package import is_requirement_id
from phasegate.core.text.visible import escape_controls, escape_unprintable
from phasegate.core.text.wrap import wrap_line
from phasegate.engine.project.project import Project, open_project
from phasegate.engine.views.claims import render_agent_claims, render_claims
from phasegate.engine.views.decision_grounds import (
    decision_grounds,
    read_feature_diff,
    render_grounds,
)
from phasegate.engine.views.feature import feature_view
from phasegate.engine.views.job import JobView
from phasegate.engine.views.overview import (
    AttemptView,
    JobRow,
    StoreReader,
    find_branch_feature,
    list_waiting_features,
    require_reader,
    resolve_feature,
)
from phasegate.engine.views.show import (
    PartKind,
    StoredPart,
    Subject,
    find_subject,
    follow_log,
    newest_job_id,
    read_part,
    select_jobs,
)
from phasegate.engine.views.verdicts import describe_outcome, read_verdicts
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.completion_values import (
    PackageIdParam,
    complete_from,
    list_subjects,
)
from phasegate.interfaces.cli.live_display import format_clock
from phasegate.interfaces.cli.options import feature_option, fleet_view_option
from phasegate.interfaces.cli.render import (
    FLEET_COPY_KEY,
    current_folder,
    json_option,
    make_printable,
    print_line,
    print_result,
)
from phasegate.interfaces.fast_path.status import build_status_page

_PART_HELP = {
    PartKind.DIFF: "The changes.",
    PartKind.PROMPT: "The prompt of the latest agent run.",
    PartKind.LOG: "The transcript of the latest agent run.",
    PartKind.ANSWER: "The final answer of the latest agent run.",
    PartKind.EVIDENCE: "The results of the checks.",
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
    metavar="[WPnn|PHASE|JOB|FEATURE|FR-X]",
    default="",
    shell_complete=complete_from(list_subjects),
)
@click.option("--role", metavar="ROLE", help="With a part: of the last agent in this role.")
@click.option("--round", "round_", type=int, metavar="N", help="With a part: of this round.")
@click.option(
    "--follow", is_flag=True, help="With --log: follow the output until the agent has ended."
)
@feature_option
@fleet_view_option(with_trails=True)
@json_option
def show_subject(
    subject: str,
    part: str | None,
    role: str | None,
    round_: int | None,
    follow: bool,
    feature: str | None,
    as_json: bool,
) -> None:
    """Show what a feature needs you to decide, or a package, phase or job.

    Without a name, or with the name of a feature: what is asked and why, the changes, the checks,
    the requirements with their tests, and the cost. Otherwise: the state and the agent runs of a
    package, phase or job, or one part of its data.

    With the id of a requirement: its current text, tests and code, and who is changing it.

    Name a phase by its key, number or name (`archive` for the work after the last gate), and a job
    by a prefix of its id. A pipe or file gets the exact data; on a terminal, control characters are
    escaped.

    In a log `>` marks an action of the agent, `|` its result (folded), `!` a problem, and
    `?` a line outside of the program's protocol; `show JOB` lists the complete files. For a job of
    the fleet, the log is its audit trail: the output of the program stays on the worker.

    \b
    Examples:
      phasegate show
      phasegate show 001
      phasegate show 001 --diff
      phasegate show WP01
      phasegate show WP01 --diff
      phasegate show WP01 --log --follow
      phasegate show WP01 --answer --role implement --round 1
      phasegate show design --answer
      phasegate show FR-AUTH-001
      phasegate show 3a6b8c9d --prompt
      phasegate show WP01 --fleet
      phasegate show WP01 --log --follow --fleet
    """
    if follow and (part != PartKind.LOG or as_json):
        raise ConfigError(
            "--follow requires --log, and cannot be combined with --json",
            f"phasegate show {subject} --log --follow",
        )

    project = open_project(current_folder())
    if part is None and is_requirement_id(subject):
        _show_requirement(project, subject, as_json)
        return

    with require_reader(str(current_folder())) as reader:
        shown_feature = _find_feature(reader, subject, feature)
        if shown_feature:
            _show_feature(project, reader, shown_feature, part, as_json)
            return

        view = find_subject(project, reader, subject, feature)
        if part is None:
            verdicts = read_verdicts(reader, view.feature)
            print_result(view, "\n".join(_fit_lines(_format_subject(view, verdicts))), as_json)
            return

        view = select_jobs(view, role, round_)

        fleet_copy = click.get_current_context().meta.get(FLEET_COPY_KEY)
        if part == PartKind.LOG and fleet_copy:
            _show_trail(fleet_copy, view, follow=follow, as_json=as_json)
            return

        if follow:
            for line in follow_log(project, view, _wait_for_more):
                _print_text(line)
            return

        content = read_part(project, reader, view, PartKind(part))

    if as_json:
        print_result(content, "", as_json)
    else:
        _print_part(view, content)


def _show_feature(
    project: Project, reader: StoreReader, slug: str, part: str | None, as_json: bool
) -> None:
    """Print the grounds of a feature's decision, or the diff of the whole feature."""
    if part is None:
        grounds = decision_grounds(project, reader, slug)
        text = "\n".join(_fit_lines(render_grounds(grounds)))
        print_result(grounds, text.rstrip(), as_json)
        return

    if part != PartKind.DIFF:
        phase = feature_view(reader, slug)
        name = phase.now.phase if phase else "PHASE"
        raise ConfigError(
            f"--{part} needs a package, a phase or a job",
            f"phasegate show {name} --{part} --feature {slug}",
        )

    text = read_feature_diff(project, reader, slug)
    if not text:
        raise ConfigError(f"{slug} has changed no file yet", f"phasegate show {slug}")
    if as_json:
        content = StoredPart(kind=PartKind.DIFF, feature=slug, subject=slug, job="", text=text)
        print_result(content, "", as_json)
    else:
        _print_text(text, is_diff=True, use_pager=True)


def _print_part(view: Subject, content: StoredPart) -> None:
    """Print a part of a subject's data; on a terminal, also its author."""
    if sys.stdout.isatty():
        author = next((job for job in view.jobs if job.id == content.job), None)
        if author is not None:
            print_line(f"{author.phase} by {author.agent}, round {author.round}", err=True)
    _print_text(content.text, is_diff=content.kind == PartKind.DIFF, use_pager=True)


def _fit_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield printable lines; on a terminal, wrapped by words and coloured."""
    page = build_status_page(show_all=False)
    for line in lines:
        printable = make_printable(line)
        parts = wrap_line(printable, page.width) if sys.stdout.isatty() else [printable]
        colour = _line_colour(printable)
        yield from (page.style(part, colour) for part in parts)


def _line_colour(line: str) -> str:
    if "FAILED" in line or "  BLOCKED" in line or "NEEDS_" in line or "REJECTED" in line:
        return "red"
    if line.endswith(":") and not line.startswith(" "):
        return "bold"
    return "plain"


def _show_requirement(project: Project, id_: str, as_json: bool) -> None:
    from phasegate.engine.views.specs import describe_requirement

    found = describe_requirement(project, id_)
    print_result(found, "\n".join(map(make_printable, found.lines)), as_json)


def _find_feature(reader: StoreReader, subject: str, feature: str | None) -> str:
    """Return the feature that `subject` names; empty if it names something else."""
    if subject:
        named = resolve_feature(str(current_folder()), subject)
        return named if named in reader.features() else ""

    feature = feature or find_branch_feature(str(current_folder()))
    if feature:
        return feature

    active = [row.feature for row in reader.workflows() if row.stage not in ENDED_STAGE_NAMES]
    waiting = [slug for slug in list_waiting_features(reader) if slug in active]
    choices = waiting or active or [row.feature for row in reader.workflows()]
    if not choices:
        raise ConfigError("no feature was started yet", 'phasegate run "what you want"')
    return choices[0]


def _show_trail(fleet_copy: Path, subject: Subject, *, follow: bool, as_json: bool) -> None:
    """Print the audit trail of a job of the fleet, since its log stays on the worker.

    The trail is in the bucket, and grows there while the job runs.
    """
    from phasegate.engine.fleet.view import follow_trail
    from phasegate.interfaces.cli.commands.audit import format_trail_entry

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


def _print_text(text: str, *, is_diff: bool = False, use_pager: bool = False) -> None:
    """Print a text; on a terminal, a diff has colours, and a long text may have a pager."""
    if sys.stdout.isatty():
        text = escape_unprintable(text, keep="\n\t")
        if is_diff:
            style = build_status_page(show_all=False).style
            colours = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}
            lines = (style(line, colours.get(line[:1], "plain")) for line in text.splitlines())
            text = "\n".join(lines)
        if use_pager and text.count("\n") >= os.get_terminal_size(sys.stdout.fileno()).lines:
            click.echo_via_pager(text)
            return
    else:
        text = escape_controls(text)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()


def _format_subject(subject: Subject, verdicts: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines about a package, phase or job."""
    if subject.package is not None:
        card = subject.package
        yield f"{card.feature}  {card.id}  {card.state}  {card.title}"
        yield from _format_fact("waits for", ", ".join(card.waits_for or ()))
        yield from _format_fact("reason", card.reason)
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
            reasons = f": {'; '.join(check.reasons)}" if check.reasons else ""
            yield f"  {subject.phase.gate} round {check.round}: {check.outcome}{reasons}"
    elif subject.job is not None:
        yield f"{subject.feature}  job {subject.name}"
        yield from _format_job(subject.job)

    yield from _format_jobs(subject, verdicts)
    if subject.jobs or subject.job is not None:
        name = f"{_format_name(subject)}{_format_feature_option(subject)}"
        first, *others = PartKind
        parts = ", ".join(f"--{kind}" for kind in others)
        yield f"  more: phasegate show {name} --{first}"
        yield f"    or with {parts} instead"


def _format_attempt(attempt: AttemptView) -> str:
    """Return the line of an attempt of a contest."""
    if attempt.taken:
        use = "selected"
    elif attempt.ref:
        use = f"kept as {attempt.ref}"
    else:
        use = "not selected"

    spent = f"{attempt.tokens} tokens"
    if attempt.cost_usd:
        spent += f", {attempt.cost_usd:.2f} USD"

    return f"  attempt {attempt.number}  {attempt.agent}  {attempt.outcome}  {spent}  {use}"


def _format_fact(name: str, text: str) -> Iterator[str]:
    if text:
        yield f"  {name}: {text}"


def _format_job(view: JobView) -> Iterator[str]:
    if view.row is not None:
        work = view.row.wp or view.row.workflow_phase
        yield f"  {work}, {view.row.started} to {view.row.ended or 'now'}"

    agent = view.row.agent if view.row else "it"
    claims = render_claims(agent, view.claimed or {}, view.claimed_falsely)
    yield from (f"  {line}" for line in claims)
    for file in (view.prompt, *view.logs, view.answer):
        if file is not None:
            yield f"  {file.path}  {file.bytes} bytes"


def _format_jobs(subject: Subject, verdicts: Mapping[str, str]) -> Iterable[str]:
    for job in subject.jobs:
        package = f"{job.wp}  " if job.wp and subject.package is None else ""
        outcome = f"{describe_outcome(job, verdicts)}  {_format_job_duration(job)}"
        work = f"{package}round {job.round}  {job.phase:<9}  {job.agent}"
        yield f"  {work}  {outcome}  job {job.id[:_SHORT_ID_CHARS]}"


def _format_job_duration(job: JobRow) -> str:
    ended = datetime.fromisoformat(job.ended) if job.ended else datetime.now(UTC)
    duration = ended - datetime.fromisoformat(job.started)
    return format_clock(duration.total_seconds())


def _format_name(subject: Subject) -> str:
    if subject.job is not None:
        return subject.name[:_SHORT_ID_CHARS]
    return subject.name


def _format_feature_option(subject: Subject) -> str:
    if subject.job is None:
        return f" --feature {subject.feature}"
    return ""
