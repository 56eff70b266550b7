"""`phasegate otel export`: spans and measures of the record, to a collector. Loaded by this command alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

import click

from phasegate.engine.views.follow import Pulse
from phasegate.engine.views.overview import need_reader
from phasegate.engine.views.telemetry import MeasureView, SpanView, began, measures, spans
from phasegate.errors import EnvironmentUnavailable
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import current_folder, json_option, show

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan


LOOK_EVERY_S = 0.5


@click.group(cls=Group)
def otel() -> None:
    """Give spans and measures of the record to an OpenTelemetry collector."""


@otel.command()
@click.option("--endpoint", metavar="URL", help="The collector; without it OTEL_EXPORTER_OTLP_ENDPOINT holds.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@feature_option
@json_option
def export(endpoint: str | None, follow: bool, feature: str | None, as_json: bool) -> None:
    """Export what is on record by OTLP over HTTP. No prompt, answer or description is part of it.

    Ids come from the record: who exports twice gets the same spans. Needs the extra: pip install 'phasegate[otel]'.

    \b
    Examples:
      phasegate otel export --endpoint http://127.0.0.1:4318
      phasegate otel export --follow
    """
    sent: set[str] = set()
    with need_reader(str(current_folder())) as reader:
        pulse = Pulse(reader)
        while pulse.moved() or follow:
            new = [span for span in spans(reader, feature) if span.id not in sent]
            _send(new, [*measures(reader)], began(reader), endpoint)
            sent |= {span.id for span in new}
            if not follow:
                break
            while not pulse.moved():
                time.sleep(LOOK_EVERY_S)
    show({"spans": len(sent)}, f"exported {len(sent)} spans", as_json)


def _send(found: Sequence[SpanView], measured: Sequence[MeasureView], since: str, endpoint: str | None) -> None:
    """Hand everything to the exporters of the SDK, with our own ids and times."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
    except ModuleNotFoundError as error:
        raise EnvironmentUnavailable(f"{error.name} is not installed", "pip install 'phasegate[otel]'") from error
    resource = Resource({"service.name": "phasegate"})
    paths = [f"{endpoint.rstrip('/')}/v1/{what}" if endpoint else None for what in ("traces", "metrics")]
    outcomes: list[str] = []
    if found:
        outcomes.append(OTLPSpanExporter(endpoint=paths[0]).export([_span(one, resource) for one in found]).name)
    if measured:
        outcomes.append(OTLPMetricExporter(endpoint=paths[1]).export(_metrics(measured, since, resource)).name)
    if any(outcome != "SUCCESS" for outcome in outcomes):
        raise EnvironmentUnavailable("the collector did not accept it", "check its address: --endpoint")


def _nanoseconds(ts: str) -> int:
    return int(datetime.fromisoformat(ts).timestamp() * 1000) * 1_000_000


def _span(one: SpanView, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    def context(id_: str) -> SpanContext:
        return SpanContext(int(one.trace, 16), int(id_, 16), is_remote=False, trace_flags=TraceFlags(1))

    return ReadableSpan(
        one.name,
        context(one.id),
        context(one.parent) if one.parent else None,
        resource,
        one.attributes,
        status=Status(StatusCode.ERROR if one.failed else StatusCode.OK),
        start_time=_nanoseconds(one.started),
        end_time=_nanoseconds(one.ended),
    )


def _metrics(measured: Sequence[MeasureView], since: str, resource: Resource) -> MetricsData:
    from opentelemetry.sdk.metrics import export as sdk
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    now, begun = time.time_ns(), _nanoseconds(since)
    found = []
    for (name, unit), group in groupby(sorted(measured, key=_kind), key=_kind):
        points = [sdk.NumberDataPoint(one.attributes, begun, now, one.value) for one in group]
        data = sdk.Sum(points, sdk.AggregationTemporality.CUMULATIVE, is_monotonic=True)
        found.append(sdk.Metric(name, None, unit, data))
    scope = sdk.ScopeMetrics(InstrumentationScope("phasegate"), found, "")
    return sdk.MetricsData([sdk.ResourceMetrics(resource, [scope], "")])


def _kind(one: MeasureView) -> tuple[str, str]:
    return one.name, one.unit
