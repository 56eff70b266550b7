"""Temporal as both sides of a fleet need it.

The connection, the form of values, the names of queues.
"""

from __future__ import annotations

import typing
from typing import Any, NamedTuple

import msgspec
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    JSONPlainPayloadConverter,
)
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from phasegate.core.display.status import ENDED_STAGE_NAMES, derive_standing
from phasegate.core.workflow.lifecycle import Stage
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.bucket import make_bucket_address, open_fleet_record
from phasegate.engine.drive import orders
from phasegate.engine.drive.feature import RunOptions
from phasegate.engine.fleet.workflow import FeatureWorkflow, FleetRunRequest
from phasegate.engine.journal.feature import read_workflows
from phasegate.engine.project.ports import RecordReader
from phasegate.engine.project.project import Project
from phasegate.engine.steps.workplace import current_branch
from phasegate.errors import ConfigError, EnvironmentUnavailable, StateConflict
from phasegate.typed import read_json
from phasegate.workspace.remote import Remote, get_remote_branch, read_remote_url


class MsgspecPayloadConverter(EncodingPayloadConverter):
    """Our values as JSON that a person can read."""

    encoding = "json/plain"

    def to_payload(self, value: Any) -> Payload | None:
        return Payload(metadata={"encoding": b"json/plain"}, data=msgspec.json.encode(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return read_json(payload.data, typing.Any if type_hint is None else type_hint)


class FleetPayloadConverter(CompositePayloadConverter):
    def __init__(self) -> None:
        known = DefaultPayloadConverter().converters.values()
        super().__init__(
            *(
                MsgspecPayloadConverter() if isinstance(one, JSONPlainPayloadConverter) else one
                for one in known
            )
        )


class FleetRun(NamedTuple):
    """A feature that the fleet carries on; `stage` is where it stands, once that is known."""

    feature: str
    queue: str
    stage: str = ""


class ResumedFeature(NamedTuple):
    """An open feature, and what was done about it."""

    feature: str
    outcome: str


async def connect_to_temporal(project: Project) -> Client:
    """The Temporal server that the settings name."""
    fleet = project.config.fleet
    converter = DataConverter(payload_converter_class=FleetPayloadConverter)

    try:
        return await Client.connect(
            fleet.address, namespace=fleet.namespace, data_converter=converter
        )
    except (RuntimeError, RPCError) as error:
        reason = str(error).partition(":")[0][:200]
        raise EnvironmentUnavailable(
            f"no Temporal server answers at {fleet.address}: {reason}",
            "start it, or set server in [fleet]",
        ) from error


def fleet_queue_name(project: Project) -> str:
    """The queue of all that share one record."""
    return f"phasegate {make_bucket_address(project.config.storage)}"


def fleet_remote(project: Project) -> Remote:
    """Where the code of a fleet comes together."""
    name = project.config.forge.remote
    if url := read_remote_url(project.repository, name):
        return Remote(url)
    raise ConfigError(
        f"there is no remote {name!r}", "a fleet exchanges code by a remote: git remote add"
    )


async def run_on_fleet(
    project: Project,
    type_: str | None,
    description: str,
    feature: str | None,
    options: RunOptions,
    *,
    wait: bool,
) -> FleetRun:
    """Start a feature, or go on with one, on the fleet; and wait for its end, if wanted."""
    client = await connect_to_temporal(project)
    with open_fleet_record(project) as record:
        if type_ is None:
            slug = orders.select_feature(project, record, feature)
        else:
            _check_base_is_pushed(project)
            _check_open_feature_limit(project, record)
            slug = orders.start_workflow(
                project, record, type_, description, options.agent, options.by
            )

    handle = await _start_workflow(
        client, project, slug, options, "merges" if options.merge else None
    )
    queue = fleet_queue_name(project)
    if not wait:
        return FleetRun(slug, queue)

    try:
        return FleetRun(slug, queue, await handle.result())
    except WorkflowFailureError as error:
        why, hint = failure_reason(error)
        raise StateConflict(f"{slug} could not be carried on: {why}", hint) from error


def failure_reason(failure: WorkflowFailureError) -> tuple[str, str]:
    """Why a feature could not be carried on, and what to do about it, as the worker said it."""
    if isinstance(failure.cause, ActivityError):
        cause = failure.cause.cause
    else:
        cause = failure.cause

    if isinstance(cause, ApplicationError):
        return cause.message, str(cause.details[0]) if cause.details else ""
    return str(cause or failure.cause), ""


async def signal_order(project: Project, slug: str, by: OrderOrigin, *, ends_feature: bool) -> None:
    """Have the step that runs ended, and decided anew.

    `is_end`: the feature is ended, and is to be cleared up.
    """
    client = await connect_to_temporal(project)
    if ends_feature:
        await _start_workflow(client, project, slug, RunOptions(by=by), "ordered")
        return

    try:
        await client.get_workflow_handle(f"{fleet_queue_name(project)} {slug}").signal(
            FeatureWorkflow.ordered
        )
    except RPCError as error:
        # Nobody is at work on it
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise EnvironmentUnavailable(
                f"the Temporal server does not take it: {error}"
            ) from error


async def _start_workflow(
    client: Client,
    project: Project,
    slug: str,
    options: RunOptions,
    signal: str | None,
    policy: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.USE_EXISTING,
) -> WorkflowHandle[FeatureWorkflow, Stage]:
    """The workflow of a feature, begun if it does not run; told what is wanted."""
    queue = fleet_queue_name(project)
    fleet = project.config.fleet
    order = FleetRunRequest(
        slug=slug,
        queue=queue,
        lost_after_s=fleet.heartbeat_timeout_s,
        home_within_s=fleet.claim_timeout_s,
        agent=options.agent,
        merge=options.merge,
        by=options.by,
    )

    return await client.start_workflow(
        FeatureWorkflow.run,
        order,
        id=f"{queue} {slug}",
        task_queue=queue,
        id_conflict_policy=policy,
        start_signal=signal,
    )


def _check_open_feature_limit(project: Project, record: RecordReader) -> None:
    """One repository does not take all workers: what is begun is ended first."""
    most = project.config.fleet.max_open_features
    active = sum(one.is_active for one in read_workflows(record))

    if active >= most:
        raise StateConflict(
            f"{active} features are open, and max_open_features in [fleet] is {most}",
            "wait until one ends, or raise it",
        )


async def resume_features(project: Project) -> tuple[ResumedFeature, ...]:
    """Begin every feature again that has something left to be done without a person, as the bucket
    says.
    """
    client = await connect_to_temporal(project)
    found = list[ResumedFeature]()
    with open_fleet_record(project) as record:
        record.sync_all_features()
        rows = [row for row in record.workflows() if row.stage not in ENDED_STAGE_NAMES]

    for row in rows:
        outcome = "waits for a person"
        is_last = row.position == len(row.phases.split()) - 1

        if derive_standing(row.stage, is_last_phase=is_last, has_worker=False) == "stopped":
            try:
                await _start_workflow(
                    client=client,
                    project=project,
                    slug=row.feature,
                    options=RunOptions(),
                    signal=None,
                    policy=WorkflowIDConflictPolicy.FAIL,
                )

                outcome = "begun again"
            except WorkflowAlreadyStartedError:
                outcome = "is begun already"

        found.append(ResumedFeature(row.feature, outcome))

    return tuple(found)


def _check_base_is_pushed(project: Project) -> None:
    """A worker begins with the base as the remote has it."""
    base = current_branch(project)
    here = project.refs.fetch(base).get(base)
    if get_remote_branch(project.repository, fleet_remote(project), base) != here:
        raise StateConflict(
            f"{base} is not at the remote as it is here", f"push it first: git push origin {base}"
        )
