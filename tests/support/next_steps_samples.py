"""States and blocks that several tests are about."""

from __future__ import annotations

from typing import Any

from phasegate import next_steps
from phasegate.core.display.next_steps import EVENTS
from phasegate.core.workflow.workflow_phases import WORKFLOWS


def state(type_: str = "feature", index: int = 0, **changes: object) -> dict[str, Any]:
    phases = list(WORKFLOWS.get(type_, WORKFLOWS["feature"]))
    active = {
        "type": type_,
        "phases": phases,
        "current_phase": phases[index],
        "current_phase_index": index,
        "artifact_folder": "REQ-0003-suggested-prompts",
        "phase_status": {},
    }
    return {"active_workflow": active | changes}


def block(*items: str) -> str:
    lines = "".join(f"  [{number}] {item}\n" for number, item in enumerate(items, 1))
    return f"---\nSUGGESTED NEXT STEPS:\n{lines}---\n"


def everything_emitted() -> list[tuple[str, str, str]]:
    """Every block of every workflow at every position: (what, where, text)."""
    found = []
    for type_, phases in WORKFLOWS.items():
        for index in range(len(phases)):
            here = state(type_, index)
            texts = [(event, next_steps(here, event=event)) for event in EVENTS]
            texts += [("agent", next_steps(here)), ("own", next_steps(here, phase=phases[-1]))]
            found += [(what, f"{type_} {index}", text) for what, text in texts if text]
    return found
