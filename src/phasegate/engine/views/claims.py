"""Read the texts of agents' results, together with the claims that turned out to be false."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from phasegate.core.machine.package_events import PackagePublished
from phasegate.engine.journal.entries import (
    AGENT_CLAIMED,
    AGENT_CLAIMED_FALSELY,
    PACKAGE_STEP,
    AgentClaim,
    read_package_step,
)
from phasegate.storage.reader import StoreReader
from phasegate.typed import read_json

RESULT_TEXT_FIELDS = ("summary", "error", "blocked_reason", "remediation", "pr_url", "next_steps")


class AgentClaims(NamedTuple):
    """The texts of one job's result; `differs` pairs each false claim with the observed fact."""

    job: str
    agent: str
    round: int
    words: Mapping[str, str | tuple[str, ...]]
    differs: tuple[tuple[str, str], ...] = ()


class _FalseClaims(msgspec.Struct):
    """Journal entry: the false claims of one job."""

    job: str
    claims: tuple[tuple[str, str], ...]


def read_agent_claims(reader: StoreReader, feature: str, package: str) -> tuple[AgentClaims, ...]:
    """Read the results of a package's agents, of the last round that has any."""
    last: dict[int, AgentClaims] = {}
    false: dict[str, tuple[tuple[str, str], ...]] = {}

    for recorded in reader.events(feature):
        if recorded.kind == AGENT_CLAIMED_FALSELY:
            entry = read_json(recorded.payload, _FalseClaims)
            false[entry.job] = entry.claims
        elif recorded.kind == AGENT_CLAIMED:
            claim = read_json(recorded.payload, AgentClaim)
            if claim.package == package:
                last = {index: other for index, other in last.items() if other.round == claim.round}
                last[claim.agent_index] = AgentClaims(
                    job=str(claim.said.job_id),
                    agent=claim.agent,
                    round=claim.round,
                    words=_result_texts(claim),
                )

    return tuple(
        last[index]._replace(differs=false.get(last[index].job, ())) for index in sorted(last)
    )


def find_pull_request_url(reader: StoreReader, feature: str, package: str) -> str:
    """Return the URL of a package's pull request on the forge; empty if there is none."""
    url = ""

    for recorded in reader.events(feature):
        if recorded.kind == PACKAGE_STEP and b"published" in recorded.payload:
            name, event = read_package_step(recorded.payload)
            if name == package and isinstance(event, PackagePublished):
                url = event.url

    return url


def _result_texts(claim: AgentClaim) -> dict[str, str | tuple[str, ...]]:
    return {name: text for name in RESULT_TEXT_FIELDS if (text := getattr(claim.said, name))}


def render_agent_claims(claims: Sequence[AgentClaims]) -> Iterator[str]:
    """Render the claims of agents as lines of text."""
    for claim in claims:
        yield from render_claims(claim.agent, claim.words, claim.differs)


def render_claims(
    agent: str, claimed: Mapping[str, object], differs: Iterable[tuple[str, str]]
) -> Iterator[str]:
    """Yield an agent's claims, and the observed facts that contradict them."""
    for name in RESULT_TEXT_FIELDS:
        if value := claimed.get(name):
            text = "; ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            yield f"{agent} says, {name}: {' '.join(text.split())}"

    for claim, observed in differs:
        yield f"{agent} says: {claim}; observed: {observed}"
