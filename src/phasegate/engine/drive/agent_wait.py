"""Choose the agent of a job, or wait: after an error, or while agents are rate-limited."""

from __future__ import annotations

from collections.abc import Callable

from phasegate.core.machine.retry import retry_backoff_s
from phasegate.engine.jobs.admission import DriverContext
from phasegate.engine.jobs.step import AgentRequest
from phasegate.engine.project.agents import NamedAgent, choose_agent, format_time_of_day


class AgentSelector:
    """Chooses agents for the jobs of one unit, and reports each wait once."""

    def __init__(self, context: DriverContext, notify: Callable[[str], None]) -> None:
        self._context = context
        self._notify = notify
        self._clock = context.project.clock
        # When a retry after an error may start, in monotonic seconds
        self._retry_at_s: dict[AgentRequest, float] = {}
        # The reported end of the rate limit of each agent
        self._reported_limits_s: dict[str, float] = {}

    def choose_agent_now(self, request: AgentRequest) -> NamedAgent | None:
        """Return the agent for a job that can start now, or None if the job must wait.

        It waits during the back-off of a retry, and while the agent and its fallbacks are
        rate-limited.
        """
        if request.retries and not self._is_retry_due(request):
            return None

        rate_limited = self._context.record.rate_limited_agents(self._clock.time_s())
        agent = choose_agent(
            place=self._context.project,
            role=request.role,
            phase=request.phase,
            requested=self._context.agent_override or request.agent_override or None,
            limited_until_s=rate_limited,
            authors=request.authors,
        )
        until_s = rate_limited.get(agent.name, 0.0)
        if not until_s:
            return agent

        self._report_limit(agent.name, until_s)
        return None

    def _is_retry_due(self, request: AgentRequest) -> bool:
        """Return whether the back-off of a retry is over; the first call starts and reports it."""
        if request not in self._retry_at_s:
            wait_s = retry_backoff_s(request.retries, self._clock.random_fraction())
            self._notify(f"retrying in {wait_s:.0f} s")
            self._retry_at_s[request] = self._clock.monotonic_s() + wait_s

        return self._clock.monotonic_s() >= self._retry_at_s[request]

    def _report_limit(self, agent: str, until_s: float) -> None:
        """Report that an agent is rate-limited, unless the same end was reported before."""
        if self._reported_limits_s.get(agent) == until_s:
            return

        self._reported_limits_s[agent] = until_s
        self._notify(
            f"{agent} is rate-limited until {format_time_of_day(until_s)}; resumes automatically"
        )
