"""When a run of an agent counts as a success (D7): exit status, response and evidence, all three."""

from __future__ import annotations

import msgspec


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known after a run. `response_success` is None when there is no valid response of this job."""

    exit_status: int | None  # None: a signal ended it, or nobody knows
    response_success: bool | None
    manifest_passed: bool | None  # None: the manifest was not run
    blockers: tuple[str, ...] = ()  # texts of its BLOCKER: lines


def reasons_against(facts: RunFacts) -> tuple[str, ...]:
    """Why this run is no success, most telling first; empty if it is one (C09)."""
    doubts = (
        *(f"BLOCKER: {blocker}" for blocker in facts.blockers),
        _about_exit(facts.exit_status),
        _about_response(facts.response_success),
        "the manifest was not checked" if facts.manifest_passed is None else "",
        "the manifest failed" if facts.manifest_passed is False else "",
    )
    return tuple(doubt for doubt in doubts if doubt)


def _about_exit(status: int | None) -> str:
    if status is None:
        return "the agent did not come to its own end"
    return f"the agent ended with exit status {status}" if status else ""


def _about_response(success: bool | None) -> str:
    if success is None:
        return "there is no valid response"
    return "" if success else "the agent reports that it failed"
