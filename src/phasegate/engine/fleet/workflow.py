"""The loop of a feature as a Temporal workflow: the rules decide, a worker takes the step, again.

Nothing here is remembered that is not in the journal: a workflow that is lost is followed by one
that begins with a look at it. Temporal never repeats a step by itself. Only names and states are in
its history, no text of agents.
"""

from __future__ import annotations

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
    from phasegate.core.workflow.lifecycle import Stage
    from phasegate.core.workflow.origin import UNKNOWN_ORIGIN, OrderOrigin
    from phasegate.workspace.feature_snapshot import FeatureClaim

# The worker was told to end: it goes on when it is back
INTERRUPTED = "Interrupted"
# Decided anew after a look: the same, also as Temporal says it; MovedOn: a person has recorded
# something meanwhile; GivenAway: another worker has taken the feature over.
RECOVERABLE_FAILURES = (INTERRUPTED, "WorkerShutdown", "MovedOn", "GivenAway", "", None)
ADOPTION_SUFFIX = " room"
MAX_STEP_DURATION = timedelta(days=7)
SHORT_TIMEOUT = timedelta(seconds=30)
T = TypeVar("T")
RETRY_POLICY = RetryPolicy(
    initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=10)
)


class FleetRunRequest(msgspec.Struct, frozen=True):
    """A feature that is to be carried on, by the workers of a queue."""

    slug: str
    queue: str
    lost_after_s: float
    home_within_s: float
    agent: str | None = None
    # Go on to the merge
    merge: bool = False
    by: OrderOrigin = UNKNOWN_ORIGIN
    # Of the run that this one continues, whose history grew long
    home: FeatureClaim | None = None


class AdoptionRequest(msgspec.Struct, frozen=True):
    """A feature that needs a worker.

    `gone` is the number of the claim that is given up; 0: none is.
    """

    slug: str
    gone: int = 0
    # Agents
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
    """Where a feature stands, and whether something is left to be done without a person."""

    feature: Feature
    goes_on: bool = True
    # The agents of the next step, if the feature's worker has not got all of them
    needs: tuple[str, ...] = ()


@workflow.defn(name="phasegate-feature")
class FeatureWorkflow:
    """One feature.

    It stays with one worker, which has its checkouts, for as long as that one takes its steps.
    """

    def __init__(self) -> None:
        self._running: workflow.ActivityHandle[FeatureProgress] | None = None
        self._has_order = self._wants_merge = False

    @workflow.signal
    def ordered(self) -> None:
        """A person has recorded an order.

        The step that runs is ended, and what is due is decided anew.
        """
        self._has_order = True
        if self._running is not None:
            self._running.cancel()

    @workflow.signal
    def merges(self) -> None:
        """A person wants it to go on to the merge."""
        self._wants_merge = True

    @workflow.run
    async def run(self, order: FleetRunRequest) -> Stage:
        home = order.home or await self._await_claim(order, AdoptionRequest(order.slug))
        standing = await self._read_progress(order)
        is_first = order.home is None
        is_over = False

        while not is_over:
            if self._has_order:
                self._has_order = False
                standing = await self._read_progress(order)

            step = decide_feature_actions(standing.feature)[0].step
            merge = order.merge or self._wants_merge
            is_over = not self._should_continue(standing, step, merge)
            if is_over and standing.feature.workflow.stage is not Stage.CANCELLED:
                break

            taken = await self._run_step(
                order,
                StepRequest(
                    slug=order.slug,
                    step=step,
                    claim=home,
                    agent=order.agent,
                    is_first=is_first,
                    merge=merge,
                    by=order.by,
                ),
            )

            if taken is None or taken.needs:
                home = await self._await_claim(
                    order, AdoptionRequest(order.slug, home.number, taken.needs if taken else ())
                )
                is_over = False
            else:
                standing = taken
                is_first = False

            is_long = workflow.info().is_continue_as_new_suggested()
            if is_long and standing.goes_on and not (is_first or is_over):
                workflow.continue_as_new(
                    replace(order, merge=order.merge or self._wants_merge, home=home)
                )

        return standing.feature.workflow.stage

    @staticmethod
    def _should_continue(standing: FeatureProgress, step: Step, merge: bool) -> bool:
        """A feature that its worker left at its last gate goes on if somebody wants the merge by
        now.
        """
        return step is not Step.STOP and (standing.goes_on or (step is Step.COMPLETE and merge))

    async def _await_claim(self, order: FleetRunRequest, adoption: AdoptionRequest) -> FeatureClaim:
        """The claim of the worker that has the feature: waited for until there is one."""
        if adoption.needs:
            queue = agent_queue(order.queue, adoption.needs[0])
        else:
            queue = adoption_queue(order.queue)
        return await self._call_activity(queue, FeatureClaim, "adopt", adoption)

    async def _read_progress(self, order: FleetRunRequest) -> FeatureProgress:
        return await self._call_activity(order.queue, FeatureProgress, "look", order.slug)

    async def _call_activity(self, queue: str, type_: type[T], name: str, *arguments: object) -> T:
        """What a worker of a queue answers: it is asked until one does."""
        found: T = await workflow.execute_activity(
            name,
            args=arguments,
            task_queue=queue,
            result_type=type_,
            start_to_close_timeout=SHORT_TIMEOUT,
            retry_policy=RETRY_POLICY,
        )
        return found

    async def _run_step(self, order: FleetRunRequest, step: StepRequest) -> FeatureProgress | None:
        """Have a step taken, once; None if the feature's worker does not come for it.

        Of a worker that is gone the journal says what it has done.
        """
        self._running = workflow.start_activity(
            "take_step",
            step,
            task_queue=step.claim.by,
            result_type=FeatureProgress,
            schedule_to_start_timeout=timedelta(seconds=order.home_within_s),
            start_to_close_timeout=MAX_STEP_DURATION,
            heartbeat_timeout=timedelta(seconds=order.lost_after_s),
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
                # Nobody may be waiting
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
    """The queue that the workers of a fleet ask for features, for as long as they have room."""
    return queue + ADOPTION_SUFFIX


def agent_queue(queue: str, agent: str) -> str:
    """The queue of the workers of a fleet that have an agent."""
    return f"{queue} agent:{agent}"
