"""The loop of a feature as a Temporal workflow: the rules decide, a worker takes the step, again.

Nothing here is remembered that is not in the journal: a workflow that is lost is followed by one that begins with a
look at it. Temporal never repeats a step by itself. Only names and states are in its history, no text of agents.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    import msgspec

    from phasegate.rules.decide import decide
    from phasegate.rules.feature_state import Feature, Step
    from phasegate.rules.lifecycle import Stage

STOPPED = "Interrupted"  # the worker was told to end: it goes on when it is back
# Decided anew after a look: the same, also as Temporal says it; and MovedOn: a person has recorded something meanwhile.
ANEW = (STOPPED, "WorkerShutdown", "MovedOn", "", None)
LONGEST_STEP = timedelta(days=7)
SHORT = timedelta(minutes=2)


class FleetOrder(msgspec.Struct, frozen=True):
    """A feature that is to be carried on, by the workers of a queue."""

    slug: str
    queue: str
    lost_after_s: float
    agent: str | None = None


class StepOrder(msgspec.Struct, frozen=True):
    """One step for the worker that has the feature's checkouts."""

    slug: str
    step: Step
    agent: str | None
    is_first: bool


class Standing(msgspec.Struct, frozen=True):
    """Where a feature stands, and whether something is left to be done without a person."""

    feature: Feature
    goes_on: bool = True


@workflow.defn(name="phasegate-feature")
class FeatureFlow:
    """One feature. It stays with the worker that takes it first, since that one has its checkouts."""

    @workflow.run
    async def run(self, order: FleetOrder) -> Stage:
        home: str = await workflow.execute_activity(
            "adopt", order.slug, task_queue=order.queue, result_type=str, start_to_close_timeout=SHORT
        )
        standing, is_first = await self._look(home, order), True
        while standing.goes_on and (step := decide(standing.feature)[0].step) is not Step.STOP:
            standing = await self._step(home, order, StepOrder(order.slug, step, order.agent, is_first))
            is_first = False
        return standing.feature.workflow.stage

    async def _look(self, home: str, order: FleetOrder) -> Standing:
        found: Standing = await workflow.execute_activity(
            "look", order.slug, task_queue=home, result_type=Standing, start_to_close_timeout=SHORT
        )
        return found

    async def _step(self, home: str, order: FleetOrder, step: StepOrder) -> Standing:
        """Have a step taken, once. Of a worker that is gone the journal says what it has done."""
        try:
            taken: Standing = await workflow.execute_activity(
                "take_step",
                step,
                task_queue=home,
                result_type=Standing,
                start_to_close_timeout=LONGEST_STEP,
                heartbeat_timeout=timedelta(seconds=order.lost_after_s),
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except ActivityError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type not in ANEW:
                raise error.cause from error
            return await self._look(home, order)
        return taken
