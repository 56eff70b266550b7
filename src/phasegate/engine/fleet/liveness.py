"""What the server knows of a fleet now.

Which worker is at which feature, and which queues nobody serves.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    DescribeWorkflowExecutionResponse,
)
from temporalio.client import Client
from temporalio.service import RPCError

from phasegate.core.display.status import NO_WORKER_YET
from phasegate.engine.fleet.client import connect_to_temporal, fleet_queue_name
from phasegate.engine.fleet.workflow import ADOPTION_SUFFIX
from phasegate.engine.project.ports import format_timestamp
from phasegate.engine.project.project import Project
from phasegate.engine.views.overview import UnservedQueue
from phasegate.errors import EnvironmentUnavailable

SERVER_TIMEOUT_S = 5.0
# A worker that lives asks for work every minute
POLLER_MAX_AGE = timedelta(seconds=70)
ALL_WORKERS_BUSY = "every worker has enough to do"
_MAX_CONCURRENT = 16
# By feature: which worker is at it, and when it gave a sign last
WorkersByFeature = dict[str, tuple[str, str]]


class QueueWait(NamedTuple):
    """A feature that waits in a queue; `why`: what a worker of it said that was asked last."""

    queue: str
    type: TaskQueueType.ValueType
    since: str
    feature: str
    why: str = ""


async def query_fleet_state(project: Project) -> tuple[WorkersByFeature, tuple[UnservedQueue, ...]]:
    """Who works on what that is begun, and the queues that something waits in and nobody serves."""
    try:
        return await asyncio.wait_for(_describe_fleet(project), SERVER_TIMEOUT_S)
    except (TimeoutError, RPCError) as error:
        server = project.config.fleet.address
        raise EnvironmentUnavailable(
            f"the Temporal server at {server} does not say: {error}"
        ) from error


async def check_namespace(project: Project) -> None:
    """Whether the server answers and has the namespace of the settings."""
    client = await connect_to_temporal(project)
    fleet = project.config.fleet

    try:
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace)
        )
    except RPCError as error:
        raise EnvironmentUnavailable(
            f"{fleet.address} has no namespace {fleet.namespace}: {error.message}",
            f"temporal operator namespace create {fleet.namespace}",
        ) from error


async def _describe_fleet(project: Project) -> tuple[WorkersByFeature, tuple[UnservedQueue, ...]]:
    client = await connect_to_temporal(project)
    beginning = f"{fleet_queue_name(project)} "
    limit = asyncio.Semaphore(_MAX_CONCURRENT)

    async def described(id_: str) -> tuple[str, DescribeWorkflowExecutionResponse]:
        async with limit:
            found = await client.get_workflow_handle(id_).describe()
            return id_.removeprefix(beginning).partition(" ")[0], found.raw_description

    running = client.list_workflows('ExecutionStatus = "Running"')
    ids = [one.id async for one in running if one.id.startswith(beginning)]
    works = WorkersByFeature()
    waits = set[QueueWait]()

    for slug, said in await asyncio.gather(*map(described, ids)):
        waits |= (waiting := {*_find_waits(slug, said)})
        works[slug] = (
            NO_WORKER_YET,
            max((one.since for one in waiting), default=format_timestamp(time.time())),
        )

        for one in said.pending_activities:
            is_begun = one.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
            if is_begun and one.activity_type.name == "take_step":
                works[slug] = (
                    one.last_worker_identity,
                    _first_timestamp(one.last_heartbeat_time, one.last_started_time),
                )

    return works, tuple([one async for one in _find_unserved_queues(client, waits)])


def _find_waits(slug: str, description: DescribeWorkflowExecutionResponse) -> list[QueueWait]:
    """The queues that a feature waits in for somebody to take its step, or its workflow."""
    found = list[QueueWait]()

    for one in description.pending_activities:
        refused = one.last_failure
        queue = one.activity_options.task_queue.name
        told = [
            json.loads(detail.data) for detail in refused.application_failure_info.details.payloads
        ]
        if told:
            since = told[0]
        else:
            since = _first_timestamp(one.scheduled_time)

        if refused.message or one.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED:
            found.append(
                QueueWait(
                    queue=queue,
                    type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
                    since=since,
                    feature=slug,
                    why=refused.message,
                )
            )

    if description.HasField(
        "pending_workflow_task"
    ) and not description.pending_workflow_task.HasField("started_time"):
        since = _first_timestamp(description.pending_workflow_task.original_scheduled_time)
        queue = description.execution_config.task_queue.name
        found.append(
            QueueWait(
                queue=queue, type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, since=since, feature=slug
            )
        )

    return found


async def _find_unserved_queues(
    client: Client, waits: set[QueueWait]
) -> AsyncIterator[UnservedQueue]:
    """Workers without room do not ask for features.

    Whether there are workers the queue of all of them says.
    """
    for name, type_ in sorted({wait[:2] for wait in waits}):
        queue = TaskQueue(name=name.removesuffix(ADOPTION_SUFFIX))
        request = DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=queue, task_queue_type=type_
        )
        pollers = (await client.workflow_service.describe_task_queue(request)).pollers
        lately = datetime.now(UTC) - POLLER_MAX_AGE
        is_served = any(one.last_access_time.ToDatetime(UTC) > lately for one in pollers)
        if is_served and name.endswith(ADOPTION_SUFFIX):
            default = ALL_WORKERS_BUSY
        else:
            default = ""

        of_it = [
            wait._replace(why=wait.why or default) for wait in waits if wait[:2] == (name, type_)
        ]
        for why in sorted({wait.why for wait in of_it if wait.why or not is_served}):
            told = [wait for wait in of_it if wait.why == why]
            yield UnservedQueue(
                name,
                min(wait.since for wait in told),
                tuple(sorted({wait.feature for wait in told})),
                why,
            )


def _first_timestamp(*times: Timestamp) -> str:
    """The first of these that is set, as every record writes it."""
    return next((format_timestamp(one.ToMilliseconds() / 1000) for one in times if one.seconds), "")
