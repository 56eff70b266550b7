"""The loop of a feature as a Temporal workflow: the rules decide, a worker runs the step, repeat.

The workflow keeps no state that is not in the journal: a lost workflow is replaced by one that
starts by reading the journal. Temporal never repeats a step by itself. Its history contains only
names and states, no text of agents.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType

with workflow.unsafe.imports_passed_through():
    import msgspec
    from msgspec.structs import replace

    from phasegate.core.machine.feature_machine import decide_feature_actions
    from phasegate.core.machine.feature_state import Feature, Step
    from phasegate.core.workflow.origin import UNKNOWN_ORIGIN, OrderOrigin
    from phasegate.core.workflow.phase_transitions import Stage
    from phasegate.workspace.snapshots.feature_snapshot import FeatureClaim

# The worker was stopped; it continues after its restart
INTERRUPTED = "Interrupted"
# After these the journal is read and the next step is decided again: the worker was stopped
# (reported by it or by Temporal); MovedOn: a user has recorded an order; GivenAway: another worker
# has taken the feature.
RECOVERABLE_FAILURES = (INTERRUPTED, "WorkerShutdown", "MovedOn", "GivenAway", "", None)
ADOPTION_SUFFIX = " room"
# A worker has no room, or lacks an agent. Their first detail is the time of the first attempt.
BUSY = "Busy"
LACKING = "Lacking"
WAITING_FAILURES = (BUSY, LACKING)
MAX_STEP_DURATION = timedelta(days=7)
SHORT_TIMEOUT = timedelta(seconds=30)
# Multiple of the first wait for a forge
MAX_BACKOFF = 10
T = TypeVar("T")
RETRY_POLICY = RetryPolicy(
    initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=10)
)


class FleetRunRequest(msgspec.Struct, frozen=True):
    """Request to run a feature on the workers of a queue."""

    slug: str
    queue: str
    heartbeat_timeout_s: float = msgspec.field(name="lost_after_s")
    claim_timeout_s: float = msgspec.field(name="home_within_s")
    agent: str | None = None
    # Continue to the merge
    merge: bool = False
    by: OrderOrigin = UNKNOWN_ORIGIN
    # Claim of the run that this one continues because its history grew long
    claim: FeatureClaim | None = msgspec.field(default=None, name="home")


class AdoptionRequest(msgspec.Struct, frozen=True):
    """A request to a worker to claim a feature.

    `gone` is the number of the claim that is given up; 0 if there is none.
    """

    slug: str
    gone: int = 0
    # Agents that the worker must have
    needs: tuple[str, ...] = ()


class StepRequest(msgspec.Struct, frozen=True):
    """One step for the worker that has the feature's checkouts."""

    slug: str
    step: Step
    claim: FeatureClaim
    agent: str | None
    is_first: bool
    merge: bool = False
    by: OrderOrigin = UNKNOWN_ORIGIN


class FeatureProgress(msgspec.Struct, frozen=True):
    """State of a feature, and whether it can continue without a decision of the user."""

    feature: Feature
    goes_on: bool = True
    # Agents of the next step, if the feature's worker lacks any of them
    needs: tuple[str, ...] = ()
    # Time until the next step is due: a pull request waits, and occupies no worker
    wait_s: float = 0.0


@workflow.defn(name="phasegate-feature")
class FeatureWorkflow:
    """Workflow of one feature.

    The feature stays with one worker, which has its checkouts, as long as that worker runs its
    steps.
    """

    def __init__(self) -> None:
        self._running: workflow.ActivityHandle[FeatureProgress] | None = None
        self._has_order = False
        self._wants_merge = False

    @workflow.signal
    def ordered(self) -> None:
        """Handle a recorded order: cancel the running step, and decide the next one again."""
        self._has_order = True
        if self._running is not None:
            self._running.cancel()

    @workflow.signal
    def merges(self) -> None:
        """Handle the request to continue to the merge."""
        self._wants_merge = True

    @workflow.run
    async def run(self, order: FleetRunRequest) -> Stage:
        """Run the steps of a feature until it ends or waits for the user."""
        claim = order.claim or await self._await_claim(order, AdoptionRequest(order.slug))
        progress = await self._read_progress(order)
        is_first = order.claim is None
        is_over = False
        # Consecutive steps after which the feature waits
        idle_steps = 0

        while not is_over:
            if self._has_order:
                self._has_order = False
                progress = await self._read_progress(order)

            step = decide_feature_actions(progress.feature)[0].step
            merge = order.merge or self._wants_merge
            is_over = not self._should_continue(progress, step, merge)
            if is_over and progress.feature.workflow.stage is not Stage.CANCELLED:
                break

            result = await self._run_step(
                order,
                StepRequest(
                    slug=order.slug,
                    step=step,
                    claim=claim,
                    agent=order.agent,
                    is_first=is_first,
                    merge=merge,
                    by=order.by,
                ),
            )

            if result is None or result.needs:
                claim = await self._await_claim(
                    order, AdoptionRequest(order.slug, claim.number, result.needs if result else ())
                )
                is_over = False
            else:
                progress = result
                is_first = False
                idle_steps = idle_steps + 1 if result.wait_s else 0
                if result.wait_s:
                    await self._wait_for_order(result.wait_s * min(1.5**idle_steps, MAX_BACKOFF))

            is_long = workflow.info().is_continue_as_new_suggested()
            if is_long and progress.goes_on and not (is_first or is_over):
                workflow.continue_as_new(
                    replace(order, merge=order.merge or self._wants_merge, claim=claim)
                )

        return progress.feature.workflow.stage

    async def _wait_for_order(self, timeout_s: float) -> None:
        """Wait for an order of the user, at most until the next step is due."""
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                lambda: self._has_order, timeout=timedelta(seconds=timeout_s)
            )

    @staticmethod
    def _should_continue(progress: FeatureProgress, step: Step, merge: bool) -> bool:
        """Return whether there is a next step.

        A feature that stopped at its last gate continues if the merge was requested since.
        """
        return step is not Step.STOP and (progress.goes_on or (step is Step.COMPLETE and merge))

    async def _await_claim(self, order: FleetRunRequest, adoption: AdoptionRequest) -> FeatureClaim:
        """Ask a worker to claim the feature, and return its claim.

        If agents are needed, the queue of the first one is used; the worker checks the others.
        """
        queue = adoption_queue(order.queue)
        if adoption.needs:
            queue = agent_queue(order.queue, adoption.needs[0])
        return await self._call_activity(queue, FeatureClaim, "adopt", adoption)

    async def _read_progress(self, order: FleetRunRequest) -> FeatureProgress:
        return await self._call_activity(order.queue, FeatureProgress, "look", order.slug)

    async def _call_activity(self, queue: str, type_: type[T], name: str, *arguments: object) -> T:
        """Call an activity on a queue, retrying until a worker answers."""
        result: T = await workflow.execute_activity(
            name,
            args=arguments,
            task_queue=queue,
            result_type=type_,
            start_to_close_timeout=SHORT_TIMEOUT,
            retry_policy=RETRY_POLICY,
        )
        return result

    async def _run_step(self, order: FleetRunRequest, step: StepRequest) -> FeatureProgress | None:
        """Run a step once. Return None if the feature's worker does not start it in time.

        If the worker is lost, the journal shows what it has done.
        """
        self._running = workflow.start_activity(
            "take_step",
            step,
            task_queue=step.claim.by,
            result_type=FeatureProgress,
            schedule_to_start_timeout=timedelta(seconds=order.claim_timeout_s),
            start_to_close_timeout=MAX_STEP_DURATION,
            heartbeat_timeout=timedelta(seconds=order.heartbeat_timeout_s),
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )

        try:
            return await self._running
        except ActivityError as error:
            if (
                isinstance(error.cause, ApplicationError)
                and error.cause.type not in RECOVERABLE_FAILURES
            ):
                reason = "; ".join(
                    (error.cause.message, *filter(None, map(str, error.cause.details)))
                )
                # Notify the user, as no command may be waiting for the result.
                await self._call_activity(
                    order.queue, type(None), "tell_failure", order.slug, reason
                )
                raise error.cause from error

            if (
                isinstance(error.cause, TimeoutError)
                and error.cause.type is TimeoutType.SCHEDULE_TO_START
            ):
                return None

            return await self._read_progress(order)
        finally:
            self._running = None


def adoption_queue(queue: str) -> str:
    """Return the queue that workers with capacity poll for features."""
    return queue + ADOPTION_SUFFIX


def agent_queue(queue: str, agent: str) -> str:
    """Return the queue of the workers that have an agent."""
    return f"{queue} agent:{agent}"
