"""Views of work packages with their plans: the part that reads documents.

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
from phasegate.core.plan.plan_view import PlanView, build_plan_view
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
    """Return the packages of a feature, with their dependencies and whether they are ready."""
    plans = read_planned_packages(reader, feature)
    cards = package_cards(reader, feature)
    waits_for = {name: one.waits_for for name, one in plans.items()}
    can_start = find_ready_packages(
        waits_for, {card.id: PackageState(card.state) for card in cards}
    )

    return tuple(_with_plan(card, plans.get(card.id), card.id in can_start) for card in cards)


def plan_views(reader: StoreReader | None, feature: str | None) -> list[PlanView]:
    """Return the package graph of each feature that has a plan."""
    views = []
    if reader:
        for slug in list_features(reader, feature):
            if plan := read_planned_packages(reader, slug):
                states = {card.id: card.state for card in package_cards(reader, slug)}
                views.append(build_plan_view([one.package for one in plan.values()], states))

    if not views:
        subject = f"plan of {feature}" if feature else "plan"
        raise ConfigError(f"no {subject} is loaded", "phasegate plan load kitty-specs/NNN-name")

    return views


def package_view(reader: StoreReader, wanted: str, feature: str | None) -> tuple[PackageCard, str]:
    """Return one package with its whole record, and its document as it was loaded."""
    planned = find_package(reader, wanted, feature)
    slug = planned.package.feature_slug
    card = next((card for card in planned_cards(reader, slug) if card.id == wanted), None)
    if card is None:
        raise ConfigError(
            f"the record of {slug} has no state for {wanted}, which its plan lists",
            "load its plan again: phasegate plan load",
        )

    return with_rounds(reader, card._replace(plan=planned.package)), planned.document


def with_rounds(reader: StoreReader, card: PackageCard) -> PackageCard:
    """Add to a package its jobs, its contest and the tokens that delta reviews saved."""
    events = tuple(_package_events(reader, card.feature, card.id))
    saved = sum(event.saved_tokens for event in events if isinstance(event, PackageJobStarted))
    jobs = {job.id: job for job in reader.jobs(card.feature)}

    return with_jobs(
        reader, card._replace(attempts=_collect_attempts(events, jobs), saved_tokens=saved)
    )


def _collect_attempts(
    events: Iterable[AnyPackageEvent], jobs: Mapping[str, JobRow]
) -> tuple[AttemptView, ...]:
    """Return the attempts of a package's last contest; none without a contest."""
    attempts: dict[int, AttemptView] = {}
    # Attempt number by job id
    attempt_of: dict[str, int] = {}
    is_open = False
    # An attempt that passed survives a blocker: the contest is not restarted.
    passed = False

    for event in events:
        match event:
            case PackagePrepared(_, entrants) if entrants and not passed:
                attempts = {
                    number: AttemptView(
                        number=number + 1,
                        agent=agent,
                        outcome="in progress",
                        taken=False,
                        commit="",
                        ref="",
                        tokens=0,
                        cost_usd=0.0,
                    )
                    for number, agent in enumerate(entrants)
                }
                is_open = True
            case PackageJobStarted(job, "implement", _, number) if is_open and number in attempts:
                attempt_of[job] = number
                attempt = attempts[number]
                attempts[number] = attempt._replace(
                    tokens=attempt.tokens + jobs[job].tokens,
                    cost_usd=attempt.cost_usd + jobs[job].cost_usd,
                )
            case PackageJobEnded(job, end, reason) if (
                job in attempt_of and end is not JobEndKind.DONE
            ):
                number = attempt_of[job]
                attempts[number] = attempts[number]._replace(
                    outcome=f"{end}: {reason}" if reason else str(end)
                )
            case AttemptChecked(number, harvested, validated):
                passed = passed or (validated is not None and not validated.failures)
                attempts[number] = attempts[number]._replace(
                    outcome=describe_attempt(event), commit=harvested.commit
                )
            case AttemptSelected(taken, kept):
                is_open = False
                attempts = {
                    number: attempt._replace(taken=number == taken, ref=kept.get(number, ""))
                    for number, attempt in attempts.items()
                }

    return tuple(attempts.values())


def _package_events(reader: StoreReader, feature: str, package: str) -> Iterator[AnyPackageEvent]:
    for recorded in reader.events(feature):
        if recorded.kind == PACKAGE_STEP:
            name, event = read_package_step(recorded.payload)
            if name == package:
                yield event


def _with_plan(card: PackageCard, plan: PlannedPackage | None, is_ready: bool) -> PackageCard:
    return card._replace(waits_for=tuple(sorted(plan.waits_for)) if plan else (), is_ready=is_ready)
