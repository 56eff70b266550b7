"""A work package with its plan: the part of the query side that reads documents. See `engine/views`."""

from __future__ import annotations

from phasegate.engine.packages import PlannedPackage, find_package, planned
from phasegate.engine.views import PackageCard, features_of, package_cards, with_jobs
from phasegate.errors import ConfigError
from phasegate.record.reader import Reader
from phasegate.rules.dependencies import ready
from phasegate.rules.plan_view import PlanView, view_of
from phasegate.rules.work_package import State


def planned_cards(reader: Reader, feature: str) -> tuple[PackageCard, ...]:
    """The packages of a feature, each with what it waits for and whether it could be dispatched now."""
    plans = planned(reader, feature)
    cards = package_cards(reader, feature)
    waits_for = {name: one.waits_for for name, one in plans.items()}
    can_start = ready(waits_for, {card.id: State(card.state) for card in cards})
    return tuple(_with_plan(card, plans.get(card.id), card.id in can_start) for card in cards)


def plan_views(reader: Reader | None, feature: str | None) -> list[PlanView]:
    """The packages as graphs, one a feature that has a plan."""
    plans = {slug: planned(reader, slug) for slug in features_of(reader, feature)} if reader else {}
    found = {slug: [one.package for one in plan.values()] for slug, plan in plans.items() if plan}
    if reader is None or not found:
        what = f"no plan of {feature} is loaded" if feature else "no plan is loaded"
        raise ConfigError(what, "phasegate plan load kitty-specs/NNN-name")
    states = {slug: {card.id: card.state for card in package_cards(reader, slug)} for slug in found}
    return [view_of(packages, states[slug]) for slug, packages in found.items()]


def package_view(reader: Reader, wanted: str, feature: str | None) -> tuple[PackageCard, str]:
    """One package with everything on record of it, and its document as it was loaded."""
    found = find_package(reader, wanted, feature)
    slug = found.package.feature_slug
    card = next((card for card in planned_cards(reader, slug) if card.id == wanted), None)
    if card is None:
        raise ConfigError(f"there is no package {wanted} in {slug}", "load its plan again: phasegate plan load")
    return with_jobs(reader, card._replace(plan=found.package)), found.document


def _with_plan(card: PackageCard, plan: PlannedPackage | None, is_ready: bool) -> PackageCard:
    return card._replace(waits_for=tuple(sorted(plan.waits_for)) if plan else (), is_ready=is_ready)
