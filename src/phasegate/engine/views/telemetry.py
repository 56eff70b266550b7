"""Spans and measures of features, made from the record: a crash loses none, and a replay gives the same ids.

Names and attributes follow OpenTelemetry's conventions for generative AI and CI/CD. No prompt, answer or description.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from phasegate.core.display.status import standing_of
from phasegate.core.machine.feature_machine import apply
from phasegate.core.machine.feature_state import Feature
from phasegate.engine.journal.entries import FEATURE_STEP, read_feature_step
from phasegate.engine.views.feature import Bar, FeatureView, feature_view
from phasegate.storage.reader import Reader
from phasegate.storage.rows import Job

Attribute = str | int | float | bool


class SpanView(NamedTuple):
    """Something that has ended. Ids are hexadecimal; the parent's is empty for a whole feature."""

    trace: str
    id: str
    parent: str
    name: str
    started: str
    ended: str
    attributes: Mapping[str, Attribute]
    failed: bool = False


class MeasureView(NamedTuple):
    """A sum since the beginning of the record; it never goes down."""

    name: str
    unit: str
    value: float
    attributes: Mapping[str, Attribute]


def spans(reader: Reader, feature: str | None = None) -> Iterator[SpanView]:
    """Everything that has ended, of one feature or of all; parents of what still runs come when they have ended."""
    for row in reader.workflows():
        if feature in (None, row.feature) and (view := feature_view(reader, row.feature)) is not None:
            yield from _FeatureSpans(reader, view).all()


def measures(reader: Reader) -> Iterator[MeasureView]:
    """What agents have used, and how gates were judged."""
    for slug, agent, role, _, runs, tokens, cost_usd, seconds in reader.totals():
        names = {"phasegate.feature": slug, "gen_ai.agent.name": agent, "phasegate.role": role}
        yield MeasureView("phasegate.agent.runs", "{run}", runs, names)
        yield MeasureView("gen_ai.client.token.usage", "{token}", tokens, names)
        yield MeasureView("gen_ai.client.operation.duration", "s", seconds, names)
        yield MeasureView("phasegate.cost_usd", "USD", cost_usd, names)
    for row in reader.workflows():
        of_feature: dict[str, Attribute] = {"phasegate.feature": row.feature}
        outcomes = Counter((gate.phase, gate.outcome) for gate in reader.gates(row.feature))
        for (phase, outcome), times in outcomes.items():
            told = {**of_feature, "phasegate.phase": phase, "phasegate.outcome": outcome}
            yield MeasureView("phasegate.gate.outcomes", "{check}", times, told)
        yield MeasureView("phasegate.waiting_for_person.duration", "s", _waited_s(reader, row.feature), of_feature)


def began(reader: Reader) -> str:
    """When the record began: where every sum starts, whoever exports it and however often."""
    return next((one.ts for one in reader.events_since()), "")


def _waited_s(reader: Reader, slug: str) -> float:
    """How long a feature has waited for its person, each time until they decided."""
    feature: Feature | None = None
    since, total_s = "", 0.0
    for one in reader.events(slug):
        if one.kind != FEATURE_STEP:
            continue
        feature = apply(feature, read_feature_step(one.payload))
        if since and not _waits(feature):
            total_s += (datetime.fromisoformat(one.ts) - datetime.fromisoformat(since)).total_seconds()
        since = (since or one.ts) if _waits(feature) else ""
    return max(0.0, total_s)


def _waits(feature: Feature | None) -> bool:
    if feature is None or feature.closing:
        return False
    workflow = feature.workflow
    return standing_of(str(workflow.stage), is_last_phase=workflow.is_last_phase, is_held=False) == "waiting"


class _FeatureSpans:
    def __init__(self, reader: Reader, view: FeatureView) -> None:
        self._view, self._slug = view, view.card.feature
        self._store = reader.store_id
        self._jobs = {job.id: job for job in reader.jobs(self._slug)}
        self._trace = self._hashed("trace")[:32]

    def all(self) -> Iterator[SpanView]:
        bars, card = self._view.bars, self._view.card
        ended = max((bar.ended for bar in bars), default="")
        if bars and card.stage in ("completed", "cancelled"):
            about = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": card.type}
            yield self._span(
                "feature", "", f"invoke_workflow {card.type}", bars[0].started, ended, about, card.stage != "completed"
            )
        for phase in self._view.phases:
            own = [bar for bar in bars if bar.phase == phase.key]
            if phase.status == "completed" and own and phase.rounds:
                rounds: dict[str, Attribute] = {
                    "cicd.pipeline.task.name": phase.key,
                    "phasegate.rounds": len(phase.rounds),
                }
                yield self._span(
                    phase.key, "feature", f"phase {phase.key}", own[0].started, phase.rounds[-1].at, rounds
                )
        yield from (self._of_bar(bar) for bar in bars if bar.ended)

    def _of_bar(self, bar: Bar) -> SpanView:
        about: dict[str, Attribute] = {"phasegate.round": bar.round}
        phase = (
            bar.phase if any(one.key == bar.phase for one in self._view.phases) else "feature"
        )  # such as the archive
        if bar.package:
            about["phasegate.package"] = bar.package
        if bar.kind == "agent":
            told = {**about, **_of_job(self._jobs[bar.job])}
            name = f"invoke_agent {bar.agent}"
            return self._span(bar.job, phase, name, bar.started, bar.ended, told, bar.outcome != "done")
        key = f"{bar.kind} {bar.name} {bar.package} {bar.round} {bar.started}"
        if bar.kind == "gate":
            about |= {"gen_ai.evaluation.name": bar.name, "gen_ai.evaluation.score.label": bar.outcome}
            return self._span(
                key, bar.phase, f"gate {bar.name}", bar.started, bar.ended, about, bar.outcome != "passed"
            )
        return self._span(key, phase, f"step {bar.name}", bar.started, bar.ended, about)

    def _span(
        self,
        key: str,
        parent: str,
        name: str,
        started: str,
        ended: str,
        about: Mapping[str, Attribute],
        failed: bool = False,
    ) -> SpanView:
        above = self._hashed(parent)[:16] if parent else ""
        about = {**about, "phasegate.feature": self._slug}
        return SpanView(self._trace, self._hashed(key)[:16], above, name, started, ended, about, failed)

    def _hashed(self, key: str) -> str:
        return hashlib.sha256("\0".join((self._store, self._slug, key)).encode()).hexdigest()


def _of_job(job: Job) -> dict[str, Attribute]:
    told: dict[str, Attribute] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": job.agent,
        "gen_ai.agent.id": job.id,
        "gen_ai.request.model": job.model,
        "gen_ai.usage.input_tokens": job.input_tokens,
        "gen_ai.usage.output_tokens": job.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": job.cached_tokens,
        "phasegate.role": job.phase,
        "phasegate.outcome": job.outcome,
        "phasegate.cost_usd": job.cost_usd,
    }
    return {name: value for name, value in told.items() if value}
