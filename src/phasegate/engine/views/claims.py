"""What agents say in their results, in their own words, beside what is the case.

For people who look at a package.
"""

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
    """The words of one job's result; `differs` has each claim that is not so, and what is."""

    job: str
    agent: str
    round: int
    words: Mapping[str, str | tuple[str, ...]]
    differs: tuple[tuple[str, str], ...] = ()


class _FalseClaims(msgspec.Struct):
    job: str
    claims: tuple[tuple[str, str], ...]


def read_agent_claims(reader: StoreReader, feature: str, package: str) -> tuple[AgentClaims, ...]:
    """What the agents of a package said in its last round in which one had a result."""
    last: dict[int, AgentClaims] = {}
    false: dict[str, tuple[tuple[str, str], ...]] = {}

    for recorded in reader.events(feature):
        if recorded.kind == AGENT_CLAIMED_FALSELY:
            found = read_json(recorded.payload, _FalseClaims)
            false[found.job] = found.claims
        elif recorded.kind == AGENT_CLAIMED:
            one = read_json(recorded.payload, AgentClaim)
            if one.package == package:
                words = AgentClaims(
                    job=str(one.said.job_id),
                    agent=one.agent,
                    round=one.round,
                    words=_result_texts(one),
                )

                last = {index: said for index, said in last.items() if said.round == one.round}
                last[one.agent_index] = words

    return tuple(
        last[index]._replace(differs=false.get(last[index].job, ())) for index in sorted(last)
    )


def find_pull_request_url(reader: StoreReader, feature: str, package: str) -> str:
    """The pull request that a package really has; empty where it has none."""
    url = ""

    for recorded in reader.events(feature):
        if recorded.kind == PACKAGE_STEP and b"published" in recorded.payload:
            name, event = read_package_step(recorded.payload)
            if name == package and isinstance(event, PackagePublished):
                url = event.url

    return url


def _result_texts(one: AgentClaim) -> dict[str, str | tuple[str, ...]]:
    return {name: said for name in RESULT_TEXT_FIELDS if (said := getattr(one.said, name))}


def render_agent_claims(said: Sequence[AgentClaims]) -> Iterator[str]:
    """The same as lines."""
    for one in said:
        yield from render_claims(one.agent, one.words, one.differs)


def render_claims(
    agent: str, words: Mapping[str, object], differs: Iterable[tuple[str, str]]
) -> Iterator[str]:
    """What an agent says, and what is seen where that is something else."""
    for name in RESULT_TEXT_FIELDS:
        if said := words.get(name):
            if isinstance(said, list | tuple):
                shown = "; ".join(map(str, said))
            else:
                shown = str(said)

            yield f"{agent} says, {name}: {' '.join(shown.split())}"

    for claim, truth in differs:
        yield f"{agent} says: {claim}; seen: {truth}"
