"""`phasegate agents`: which agents can be started here, and a trial of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from phasegate.core.agents.harnesses import KNOWN
from phasegate.core.workflow.spending import Spent, in_words
from phasegate.engine.project.project import open_project, opened_store
from phasegate.engine.tools.agent_survey import Surveyed, open_workshop, survey
from phasegate.engine.tools.agent_trial import RoundTrip, make_round_trip
from phasegate.interfaces.cli.completion_values import agent_names, offering
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.live_display import waiting
from phasegate.interfaces.cli.render import current_folder, json_option, printable, show

_HINT = (
    "no agent can be started: install one of them, or name your own in phasegate.toml: [agents.NAME] with its harness"
)
_UNTESTED = "untested: no version of it was run by us"


@click.group(cls=Group, invoke_without_command=True)
@json_option
@click.pass_context
def agents(ctx: click.Context, as_json: bool) -> int | None:
    """Show the agents: where each is, its version, what it lacks, which roles it serves, how it will be sandboxed.

    Of keys and sign-ins only the names are looked at. Exit 0: at least one can be started.

    \b
    Examples:
      phasegate agents
      phasegate agents --json
      phasegate agents test claude
    """
    if ctx.invoked_subcommand is not None:
        return None
    with waiting("asking the programs for their versions"):
        found = survey(open_workshop(current_folder()))
    show({"agents": [_as_data(one) for one in found]}, "\n".join(_lines(found)), as_json)
    if any(one.can_start for one in found):
        return 0
    click.echo(f"phasegate: {_HINT}", err=True)
    return 1


@agents.command("test")
@click.argument("name", shell_complete=offering(agent_names))
@json_option
def test_(name: str, as_json: bool) -> int:
    """Ask an agent for one fixed word: a real round trip, in an empty folder that is thrown away.

    It costs a few hundred tokens, which count towards [limits]. Exit 1: it did not come back as it should; the reason
    and what to do are shown.

    \b
    Examples:
      phasegate agents test claude
      phasegate agents test codex --json
    """
    project = open_project(current_folder())
    with opened_store(project) as store, waiting(f"waiting for {printable(name)}"):
        trip = make_round_trip(project, store, name)
    show(trip._asdict(), "\n".join(_trip_lines(trip)), as_json)
    return 0 if trip.ok else 1


def _as_data(one: Surveyed) -> dict[str, object]:
    return {**one._asdict(), "missing": [missing._asdict() for missing in one.missing]}


def _lines(found: Sequence[Surveyed]) -> Iterator[str]:
    for one in found:
        mark = "can be started" if one.can_start else "cannot be started"
        yield printable(f"{one.name}  ({one.harness}{'' if one.configured else ', not configured'})  {mark}")
        for name, text in _facts(one):
            yield printable(f"    {name:<9} {text}")
    for level, gaps in {one.sandbox: one.sandbox_gaps for one in found if one.can_start and one.sandbox_gaps}.items():
        yield f"the sandbox level {level} here: {'; '.join(gaps)}"


def _facts(one: Surveyed) -> Iterator[tuple[str, str]]:
    if one.path:
        yield "program", one.path
        yield "version", _version(one)
    elif one.harness in KNOWN and not one.tested:
        yield "version", _UNTESTED
    if one.sign_in:
        yield "sign-in", ", ".join(one.sign_in)
    if one.roles:
        yield "roles", ", ".join(one.roles)
    if one.stands_in_for:
        yield "fallback", f"of {', '.join(one.stands_in_for)}"
    if one.can_start and one.sandbox:
        yield "sandbox", one.sandbox
        if one.hosts:
            yield "reaches", "everything: the network is open" if "*" in one.hosts else ", ".join(one.hosts)
    for missing in one.missing:
        yield "missing", f"{missing.what}: {missing.remedy}"


def _version(one: Surveyed) -> str:
    if not one.version:
        return f"unknown: {one.version_unknown}"
    if not one.tested:
        return f"{one.version}, {_UNTESTED}"
    if one.version == one.tested:
        return f"{one.version}, tested"
    return f"{one.version}, {one.version_standing} ({one.tested}){f': {one.update}' if one.update else ''}"


def _trip_lines(trip: RoundTrip) -> Iterator[str]:
    usage = trip.usage
    spent = Spent(usage.input_tokens + usage.output_tokens, usage.cost_usd or 0.0) if usage else Spent()
    used = f", {in_words(spent)}" if usage else ", it does not say what it used"
    yield f"{trip.agent}: {'it works' if trip.ok else 'it does not work'} ({trip.duration_s:g} s{used})"
    if not trip.ok:
        yield printable(f"  reason: {trip.reason}")
        yield printable(f"  what to do: {trip.remedy}")
    if trip.answer:
        yield printable(f"  answer: {' '.join(trip.answer.split())}")
    yield printable(f"  job: {trip.job}  (phasegate audit show --job {trip.job[:8]})")
    if not trip.ok:
        yield printable(f"  logs: {trip.logs}")
