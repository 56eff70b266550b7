"""Build spans and metrics of features from the record.

They survive a crash, and repeated exports give the same ids. Names and attributes follow the
OpenTelemetry conventions for generative AI and CI/CD. They contain no prompt, answer or
description.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from phasegate.core.display.status import derive_standing
from phasegate.core.machine.feature_machine import apply_feature_event
from phasegate.core.machine.feature_state import Feature
from phasegate.engine.journal.entries import FEATURE_STEP, read_feature_step
from phasegate.engine.views.feature import FeatureView, TimelineBar, feature_view
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import JobRow

Attribute = str | int | float | bool


class SpanView(NamedTuple):
    """A finished span. Ids are hexadecimal; the parent of a feature's span is empty."""

    trace: str
    id: str
    parent: str
    name: str
    started: str
    ended: str
    attributes: Mapping[str, Attribute]
    failed: bool = False


class MetricView(NamedTuple):
    """A monotonic sum since the start of the record."""

    name: str
    unit: str
    value: float
    attributes: Mapping[str, Attribute]


def collect_spans(reader: StoreReader, feature: str | None = None) -> Iterator[SpanView]:
    """Yield all finished spans, of one feature or of all.

    A parent is yielded when it has ended, after its children.
    """
    for row in reader.workflows():
        if (
            feature in (None, row.feature)
            and (view := feature_view(reader, row.feature)) is not None
        ):
            yield from _FeatureSpans(reader, view).build_spans()


def collect_metrics(reader: StoreReader) -> Iterator[MetricView]:
    """Yield the usage of agents, and the outcomes of gates."""
    for slug, agent, role, _, runs, tokens, cost_usd, seconds in reader.usage_totals():
        names = {"phasegate.feature": slug, "gen_ai.agent.name": agent, "phasegate.role": role}
        yield MetricView("phasegate.agent.runs", "{run}", runs, names)
        yield MetricView("gen_ai.client.token.usage", "{token}", tokens, names)
        yield MetricView("gen_ai.client.operation.duration", "s", seconds, names)
        yield MetricView("phasegate.cost_usd", "USD", cost_usd, names)

    for row in reader.workflows():
        feature_attribute: dict[str, Attribute] = {"phasegate.feature": row.feature}
        outcomes = Counter((gate.phase, gate.outcome) for gate in reader.gates(row.feature))
        for (phase, outcome), count in outcomes.items():
            attributes = {
                **feature_attribute,
                "phasegate.phase": phase,
                "phasegate.outcome": outcome,
            }
            yield MetricView("phasegate.gate.outcomes", "{check}", count, attributes)

        yield MetricView(
            "phasegate.waiting_for_person.duration",
            "s",
            _sum_waiting_s(reader, row.feature),
            feature_attribute,
        )


def read_start_time(reader: StoreReader) -> str:
    """Return the time of the first event, where every sum starts, independent of the exporter."""
    return next((one.ts for one in reader.events_since()), "")


def _sum_waiting_s(reader: StoreReader, slug: str) -> float:
    """Return how long a feature has waited for decisions of the user in total."""
    feature: Feature | None = None
    since = ""
    total_s = 0.0

    for recorded in reader.events(slug):
        if recorded.kind != FEATURE_STEP:
            continue

        feature = apply_feature_event(feature, read_feature_step(recorded.payload))
        if since and not _is_waiting(feature):
            total_s += (
                datetime.fromisoformat(recorded.ts) - datetime.fromisoformat(since)
            ).total_seconds()

        since = (since or recorded.ts) if _is_waiting(feature) else ""

    return max(0.0, total_s)


def _is_waiting(feature: Feature | None) -> bool:
    if feature is None or feature.closing:
        return False

    workflow = feature.workflow
    return (
        derive_standing(str(workflow.stage), is_last_phase=workflow.is_last_phase, has_worker=False)
        == "waiting"
    )


class _FeatureSpans:
    """Builds the spans of one feature."""

    def __init__(self, reader: StoreReader, view: FeatureView) -> None:
        self._view = view
        self._slug = view.card.feature
        self._store = reader.store_id
        self._jobs = {job.id: job for job in reader.jobs(self._slug)}
        self._trace = self._hash_id("trace")[:32]

    def build_spans(self) -> Iterator[SpanView]:
        """Yield the spans of a feature, its phases, jobs, gates and steps."""
        bars = self._view.bars
        card = self._view.card
        ended = max((bar.ended for bar in bars), default="")

        if bars and card.stage in ("completed", "cancelled"):
            attributes = {
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.workflow.name": card.type,
            }
            yield self._make_span(
                "feature",
                "",
                f"invoke_workflow {card.type}",
                bars[0].started,
                ended,
                attributes,
                card.stage != "completed",
            )

        for phase in self._view.phases:
            phase_bars = [bar for bar in bars if bar.phase == phase.key]
            if phase.status == "completed" and phase_bars and phase.rounds:
                rounds: dict[str, Attribute] = {
                    "cicd.pipeline.task.name": phase.key,
                    "phasegate.rounds": len(phase.rounds),
                }
                yield self._make_span(
                    phase.key,
                    "feature",
                    f"phase {phase.key}",
                    phase_bars[0].started,
                    phase.rounds[-1].at,
                    rounds,
                )

        yield from (self._bar_span(bar) for bar in bars if bar.ended)

    def _bar_span(self, bar: TimelineBar) -> SpanView:
        """Convert a bar of the timeline to a span."""
        about: dict[str, Attribute] = {"phasegate.round": bar.round}
        # A bar outside of the phases, such as the archive, belongs to the feature.
        is_phase = any(phase.key == bar.phase for phase in self._view.phases)
        parent = bar.phase if is_phase else "feature"
        if bar.package:
            about["phasegate.package"] = bar.package

        if bar.kind == "agent":
            attributes = {**about, **_job_attributes(self._jobs[bar.job])}
            name = f"invoke_agent {bar.agent}"
            return self._make_span(
                bar.job, parent, name, bar.started, bar.ended, attributes, bar.outcome != "done"
            )

        key = f"{bar.kind} {bar.name} {bar.package} {bar.round} {bar.started}"
        if bar.kind == "gate":
            about |= {
                "gen_ai.evaluation.name": bar.name,
                "gen_ai.evaluation.score.label": bar.outcome,
            }
            return self._make_span(
                key,
                bar.phase,
                f"gate {bar.name}",
                bar.started,
                bar.ended,
                about,
                bar.outcome != "passed",
            )

        return self._make_span(key, parent, f"step {bar.name}", bar.started, bar.ended, about)

    def _make_span(
        self,
        key: str,
        parent: str,
        name: str,
        started: str,
        ended: str,
        attributes: Mapping[str, Attribute],
        failed: bool = False,
    ) -> SpanView:
        """Create a span; ids are hashes of the keys."""
        return SpanView(
            trace=self._trace,
            id=self._hash_id(key)[:16],
            parent=self._hash_id(parent)[:16] if parent else "",
            name=name,
            started=started,
            ended=ended,
            attributes={**attributes, "phasegate.feature": self._slug},
            failed=failed,
        )

    def _hash_id(self, key: str) -> str:
        return hashlib.sha256("\0".join((self._store, self._slug, key)).encode()).hexdigest()


def _job_attributes(job: JobRow) -> dict[str, Attribute]:
    """Return the attributes of a job's span, without empty ones."""
    attributes: dict[str, Attribute] = {
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
    return {name: value for name, value in attributes.items() if value}
