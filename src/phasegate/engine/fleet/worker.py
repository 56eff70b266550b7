"""A worker of a fleet: takes the steps of features in its own clone, and records them in the bucket."""

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

from phasegate.core.agents.roles import agent_for_role
from phasegate.core.display.status import RUN_FAILED
from phasegate.core.machine.feature_machine import decide
from phasegate.core.machine.feature_state import ROLES, Feature, Step
from phasegate.core.workflow.lifecycle import Refusal
from phasegate.engine.bucket import BUCKET_WITHIN_S, fleet_record, open_bucket
from phasegate.engine.drive.feature import Wishes, clear_up, take_one
from phasegate.engine.drive.local_context import desk_with
from phasegate.engine.fleet.client import connect, fleet_remote, queue_of
from phasegate.engine.fleet.code_transfer import CarriedCode, FleetRefs
from phasegate.engine.fleet.workflow import (
    STOPPED,
    Adoption,
    FeatureFlow,
    Standing,
    StepOrder,
    adopting_queue,
    agent_queue,
)
from phasegate.engine.journal.entries import notice
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.notify.notifier import tell_about_failure, tell_about_feature
from phasegate.engine.project.agents import staff
from phasegate.engine.project.ports import stamp
from phasegate.engine.project.project import Project, open_project
from phasegate.engine.tools.agent_survey import able_agents, open_workshop
from phasegate.errors import ConfigError, ForeignHistory, GivenAway, Interrupted, PhasegateError
from phasegate.sandbox.job import Stop
from phasegate.storage.bucket.journal import BucketRecord
from phasegate.storage.bucket.trails import BucketPapers, BucketTrails, close_grown
from phasegate.storage.trail_recovery import close_left
from phasegate.workspace.feature_snapshot import Claim

STICKY = timedelta(seconds=2)  # how long a workflow waits for a worker that has died, before another one takes it
LONGEST_PAUSE_S = 4.0  # between two signs of life: an order to stop is heard within it
OF_FLEET = " --fleet"  # what every command for its features ends with
LONGEST_END = timedelta(minutes=2)  # for agents to be ended, and what they left to be saved
_BETWEEN_STEPS_S = 5.0
_ASK_FOR_ROOM_S = 0.5
_IN_JOURNAL = "(in the journal)"  # stands for what people and agents wrote: Temporal's history is no place for it
_TEXTS = ("description", "report", "findings", "said", "remediation", "attested")


class FleetWorker:
    """The activities of one worker. Each opens the project anew: its settings are those of this machine."""

    def __init__(self, root: Path, client: Client) -> None:
        self._root, self._client, self._loop = root, client, asyncio.get_running_loop()
        project = open_project(root)
        fleet_remote(project)
        place = sha256(os.fsencode(project.location.git_dir)).hexdigest()[:12]
        self._name = f"{socket.gethostname()} {place}"
        self.own_queue = f"{queue_of(project)} worker {self._name}"
        self.offers = frozenset(able_agents(open_workshop(root)))
        self._stops: set[Stop] = set()
        self._claims: dict[str, int] = {}  # by feature, that of the last step here
        self._features = project.config.fleet.features
        self._writers: set[str] = set()  # of the trails of the steps that run
        self._here: dict[str, float] = {}  # features that are with this worker, and until when they count

    def stop(self) -> None:
        """End what runs: agents are ended, and what they left is saved."""
        for stop in [*self._stops]:
            stop.set()

    def has_room(self) -> bool:
        """Whether there is room for one more feature."""
        now_s = monotonic()
        return sum(until_s > now_s for until_s in [*self._here.values()]) < self._features

    @activity.defn(name="adopt")
    def adopt(self, adoption: Adoption) -> Claim:
        """The last claim to a feature; a new one of ours if that is given up, or there is none."""
        project = open_project(self._root)
        bucket = open_bucket(project.config.storage, os.environ, BUCKET_WITHIN_S)
        last = int((bucket.names(f"fleet/{adoption.slug}/home") or ["/0"])[-1].rpartition("/")[2])
        if last <= adoption.gone:
            since = stamp(activity.info().scheduled_time.timestamp())
            if (lacking := self._lacking({*adoption.needs})) or not self.offers:
                lacks = f"{self._name} has not got {', '.join(sorted(lacking)) or 'any'}"
                wanted = ", ".join(adoption.needs) or "an agent"
                raise ApplicationError(f"one worker must have {wanted}, and {lacks}", since, type="Lacking")
            if not self.has_room():
                raise ApplicationError("every worker that was asked has enough to do", since, type="Busy")
            last += 1
            if bucket.create(_claim_path(adoption.slug, last), self.own_queue.encode()):
                self._here[adoption.slug] = monotonic() + project.config.fleet.home_within_s
        found = bucket.get(_claim_path(adoption.slug, last))
        if found is None:
            raise ApplicationError(f"{_claim_path(adoption.slug, last)} was removed")
        return Claim(last, found.data.decode())

    @activity.defn(name="look")
    def look(self, slug: str) -> Standing:
        with _explained(), fleet_record(open_project(self._root)) as record:
            return Standing(_shortened(_feature(record, slug)))

    @activity.defn(name="tell_failure")
    def tell_failure(self, slug: str, reason: str) -> None:
        project = open_project(self._root)
        with (
            suppress(ForeignHistory),
            fleet_record(project) as record,
        ):  # told by `status`: nothing can be recorded
            tell_about_failure(project, record, slug, reason, OF_FLEET)
            record.append_now(slug, project.now(), [notice("", f"{RUN_FAILED}{reason}")])

    @activity.defn(name="take_step", no_thread_cancel_exception=True)
    def take_step(self, order: StepOrder) -> Standing:
        with (
            _explained(),
            self._held(order.slug),
            self._opened() as (project, record, trails),
            self._told(project.stop),
        ):
            before = _feature(record, order.slug)
            if lacking := self._lacking(needed := _needed(project, before, order)):
                needs = (*sorted(lacking), *sorted(needed - lacking))  # all at one worker: it keeps the checkouts
                return Standing(_shortened(before), needs=needs)
            code = CarriedCode(project, fleet_remote(project), order.slug, order.claim)
            code.arrive(record, before.base)
            self._fence(project, order, code, record, trails)
            at_remote = project._replace(refs=FleetRefs(project.repository, code))
            desk = desk_with(at_remote, record, trails, order.agent)._replace(keep=code.keep)
            if order.step is Step.STOP:
                clear_up(desk, order.slug)
                feature, goes_on = _feature(record, order.slug), False
            else:
                wishes = Wishes(merge=order.merge, by=order.by)
                feature, goes_on = take_one(desk, order.slug, order.step, wishes, is_first=order.is_first)
            code.publish()
            if order.step is not Step.STOP and (not goes_on or decide(feature)[0].step is Step.STOP):
                tell_about_feature(project, record, feature, OF_FLEET)
            record.anchor()
            return Standing(_shortened(feature), goes_on)

    @contextmanager
    def _held(self, slug: str) -> Iterator[None]:
        """Count a feature as one of this worker, and for a moment after the step too: the next one is under way."""
        self._here[slug] = inf
        try:
            yield
        finally:
            self._here[slug] = monotonic() + _BETWEEN_STEPS_S

    def _lacking(self, needed: set[str]) -> set[str]:
        """The agents that are not here. What was installed or signed in since is found by a second look."""
        if needed - self.offers or not self.offers:
            self.offers = frozenset(able_agents(open_workshop(self._root)))
        return needed - self.offers

    def _fence(
        self, project: Project, order: StepOrder, code: CarriedCode, record: BucketRecord, trails: BucketTrails
    ) -> None:
        """Who has lost the feature records nothing of a step, whatever it is. Who takes it over closes its trails."""
        bucket = open_bucket(project.config.storage, os.environ, BUCKET_WITHIN_S)
        following = _claim_path(order.slug, order.claim.number + 1)

        def before_close() -> None:
            if bucket.get(following) is not None:
                raise GivenAway(f"another worker has {order.slug} now")

        def before_step() -> None:
            before_close()
            code.publish()

        record.before_step, trails.before_close = before_step, before_close
        if self._claims.get(order.slug) != order.claim.number:
            close_grown(record, trails, order.slug, project.now())
            self._claims[order.slug] = order.claim.number

    @contextmanager
    def _opened(self) -> Iterator[tuple[Project, BucketRecord, BucketTrails]]:
        project = open_project(self._root)
        bucket = open_bucket(project.config.storage, os.environ, BUCKET_WITHIN_S)
        project = project._replace(papers=BucketPapers(bucket))
        outside, id_ = project.location.state_home / "fleet", project.clock.new_id()
        self._writers.add(id_)
        try:
            with (
                fleet_record(project) as record,
                BucketTrails.in_bucket(bucket, project.location, outside, id_) as trails,
            ):
                writing = partial(BucketTrails, bucket, project.location)
                close_left(record, outside, writing, project.now(), living=[*self._writers])
                yield project, record, trails
        finally:
            self._writers.discard(id_)

    @contextmanager
    def _told(self, stop: Stop) -> Iterator[None]:
        """Tell the server that we are alive. It answers: when the work is not wanted any more, it is ended.

        No answer for two thirds of the time after which it counts as lost: it is ended as well, since another worker
        may begin it anew. That time is by the clock that nobody sets.
        """
        timeout = activity.info().heartbeat_timeout or timedelta(minutes=1)
        over, every_s = Event(), min(timeout.total_seconds() / 6, LONGEST_PAUSE_S)
        context = contextvars.copy_context()
        handle = self._client.get_async_activity_handle(task_token=activity.info().task_token)

        def beat() -> None:
            answered_s = monotonic()
            while not over.wait(every_s):
                activity.heartbeat()
                asked = asyncio.run_coroutine_threadsafe(handle.heartbeat(rpc_timeout=timeout / 6), self._loop)
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


class RoomForOneMore(CustomSlotSupplier):
    """A worker asks for another feature only while it has room: until then the feature waits at the server."""

    def __init__(self, worker: FleetWorker) -> None:
        self._worker, self._is_asking = worker, False

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        while self._is_asking or not self._worker.has_room():
            await asyncio.sleep(_ASK_FOR_ROOM_S)
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


def _feature(record: BucketRecord, slug: str) -> Feature:
    feature = read_feature(record, slug)
    if feature is None:
        raise ApplicationError(f"feature {slug} is not on record", non_retryable=True)
    return feature


def _needed(project: Project, feature: Feature, order: StepOrder) -> set[str]:
    """The agents that a step cannot do without: of those that are here, else of those that are configured."""
    roles = ("implement", "review") if order.step is Step.PACKAGES else (ROLES.get(order.step),)
    named, here, phase = project.config.roles, tuple(staff(project)), feature.phase.key

    def agent_of(role: str) -> str:
        found = agent_for_role(role, phase, named, here, order.agent)
        if isinstance(found, Refusal):
            found = agent_for_role(role, phase, named, tuple(project.config.agents), order.agent)
        if isinstance(found, Refusal):
            raise ConfigError(found.reason, found.hint)
        return found

    return {agent_of(role) for role in roles if role}


async def serve(root: Path, ready: Callable[[str], None]) -> None:
    """Work until somebody says to end; then end the steps that run, and leave."""
    project, ended = open_project(root), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    client = await connect(project)
    worker, queue, at_once = FleetWorker(root, client), queue_of(project), project.config.fleet.features
    restrictions = SandboxRestrictions.default.with_passthrough_modules("phasegate", "msgspec")
    async with AsyncExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(at_once + 3 + len(worker.offers)))
        listens = partial(Worker, client, activity_executor=threads)
        for name in sorted(worker.offers):
            has_it = listens(
                task_queue=agent_queue(queue, name), activities=[worker.adopt], max_concurrent_activities=1
            )
            await stack.enter_async_context(has_it)
        one = FixedSizeSlotSupplier(1)
        room = WorkerTuner.create_composite(
            workflow_supplier=one,
            activity_supplier=RoomForOneMore(worker),
            local_activity_supplier=one,
            nexus_supplier=one,
        )
        adopting = listens(
            task_queue=adopting_queue(queue),
            activities=[worker.adopt],
            max_concurrent_activity_task_polls=1,
            tuner=room,
        )
        shared = listens(
            task_queue=queue,
            workflows=[FeatureFlow],
            activities=[worker.look, worker.tell_failure],
            max_concurrent_activities=2,
            sticky_queue_schedule_to_start_timeout=STICKY,
            workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        )
        own = listens(
            task_queue=worker.own_queue,
            activities=[worker.take_step],
            max_concurrent_activities=at_once,
            graceful_shutdown_timeout=LONGEST_END,
        )
        for one_queue in (adopting, shared, own):
            await stack.enter_async_context(one_queue)
        ready(worker.own_queue)
        await ended.wait()
        worker.stop()


def _shortened(feature: Feature) -> Feature:
    """A feature as the rules decide on it: whether there are texts counts, and not what they say."""
    texts = {name: getattr(feature, name) and _IN_JOURNAL for name in _TEXTS}
    workflow = msgspec.structs.replace(feature.workflow, reason=feature.workflow.reason and _IN_JOURNAL)
    blocked = dict.fromkeys(feature.blocked, _IN_JOURNAL)
    return msgspec.structs.replace(feature, workflow=workflow, blocked=blocked, **texts)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except Interrupted as error:
        raise ApplicationError("the worker was told to end", type=STOPPED) from error
    except PhasegateError as error:
        is_last = isinstance(error, ForeignHistory)  # every worker finds the same
        raise ApplicationError(error.message, error.hint, type=type(error).__name__, non_retryable=is_last) from error
