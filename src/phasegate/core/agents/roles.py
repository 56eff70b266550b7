"""Choose the agent for a role: the configured one, else an available one.

If two agents are available, the critic is not the writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phasegate.core.workflow.phase_transitions import Refusal
from phasegate.core.workflow.phases import PhaseWork, get_phase

# Roles that judge the work of another role; by another agent if two are available
JUDGED_ROLE = {"challenge": "plan", "review": "implement"}
_ROLE_ALIASES = {"compare": "review"}
_HINT = (
    "install one (see `phasegate agents`), "
    "or add it to phasegate.toml: [agents.NAME] with its harness"
)


def choose_agent_for_role(
    role: str,
    phase: str,
    roles: Mapping[str, str],
    available: Sequence[str],
    requested: str | None = None,
    authors: Sequence[str] = (),
) -> str | Refusal:
    """Choose the agent for a role in a phase.

    `available` are the agents that can be started, in the user's order. The entry of a phase in
    `roles` names the agent that does its work; the agent that judges that work is still chosen by
    role. `authors` are the agents whose work is judged, if known.
    """
    role = _ROLE_ALIASES.get(role, role)
    configured = requested
    if not configured and _is_phase_work_role(role, phase):
        configured = roles.get(phase)
    configured = configured or roles.get(role)

    if configured is not None:
        if configured in available:
            return configured
        return Refusal(
            f"the agent {configured} cannot be started",
            f"available: {', '.join(available) or 'none'}; {_HINT}",
        )

    if not available:
        return Refusal("no agent can be started", _HINT)
    if role not in JUDGED_ROLE:
        return available[0]

    judged = authors or (choose_agent_for_role(JUDGED_ROLE[role], phase, roles, available),)
    return next((name for name in available if name not in judged), available[0])


def _is_phase_work_role(role: str, phase: str) -> bool:
    """Return whether a role does the work of a phase, instead of judging it."""
    if role == "review":
        return get_phase(phase).work is not PhaseWork.PACKAGES
    return role != "challenge"
