"""Temporal client of a fleet: connection, payload conversion, queue names and requests."""

from __future__ import annotations

import os
import socket
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace
from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
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
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from phasegate import __version__
from phasegate.config.settings import FleetSettings
from phasegate.core.display.status import ENDED_STAGE_NAMES, derive_standing
from phasegate.core.workflow.origin import UNKNOWN_ORIGIN, OrderOrigin
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.engine.bucket import make_fleet_address, open_fleet_bucket, open_fleet_record
from phasegate.engine.drive import orders
from phasegate.engine.drive.run_feature import RunOptions
from phasegate.engine.fleet.temporal_workflow import FeatureWorkflow, FleetRunRequest
from phasegate.engine.journal.feature import read_workflows
from phasegate.engine.project.fleet_repository import (
    fleet_remote,
    get_repository_id,
    register_repository,
)
from phasegate.engine.project.ports import RecordReader
from phasegate.engine.project.project import Project
from phasegate.engine.steps.workplace import current_branch
from phasegate.errors import EnvironmentUnavailable, StateConflict, TemporarilyUnavailable
from phasegate.storage.bucket.client import Bucket
from phasegate.typed import read_json
from phasegate.workspace.repository.remote import fetch_branch
from phasegate.workspace.repository.repository import is_ancestor

# Between the name and the version of a worker
VERSION_LABEL = " phasegate/"
_REFUSALS = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)


class MsgspecPayloadConverter(EncodingPayloadConverter):
    """Converts values to readable JSON with msgspec."""

    encoding = "json/plain"

    def to_payload(self, value: Any) -> Payload | None:
        return Payload(metadata={"encoding": b"json/plain"}, data=msgspec.json.encode(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return read_json(payload.data, typing.Any if type_hint is None else type_hint)


class FleetPayloadConverter(CompositePayloadConverter):
    """Default converters, with msgspec for plain JSON."""

    def __init__(self) -> None:
        converters = DefaultPayloadConverter().converters.values()
        super().__init__(
            *(
                MsgspecPayloadConverter()
                if isinstance(converter, JSONPlainPayloadConverter)
                else converter
                for converter in converters
            )
        )


class FleetRun(NamedTuple):
    """A feature that runs on the fleet; `stage` is its last known stage."""

    feature: str
    queue: str
    stage: str = ""


class ResumedFeature(NamedTuple):
    """An open feature, and the result of resuming it."""

    feature: str
    outcome: str


class ServerAccess(NamedTuple):
    """Credentials for the Temporal server, and the certificate that verifies it."""

    tls: TLSConfig | bool
    api_key: str | None = None


def read_server_access(
    fleet: FleetSettings, environ: Mapping[str, str], root: Path
) -> ServerAccess:
    """Read the certificates and the API key that `[fleet]` names.

    A connection with an API key is always encrypted.
    """
    api_key = None
    if fleet.api_key_env:
        api_key = environ.get(fleet.api_key_env, "").strip()
        if not api_key:
            raise EnvironmentUnavailable(
                f"{fleet.api_key_env} is not set",
                f"set this variable to the API key of {fleet.address}",
            )

    files = [
        _read_certificate(root, path)
        for path in (fleet.tls_ca_file, fleet.tls_cert_file, fleet.tls_key_file)
    ]
    if any(files) or fleet.tls_server_name:
        return ServerAccess(
            TLSConfig(
                server_root_ca_cert=files[0],
                domain=fleet.tls_server_name or None,
                client_cert=files[1],
                client_private_key=files[2],
            ),
            api_key,
        )

    return ServerAccess(fleet.tls or api_key is not None, api_key)


def _read_certificate(root: Path, path: str) -> bytes | None:
    if not path:
        return None

    file = root / Path(path).expanduser()
    try:
        return file.read_bytes()
    except OSError as error:
        raise EnvironmentUnavailable(
            f"cannot read {file}: {error.strerror}", "check the tls settings in [fleet]"
        ) from error


def make_worker_identity() -> str:
    """Return the name under which Temporal lists this process, with its version."""
    return f"{os.getpid()}@{socket.gethostname()}{VERSION_LABEL}{__version__}"


async def connect_to_temporal(project: Project) -> Client:
    """Connect to the configured Temporal server, and check that it has the namespace."""
    fleet = project.config.fleet
    converter = DataConverter(payload_converter_class=FleetPayloadConverter)
    access = read_server_access(fleet, os.environ, project.root)

    try:
        client = await Client.connect(
            fleet.address,
            namespace=fleet.namespace,
            data_converter=converter,
            api_key=access.api_key,
            tls=access.tls,
            identity=make_worker_identity(),
        )
    except (RuntimeError, ValueError, RPCError) as error:
        reason = str(error).partition(":")[0][:200]
        raise TemporarilyUnavailable(
            f"the Temporal server at {fleet.address} does not respond: {reason}",
            "start it, or set address in [fleet]",
        ) from error

    await _check_namespace(client, fleet)
    return client


async def _check_namespace(client: Client, fleet: FleetSettings) -> None:
    """Raise EnvironmentUnavailable if the server refuses us, or does not have the namespace yet."""
    try:
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace)
        )
    except RPCError as error:
        if error.status in _REFUSALS:
            raise EnvironmentUnavailable(
                f"{fleet.address} refused the request: {error.message}",
                "check the certificates and the API key of [fleet]",
            ) from error

        raise TemporarilyUnavailable(
            f"{fleet.address} has no namespace {fleet.namespace}: {error.message}",
            f"temporal operator namespace create {fleet.namespace}",
        ) from error


def fleet_queue_name(project: Project) -> str:
    """Return the queue of all machines that share one record."""
    return f"phasegate {make_fleet_address(project)} {get_repository_id(project)[:12]}"


async def run_on_fleet(
    project: Project,
    type_: str | None,
    description: str,
    feature: str | None,
    options: RunOptions,
    *,
    wait: bool,
) -> FleetRun:
    """Start or continue a feature on the fleet; with `wait`, wait for its end."""
    client = await connect_to_temporal(project)
    register_repository(project)
    with open_fleet_record(project) as record:
        if type_ is None:
            slug = orders.select_feature(project, record, feature)
        else:
            _check_base_is_pushed(project)
            _check_open_feature_limit(project, record)
            slug = orders.start_workflow(
                project,
                record,
                type_,
                description,
                options.agent,
                options.by,
                runs_elsewhere=True,
            )

    keep_run_request(
        open_fleet_bucket(project), slug, KeptRunRequest(options.agent, options.merge, options.by)
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
        reason, hint = failure_reason(error)
        raise StateConflict(f"{slug} failed on the fleet: {reason}", hint) from error


def failure_reason(failure: WorkflowFailureError) -> tuple[str, str]:
    """Return the reason and the remedy of a failed feature, as reported by the worker."""
    cause: BaseException | None = failure.cause
    if isinstance(cause, ActivityError):
        cause = cause.cause

    if isinstance(cause, ApplicationError):
        return cause.message, str(cause.details[0]) if cause.details else ""
    return str(cause or failure.cause), ""


async def signal_order(project: Project, slug: str, by: OrderOrigin, *, ends_feature: bool) -> None:
    """Cancel the running step of a feature, so that its workflow decides the next step again.

    With `ends_feature`, the feature has ended, and its workflow is started to clean up.
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
        # NOT_FOUND: no workflow of the feature is running.
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise EnvironmentUnavailable(
                f"the Temporal server refused the signal: {error}"
            ) from error


async def _start_workflow(
    client: Client,
    project: Project,
    slug: str,
    options: RunOptions,
    signal: str | None,
    policy: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.USE_EXISTING,
) -> WorkflowHandle[FeatureWorkflow, Stage]:
    """Start the workflow of a feature, or use the running one, and send the signal."""
    queue = fleet_queue_name(project)
    fleet = project.config.fleet
    order = FleetRunRequest(
        slug=slug,
        queue=queue,
        heartbeat_timeout_s=fleet.heartbeat_timeout_s,
        claim_timeout_s=fleet.claim_timeout_s,
        agent=options.agent,
        merge=options.merge,
        by=options.by,
    )

    try:
        return await client.start_workflow(
            FeatureWorkflow.run,
            order,
            id=f"{queue} {slug}",
            task_queue=queue,
            id_conflict_policy=policy,
            start_signal=signal,
        )
    except WorkflowAlreadyStartedError:
        raise
    except RPCError as error:
        raise TemporarilyUnavailable(
            f"the Temporal server at {fleet.address} did not start {slug}: {error.message}",
            "the feature is on record; when the server is back: phasegate fleet resume",
        ) from error


class KeptRunRequest(msgspec.Struct, frozen=True):
    """The options of `run --fleet`, stored in the bucket for `fleet resume`."""

    agent: str | None = None
    merge: bool = False
    by: OrderOrigin = UNKNOWN_ORIGIN


def keep_run_request(bucket: Bucket, slug: str, request: KeptRunRequest) -> None:
    """Store the user's request. A merge that was requested once stays requested."""
    path = _request_path(slug)
    while True:
        found = bucket.get(path)
        if found is None:
            if bucket.create(path, msgspec.json.encode(request)):
                return
            continue

        kept = _decode_request(found.data)
        wanted = replace(request, merge=request.merge or kept.merge)
        if wanted == kept or bucket.replace(path, msgspec.json.encode(wanted), found.etag):
            return


def read_run_request(bucket: Bucket, slug: str) -> KeptRunRequest:
    """Return the stored request of the user, or defaults if there is none."""
    found = bucket.get(_request_path(slug))
    return _decode_request(found.data) if found else KeptRunRequest()


def _decode_request(data: bytes) -> KeptRunRequest:
    try:
        return read_json(data, KeptRunRequest)
    except msgspec.MsgspecError:
        return KeptRunRequest()


def _request_path(slug: str) -> str:
    return f"fleet/{slug}/request"


def _check_open_feature_limit(project: Project, record: RecordReader) -> None:
    """Refuse a new feature at the limit: one repository must not occupy all workers."""
    limit = project.config.fleet.max_open_features
    active = sum(workflow.is_active for workflow in read_workflows(record))

    if active >= limit:
        raise StateConflict(
            f"{active} features are open, and max_open_features in [fleet] is {limit}",
            "wait until one ends, or raise the limit",
        )


async def resume_features(project: Project) -> tuple[ResumedFeature, ...]:
    """Restart every feature in the bucket that can continue without a decision of the user."""
    client = await connect_to_temporal(project)
    register_repository(project)
    bucket = open_fleet_bucket(project)
    resumed = list[ResumedFeature]()
    with open_fleet_record(project) as record:
        record.sync_all_features()
        rows = [row for row in record.workflows() if row.stage not in ENDED_STAGE_NAMES]

    for row in rows:
        outcome = "waiting for a decision"
        is_last = row.position == len(row.phases.split()) - 1

        if derive_standing(row.stage, is_last_phase=is_last, has_worker=False) == "stopped":
            try:
                kept = read_run_request(bucket, row.feature)
                await _start_workflow(
                    client=client,
                    project=project,
                    slug=row.feature,
                    options=RunOptions(agent=kept.agent, merge=kept.merge, by=kept.by),
                    signal=None,
                    policy=WorkflowIDConflictPolicy.FAIL,
                )

                outcome = "restarted"
            except WorkflowAlreadyStartedError:
                outcome = "already running"

        resumed.append(ResumedFeature(row.feature, outcome))

    return tuple(resumed)


def _check_base_is_pushed(project: Project) -> None:
    """Refuse a base with unpushed commits: workers start from the base on the remote."""
    base = current_branch(project)
    head = project.refs.fetch(base).get(base)
    pushed = fetch_branch(project.repository, fleet_remote(project), base)
    # A clone that is behind is fine: workers start from the newer base
    if not head or not pushed or not is_ancestor(project.repository, head, pushed):
        raise StateConflict(
            f"{base} is not pushed to the remote", f"push it first: git push origin {base}"
        )
