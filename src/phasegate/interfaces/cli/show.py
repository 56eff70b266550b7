"""`phasegate show`: everything that is kept of a package, a phase or a job, in one step."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import click

from phasegate.core.text.visible import visible
from phasegate.engine.project.project import open_project
from phasegate.engine.views.claims import told_claims, told_words
from phasegate.engine.views.job import JobView
from phasegate.engine.views.overview import AttemptView, Job, need_reader
from phasegate.engine.views.show import PartKind, Subject, find_subject, followed_log, newest_job, part_of
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.completion_values import PackageName, offering, package_ids
from phasegate.interfaces.cli.live_display import clock
from phasegate.interfaces.cli.options import feature_option, reading_the_fleet
from phasegate.interfaces.cli.render import FLEET, current_folder, json_option, printable, show

_PARTS = {
    PartKind.DIFF: "What was changed.",
    PartKind.PROMPT: "What its newest agent was told.",
    PartKind.LOG: "What its newest agent said and did, as a transcript.",
    PartKind.ANSWER: "The last words of its newest agent.",
    PartKind.EVIDENCE: "What our own checks found.",
}
_SHORT_ID = 8
_LOOK_EVERY_S = 0.3


def _part_options(command: click.Command) -> click.Command:
    options = [click.Option([f"--{kind}", "part"], flag_value=str(kind), help=text) for kind, text in _PARTS.items()]
    command.params[1:1] = options
    return command


@_part_options
@click.command("show")
@click.argument("subject", type=PackageName(), metavar="WPnn|PHASE|JOB", shell_complete=offering(package_ids))
@click.option("--follow", is_flag=True, help="With --log: go on with what comes, until the agent has ended.")
@feature_option
@reading_the_fleet(trails=True)
@json_option
def show_subject(subject: str, part: str | None, follow: bool, feature: str | None, as_json: bool) -> None:
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
        raise ConfigError("--follow goes with --log, and not with --json", f"phasegate show {subject} --log --follow")
    project = open_project(current_folder())
    with need_reader(str(current_folder())) as reader:
        found = find_subject(project, reader, subject, feature)
        if part is None:
            show(found, "\n".join(map(printable, _lines(found))), as_json)
            return
        if part == PartKind.LOG and (copy := click.get_current_context().meta.get(FLEET)):
            _show_trail(copy, found, follow=follow, as_json=as_json)
            return
        if follow:
            for line in followed_log(project, found, _a_moment_later):
                _print(line)
            return
        kept = part_of(project, reader, found, PartKind(part))
    if as_json:
        show(kept, "", as_json)
    else:
        _print(kept.text)


def _show_trail(copy: Path, found: Subject, *, follow: bool, as_json: bool) -> None:
    """The log of a program stays on its worker; its trail is in the bucket, a part of it while the job runs."""
    from phasegate.engine.fleet.view import followed_trail
    from phasegate.interfaces.cli.audit import entry_line

    job = newest_job(found)
    entries = followed_trail(copy, job, _a_moment_later if follow else lambda: False)
    if as_json:
        show({"job": job, "entries": [*entries]}, "", as_json)
        return
    for entry in entries:
        _print(printable(entry_line(entry)))


def _a_moment_later() -> bool:
    time.sleep(_LOOK_EVERY_S)
    return True


def _print(text: str) -> None:
    text = visible(text, keep="\n\t") if sys.stdout.isatty() else text
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()


def _lines(found: Subject) -> Iterator[str]:
    if found.package is not None:
        card = found.package
        yield f"{card.feature}  {card.id}  {card.state}  {card.title}"
        yield from _told("waits for", ", ".join(card.waits_for or ()))
        yield from _told("why", card.reason)
        yield from _told("what to do", card.remediation)
        yield from map(_attempt, card.attempts or ())
        yield from _told("pull request", card.pr_url)
        yield from _told("saved by delta reviews", f"about {card.saved_tokens} tokens" if card.saved_tokens else "")
        yield from (f"  {line}" for line in told_words(card.said or ()))
    elif found.phase is not None:
        yield f"{found.feature}  {found.phase.name}  {found.phase.status}"
        for check in found.phase.rounds:
            why = f": {'; '.join(check.reasons)}" if check.reasons else ""
            yield f"  {found.phase.gate} round {check.round}: {check.outcome}{why}"
    elif found.job is not None:
        yield f"{found.feature}  job {found.name}"
        yield from _about(found.job)
    yield from _jobs(found)
    yield f"  more: phasegate show {_name(found)} {' | '.join(f'--{kind}' for kind in PartKind)}{_of(found)}"


def _attempt(one: AttemptView) -> str:
    kept = "taken" if one.taken else f"kept as {one.ref}" if one.ref else "not taken"
    spent = f"{one.tokens} tokens" + (f", {one.cost_usd:.2f} USD" if one.cost_usd else "")
    return f"  attempt {one.number}  {one.agent}  {one.outcome}  {spent}  {kept}"


def _told(name: str, text: str) -> Iterator[str]:
    if text:
        yield f"  {name}: {text}"


def _about(view: JobView) -> Iterator[str]:
    if view.row is not None:
        yield f"  {view.row.wp or view.row.workflow_phase}, {view.row.started} to {view.row.ended or 'now'}"
    agent = view.row.agent if view.row else "it"
    yield from (f"  {line}" for line in told_claims(agent, view.claimed or {}, view.claimed_falsely))
    for kept in (view.prompt, *view.logs, view.answer):
        if kept is not None:
            yield f"  {kept.path}  {kept.bytes} bytes"


def _jobs(found: Subject) -> Iterable[str]:
    for job in found.jobs:
        package = f"{job.wp}  " if job.wp and found.package is None else ""
        told = f"{job.phase:<9}  {job.agent}  {job.outcome or 'running'}  {_took(job)}  {_id(job)}"
        yield f"  {package}round {job.round}  {told}"


def _took(job: Job) -> str:
    if not job.ended:
        return "-"
    return clock((datetime.fromisoformat(job.ended) - datetime.fromisoformat(job.started)).total_seconds())


def _id(job: Job) -> str:
    return f"job {job.id[:_SHORT_ID]}"


def _name(found: Subject) -> str:
    return found.name[:_SHORT_ID] if found.job is not None else found.name


def _of(found: Subject) -> str:
    return f" --feature {found.feature}" if found.job is None else ""
