"""Query the Temporal server: which worker runs which feature, and which queues have no worker."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.failure.v1 import Failure
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkflowExecutionResponse,
)
from temporalio.client import Client
from temporalio.service import RPCError

from phasegate.core.display.status import NO_WORKER_YET
from phasegate.engine.fleet.client import VERSION_LABEL, connect_to_temporal, fleet_queue_name
from phasegate.engine.fleet.temporal_workflow import ADOPTION_SUFFIX, WAITING_FAILURES
from phasegate.engine.project.ports import format_timestamp
from phasegate.engine.project.project import Project
from phasegate.engine.views.overview import FleetWorkerStatus, UnservedQueue
from phasegate.errors import EnvironmentUnavailable

SERVER_TIMEOUT_S = 5.0
# A live worker polls every minute.
POLLER_MAX_AGE = timedelta(seconds=70)
ALL_WORKERS_BUSY = "all workers are busy"
_MAX_CONCURRENT = 16
# Worker and last heartbeat by feature
WorkersByFeature = dict[str, tuple[str, str]]


class ServerState(NamedTuple):
    """The server's view of a fleet: workers by feature, waiting queues, all workers."""

    running: WorkersByFeature
    unserved: tuple[UnservedQueue, ...]
    connected: tuple[FleetWorkerStatus, ...]


class QueueWait(NamedTuple):
    """A feature that waits in a queue; `why` is the last refusal of a worker."""

    queue: str
    type: TaskQueueType.ValueType
    since: str
    feature: str
    why: str = ""


async def query_fleet_state(project: Project) -> ServerState:
    """Return the worker of each running feature, the queues without a worker, and all workers."""
    try:
        return await asyncio.wait_for(_describe_fleet(project), SERVER_TIMEOUT_S)
    except (TimeoutError, RPCError) as error:
        server = project.config.fleet.address
        raise EnvironmentUnavailable(
            f"the Temporal server at {server} did not answer: {error}"
        ) from error


async def _describe_fleet(project: Project) -> ServerState:
    """Ask the Temporal server for the workers and queues of running features."""
    client = await connect_to_temporal(project)
    prefix = f"{fleet_queue_name(project)} "
    limit = asyncio.Semaphore(_MAX_CONCURRENT)

    async def describe(id_: str) -> tuple[str, DescribeWorkflowExecutionResponse]:
        async with limit:
            description = await client.get_workflow_handle(id_).describe()
            return id_.removeprefix(prefix).partition(" ")[0], description.raw_description

    quoted = prefix.replace("'", "''")
    running = client.list_workflows(
        f"ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '{quoted}'"
    )
    ids = [one.id async for one in running if one.id.startswith(prefix)]
    workers = WorkersByFeature()
    waits = set[QueueWait]()

    for slug, description in await asyncio.gather(*map(describe, ids)):
        feature_waits = find_waits(slug, description)
        waits.update(feature_waits)
        workers[slug] = (
            NO_WORKER_YET,
            max((wait.since for wait in feature_waits), default=format_timestamp(time.time())),
        )

        for one in description.pending_activities:
            is_started = one.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
            if is_started and one.activity_type.name == "take_step":
                workers[slug] = (
                    one.last_worker_identity,
                    _first_timestamp(one.last_heartbeat_time, one.last_started_time),
                )

    return ServerState(
        running=workers,
        unserved=tuple([one async for one in _find_stuck_queues(client, waits)]),
        connected=await _list_workers(client, fleet_queue_name(project)),
    )


async def _list_workers(client: Client, queue: str) -> tuple[FleetWorkerStatus, ...]:
    """Return the workers that have polled the fleet's queue a short time ago."""
    pollers = await _list_pollers(client, queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
    found = [
        FleetWorkerStatus(
            *split_worker_identity(one.identity), _first_timestamp(one.last_access_time)
        )
        for one in pollers
    ]
    return tuple(sorted(found))


def split_worker_identity(identity: str) -> tuple[str, str]:
    """Return the name and the version of a worker; the version is empty if it is not known."""
    name, _, version = identity.partition(VERSION_LABEL)
    return name, version


async def _list_pollers(
    client: Client, queue: str, type_: TaskQueueType.ValueType
) -> list[PollerInfo]:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=type_
    )
    pollers = (await client.workflow_service.describe_task_queue(request)).pollers
    oldest = datetime.now(UTC) - POLLER_MAX_AGE
    return [one for one in pollers if one.last_access_time.ToDatetime(UTC) > oldest]


def find_waits(slug: str, description: DescribeWorkflowExecutionResponse) -> list[QueueWait]:
    """Return the queues in which a feature waits for a worker of its step or workflow."""
    waits = list[QueueWait]()

    for activity in description.pending_activities:
        refused = activity.last_failure
        queue = activity.activity_options.task_queue.name

        since, why = _explain_refusal(refused, _first_timestamp(activity.scheduled_time))
        if (
            refused.message
            or activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        ):
            waits.append(
                QueueWait(
                    queue=queue,
                    type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
                    since=since,
                    feature=slug,
                    why=why,
                )
            )

    if description.HasField(
        "pending_workflow_task"
    ) and not description.pending_workflow_task.HasField("started_time"):
        since = _first_timestamp(description.pending_workflow_task.original_scheduled_time)
        queue = description.execution_config.task_queue.name
        waits.append(
            QueueWait(
                queue=queue, type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, since=since, feature=slug
            )
        )

    return waits


def _explain_refusal(refused: Failure, scheduled: str) -> tuple[str, str]:
    """Return since when a feature waits, and why.

    A worker that is busy or lacks an agent adds the time of the first attempt, any other failure
    its remedy.
    """
    details = refused.application_failure_info.details.payloads
    detail = str(json.loads(details[0].data)) if details else ""

    if refused.application_failure_info.type in WAITING_FAILURES:
        return detail or scheduled, refused.message
    if detail:
        return scheduled, f"{refused.message} ({detail})"
    return scheduled, refused.message


async def _find_stuck_queues(client: Client, waits: set[QueueWait]) -> AsyncIterator[UnservedQueue]:
    """Yield, per reason, the queues with waiting features that no worker accepts.

    A queue may have no worker, or only workers that are busy or refuse (`why`).

    Workers without capacity do not poll the adoption queue, so the pollers of the shared queue are
    counted instead.
    """
    for name, type_ in sorted({wait[:2] for wait in waits}):
        is_served = bool(await _list_pollers(client, name.removesuffix(ADOPTION_SUFFIX), type_))
        is_busy = is_served and name.endswith(ADOPTION_SUFFIX)
        default = ALL_WORKERS_BUSY if is_busy else ""

        queue_waits = [
            wait._replace(why=wait.why or default) for wait in waits if wait[:2] == (name, type_)
        ]
        for why in sorted({wait.why for wait in queue_waits if wait.why or not is_served}):
            same_reason = [wait for wait in queue_waits if wait.why == why]
            yield UnservedQueue(
                name,
                min(wait.since for wait in same_reason),
                tuple(sorted({wait.feature for wait in same_reason})),
                why,
            )


def _first_timestamp(*times: Timestamp) -> str:
    """Return the first time that is set, in the format of the record."""
    return next((format_timestamp(one.ToMilliseconds() / 1000) for one in times if one.seconds), "")
