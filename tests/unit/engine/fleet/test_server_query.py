"""What the server says about a feature that waits, as `status --fleet` shows it."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from phasegate.engine.fleet.server_query import find_waits

SINCE = "2026-11-18T10:00:00.000Z"


def waiting(type_: str, message: str, detail: str) -> DescribeWorkflowExecutionResponse:
    """A feature whose activity failed, and is tried again."""
    said = DescribeWorkflowExecutionResponse()
    activity = said.pending_activities.add()
    activity.state = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    activity.activity_options.task_queue.name = "queue"
    activity.scheduled_time.FromJsonString("2026-11-18T12:00:00Z")
    failure = Failure(message=message)
    failure.application_failure_info.type = type_
    failure.application_failure_info.details.payloads.add(data=json.dumps(detail).encode())
    activity.last_failure.CopyFrom(failure)
    return said


@pytest.mark.demand("X8.t")
def test_a_look_that_fails_with_a_hint_is_shown_with_the_hint_and_a_time() -> None:
    hint = "if the bucket was recreated, remove the copy"
    (wait,) = find_waits("001-x", waiting("StateConflict", "no longer has head 7", hint))
    assert datetime.fromisoformat(wait.since), "a text of a failure is no time"
    assert wait.why == f"no longer has head 7 ({hint})"


def test_a_worker_without_room_says_since_when_the_feature_waits() -> None:
    (wait,) = find_waits("001-x", waiting("Busy", "all workers are busy", SINCE))
    assert (wait.since, wait.why) == (SINCE, "all workers are busy")
