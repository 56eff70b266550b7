"""`phasegate otel export`, to a collector that decodes OTLP."""

from __future__ import annotations

import gzip
import signal
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.feature_run import DESCRIPTION, SCENARIO, SLUG, TYPE, make_feature_run


class Collector(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Takes)
        self.taken: list[tuple[str, bytes]] = []
        self.came = Condition()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[object]:
        requests = [
            ExportTraceServiceRequest.FromString(body)
            for path, body in self.taken
            if path == "/v1/traces"
        ]
        scopes = [
            scope
            for one in requests
            for resource in one.resource_spans
            for scope in resource.scope_spans
        ]
        return [span for scope in scopes for span in scope.spans]

    def points(self) -> dict[str, list[Any]]:
        requests = [
            ExportMetricsServiceRequest.FromString(body)
            for path, body in self.taken
            if path == "/v1/metrics"
        ]
        scopes = [
            scope
            for one in requests
            for resource in one.resource_metrics
            for scope in resource.scope_metrics
        ]
        assert all(metric.sum.is_monotonic for scope in scopes for metric in scope.metrics)
        return {
            metric.name: [*metric.sum.data_points] for scope in scopes for metric in scope.metrics
        }

    def metrics(self) -> dict[str, float]:
        return {
            name: sum(point.as_double or point.as_int for point in points)
            for name, points in self.points().items()
        }


class _Takes(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        plain = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        assert isinstance(self.server, Collector)
        with self.server.came:
            self.server.taken.append((self.path, plain))
            self.server.came.notify_all()
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.demand("X2.f")
def test_spans_and_measures_come_from_the_record_with_the_same_ids_each_time(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_feature_run(tmp_path)
    run.play(*SCENARIO)
    refused = run.run("otel", "export", "--endpoint", collector.address)
    assert refused.returncode == 2  # nothing is recorded yet
    assert run.command("run", TYPE, DESCRIPTION, "--merge").code == 0
    done = run.run("otel", "export", "--endpoint", collector.address)
    assert done.returncode == 0, done.stderr
    first = {span.span_id: span for span in collector.spans()}
    agents = [span for span in first.values() if span.name == "invoke_agent actor"]
    assert len(agents) == len(run.jobs())
    assert all(0 < span.start_time_unix_nano <= span.end_time_unix_nano for span in first.values())
    (root,) = [span for span in first.values() if not span.parent_span_id]
    assert root.name == f"invoke_workflow {TYPE}"
    assert {span.trace_id for span in first.values()} == {root.trace_id}
    told = {span.name for span in first.values()}
    assert {"phase 01-requirements", "gate 08-code-review", "step merge"} <= told
    assert all(span.parent_span_id in first for span in first.values() if span.parent_span_id)
    attributes = {one.key: one.value for one in agents[0].attributes}
    assert attributes["gen_ai.operation.name"].string_value == "invoke_agent"
    assert collector.metrics()["phasegate.agent.runs"] == len(run.jobs())
    assert collector.metrics()["phasegate.gate.outcomes"] == 5
    whole = b"".join(body for _, body in collector.taken)
    assert (SLUG.encode() in whole, DESCRIPTION.encode() in whole, b"<prompt>" in whole) == (
        True,
        False,
        False,
    )
    begun = {
        point.start_time_unix_nano for points in collector.points().values() for point in points
    }
    assert 0 < min(begun) <= root.start_time_unix_nano
    collector.taken.clear()
    run.run("otel", "export", "--endpoint", collector.address, "--feature", SLUG)
    assert {span.span_id for span in collector.spans()} == first.keys()
    assert {
        point.start_time_unix_nano for points in collector.points().values() for point in points
    } == begun
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    nobody = run.run("otel", "export", "--endpoint", "http://127.0.0.1:1")
    assert nobody.returncode == 3
    said = nobody.stderr.splitlines()
    assert said[0] == "phasegate: the collector did not accept the data: http://127.0.0.1:1"
    assert len(said) == 2, "and the hint"


def test_a_follower_sends_what_comes_each_span_once_until_it_is_interrupted(
    tmp_path: Path, collector: Collector
) -> None:
    run = make_feature_run(tmp_path)
    assert run.command("run", TYPE, DESCRIPTION).code == 0  # all but the merge
    command = run.argv("otel", "export", "--follow", "--endpoint", collector.address)
    follower = subprocess.Popen(
        command, cwd=run.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        with collector.came:
            assert collector.came.wait_for(
                collector.metrics, timeout=60
            )  # they come behind the spans
        before = {span.name for span in collector.spans()}
        assert "gate 08-code-review" in before
        assert f"invoke_workflow {TYPE}" not in before  # it has not ended
        assert run.command("run", "--merge").code == 0
        with collector.came:
            ended = f"invoke_workflow {TYPE}"
            assert collector.came.wait_for(
                lambda: ended in {span.name for span in collector.spans()}, timeout=60
            )
            # Metrics are exported after the spans: from the last gate to the merge.
            waited = "phasegate.waiting_for_person.duration"
            assert collector.came.wait_for(lambda: collector.metrics()[waited] > 0, timeout=60)
    finally:
        follower.send_signal(signal.SIGINT)
        said = follower.communicate(timeout=60)[0]
    assert (follower.returncode, "Traceback" in said) == (130, False)
    ids = [span.span_id for span in collector.spans()]
    assert len(ids) == len({*ids})
