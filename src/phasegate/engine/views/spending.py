"""Sum up time and cost of all features: by feature, agent, role and day."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from phasegate.core.display.status import FeatureCard
from phasegate.engine.views.overview import feature_card
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import JobRow


class SpentBy(NamedTuple):
    """The usage of one feature, agent or role, or of one day."""

    name: str
    runs: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0


class SpendingView(NamedTuple):
    """Usage of all jobs by feature, agent, role and day.

    Days are in order; the other rows are sorted by cost, highest first.
    """

    features: tuple[SpentBy, ...]
    agents: tuple[SpentBy, ...]
    roles: tuple[SpentBy, ...]
    days: tuple[SpentBy, ...]


class FeatureTile(NamedTuple):
    """A feature in a list: its card, its usage, and its running jobs."""

    card: FeatureCard
    since: str
    spent: SpentBy
    # Running jobs: package or phase, role, agent
    at_work: tuple[str, ...]


def summarize_spending(reader: StoreReader) -> SpendingView:
    """Sum up the usage of all jobs."""
    rows = reader.usage_totals()
    features, agents, roles = (_sum_by_name((str(row[at]), row) for row in rows) for at in range(3))
    days = sorted(_sum_by_name((row[3], row) for row in rows))
    return SpendingView(features, agents, roles, tuple(days))


def feature_tiles(reader: StoreReader) -> tuple[FeatureTile, ...]:
    """Return every feature that has a workflow, the most recently changed first."""
    spent = {one.name: one for one in summarize_spending(reader).features}
    at_work: dict[str, list[str]] = {}
    for job in list_current_jobs(reader):
        at_work.setdefault(job.feature, []).append(
            f"{job.wp or job.workflow_phase}: {job.phase} by {job.agent}"
        )

    return tuple(
        FeatureTile(
            feature_card(reader, row),
            row.since,
            spent.get(row.feature, SpentBy(row.feature)),
            tuple(at_work.get(row.feature, ())),
        )
        for row in reader.workflows()
    )


def list_current_jobs(reader: StoreReader) -> list[JobRow]:
    """Return the jobs without a recorded end, without those that a replaced package has left."""
    jobs = reader.running_jobs()
    replaced = {
        (row.feature, row.id)
        for feature in {job.feature for job in jobs}
        for row in reader.packages(feature)
        if row.state == "REPLACED"
    }
    return [job for job in jobs if (job.feature, job.wp) not in replaced]


def _sum_by_name(
    rows: Iterable[tuple[str, tuple[str, str, str, str, int, int, float, float]]],
) -> tuple[SpentBy, ...]:
    """Sum runs, tokens, cost and time by name."""
    totals: dict[str, SpentBy] = {}
    for name, (*_, runs, tokens, cost_usd, seconds) in rows:
        total = totals.get(name, SpentBy(name))
        totals[name] = SpentBy(
            name=name,
            runs=total.runs + runs,
            tokens=total.tokens + tokens,
            cost_usd=total.cost_usd + cost_usd,
            seconds=total.seconds + seconds,
        )

    return tuple(
        sorted(
            totals.values(), key=lambda one: (-one.cost_usd, -one.tokens, -one.seconds, one.name)
        )
    )
