"""`phasegate otel export`: spans and measures of the record, to a collector.

Loaded by this command alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

import click

from phasegate.engine.views.follow import ChangeDetector
from phasegate.engine.views.overview import require_reader
from phasegate.engine.views.telemetry import (
    MetricView,
    SpanView,
    collect_metrics,
    collect_spans,
    read_start_time,
)
from phasegate.errors import EnvironmentUnavailable
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import current_folder, json_option, print_result

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan


POLL_INTERVAL_S = 0.5


@click.group(cls=Group)
def otel() -> None:
    """Give spans and measures of the record to an OpenTelemetry collector."""


@otel.command()
@click.option(
    "--endpoint", metavar="URL", help="The collector; without it OTEL_EXPORTER_OTLP_ENDPOINT holds."
)
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
    with require_reader(str(current_folder())) as reader:
        pulse = ChangeDetector(reader)
        while pulse.find_changed_features() or follow:
            new = [span for span in collect_spans(reader, feature) if span.id not in sent]
            _export_telemetry(new, [*collect_metrics(reader)], read_start_time(reader), endpoint)
            sent |= {span.id for span in new}
            if not follow:
                break

            while not pulse.find_changed_features():
                time.sleep(POLL_INTERVAL_S)

    print_result({"spans": len(sent)}, f"exported {len(sent)} spans", as_json)


def _export_telemetry(
    new_spans: Sequence[SpanView], measured: Sequence[MetricView], since: str, endpoint: str | None
) -> None:
    """Hand everything to the exporters of the SDK, with our own ids and times."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
    except ModuleNotFoundError as error:
        raise EnvironmentUnavailable(
            f"{error.name} is not installed", "pip install 'phasegate[otel]'"
        ) from error

    resource = Resource({"service.name": "phasegate"})
    paths = [
        f"{endpoint.rstrip('/')}/v1/{what}" if endpoint else None for what in ("traces", "metrics")
    ]
    outcomes: list[str] = []

    if new_spans:
        outcomes.append(
            OTLPSpanExporter(endpoint=paths[0])
            .export([_to_sdk_span(one, resource) for one in new_spans])
            .name
        )

    if measured:
        outcomes.append(
            OTLPMetricExporter(endpoint=paths[1])
            .export(_to_sdk_metrics(measured, since, resource))
            .name
        )

    if any(outcome != "SUCCESS" for outcome in outcomes):
        raise EnvironmentUnavailable(
            "the collector did not accept it", "check its address: --endpoint"
        )


def _to_nanoseconds(ts: str) -> int:
    return int(datetime.fromisoformat(ts).timestamp() * 1000) * 1_000_000


def _to_sdk_span(view: SpanView, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    def context(id_: str) -> SpanContext:
        return SpanContext(
            int(view.trace, 16), int(id_, 16), is_remote=False, trace_flags=TraceFlags(1)
        )

    return ReadableSpan(
        view.name,
        context(view.id),
        context(view.parent) if view.parent else None,
        resource,
        view.attributes,
        status=Status(StatusCode.ERROR if view.failed else StatusCode.OK),
        start_time=_to_nanoseconds(view.started),
        end_time=_to_nanoseconds(view.ended),
    )


def _to_sdk_metrics(measured: Sequence[MetricView], since: str, resource: Resource) -> MetricsData:
    from opentelemetry.sdk.metrics import export as sdk
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    now = time.time_ns()
    begun = _to_nanoseconds(since)
    found = []
    for (name, unit), group in groupby(sorted(measured, key=_get_metric_key), key=_get_metric_key):
        points = [sdk.NumberDataPoint(one.attributes, begun, now, one.value) for one in group]
        data = sdk.Sum(points, sdk.AggregationTemporality.CUMULATIVE, is_monotonic=True)
        found.append(sdk.Metric(name, None, unit, data))

    scope = sdk.ScopeMetrics(InstrumentationScope("phasegate"), found, "")
    return sdk.MetricsData([sdk.ResourceMetrics(resource, [scope], "")])


def _get_metric_key(measure: MetricView) -> tuple[str, str]:
    return measure.name, measure.unit
