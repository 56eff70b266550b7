"""Worker of a fleet: runs steps of features in its clone, and records them in the bucket."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from hashlib import sha256
from math import inf
from pathlib import Path
from threading import Event, Thread
from time import monotonic, time
from uuid import uuid4

from msgspec.structs import replace
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

from phasegate import __version__
from phasegate.core.agents.roles import choose_agent_for_role
from phasegate.core.display.status import RUN_FAILED_PREFIX
from phasegate.core.display.worker_log import (
    STEP_DONE,
    StepLog,
    StepTotal,
    WorkerMetrics,
    add_step,
    format_step_log,
)
from phasegate.core.machine.feature_machine import decide_feature_actions
from phasegate.core.machine.feature_state import ROLE_BY_STEP, Feature, Step
from phasegate.core.workflow.phase_transitions import Refusal, Stage
from phasegate.engine.bucket import FINAL_COPY_TIMEOUT_S, open_fleet_bucket, open_fleet_record
from phasegate.engine.drive.local_context import make_driver_context
from phasegate.engine.drive.run_feature import (
    RunOptions,
    clean_up_feature,
    run_single_step,
)
from phasegate.engine.fleet.client import connect_to_temporal, fleet_queue_name
from phasegate.engine.fleet.code_transfer import (
    FeatureCodeTransfer,
    FleetRefs,
    list_carried_features,
    remove_retired_code,
)
from phasegate.engine.fleet.entry import WORKER_READY
from phasegate.engine.fleet.health_endpoint import serve_health
from phasegate.engine.fleet.pause import read_pause
from phasegate.engine.fleet.running_worker import DRAIN_SIGNAL, announce_worker
from phasegate.engine.fleet.temporal_workflow import (
    BUSY,
    INTERRUPTED,
    LACKING,
    MAX_STEP_DURATION,
    AdoptionRequest,
    FeatureProgress,
    FeatureWorkflow,
    StepRequest,
    adoption_queue,
    agent_queue,
)
from phasegate.engine.jobs.admission import DriverContext
from phasegate.engine.journal.entries import encode_notice
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.notify.notifier import notify_failure, notify_feature_end
from phasegate.engine.project.agents import find_startable_agents
from phasegate.engine.project.fleet_repository import fleet_remote, register_repository
from phasegate.engine.project.ports import format_timestamp
from phasegate.engine.project.project import Project, open_project
from phasegate.engine.steps.feature_merge import list_work_names
from phasegate.engine.tools.agent_survey import list_usable_agents, load_folder_config
from phasegate.errors import (
    ConfigError,
    DivergedHistory,
    GivenAway,
    Interrupted,
    PhasegateError,
    TemporarilyUnavailable,
)
from phasegate.files import read_regular_file
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.sandbox.job import StopEvent
from phasegate.storage.bucket.journal import BucketStore
from phasegate.storage.bucket.trails import (
    BucketDocumentStore,
    BucketTrailWriter,
    seal_unrecorded_lines,
)
from phasegate.storage.location import Location
from phasegate.storage.lock import feature_lock
from phasegate.storage.trail_recovery import close_orphaned_trails
from phasegate.workspace.snapshots.feature_snapshot import FeatureClaim

# How long a workflow stays assigned to a dead worker
STICKY_TIMEOUT = timedelta(seconds=2)
# A cancellation is noticed within this interval.
MAX_HEARTBEAT_INTERVAL_S = 4.0
# Appended to suggested commands
FLEET_OPTION = " --fleet"
# Time to end agents and to save their changes
SHUTDOWN_TIMEOUT = timedelta(minutes=2)
_STEP_GAP_S = 5.0
_SERVER_RETRY_S = 3.0
_FORGE_WAITS = (Step.PUBLISH, Step.AWAIT)
_CLEAN_UP_INTERVAL_S = 300.0
_PAUSE_POLL_INTERVAL_S = 5.0
_MAX_ID_BYTES = 64
_ROOM_POLL_INTERVAL_S = 0.5
# Replaces texts of users and agents, which must not be stored in Temporal's history
_TEXT_PLACEHOLDER = "(in the journal)"
_TEXT_FIELDS = (
    *("description", "report", "findings", "replies", "last_answer"),
    *("user_notes", "decisions", "remediation", "attested"),
)


class FleetWorker:
    """Activities of one worker.

    Each activity opens the project again, so that it uses this machine's current settings.
    """

    def __init__(self, root: Path, client: Client, report: Callable[[str], None]) -> None:
        self._root = root
        self._client = client
        self._report = report
        self._totals: dict[tuple[str, str], StepTotal] = {}
        self._loop = asyncio.get_running_loop()
        project = open_project(root)
        self._name = f"{socket.gethostname()} {load_worker_id(project.location)}"
        self.own_queue = f"{fleet_queue_name(project)} worker {self._name}"
        self.available_agents = frozenset(list_usable_agents(load_folder_config(root)))
        self._stops: set[StopEvent] = set()
        # Set when the worker must end now
        self._is_ending = Event()
        # Set when the running agents may end, but nothing new is taken
        self._is_draining = Event()
        # Set while the fleet is paused, as far as this worker knows
        self._is_paused = Event()
        # By feature: the number of the claim under which this worker ran its last step
        self._claims: dict[str, int] = {}
        self._max_features = project.config.fleet.features_per_worker
        # Ids of the trail writers of running steps
        self._trail_writers: set[str] = set()
        # Features of this worker, and until when they count towards its capacity
        self._held_until_s: dict[str, float] = {}

    def drain(self) -> None:
        """Take nothing new; the running agents end by themselves, and their work is recorded."""
        self._is_draining.set()

    def stop(self) -> None:
        """Stop the running steps: agents are ended, and their changes are saved."""
        self._is_draining.set()
        self._is_ending.set()
        for stop in [*self._stops]:
            stop.set()

    def has_room(self) -> bool:
        """Return whether the worker has capacity for one more feature."""
        return not self.takes_nothing_new() and self._count_held() < self._max_features

    def takes_nothing_new(self) -> bool:
        """Return whether running agents may end, but nothing new may start."""
        return self._is_draining.is_set() or self._is_paused.is_set()

    def refresh_pause(self) -> str:
        """Read whether the fleet is paused, and return a line if that has changed.

        While the bucket is away, the last answer counts.
        """
        with suppress(PhasegateError, Interrupted):
            bucket = open_fleet_bucket(
                open_project(self._root), FINAL_COPY_TIMEOUT_S, stop=self._is_ending
            )
            since = read_pause(bucket)
            if since and not self._is_paused.is_set():
                self._is_paused.set()
                return f"the fleet is paused since {since}: nothing new is taken"
            if not since and self._is_paused.is_set():
                self._is_paused.clear()
                return "the fleet is resumed"

        return ""

    def _wait_while_paused(self, stop: StopEvent) -> None:
        """Wait until the fleet is resumed; raise Interrupted if the step is stopped before."""
        while self._is_paused.is_set():
            if self._is_draining.is_set() or stop.wait(_ROOM_POLL_INTERVAL_S):
                raise Interrupted

    def _count_held(self) -> int:
        now_s = monotonic()
        return sum(until_s > now_s for until_s in [*self._held_until_s.values()])

    @activity.defn(name="adopt")
    def adopt(self, adoption: AdoptionRequest) -> FeatureClaim:
        """Return the last claim to a feature; make a new claim if the last one was given up or is
        missing.
        """
        project = open_project(self._root)
        bucket = open_fleet_bucket(project, stop=self._is_ending)
        claims = bucket.list_paths(f"fleet/{adoption.slug}/home")
        last = int(claims[-1].rpartition("/")[2]) if claims else 0

        if last <= adoption.gone:
            since = format_timestamp(activity.info().scheduled_time.timestamp())
            if (
                lacking := self._refresh_missing_agents({*adoption.needs})
            ) or not self.available_agents:
                needs = ", ".join(adoption.needs) or "an agent"
                missing = ", ".join(sorted(lacking)) or "any"
                raise ApplicationError(
                    f"one worker must have {needs}, and {self._name} lacks {missing}",
                    since,
                    type=LACKING,
                )

            if not self.has_room():
                reason = (
                    "the fleet is paused" if self._is_paused.is_set() else "all workers are busy"
                )
                raise ApplicationError(reason, since, type=BUSY)

            last += 1
            if bucket.create(_claim_path(adoption.slug, last), self.own_queue.encode()):
                self._held_until_s[adoption.slug] = (
                    monotonic() + project.config.fleet.claim_timeout_s
                )

        claim = bucket.get(_claim_path(adoption.slug, last))
        if claim is None:
            raise ApplicationError(f"{_claim_path(adoption.slug, last)} was removed")

        return FeatureClaim(last, claim.data.decode())

    @activity.defn(name="look")
    def look(self, slug: str) -> FeatureProgress:
        """Return the current progress of a feature."""
        project = open_project(self._root)
        with _translate_errors(), open_fleet_record(project, stop=self._is_ending) as record:
            return FeatureProgress(_without_texts(_require_feature(record, slug)))

    @activity.defn(name="tell_failure")
    def tell_failure(self, slug: str, reason: str) -> None:
        """Notify the user of a failure, and record it."""
        project = open_project(self._root)
        # A diverged record accepts no entries; `status` reports it.
        with (
            suppress(DivergedHistory),
            open_fleet_record(project, stop=self._is_ending) as record,
        ):
            notify_failure(project, record, slug, reason, FLEET_OPTION)
            record.append_unconditionally(
                slug, project.now(), [encode_notice("", f"{RUN_FAILED_PREFIX}{reason}")]
            )

    @activity.defn(name="take_step", no_thread_cancel_exception=True)
    def take_step(self, order: StepRequest) -> FeatureProgress:
        """Run one step of a feature, unless this worker lacks agents that it needs."""
        with (
            self._log_step(order),
            _translate_errors(),
            self._hold_feature(order.slug),
            self._open_record() as (project, record, trails),
            self._send_heartbeats(project.stop),
        ):
            if order.step is not Step.STOP:
                self._wait_while_paused(project.stop)

            before = _require_feature(record, order.slug)
            needed = _required_agents(project, before, order)
            if lacking := self._refresh_missing_agents(needed):
                # One worker must have all of them, because it keeps the checkouts.
                needs = (*sorted(lacking), *sorted(needed - lacking))
                return FeatureProgress(_without_texts(before), needs=needs)

            code = FeatureCodeTransfer(project, fleet_remote(project), order.slug, order.claim)
            code.fetch_published(record, before.base)
            self._install_fence(project, order, code, record, trails)
            fleet_project = project._replace(refs=FleetRefs(project.repository, code))
            context = make_driver_context(fleet_project, record, trails, order.agent)._replace(
                sync_work=code.commit_job_work, is_draining=self.takes_nothing_new
            )

            wait_s = 0.0
            if order.step is Step.STOP:
                clean_up_feature(context, order.slug)
                feature = _require_feature(record, order.slug)
                continues = False
            elif order.step in _FORGE_WAITS:
                feature, wait_s = _poll_forge(context, order)
                continues = True
            else:
                options = RunOptions(merge=order.merge, by=order.by)
                feature, continues = run_single_step(
                    context, order.slug, order.step, options, is_first=order.is_first
                )

            code.publish()
            is_last = decide_feature_actions(feature)[0].step is Step.STOP
            if order.step is not Step.STOP and (not continues or is_last):
                notify_feature_end(project, record, feature, FLEET_OPTION)
            if is_last and feature.workflow.stage is Stage.COMPLETED:
                code.retire()

            record.anchor()
            return FeatureProgress(_without_texts(feature), continues, wait_s=wait_s)

    def remove_merged_features(self) -> None:
        """Remove branches and checkouts of features that other workers have merged."""
        project = open_project(self._root)
        now_s = monotonic()
        carried = [
            slug
            for slug in list_carried_features(project)
            if self._held_until_s.get(slug, 0.0) < now_s
        ]
        if not carried:
            return

        with open_fleet_record(project, stop=self._is_ending) as record:
            for slug in carried:
                feature = read_feature(record, slug)
                if feature is None or feature.workflow.stage is not Stage.COMPLETED:
                    continue

                locks = project.location.locks_folder
                with feature_lock(locks, slug, "clean up", project.now()):
                    names = list_work_names(feature, record.packages(slug))
                    remove_retired_code(project, slug, names)

    def read_metrics(self) -> WorkerMetrics:
        """Return the current state of this worker."""
        return WorkerMetrics(
            version=__version__,
            features=self._count_held(),
            is_draining=self._is_draining.is_set(),
            totals={**self._totals},
        )

    @contextmanager
    def _log_step(self, order: StepRequest) -> Iterator[None]:
        """Report a line for a step when it has ended, and count it."""
        began_s = monotonic()
        outcome = STEP_DONE
        try:
            yield
        except BaseException as error:
            outcome = getattr(error, "type", None) or type(error).__name__
            raise
        finally:
            log = StepLog(
                ts=format_timestamp(time()),
                feature=order.slug,
                step=order.step,
                outcome=outcome,
                duration_s=monotonic() - began_s,
            )
            key = (log.step, log.outcome)
            self._totals[key] = add_step(self._totals.get(key, StepTotal()), log)
            self._report(format_step_log(log))

    @contextmanager
    def _hold_feature(self, slug: str) -> Iterator[None]:
        """Count a feature towards this worker's capacity during a step and shortly after it.

        The next step usually follows at once.
        """
        self._held_until_s[slug] = inf
        try:
            yield
        finally:
            self._held_until_s[slug] = monotonic() + _STEP_GAP_S

    def _refresh_missing_agents(self, needed: set[str]) -> set[str]:
        """Return the needed agents that this worker lacks.

        If any is missing, or no agent is known, surveys again first and updates
        `available_agents`: programs may have been installed or signed in since.
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
        """Fence the record: a worker that has lost the claim can record nothing.

        The worker that takes the feature closes the trails of the previous one.
        """
        bucket = open_fleet_bucket(project, stop=self._is_ending)
        next_claim = _claim_path(order.slug, order.claim.number + 1)

        def before_close() -> None:
            if bucket.get(next_claim) is not None:
                raise GivenAway(f"another worker has claimed {order.slug}")

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
        """Open the fleet's record and a trail writer while the context lasts."""
        project = open_project(self._root)
        bucket = open_fleet_bucket(project, stop=self._is_ending)
        project = project._replace(document_store=BucketDocumentStore(bucket))
        trails_folder = project.location.state_home / "fleet"
        id_ = project.clock.new_id()
        self._trail_writers.add(id_)

        try:
            with (
                open_fleet_record(project, stop=self._is_ending) as record,
                BucketTrailWriter.create_in_bucket(
                    bucket, project.location, trails_folder, id_
                ) as trails,
            ):
                make_writer = partial(BucketTrailWriter, bucket, project.location)
                close_orphaned_trails(
                    record,
                    trails_folder,
                    make_writer,
                    project.now(),
                    active_writers=[*self._trail_writers],
                )
                yield project, record, trails
        finally:
            self._trail_writers.discard(id_)

    @contextmanager
    def _send_heartbeats(self, stop: StopEvent) -> Iterator[None]:
        """Send heartbeats to the server, and stop the step if it is cancelled.

        The step also stops after two thirds of the heartbeat timeout without an answer, because
        another worker may start it again. The time is measured by the monotonic clock, which is
        never set.
        """
        timeout = activity.info().heartbeat_timeout or timedelta(minutes=1)
        ended = Event()
        interval_s = min(timeout.total_seconds() / 6, MAX_HEARTBEAT_INTERVAL_S)
        context = contextvars.copy_context()
        handle = self._client.get_async_activity_handle(task_token=activity.info().task_token)

        def beat() -> None:
            """Send heartbeats until the activity ends; stop it if the server gave it up."""
            answered_s = monotonic()
            while not ended.wait(interval_s):
                activity.heartbeat()
                answer = asyncio.run_coroutine_threadsafe(
                    handle.heartbeat(rpc_timeout=timeout / 6), self._loop
                )

                try:
                    answer.result()
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
            ended.set()
            thread.join()
            self._stops.discard(stop)


class CapacitySlotSupplier(CustomSlotSupplier):
    """Polls for another feature only while the worker has capacity.

    Until then the feature waits on the server.
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
        raise ApplicationError(f"feature {slug} is not recorded", non_retryable=True)
    return feature


def _poll_forge(context: DriverContext, order: StepRequest) -> tuple[Feature, float]:
    """Poll the forge once. Return the state, and the time to wait if there was no progress.

    A pull request may wait for days: in that time the feature occupies no worker.
    """
    options = RunOptions(merge=order.merge, by=order.by, poll_once=True)
    wait_s = context.project.config.forge.poll_interval_s
    try:
        feature, has_progress = run_single_step(
            context, order.slug, order.step, options, is_first=order.is_first
        )
    except TemporarilyUnavailable as error:
        found = read_feature(context.record, order.slug)
        assert found is not None
        return found, max(wait_s, error.retry_after_s)

    return feature, 0.0 if has_progress else wait_s


def _required_agents(project: Project, feature: Feature, order: StepRequest) -> set[str]:
    """Return the agents that a step needs, from the available or else the configured ones."""
    step_roles = (
        ("implement", "review") if order.step is Step.PACKAGES else (ROLE_BY_STEP.get(order.step),)
    )
    roles = project.config.roles
    available = tuple(find_startable_agents(project))
    phase = feature.phase.key

    def agent_of(role: str) -> str:
        agent = choose_agent_for_role(role, phase, roles, available, order.agent)
        if isinstance(agent, Refusal):
            agent = choose_agent_for_role(
                role, phase, roles, tuple(project.config.agents), order.agent
            )

        if isinstance(agent, Refusal):
            raise ConfigError(agent.reason, agent.hint)
        return agent

    return {agent_of(role) for role in step_roles if role}


class _Shutdown:
    """What signals have asked for: SIGTERM drains; a second one or SIGINT stops now."""

    def __init__(self) -> None:
        self.drains = asyncio.Event()
        self.stops = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_terminate)
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)
        loop.add_signal_handler(DRAIN_SIGNAL, self.drains.set)

    def _on_terminate(self) -> None:
        if self.drains.is_set():
            self.stops.set()
        self.drains.set()

    def _on_interrupt(self) -> None:
        self.drains.set()
        self.stops.set()


async def serve_queues(root: Path, report: Callable[[str], None]) -> None:
    """Serve the queues until a signal arrives, then end as it asks for."""
    project = open_project(root)
    shutdown = _Shutdown()
    with announce_worker(project.location, project.now()):
        client = await _await_server(project, shutdown, report)
        if client is not None:
            await _serve_until_signal(project, client, shutdown, report)


async def _serve_until_signal(
    project: Project, client: Client, shutdown: _Shutdown, report: Callable[[str], None]
) -> None:
    """Serve the task queues of the repository; after a signal, let running agents end."""
    register_repository(project)
    # Each activity checks it again
    with suppress(TemporarilyUnavailable):
        open_fleet_bucket(project, FINAL_COPY_TIMEOUT_S)
    worker = FleetWorker(project.root, client, report)
    async with AsyncExitStack() as stack:
        health_address = project.config.fleet.health_address
        stack.enter_context(serve_health(health_address, worker.read_metrics))
        # Before it takes anything
        paused = await asyncio.to_thread(worker.refresh_pause)
        queue_workers = await _start_queue_workers(project, client, worker, stack)
        report(f"{WORKER_READY} {worker.own_queue}")
        if paused:
            report(paused)

        background = asyncio.gather(
            _clean_up_periodically(worker, shutdown),
            _refresh_pause_periodically(worker, shutdown, report),
        )
        await shutdown.drains.wait()
        worker.drain()
        if not shutdown.stops.is_set():
            report("draining: running agents end, nothing new is taken; a second signal stops now")
        await _shut_down(queue_workers, worker, shutdown)
        # Ends its waiting for the bucket
        worker.stop()
        await background


async def _clean_up_periodically(worker: FleetWorker, shutdown: _Shutdown) -> None:
    while not shutdown.drains.is_set():
        with suppress(PhasegateError, Interrupted):
            await asyncio.to_thread(worker.remove_merged_features)
        await _wait_for(shutdown.drains, _CLEAN_UP_INTERVAL_S)


async def _refresh_pause_periodically(
    worker: FleetWorker, shutdown: _Shutdown, report: Callable[[str], None]
) -> None:
    while not await _wait_for(shutdown.drains, _PAUSE_POLL_INTERVAL_S):
        if changed := await asyncio.to_thread(worker.refresh_pause):
            report(changed)


async def _await_server(
    project: Project, shutdown: _Shutdown, report: Callable[[str], None]
) -> Client | None:
    """Connect to the server; wait until it is up. Return None if the worker is stopped first."""
    is_reported = False
    while not shutdown.drains.is_set():
        try:
            return await connect_to_temporal(project)
        except TemporarilyUnavailable as error:
            if not is_reported:
                report(f"waiting for the server: {error.message}")
            is_reported = True

        await _wait_for(shutdown.drains, _SERVER_RETRY_S)

    return None


async def _wait_for(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait until an event is set. Return False after the timeout."""
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True


async def _shut_down(
    queue_workers: Sequence[Worker], worker: FleetWorker, shutdown: _Shutdown
) -> None:
    """End the queue workers: when their steps have ended, or at once."""
    ends = asyncio.gather(*(one.shutdown() for one in queue_workers))
    stops = asyncio.ensure_future(shutdown.stops.wait())
    await asyncio.wait((ends, stops), return_when=asyncio.FIRST_COMPLETED)
    if not ends.done():
        worker.stop()
        await asyncio.wait((ends,), timeout=SHUTDOWN_TIMEOUT.total_seconds())
        if not ends.done():
            # Neither the server nor the bucket answers. A killed worker loses nothing on record.
            os._exit(1)

    stops.cancel()


async def _start_queue_workers(
    project: Project, client: Client, worker: FleetWorker, stack: AsyncExitStack
) -> list[Worker]:
    """Start a worker for each queue that this machine serves."""
    queue = fleet_queue_name(project)
    max_features = project.config.fleet.features_per_worker
    restrictions = SandboxRestrictions.default.with_passthrough_modules("phasegate", "msgspec")
    threads = stack.enter_context(
        ThreadPoolExecutor(max_features + 3 + len(worker.available_agents))
    )
    make_worker = partial(Worker, client, activity_executor=threads)
    queue_workers = [
        make_worker(
            task_queue=agent_queue(queue, name),
            activities=[worker.adopt],
            max_concurrent_activities=1,
        )
        for name in sorted(worker.available_agents)
    ]

    single_slot = FixedSizeSlotSupplier(1)
    tuner = WorkerTuner.create_composite(
        workflow_supplier=single_slot,
        activity_supplier=CapacitySlotSupplier(worker),
        local_activity_supplier=single_slot,
        nexus_supplier=single_slot,
    )

    adoption_worker = make_worker(
        task_queue=adoption_queue(queue),
        activities=[worker.adopt],
        max_concurrent_activity_task_polls=1,
        tuner=tuner,
    )

    shared_worker = make_worker(
        task_queue=queue,
        workflows=[FeatureWorkflow],
        activities=[worker.look, worker.tell_failure],
        max_concurrent_activities=2,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
    )

    own_worker = make_worker(
        task_queue=worker.own_queue,
        activities=[worker.take_step],
        max_concurrent_activities=max_features,
        # A worker that drains waits for its agents
        graceful_shutdown_timeout=MAX_STEP_DURATION,
    )

    queue_workers += [adoption_worker, shared_worker, own_worker]
    for queue_worker in queue_workers:
        await stack.enter_async_context(queue_worker)

    return queue_workers


def load_worker_id(location: Location) -> str:
    """Return the id of this clone's worker on this machine; the first call makes it.

    Host name and path can be the same on two machines.
    """
    clone = sha256(os.fsencode(location.git_dir)).hexdigest()[:12]
    path = location.state_home / "fleet" / f"worker-{clone}"
    kept = read_regular_file(path, _MAX_ID_BYTES)
    if not kept:
        make_folder(path.parent)
        kept = uuid4().hex[:12].encode()
        replace_file(path, kept)

    return kept.decode(errors="replace")


def _without_texts(feature: Feature) -> Feature:
    """Replace texts with a placeholder: the rules only depend on whether there is a text."""
    texts = {name: getattr(feature, name) and _TEXT_PLACEHOLDER for name in _TEXT_FIELDS}
    workflow = replace(feature.workflow, reason=feature.workflow.reason and _TEXT_PLACEHOLDER)
    blocked = dict.fromkeys(feature.blocked, _TEXT_PLACEHOLDER)

    return replace(feature, workflow=workflow, blocked=blocked, **texts)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate errors to Temporal's ApplicationError."""
    try:
        yield
    except Interrupted as error:
        raise ApplicationError("the worker was stopped", type=INTERRUPTED) from error
    except PhasegateError as error:
        # Retrying is pointless: every worker would find the same.
        is_last = isinstance(error, DivergedHistory)
        raise ApplicationError(
            error.message, error.hint, type=type(error).__name__, non_retryable=is_last
        ) from error
