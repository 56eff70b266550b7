"""`phasegate otel export`: send spans and metrics of the record to an OpenTelemetry collector.

Only this command imports OpenTelemetry.
"""

from __future__ import annotations

import logging
import os
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
# Of the SDK's exporters
_DEFAULT_ENDPOINT = "http://localhost:4318"


@click.group(cls=Group)
def otel() -> None:
    """Export traces and metrics to an OpenTelemetry collector."""


@otel.command()
@click.option(
    "--endpoint", metavar="URL", help="The collector; default: OTEL_EXPORTER_OTLP_ENDPOINT."
)
@click.option("--follow", is_flag=True, help="Keep exporting new data, until Ctrl-C.")
@feature_option
@json_option
def export(endpoint: str | None, follow: bool, feature: str | None, as_json: bool) -> None:
    """Export the record by OTLP over HTTP, without prompts, answers and descriptions.

    Ids are derived from the record, so a repeated export has the same spans. Requires:
    the extra `otel`.

    \b
    Examples:
      phasegate otel export --endpoint http://127.0.0.1:4318
      phasegate otel export --follow
    """
    sent: set[str] = set()
    with require_reader(str(current_folder())) as reader:
        changes = ChangeDetector(reader)
        while changes.find_changed_features() or follow:
            new = [span for span in collect_spans(reader, feature) if span.id not in sent]
            _export_telemetry(new, [*collect_metrics(reader)], read_start_time(reader), endpoint)
            sent |= {span.id for span in new}
            if not follow:
                break

            while not changes.find_changed_features():
                time.sleep(POLL_INTERVAL_S)

    print_result({"spans": len(sent)}, f"exported {len(sent)} spans", as_json)


def _export_telemetry(
    spans: Sequence[SpanView], metrics: Sequence[MetricView], since: str, endpoint: str | None
) -> None:
    """Send spans and metrics with the exporters of the SDK, with ids and times of the record."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
    except ModuleNotFoundError as error:
        raise EnvironmentUnavailable(
            f"{error.name} is not installed", "in a checkout of Phasegate: pip install '.[otel]'"
        ) from error

    # Its lines are those of the HTTP library, one for each try; below is one that says what to do
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    resource = Resource({"service.name": "phasegate"})
    base = f"{endpoint.rstrip('/')}/v1" if endpoint else ""
    outcomes: list[str] = []

    if spans:
        span_exporter = OTLPSpanExporter(endpoint=f"{base}/traces" if base else None)
        exported = span_exporter.export([_to_sdk_span(span, resource) for span in spans])
        outcomes.append(exported.name)

    if metrics and "FAILURE" not in outcomes:
        metric_exporter = OTLPMetricExporter(endpoint=f"{base}/metrics" if base else None)
        outcomes.append(metric_exporter.export(_to_sdk_metrics(metrics, since, resource)).name)

    if any(outcome != "SUCCESS" for outcome in outcomes):
        address = endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or _DEFAULT_ENDPOINT
        raise EnvironmentUnavailable(
            f"the collector did not accept the data: {address}",
            "is it running there? Another address: phasegate otel export --endpoint URL",
        )


def _to_nanoseconds(ts: str) -> int:
    return int(datetime.fromisoformat(ts).timestamp() * 1000) * 1_000_000


def _to_sdk_span(view: SpanView, resource: Resource) -> ReadableSpan:
    """Convert a span view to a span of the OpenTelemetry SDK."""
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


def _to_sdk_metrics(metrics: Sequence[MetricView], since: str, resource: Resource) -> MetricsData:
    """Convert metric points to the data of the OpenTelemetry SDK."""
    from opentelemetry.sdk.metrics import export as sdk
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    now = time.time_ns()
    start = _to_nanoseconds(since)
    sdk_metrics = []
    for (name, unit), group in groupby(sorted(metrics, key=_get_metric_key), key=_get_metric_key):
        points = [sdk.NumberDataPoint(one.attributes, start, now, one.value) for one in group]
        data = sdk.Sum(points, sdk.AggregationTemporality.CUMULATIVE, is_monotonic=True)
        sdk_metrics.append(sdk.Metric(name, None, unit, data))

    scope = sdk.ScopeMetrics(InstrumentationScope("phasegate"), sdk_metrics, "")
    return sdk.MetricsData([sdk.ResourceMetrics(resource, [scope], "")])


def _get_metric_key(metric: MetricView) -> tuple[str, str]:
    return metric.name, metric.unit
