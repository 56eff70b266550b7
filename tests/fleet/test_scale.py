"""Many features at once, to their end. Long: LONG=1 make test-fleet."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.fleet import GOAL, a_fleet, carry_out, costs
from temporalio.client import Client

pytestmark = pytest.mark.usefixtures("s3_program", "temporal_program", "without_servers_of_tests")


@pytest.fixture
def without_servers_of_tests() -> Iterator[None]:
    """The benchmark starts servers of its own, and sets what its commands need."""
    before = {**os.environ}
    for name in ("PHASEGATE_TEST_S3_SERVER", "PHASEGATE_TEST_TEMPORAL"):
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)


async def attempts_to_be_adopted(address: str) -> list[int]:
    """How often each workflow at a server asked for a worker until it had one."""
    client, found = await Client.connect(address), []
    async for one in client.list_workflows():
        history = await client.get_workflow_handle(one.id, run_id=one.run_id).fetch_history()
        names = {
            event.event_id: event.activity_task_scheduled_event_attributes
            for event in history.events
        }
        started = [event.activity_task_started_event_attributes for event in history.events]
        found += [
            one.attempt
            for one in started
            if one.attempt and names[one.scheduled_event_id].activity_type.name == "adopt"
        ]
    return found


@pytest.mark.demand("X8.o")
def test_features_that_wait_for_room_ask_once_and_all_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHASEGATE_FLEET__FEATURES_PER_WORKER", "1")
    with a_fleet(tmp_path) as (project, _server, workers):
        carry_out(project, 5)
        attempts = asyncio.run(attempts_to_be_adopted(project.config.fleet.address))
    assert len(workers) == 2
    assert attempts == [1] * 5


@pytest.mark.long
@pytest.mark.demand("X8.o")
def test_200_features_at_once_end_and_cost_as_much_each_as_40() -> None:
    few, many = costs(40, 200)
    assert many.workers_s + many.server_s <= GOAL * (few.workers_s + few.server_s)
    assert many.worker_mb <= 1.5 * few.worker_mb
