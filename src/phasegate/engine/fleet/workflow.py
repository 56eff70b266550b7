"""The loop of a feature as a Temporal workflow: the rules decide, a worker takes the step, again.

Nothing here is remembered that is not in the journal: a workflow that is lost is followed by one that begins with a
look at it. Temporal never repeats a step by itself. Only names and states are in its history, no text of agents.
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

    from phasegate.core.machine.feature_machine import decide
    from phasegate.core.machine.feature_state import Feature, Step
    from phasegate.core.workflow.lifecycle import Stage
    from phasegate.core.workflow.origin import NOT_KEPT, By
    from phasegate.workspace.feature_snapshot import Claim

STOPPED = "Interrupted"  # the worker was told to end: it goes on when it is back
# Decided anew after a look: the same, also as Temporal says it; MovedOn: a person has recorded something meanwhile;
# GivenAway: another worker has taken the feature over.
ANEW = (STOPPED, "WorkerShutdown", "MovedOn", "GivenAway", "", None)
ROOM = " room"
LONGEST_STEP = timedelta(days=7)
SHORT = timedelta(seconds=30)
T = TypeVar("T")
AGAIN = RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=10))


class FleetOrder(msgspec.Struct, frozen=True):
    """A feature that is to be carried on, by the workers of a queue."""

    slug: str
    queue: str
    lost_after_s: float
    home_within_s: float
    agent: str | None = None
    merge: bool = False  # go on to the merge
    by: By = NOT_KEPT
    home: Claim | None = None  # of the run that this one continues, whose history grew long


class Adoption(msgspec.Struct, frozen=True):
    """A feature that needs a worker. `gone` is the number of the claim that is given up; 0: none is."""

    slug: str
    gone: int = 0
    needs: tuple[str, ...] = ()  # agents


class StepOrder(msgspec.Struct, frozen=True):
    """One step for the worker that has the feature's checkouts."""

    slug: str
    step: Step
    claim: Claim
    agent: str | None
    is_first: bool
    merge: bool = False
    by: By = NOT_KEPT


class Standing(msgspec.Struct, frozen=True):
    """Where a feature stands, and whether something is left to be done without a person."""

    feature: Feature
    goes_on: bool = True
    needs: tuple[str, ...] = ()  # the agents of the next step, if the feature's worker has not got all of them


@workflow.defn(name="phasegate-feature")
class FeatureFlow:
    """One feature. It stays with one worker, which has its checkouts, for as long as that one takes its steps."""

    def __init__(self) -> None:
        self._running: workflow.ActivityHandle[Standing] | None = None
        self._is_ordered = self._merges = False

    @workflow.signal
    def ordered(self) -> None:
        """A person has recorded an order: the step that runs is ended, and what is due is decided anew."""
        self._is_ordered = True
        if self._running is not None:
            self._running.cancel()

    @workflow.signal
    def merges(self) -> None:
        """A person wants it to go on to the merge."""
        self._merges = True

    @workflow.run
    async def run(self, order: FleetOrder) -> Stage:
        home = order.home or await self._adopted(order, Adoption(order.slug))
        standing, is_first, is_over = await self._look(order), order.home is None, False
        while not is_over:
            if self._is_ordered:
                self._is_ordered, standing = False, await self._look(order)
            step = decide(standing.feature)[0].step
            merge = order.merge or self._merges
            is_over = not self._goes_on(standing, step, merge)
            if is_over and standing.feature.workflow.stage is not Stage.CANCELLED:
                break
            taken = await self._step(order, StepOrder(order.slug, step, home, order.agent, is_first, merge, order.by))
            if taken is None or taken.needs:
                home = await self._adopted(order, Adoption(order.slug, home.number, taken.needs if taken else ()))
                is_over = False
            else:
                standing, is_first = taken, False
            is_long = workflow.info().is_continue_as_new_suggested()
            if is_long and standing.goes_on and not (is_first or is_over):
                workflow.continue_as_new(replace(order, merge=order.merge or self._merges, home=home))
        return standing.feature.workflow.stage

    @staticmethod
    def _goes_on(standing: Standing, step: Step, merge: bool) -> bool:
        """A feature that its worker left at its last gate goes on if somebody wants the merge by now."""
        return step is not Step.STOP and (standing.goes_on or (step is Step.COMPLETE and merge))

    async def _adopted(self, order: FleetOrder, adoption: Adoption) -> Claim:
        """The claim of the worker that has the feature: waited for until there is one."""
        queue = agent_queue(order.queue, adoption.needs[0]) if adoption.needs else adopting_queue(order.queue)
        return await self._asked(queue, Claim, "adopt", adoption)

    async def _look(self, order: FleetOrder) -> Standing:
        return await self._asked(order.queue, Standing, "look", order.slug)

    async def _asked(self, queue: str, type_: type[T], name: str, *arguments: object) -> T:
        """What a worker of a queue answers: it is asked until one does."""
        found: T = await workflow.execute_activity(
            name,
            args=arguments,
            task_queue=queue,
            result_type=type_,
            start_to_close_timeout=SHORT,
            retry_policy=AGAIN,
        )
        return found

    async def _step(self, order: FleetOrder, step: StepOrder) -> Standing | None:
        """Have a step taken, once; None if the feature's worker does not come for it.

        Of a worker that is gone the journal says what it has done.
        """
        self._running = workflow.start_activity(
            "take_step",
            step,
            task_queue=step.claim.by,
            result_type=Standing,
            schedule_to_start_timeout=timedelta(seconds=order.home_within_s),
            start_to_close_timeout=LONGEST_STEP,
            heartbeat_timeout=timedelta(seconds=order.lost_after_s),
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        try:
            return await self._running
        except ActivityError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type not in ANEW:
                reason = "; ".join((error.cause.message, *filter(None, map(str, error.cause.details))))
                await self._asked(order.queue, type(None), "tell_failure", order.slug, reason)  # nobody may be waiting
                raise error.cause from error
            if isinstance(error.cause, TimeoutError) and error.cause.type is TimeoutType.SCHEDULE_TO_START:
                return None
            return await self._look(order)
        finally:
            self._running = None


def adopting_queue(queue: str) -> str:
    """The queue that the workers of a fleet ask for features, for as long as they have room."""
    return queue + ROOM


def agent_queue(queue: str, agent: str) -> str:
    """The queue of the workers of a fleet that have an agent."""
    return f"{queue} agent:{agent}"
