"""A work package with its plan: the part of the query side that reads documents.

See `engine/views/overview`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from phasegate.core.display.event_lines import describe_attempt
from phasegate.core.machine.package_events import (
    AnyPackageEvent,
    AttemptChecked,
    AttemptSelected,
    JobEndKind,
    PackageJobEnded,
    PackageJobStarted,
    PackagePrepared,
)
from phasegate.core.plan.dependencies import find_ready_packages
from phasegate.core.plan.graph import PlanView, build_plan_view
from phasegate.core.plan.work_package import PackageState
from phasegate.engine.journal.entries import PACKAGE_STEP, read_package_step
from phasegate.engine.journal.package import PlannedPackage, find_package, read_planned_packages
from phasegate.engine.views.overview import (
    AttemptView,
    PackageCard,
    list_features,
    package_cards,
    with_jobs,
)
from phasegate.errors import ConfigError
from phasegate.storage.reader import StoreReader
from phasegate.storage.rows import JobRow


def planned_cards(reader: StoreReader, feature: str) -> tuple[PackageCard, ...]:
    """The packages of a feature, each with what it waits for and whether it could be dispatched
    now.
    """
    plans = read_planned_packages(reader, feature)
    cards = package_cards(reader, feature)
    waits_for = {name: one.waits_for for name, one in plans.items()}
    can_start = find_ready_packages(
        waits_for, {card.id: PackageState(card.state) for card in cards}
    )

    return tuple(_with_plan(card, plans.get(card.id), card.id in can_start) for card in cards)


def plan_views(reader: StoreReader | None, feature: str | None) -> list[PlanView]:
    """The packages as graphs, one a feature that has a plan."""
    if reader:
        plans = {
            slug: read_planned_packages(reader, slug) for slug in list_features(reader, feature)
        }
    else:
        plans = {}

    found = {slug: [one.package for one in plan.values()] for slug, plan in plans.items() if plan}
    if reader is None or not found:
        if feature:
            what = f"no plan of {feature} is loaded"
        else:
            what = "no plan is loaded"

        raise ConfigError(what, "phasegate plan load kitty-specs/NNN-name")

    states = {slug: {card.id: card.state for card in package_cards(reader, slug)} for slug in found}
    return [build_plan_view(packages, states[slug]) for slug, packages in found.items()]


def package_view(reader: StoreReader, wanted: str, feature: str | None) -> tuple[PackageCard, str]:
    """One package with everything on record of it, and its document as it was loaded."""
    found = find_package(reader, wanted, feature)
    slug = found.package.feature_slug
    card = next((card for card in planned_cards(reader, slug) if card.id == wanted), None)
    if card is None:
        raise ConfigError(
            f"there is no package {wanted} in {slug}", "load its plan again: phasegate plan load"
        )

    return with_rounds(reader, card._replace(plan=found.package)), found.document


def with_rounds(reader: StoreReader, card: PackageCard) -> PackageCard:
    """A package with all runs of agents for it, its contest, and what reviews of changes alone have
    saved.
    """
    events = tuple(_package_events(reader, card.feature, card.id))
    saved = sum(event.saved_tokens for event in events if isinstance(event, PackageJobStarted))
    jobs = {job.id: job for job in reader.jobs(card.feature)}

    return with_jobs(
        reader, card._replace(attempts=_collect_attempts(events, jobs), saved_tokens=saved)
    )


def _collect_attempts(
    events: Iterable[AnyPackageEvent], jobs: Mapping[str, JobRow]
) -> tuple[AttemptView, ...]:
    """The attempts at a package, of its last contest; none where one agent did it alone."""
    found: dict[int, AttemptView] = {}
    # By job
    attempt_of: dict[str, int] = {}
    # What passed is kept over a blocker
    is_open = passed = False

    for event in events:
        match event:
            case PackagePrepared(_, entrants) if entrants and not passed:
                found = {
                    n: AttemptView(
                        number=n + 1,
                        agent=who,
                        outcome="in work",
                        taken=False,
                        commit="",
                        ref="",
                        tokens=0,
                        cost_usd=0.0,
                    )
                    for n, who in enumerate(entrants)
                }

                is_open = True
            case PackageJobStarted(job, "implement", _, number) if is_open and number in found:
                attempt_of[job], one = number, found[number]
                spent = (one.tokens + jobs[job].tokens, one.cost_usd + jobs[job].cost_usd)
                found[number] = one._replace(tokens=spent[0], cost_usd=spent[1])
            case PackageJobEnded(job, end, reason) if (
                job in attempt_of and end is not JobEndKind.DONE
            ):
                number = attempt_of[job]
                found[number] = found[number]._replace(
                    outcome=f"{end}: {reason}" if reason else str(end)
                )
            case AttemptChecked(number, harvested, validated):
                passed = passed or (validated is not None and not validated.failures)
                found[number] = found[number]._replace(
                    outcome=describe_attempt(event), commit=harvested.commit
                )
            case AttemptSelected(taken, kept):
                is_open = False
                found = {
                    n: one._replace(taken=n == taken, ref=kept.get(n, ""))
                    for n, one in found.items()
                }

    return tuple(found.values())


def _package_events(reader: StoreReader, feature: str, package: str) -> Iterator[AnyPackageEvent]:
    for recorded in reader.events(feature):
        if recorded.kind == PACKAGE_STEP:
            name, event = read_package_step(recorded.payload)
            if name == package:
                yield event


def _with_plan(card: PackageCard, plan: PlannedPackage | None, is_ready: bool) -> PackageCard:
    return card._replace(waits_for=tuple(sorted(plan.waits_for)) if plan else (), is_ready=is_ready)
