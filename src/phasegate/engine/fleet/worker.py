"""A worker of a fleet: takes the steps of features in its own clone, and records them in the
bucket.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from hashlib import sha256
from math import inf
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import msgspec
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    Worker,
    WorkerTuner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from phasegate.core.agents.roles import choose_agent_for_role
from phasegate.core.display.status import RUN_FAILED_PREFIX
from phasegate.core.machine.feature_machine import decide_feature_actions
from phasegate.core.machine.feature_state import ROLE_BY_STEP, Feature, Step
from phasegate.core.workflow.lifecycle import Refusal
from phasegate.engine.bucket import BUCKET_TIMEOUT_S, open_bucket, open_fleet_record
from phasegate.engine.drive.feature import RunOptions, clean_up_feature, run_single_step
from phasegate.engine.drive.local_context import make_driver_context
from phasegate.engine.fleet.client import connect_to_temporal, fleet_queue_name, fleet_remote
from phasegate.engine.fleet.code_transfer import FeatureCodeTransfer, FleetRefs
from phasegate.engine.fleet.workflow import (
    INTERRUPTED,
    AdoptionRequest,
    FeatureProgress,
    FeatureWorkflow,
    StepRequest,
    adoption_queue,
    agent_queue,
)
from phasegate.engine.journal.entries import encode_notice
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.notify.notifier import notify_failure, notify_feature_end
from phasegate.engine.project.agents import find_startable_agents
from phasegate.engine.project.ports import format_timestamp
from phasegate.engine.project.project import Project, open_project
from phasegate.engine.tools.agent_survey import list_usable_agents, load_folder_config
from phasegate.errors import ConfigError, DivergedHistory, GivenAway, Interrupted, PhasegateError
from phasegate.sandbox.job import StopEvent
from phasegate.storage.bucket.journal import BucketStore
from phasegate.storage.bucket.trails import (
    BucketDocumentStore,
    BucketTrailWriter,
    seal_unrecorded_lines,
)
from phasegate.storage.trail_recovery import close_orphaned_trails
from phasegate.workspace.feature_snapshot import FeatureClaim

# How long a workflow waits for a worker that has died, before another one takes it
STICKY_TIMEOUT = timedelta(seconds=2)
# Between two signs of life: an order to stop is heard within it
MAX_HEARTBEAT_INTERVAL_S = 4.0
# What every command for its features ends with
FLEET_OPTION = " --fleet"
# For agents to be ended, and what they left to be saved
SHUTDOWN_TIMEOUT = timedelta(minutes=2)
_STEP_GAP_S = 5.0
_ROOM_POLL_INTERVAL_S = 0.5
# Stands for what people and agents wrote: Temporal's history is no place for it
_TEXT_PLACEHOLDER = "(in the journal)"
_TEXT_FIELDS = ("description", "report", "findings", "user_notes", "remediation", "attested")


class FleetWorker:
    """The activities of one worker.

    Each opens the project anew: its settings are those of this machine.
    """

    def __init__(self, root: Path, client: Client) -> None:
        self._root = root
        self._client = client
        self._loop = asyncio.get_running_loop()
        project = open_project(root)
        fleet_remote(project)
        place = sha256(os.fsencode(project.location.git_dir)).hexdigest()[:12]
        self._name = f"{socket.gethostname()} {place}"
        self.own_queue = f"{fleet_queue_name(project)} worker {self._name}"
        self.available_agents = frozenset(list_usable_agents(load_folder_config(root)))
        self._stops: set[StopEvent] = set()
        # By feature, that of the last step here
        self._claims: dict[str, int] = {}
        self._max_features = project.config.fleet.features_per_worker
        # Of the trails of the steps that run
        self._trail_writers: set[str] = set()
        # Features that are with this worker, and until when they count
        self._held_until_s: dict[str, float] = {}

    def stop(self) -> None:
        """End what runs: agents are ended, and what they left is saved."""
        for stop in [*self._stops]:
            stop.set()

    def has_room(self) -> bool:
        """Whether there is room for one more feature."""
        now_s = monotonic()
        return (
            sum(until_s > now_s for until_s in [*self._held_until_s.values()]) < self._max_features
        )

    @activity.defn(name="adopt")
    def adopt(self, adoption: AdoptionRequest) -> FeatureClaim:
        """The last claim to a feature; a new one of ours if that is given up, or there is none."""
        project = open_project(self._root)
        bucket = open_bucket(project.config.storage, os.environ, BUCKET_TIMEOUT_S)
        last = int(
            (bucket.list_paths(f"fleet/{adoption.slug}/home") or ["/0"])[-1].rpartition("/")[2]
        )

        if last <= adoption.gone:
            since = format_timestamp(activity.info().scheduled_time.timestamp())
            if (lacking := self._missing_agents({*adoption.needs})) or not self.available_agents:
                lacks = f"{self._name} has not got {', '.join(sorted(lacking)) or 'any'}"
                wanted = ", ".join(adoption.needs) or "an agent"
                raise ApplicationError(
                    f"one worker must have {wanted}, and {lacks}", since, type="Lacking"
                )

            if not self.has_room():
                raise ApplicationError(
                    "every worker that was asked has enough to do", since, type="Busy"
                )

            last += 1
            if bucket.create(_claim_path(adoption.slug, last), self.own_queue.encode()):
                self._held_until_s[adoption.slug] = (
                    monotonic() + project.config.fleet.claim_timeout_s
                )

        found = bucket.get(_claim_path(adoption.slug, last))
        if found is None:
            raise ApplicationError(f"{_claim_path(adoption.slug, last)} was removed")

        return FeatureClaim(last, found.data.decode())

    @activity.defn(name="look")
    def look(self, slug: str) -> FeatureProgress:
        with _translate_errors(), open_fleet_record(open_project(self._root)) as record:
            return FeatureProgress(_without_texts(_require_feature(record, slug)))

    @activity.defn(name="tell_failure")
    def tell_failure(self, slug: str, reason: str) -> None:
        project = open_project(self._root)
        # Told by `status`: nothing can be recorded
        with (
            suppress(DivergedHistory),
            open_fleet_record(project) as record,
        ):
            notify_failure(project, record, slug, reason, FLEET_OPTION)
            record.append_unconditionally(
                slug, project.now(), [encode_notice("", f"{RUN_FAILED_PREFIX}{reason}")]
            )

    @activity.defn(name="take_step", no_thread_cancel_exception=True)
    def take_step(self, order: StepRequest) -> FeatureProgress:
        with (
            _translate_errors(),
            self._hold_feature(order.slug),
            self._open_record() as (project, record, trails),
            self._send_heartbeats(project.stop),
        ):
            before = _require_feature(record, order.slug)
            if lacking := self._missing_agents(needed := _required_agents(project, before, order)):
                # All at one worker: it keeps the checkouts
                needs = (*sorted(lacking), *sorted(needed - lacking))
                return FeatureProgress(_without_texts(before), needs=needs)

            code = FeatureCodeTransfer(project, fleet_remote(project), order.slug, order.claim)
            code.fetch_published(record, before.base)
            self._install_fence(project, order, code, record, trails)
            at_remote = project._replace(refs=FleetRefs(project.repository, code))
            desk = make_driver_context(at_remote, record, trails, order.agent)._replace(
                sync_work=code.commit_job_work
            )

            if order.step is Step.STOP:
                clean_up_feature(desk, order.slug)
                feature = _require_feature(record, order.slug)
                goes_on = False
            else:
                wishes = RunOptions(merge=order.merge, by=order.by)
                feature, goes_on = run_single_step(
                    desk, order.slug, order.step, wishes, is_first=order.is_first
                )

            code.publish()
            if order.step is not Step.STOP and (
                not goes_on or decide_feature_actions(feature)[0].step is Step.STOP
            ):
                notify_feature_end(project, record, feature, FLEET_OPTION)

            record.anchor()
            return FeatureProgress(_without_texts(feature), goes_on)

    @contextmanager
    def _hold_feature(self, slug: str) -> Iterator[None]:
        """Count a feature as one of this worker, and for a moment after the step too.

        The next one is under way.
        """
        self._held_until_s[slug] = inf
        try:
            yield
        finally:
            self._held_until_s[slug] = monotonic() + _STEP_GAP_S

    def _missing_agents(self, needed: set[str]) -> set[str]:
        """The agents that are not here.

        What was installed or signed in since is found by a second look.
        """
        if needed - self.available_agents or not self.available_agents:
            self.available_agents = frozenset(list_usable_agents(load_folder_config(self._root)))
        return needed - self.available_agents

    def _install_fence(
        self,
        project: Project,
        order: StepRequest,
        code: FeatureCodeTransfer,
        record: BucketStore,
        trails: BucketTrailWriter,
    ) -> None:
        """Who has lost the feature records nothing of a step, whatever it is.

        Who takes it over closes its trails.
        """
        bucket = open_bucket(project.config.storage, os.environ, BUCKET_TIMEOUT_S)
        following = _claim_path(order.slug, order.claim.number + 1)

        def before_close() -> None:
            if bucket.get(following) is not None:
                raise GivenAway(f"another worker has {order.slug} now")

        def before_step() -> None:
            before_close()
            code.publish()

        record.before_append = before_step
        trails.before_close = before_close
        if self._claims.get(order.slug) != order.claim.number:
            seal_unrecorded_lines(record, trails, order.slug, project.now())
            self._claims[order.slug] = order.claim.number

    @contextmanager
    def _open_record(self) -> Iterator[tuple[Project, BucketStore, BucketTrailWriter]]:
        project = open_project(self._root)
        bucket = open_bucket(project.config.storage, os.environ, BUCKET_TIMEOUT_S)
        project = project._replace(document_store=BucketDocumentStore(bucket))
        outside = project.location.state_home / "fleet"
        id_ = project.clock.new_id()
        self._trail_writers.add(id_)

        try:
            with (
                open_fleet_record(project) as record,
                BucketTrailWriter.create_in_bucket(
                    bucket, project.location, outside, id_
                ) as trails,
            ):
                writing = partial(BucketTrailWriter, bucket, project.location)
                close_orphaned_trails(
                    record, outside, writing, project.now(), active_writers=[*self._trail_writers]
                )
                yield project, record, trails
        finally:
            self._trail_writers.discard(id_)

    @contextmanager
    def _send_heartbeats(self, stop: StopEvent) -> Iterator[None]:
        """Tell the server that we are alive.

        It answers: when the work is not wanted any more, it is ended.

        No answer for two thirds of the time after which it counts as lost: it is ended as well,
        since another worker may begin it anew. That time is by the clock that nobody sets.
        """
        timeout = activity.info().heartbeat_timeout or timedelta(minutes=1)
        over = Event()
        every_s = min(timeout.total_seconds() / 6, MAX_HEARTBEAT_INTERVAL_S)
        context = contextvars.copy_context()
        handle = self._client.get_async_activity_handle(task_token=activity.info().task_token)

        def beat() -> None:
            answered_s = monotonic()
            while not over.wait(every_s):
                activity.heartbeat()
                asked = asyncio.run_coroutine_threadsafe(
                    handle.heartbeat(rpc_timeout=timeout / 6), self._loop
                )

                try:
                    asked.result()
                    answered_s = monotonic()
                except AsyncActivityCancelledError:
                    stop.set()
                except RPCError as error:
                    if (
                        error.status is RPCStatusCode.NOT_FOUND
                        or monotonic() > answered_s + timeout.total_seconds() * 2 / 3
                    ):
                        stop.set()

        thread = Thread(target=context.run, args=(beat,), daemon=True)
        self._stops.add(stop)
        thread.start()

        try:
            yield
        finally:
            over.set()
            thread.join()
            self._stops.discard(stop)


class CapacitySlotSupplier(CustomSlotSupplier):
    """A worker asks for another feature only while it has room.

    Until then the feature waits at the server.
    """

    def __init__(self, worker: FleetWorker) -> None:
        self._worker = worker
        self._is_asking = False

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        while self._is_asking or not self._worker.has_room():
            await asyncio.sleep(_ROOM_POLL_INTERVAL_S)
        self._is_asking = True
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        pass

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        self._is_asking = False


def _claim_path(slug: str, number: int) -> str:
    return f"fleet/{slug}/home/{number:06}"


def _require_feature(record: BucketStore, slug: str) -> Feature:
    feature = read_feature(record, slug)
    if feature is None:
        raise ApplicationError(f"feature {slug} is not on record", non_retryable=True)
    return feature


def _required_agents(project: Project, feature: Feature, order: StepRequest) -> set[str]:
    """The agents that a step cannot do without.

    Of those that are here, else of those that are configured.
    """
    roles = (
        ("implement", "review") if order.step is Step.PACKAGES else (ROLE_BY_STEP.get(order.step),)
    )
    named = project.config.roles
    here = tuple(find_startable_agents(project))
    phase = feature.phase.key

    def agent_of(role: str) -> str:
        found = choose_agent_for_role(role, phase, named, here, order.agent)
        if isinstance(found, Refusal):
            found = choose_agent_for_role(
                role, phase, named, tuple(project.config.agents), order.agent
            )

        if isinstance(found, Refusal):
            raise ConfigError(found.reason, found.hint)
        return found

    return {agent_of(role) for role in roles if role}


async def serve_queues(root: Path, on_ready: Callable[[str], None]) -> None:
    """Work until somebody says to end; then end the steps that run, and leave."""
    project = open_project(root)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)

    client = await connect_to_temporal(project)
    worker = FleetWorker(root, client)
    queue = fleet_queue_name(project)
    at_once = project.config.fleet.features_per_worker
    restrictions = SandboxRestrictions.default.with_passthrough_modules("phasegate", "msgspec")

    async with AsyncExitStack() as stack:
        threads = stack.enter_context(
            ThreadPoolExecutor(at_once + 3 + len(worker.available_agents))
        )
        listens = partial(Worker, client, activity_executor=threads)

        for name in sorted(worker.available_agents):
            has_it = listens(
                task_queue=agent_queue(queue, name),
                activities=[worker.adopt],
                max_concurrent_activities=1,
            )
            await stack.enter_async_context(has_it)

        one = FixedSizeSlotSupplier(1)
        room = WorkerTuner.create_composite(
            workflow_supplier=one,
            activity_supplier=CapacitySlotSupplier(worker),
            local_activity_supplier=one,
            nexus_supplier=one,
        )

        adopting = listens(
            task_queue=adoption_queue(queue),
            activities=[worker.adopt],
            max_concurrent_activity_task_polls=1,
            tuner=room,
        )

        shared = listens(
            task_queue=queue,
            workflows=[FeatureWorkflow],
            activities=[worker.look, worker.tell_failure],
            max_concurrent_activities=2,
            sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
            workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        )

        own = listens(
            task_queue=worker.own_queue,
            activities=[worker.take_step],
            max_concurrent_activities=at_once,
            graceful_shutdown_timeout=SHUTDOWN_TIMEOUT,
        )

        for one_queue in (adopting, shared, own):
            await stack.enter_async_context(one_queue)

        on_ready(worker.own_queue)
        await ended.wait()
        worker.stop()


def _without_texts(feature: Feature) -> Feature:
    """A feature as the rules decide on it: whether there are texts counts, and not what they say."""
    texts = {name: getattr(feature, name) and _TEXT_PLACEHOLDER for name in _TEXT_FIELDS}
    workflow = msgspec.structs.replace(
        feature.workflow, reason=feature.workflow.reason and _TEXT_PLACEHOLDER
    )
    blocked = dict.fromkeys(feature.blocked, _TEXT_PLACEHOLDER)

    return msgspec.structs.replace(feature, workflow=workflow, blocked=blocked, **texts)


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except Interrupted as error:
        raise ApplicationError("the worker was told to end", type=INTERRUPTED) from error
    except PhasegateError as error:
        # Every worker finds the same
        is_last = isinstance(error, DivergedHistory)
        raise ApplicationError(
            error.message, error.hint, type=type(error).__name__, non_retryable=is_last
        ) from error
