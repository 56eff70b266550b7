"""A worker of a fleet: takes the steps of features in its own clone, and records them in the bucket."""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread

import msgspec
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from phasegate.cage.job import Stop
from phasegate.engine.driver import Wishes, take_one
from phasegate.engine.feature_journal import read_feature
from phasegate.engine.fleet_client import connect, fleet_remote, queue_of
from phasegate.engine.fleet_code import CarriedCode
from phasegate.engine.fleet_flow import STOPPED, Adoption, FeatureFlow, Standing, StepOrder
from phasegate.engine.local_desk import desk_with
from phasegate.engine.project import Project, open_project
from phasegate.engine.storage import BUCKET_WITHIN_S, fleet_record, open_bucket
from phasegate.errors import Interrupted, PhasegateError
from phasegate.record.bucket_record import BucketRecord
from phasegate.record.bucket_trails import BucketPapers, BucketTrails
from phasegate.record.recovery import close_left
from phasegate.rules.feature_state import Feature
from phasegate.workspace.feature_code import Claim

STICKY = timedelta(seconds=2)  # how long a workflow waits for a worker that has died, before another one takes it
LONGEST_END = timedelta(minutes=2)  # for agents to be ended, and what they left to be saved
_IN_JOURNAL = "(in the journal)"  # stands for what people and agents wrote: Temporal's history is no place for it
_TEXTS = ("description", "report", "findings", "said", "remediation", "attested")


class FleetWorker:
    """The activities of one worker. Each opens the project anew: its settings are those of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root
        project = open_project(root)
        fleet_remote(project)
        place = sha256(os.fsencode(project.location.git_dir)).hexdigest()[:12]
        self.own_queue = f"{queue_of(project)} worker {socket.gethostname()} {place}"
        self._stops: set[Stop] = set()

    def stop(self) -> None:
        """End what runs: agents are ended, and what they left is saved."""
        for stop in [*self._stops]:
            stop.set()

    @activity.defn(name="adopt")
    def adopt(self, adoption: Adoption) -> Claim:
        """The last claim to a feature; a new one of ours if that is given up, or there is none."""
        project = open_project(self._root)
        bucket, folder = open_bucket(project.config.storage, os.environ, BUCKET_WITHIN_S), f"fleet/{adoption.slug}/home"
        last = int((bucket.names(folder) or ["/0"])[-1].rpartition("/")[2])
        if last <= adoption.gone:
            if len(self._stops) >= project.config.fleet.features:
                raise ApplicationError("this worker has enough to do", type="Busy")
            last += 1
            bucket.create(f"{folder}/{last:06}", self.own_queue.encode())
        found = bucket.get(f"{folder}/{last:06}")
        if found is None:
            raise ApplicationError(f"{folder}/{last:06} was removed")
        return Claim(last, found.data.decode())

    @activity.defn(name="look")
    def look(self, slug: str) -> Standing:
        with fleet_record(open_project(self._root)) as record:
            return self._standing(record, slug)

    @activity.defn(name="take_step")
    def take_step(self, order: StepOrder) -> Standing:
        with self._opened() as (project, record, trails), self._told(project.stop), _explained():
            code = CarriedCode(project, fleet_remote(project), order.slug, order.claim)
            code.arrive(record, self._standing(record, order.slug).feature.base)
            record.before_step = code.publish
            desk = desk_with(project, record, trails, order.agent)._replace(keep=code.keep)
            feature, goes_on = take_one(desk, order.slug, order.step, Wishes(), is_first=order.is_first)
            code.publish()
            record.anchor()
            return Standing(_shortened(feature), goes_on)

    def _standing(self, record: BucketRecord, slug: str) -> Standing:
        feature = read_feature(record, slug)
        if feature is None:
            raise ApplicationError(f"feature {slug} is not on record", non_retryable=True)
        return Standing(_shortened(feature))

    @contextmanager
    def _opened(self) -> Iterator[tuple[Project, BucketRecord, BucketTrails]]:
        project = open_project(self._root)
        bucket = open_bucket(project.config.storage, os.environ, BUCKET_WITHIN_S)
        project = project._replace(papers=BucketPapers(bucket))
        outside, id_ = project.location.state_home / "fleet", project.clock.new_id()
        with fleet_record(project) as record, BucketTrails.in_bucket(bucket, project.location, outside, id_) as trails:
            close_left(record, outside, partial(BucketTrails, bucket, project.location), project.now())
            yield project, record, trails

    @contextmanager
    def _told(self, stop: Stop) -> Iterator[None]:
        """Tell the server that we are alive, and hear from it when the work is not wanted any more."""
        timeout = activity.info().heartbeat_timeout
        over, every_s = Event(), timeout.total_seconds() / 4 if timeout else 15.0
        context = contextvars.copy_context()

        def beat() -> None:
            while not over.wait(every_s):
                activity.heartbeat()
                if activity.is_cancelled():
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


async def serve(root: Path, ended: asyncio.Event, ready: Callable[[str], None]) -> None:
    """Work until `ended`; then end the steps that run, and leave."""
    project = open_project(root)
    client, worker, at_once = await connect(project), FleetWorker(root), project.config.fleet.features
    restrictions = SandboxRestrictions.default.with_passthrough_modules("phasegate", "msgspec")
    with ThreadPoolExecutor(at_once + 2) as threads:
        shared = Worker(
            client,
            task_queue=queue_of(project),
            workflows=[FeatureFlow],
            activities=[worker.adopt, worker.look],
            activity_executor=threads,
            max_concurrent_activities=2,
            sticky_queue_schedule_to_start_timeout=STICKY,
            workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        )
        own = Worker(
            client,
            task_queue=worker.own_queue,
            activities=[worker.take_step],
            activity_executor=threads,
            max_concurrent_activities=at_once,
            graceful_shutdown_timeout=LONGEST_END,
        )
        async with shared, own:
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
        raise ApplicationError(error.message, error.hint, type=type(error).__name__) from error
