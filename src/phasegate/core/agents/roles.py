"""Which agent serves a role.

The one that a person named, else one that is there; a critic is not the writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phasegate.core.workflow.lifecycle import Refusal
from phasegate.core.workflow.phases import PhaseWork, get_phase

# Who judges whose work. Where two agents are there, they are two.
JUDGED_ROLE = {"challenge": "plan", "review": "implement"}
_ROLE_ALIASES = {"compare": "review"}
_HINT = "install one (see `phasegate agents`), or name it in phasegate.toml: [agents.NAME] with its harness"


def choose_agent_for_role(
    role: str,
    phase: str,
    roles: Mapping[str, str],
    available: Sequence[str],
    requested: str | None = None,
    authors: Sequence[str] = (),
) -> str | Refusal:
    """The agent for a role in a phase.

    `available` are those that can be started, in the person's order.

    A phase's own entry names who does its work; who judges that work stays the one of the role.
    `made_by` are those whose work is to be judged, where that is known.
    """
    role = _ROLE_ALIASES.get(role, role)
    named = (
        requested
        or (roles.get(phase) if _is_phase_work_role(role, phase) else None)
        or roles.get(role)
    )

    if named is not None:
        if named in available:
            return named
        return Refusal(
            f"the agent {named} cannot be started",
            f"there are: {', '.join(available) or 'none'}; {_HINT}",
        )

    if not available:
        return Refusal("no agent can be started", _HINT)
    if role not in JUDGED_ROLE:
        return available[0]

    judged = authors or (choose_agent_for_role(JUDGED_ROLE[role], phase, roles, available),)
    return next((name for name in available if name not in judged), available[0])


def _is_phase_work_role(role: str, phase: str) -> bool:
    """Whether a role does the work of a phase, and does not judge what another did there."""
    if role == "review":
        return get_phase(phase).work is not PhaseWork.PACKAGES
    return role != "challenge"
