"""The loop of a feature as a Temporal workflow: the rules decide, a worker takes the step, again.

Nothing here is remembered that is not in the journal: a workflow that is lost is followed by one that begins with a
look at it. Temporal never repeats a step by itself. Only names and states are in its history, no text of agents.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType

with workflow.unsafe.imports_passed_through():
    import msgspec

    from phasegate.rules.decide import decide
    from phasegate.rules.feature_state import Feature, Step
    from phasegate.rules.lifecycle import Stage
    from phasegate.workspace.feature_code import Claim

STOPPED = "Interrupted"  # the worker was told to end: it goes on when it is back
# Decided anew after a look: the same, also as Temporal says it; MovedOn: a person has recorded something meanwhile;
# GivenAway: another worker has taken the feature over.
ANEW = (STOPPED, "WorkerShutdown", "MovedOn", "GivenAway", "", None)
LONGEST_STEP = timedelta(days=7)
SHORT = timedelta(seconds=30)
AGAIN = RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=10))


class FleetOrder(msgspec.Struct, frozen=True):
    """A feature that is to be carried on, by the workers of a queue."""

    slug: str
    queue: str
    lost_after_s: float
    home_within_s: float
    agent: str | None = None


class Adoption(msgspec.Struct, frozen=True):
    """A feature that needs a worker. `gone` is the number of the claim that is given up; 0: none is."""

    slug: str
    gone: int = 0


class StepOrder(msgspec.Struct, frozen=True):
    """One step for the worker that has the feature's checkouts."""

    slug: str
    step: Step
    claim: Claim
    agent: str | None
    is_first: bool


class Standing(msgspec.Struct, frozen=True):
    """Where a feature stands, and whether something is left to be done without a person."""

    feature: Feature
    goes_on: bool = True


@workflow.defn(name="phasegate-feature")
class FeatureFlow:
    """One feature. It stays with one worker, which has its checkouts, for as long as that one takes its steps."""

    @workflow.run
    async def run(self, order: FleetOrder) -> Stage:
        home = await self._adopted(order, 0)
        standing, is_first = await self._look(order), True
        while standing.goes_on and (step := decide(standing.feature)[0].step) is not Step.STOP:
            taken = await self._step(order, StepOrder(order.slug, step, home, order.agent, is_first))
            if taken is None:
                home = await self._adopted(order, home.number)
            else:
                standing, is_first = taken, False
        return standing.feature.workflow.stage

    async def _adopted(self, order: FleetOrder, gone: int) -> Claim:
        """The claim of the worker that has the feature: waited for until there is one."""
        found: Claim = await workflow.execute_activity(
            "adopt",
            Adoption(order.slug, gone),
            task_queue=order.queue,
            result_type=Claim,
            start_to_close_timeout=SHORT,
            retry_policy=AGAIN,
        )
        return found

    async def _look(self, order: FleetOrder) -> Standing:
        found: Standing = await workflow.execute_activity(
            "look",
            order.slug,
            task_queue=order.queue,
            result_type=Standing,
            start_to_close_timeout=SHORT,
            retry_policy=AGAIN,
        )
        return found

    async def _step(self, order: FleetOrder, step: StepOrder) -> Standing | None:
        """Have a step taken, once; None if the feature's worker does not come for it.

        Of a worker that is gone the journal says what it has done.
        """
        try:
            taken: Standing = await workflow.execute_activity(
                "take_step",
                step,
                task_queue=step.claim.by,
                result_type=Standing,
                schedule_to_start_timeout=timedelta(seconds=order.home_within_s),
                start_to_close_timeout=LONGEST_STEP,
                heartbeat_timeout=timedelta(seconds=order.lost_after_s),
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except ActivityError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type not in ANEW:
                raise error.cause from error
            if isinstance(error.cause, TimeoutError) and error.cause.type is TimeoutType.SCHEDULE_TO_START:
                return None
            return await self._look(order)
        return taken
