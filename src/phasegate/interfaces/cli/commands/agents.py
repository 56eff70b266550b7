"""`phasegate agents`: the installed agents, and a test call of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES
from phasegate.core.agents.hosts import ANY_HOST, PUBLIC_HOSTS
from phasegate.core.workflow.spending import Spending, format_spending
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.tools.agent_survey import (
    NO_SIGN_IN,
    AgentSurvey,
    load_folder_config,
    survey_agents,
)
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

_NO_AGENT_HINT = (
    "no agent can be started: install one of them, or configure your own in phasegate.toml: "
    "[agents.NAME] with its harness, then `phasegate trust`"
)
_UNTESTED_NOTE = "untested with Phasegate"


@click.group(cls=Group, invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help="Show programs that are not installed.")
@json_option
@click.pass_context
def agents(ctx: click.Context, everything: bool, as_json: bool) -> int | None:
    """Show each agent: its program, version, roles and sandbox level, and what is missing.

    Only the names of keys and sign-in files are read. Exit 0: at least one can be started.

    \b
    Examples:
      phasegate agents
      phasegate agents --json
      phasegate agents test claude
    """
    if ctx.invoked_subcommand is not None:
        return None

    with show_waiting("reading the versions of the agents"):
        surveys = survey_agents(load_folder_config(current_folder()))

    data = {"agents": [_as_data(agent) for agent in surveys]}
    print_result(data, "\n".join(_format_agents(surveys, everything=everything)), as_json)
    if any(agent.can_start for agent in surveys):
        return 0

    click.echo(f"phasegate: {_NO_AGENT_HINT}", err=True)
    return 1


@agents.command("test")
@click.argument("name", shell_complete=complete_from(list_agent_names))
@json_option
def test_(name: str, as_json: bool) -> int:
    """Test an agent with a real call that asks for one fixed word, in a temporary empty folder.

    It costs a few hundred tokens, which count towards [limits]. Exit 1: the test failed; the reason
    and the remedy are shown.

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


def _format_agents(agents: Sequence[AgentSurvey], *, everything: bool) -> Iterator[str]:
    """Yield the output lines for each agent, followed by the gaps in its sandbox."""
    shown = [agent for agent in agents if everything or agent.path or agent.configured]
    for agent in shown:
        state = "cannot be started"
        if agent.can_start:
            state = "can be started"
            if any(one.what == NO_SIGN_IN for one in agent.missing):
                state = "installed, but no sign-in was found"
        configured = "" if agent.configured else ", not configured"
        yield make_printable(f"{agent.name}  ({agent.harness}{configured})  {state}")
        for name, text in _list_facts(agent):
            yield make_printable(f"    {name:<9} {text}")

    absent = [agent.name for agent in agents if agent not in shown]
    if absent:
        yield make_printable(f"not installed: {', '.join(absent)}")
        yield "    how to install and sign in: phasegate agents --all"

    gaps_by_level = {
        agent.sandbox: agent.sandbox_gaps
        for agent in agents
        if agent.can_start and agent.sandbox_gaps
    }
    for level, gaps in gaps_by_level.items():
        yield f"sandbox level {level} on this machine: {'; '.join(gaps)}"


def _list_facts(agent: AgentSurvey) -> Iterator[tuple[str, str]]:
    """Yield label and text of each known fact about an agent."""
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
        yield "fallback", f"for {', '.join(agent.stands_in_for)}"

    if agent.can_start and agent.sandbox:
        yield "sandbox", agent.sandbox
        if agent.hosts:
            yield "hosts", _describe_hosts(agent.hosts)

    for missing in agent.missing:
        yield "missing", f"{missing.what}: {missing.remedy}"


def _describe_hosts(hosts: Sequence[str]) -> str:
    if ANY_HOST in hosts:
        return "all: the network is open"
    if PUBLIC_HOSTS in hosts:
        return "all but this machine, through a proxy; `allowed_hosts` limits them"
    return ", ".join(hosts)


def _format_version(agent: AgentSurvey) -> str:
    if not agent.version:
        return f"unknown: {agent.version_unknown}"
    if not agent.tested:
        return f"{agent.version}, {_UNTESTED_NOTE}"
    if agent.version == agent.tested:
        return f"{agent.version}, tested"

    update = f": {agent.update}" if agent.update else ""
    return f"{agent.version}, {agent.version_standing} ({agent.tested}){update}"


def _format_round_trip(trip: RoundTrip) -> Iterator[str]:
    """Yield the result of a test run of an agent."""
    usage = trip.usage
    if usage:
        spent = Spending(usage.input_tokens + usage.output_tokens, usage.cost_usd or 0.0)
        used = format_spending(spent)
    else:
        used = "it reports no usage"

    outcome = "works" if trip.ok else "does not work"
    yield f"{trip.agent}: {outcome} ({trip.duration_s:g} s, {used})"
    if not trip.ok:
        yield make_printable(f"  reason: {trip.reason}")
        yield make_printable(f"  what to do: {trip.remedy}")
    if trip.answer:
        yield make_printable(f"  answer: {' '.join(trip.answer.split())}")

    yield make_printable(f"  job: {trip.job}  (phasegate audit show --job {trip.job[:8]})")
    if not trip.ok:
        yield make_printable(f"  logs: {trip.logs}")
