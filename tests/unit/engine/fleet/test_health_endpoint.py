"""What a worker tells an operator: a line for each step, health and metrics."""

from __future__ import annotations

import json
from http.client import HTTPConnection

import pytest

from phasegate.core.display.worker_log import (
    StepLog,
    StepTotal,
    WorkerMetrics,
    add_step,
    format_step_log,
)
from phasegate.engine.fleet.health_endpoint import serve_health
from phasegate.engine.fleet.local_fleet import find_free_ports
from phasegate.errors import EnvironmentUnavailable

LOG = StepLog("2026-11-18T10:00:00.000Z", "001-x", "gate", "done", 1.23456)
SERVING = WorkerMetrics("1.2.3", 2, is_draining=False, totals={("gate", "done"): StepTotal(3, 4.5)})


def ask(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_health_says_no_while_a_worker_drains_and_metrics_count_its_steps() -> None:
    (port,) = find_free_ports(1)
    state = [SERVING]
    with serve_health(f"127.0.0.1:{port}", lambda: state[0]):
        assert ask(port, "/healthz") == (200, "serving\n")
        status, text = ask(port, "/metrics")
        assert status == 200
        assert 'phasegate_worker_info{version="1.2.3"} 1\n' in text
        assert 'phasegate_step_seconds_count{step="gate",outcome="done"} 3\n' in text
        assert 'phasegate_step_seconds_sum{step="gate",outcome="done"} 4.500\n' in text
        assert ask(port, "/")[0] == 404
        state[0] = SERVING._replace(is_draining=True)
        assert ask(port, "/healthz") == (503, "draining\n")
        with (
            pytest.raises(EnvironmentUnavailable, match="cannot listen"),
            serve_health(f"127.0.0.1:{port}", lambda: SERVING),
        ):
            pass


def test_a_step_is_one_line_of_json_and_adds_to_its_total() -> None:
    line = format_step_log(LOG)
    assert "\n" not in line
    assert json.loads(line) == {**LOG._asdict(), "event": "step", "duration_s": 1.235}
    assert add_step(StepTotal(1, 1.0), LOG) == StepTotal(2, 2.23456)
