"""`phasegate agents`: which agents can be started here, and a trial of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES
from phasegate.core.workflow.spending import Spending, format_spending
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.tools.agent_survey import AgentSurvey, load_folder_config, survey_agents
from phasegate.engine.tools.agent_trial import RoundTrip, make_round_trip
from phasegate.interfaces.cli.completion_values import complete_from, list_agent_names
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.live_display import show_waiting
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)

_NO_AGENT_HINT = "no agent can be started: install one of them, or name your own in phasegate.toml: [agents.NAME] with its harness"
_UNTESTED_NOTE = "untested: no version of it was run by us"


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

    with show_waiting("asking the programs for their versions"):
        found = survey_agents(load_folder_config(current_folder()))

    print_result(
        {"agents": [_as_data(one) for one in found]}, "\n".join(_format_agents(found)), as_json
    )
    if any(one.can_start for one in found):
        return 0

    click.echo(f"phasegate: {_NO_AGENT_HINT}", err=True)
    return 1


@agents.command("test")
@click.argument("name", shell_complete=complete_from(list_agent_names))
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
    with open_project_store(project) as store, show_waiting(f"waiting for {make_printable(name)}"):
        trip = make_round_trip(project, store, name)

    print_result(trip._asdict(), "\n".join(_format_round_trip(trip)), as_json)
    if trip.ok:
        return 0

    return 1


def _as_data(agent: AgentSurvey) -> dict[str, object]:
    return {**agent._asdict(), "missing": [missing._asdict() for missing in agent.missing]}


def _format_agents(found: Sequence[AgentSurvey]) -> Iterator[str]:
    for one in found:
        if one.can_start:
            mark = "can be started"
        else:
            mark = "cannot be started"

        yield make_printable(
            f"{one.name}  ({one.harness}{'' if one.configured else ', not configured'})  {mark}"
        )
        for name, text in _list_facts(one):
            yield make_printable(f"    {name:<9} {text}")

    for level, gaps in {
        one.sandbox: one.sandbox_gaps for one in found if one.can_start and one.sandbox_gaps
    }.items():
        yield f"the sandbox level {level} here: {'; '.join(gaps)}"


def _list_facts(agent: AgentSurvey) -> Iterator[tuple[str, str]]:
    if agent.path:
        yield "program", agent.path
        yield "version", _format_version(agent)
    elif agent.harness in INSTALLABLE_HARNESSES and not agent.tested:
        yield "version", _UNTESTED_NOTE

    if agent.sign_in:
        yield "sign-in", ", ".join(agent.sign_in)
    if agent.roles:
        yield "roles", ", ".join(agent.roles)
    if agent.stands_in_for:
        yield "fallback", f"of {', '.join(agent.stands_in_for)}"

    if agent.can_start and agent.sandbox:
        yield "sandbox", agent.sandbox
        if agent.hosts:
            yield (
                "reaches",
                "everything: the network is open" if "*" in agent.hosts else ", ".join(agent.hosts),
            )

    for missing in agent.missing:
        yield "missing", f"{missing.what}: {missing.remedy}"


def _format_version(agent: AgentSurvey) -> str:
    if not agent.version:
        return f"unknown: {agent.version_unknown}"
    if not agent.tested:
        return f"{agent.version}, {_UNTESTED_NOTE}"
    if agent.version == agent.tested:
        return f"{agent.version}, tested"
    return f"{agent.version}, {agent.version_standing} ({agent.tested}){f': {agent.update}' if agent.update else ''}"


def _format_round_trip(trip: RoundTrip) -> Iterator[str]:
    usage = trip.usage
    if usage:
        spent = Spending(usage.input_tokens + usage.output_tokens, usage.cost_usd or 0.0)
    else:
        spent = Spending()

    if usage:
        used = f", {format_spending(spent)}"
    else:
        used = ", it does not say what it used"

    yield f"{trip.agent}: {'it works' if trip.ok else 'it does not work'} ({trip.duration_s:g} s{used})"
    if not trip.ok:
        yield make_printable(f"  reason: {trip.reason}")
        yield make_printable(f"  what to do: {trip.remedy}")
    if trip.answer:
        yield make_printable(f"  answer: {' '.join(trip.answer.split())}")

    yield make_printable(f"  job: {trip.job}  (phasegate audit show --job {trip.job[:8]})")
    if not trip.ok:
        yield make_printable(f"  logs: {trip.logs}")
