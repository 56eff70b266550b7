"""The packages of a plan as a graph: dependencies with reasons, waves, scope overlaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from phasegate.core.paths.glob import may_overlap
from phasegate.core.plan.dependencies import (
    compute_dependencies,
    compute_waves,
    find_scope_overlaps,
    number_key,
)
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.text.wording import join_names, pluralize

_MAX_NAMED = 3


class ScopeOverlap(msgspec.Struct, frozen=True):
    """Two packages that may change the same paths; they never run at the same time."""

    packages: tuple[str, str]
    # Pairs of overlapping scope entries, of the first and of the second package
    entries: tuple[tuple[str, str], ...]


class PackageNode(msgspec.Struct, frozen=True):
    """A package in the graph."""

    id: str
    title: str
    state: str
    wave: int
    # Explicit dependencies of the package
    dependencies: tuple[str, ...]
    # Explicit dependencies, and earlier packages with an overlapping scope
    waits_for: tuple[str, ...]


class PlanView(msgspec.Struct, frozen=True):
    """A valid plan: every package is in a wave."""

    feature: str
    waves: tuple[tuple[str, ...], ...]
    packages: tuple[PackageNode, ...]
    overlaps: tuple[ScopeOverlap, ...]


def build_plan_view(packages: Sequence[WorkPackage], states: Mapping[str, str]) -> PlanView:
    """Build the graph of valid packages, in an order in which they can be done."""
    by_id = {package.work_package_id: package for package in packages}
    waits_for = compute_dependencies(packages)
    ordered = compute_waves(waits_for)
    nodes = tuple(
        PackageNode(
            id=id_,
            title=by_id[id_].title,
            state=states.get(id_, "PLANNED"),
            wave=number,
            dependencies=by_id[id_].dependencies,
            waits_for=tuple(sorted(waits_for[id_], key=number_key)),
        )
        for number, wave in enumerate(ordered, 1)
        for id_ in wave
    )

    return PlanView(
        feature=packages[0].feature_slug if packages else "",
        waves=tuple(ordered),
        packages=nodes,
        overlaps=_find_overlaps(by_id),
    )


def _find_overlaps(packages: Mapping[str, WorkPackage]) -> tuple[ScopeOverlap, ...]:
    pairs = find_scope_overlaps({id_: package.file_scope for id_, package in packages.items()})
    return tuple(
        ScopeOverlap(pair, _find_overlapping_entries(packages[pair[0]], packages[pair[1]]))
        for pair in sorted(pairs)
    )


def _find_overlapping_entries(one: WorkPackage, other: WorkPackage) -> tuple[tuple[str, str], ...]:
    return tuple((a, b) for a in one.file_scope for b in other.file_scope if may_overlap(a, b))


def render_plan(view: PlanView) -> Iterator[str]:
    """Yield the graph wave by wave: each package, its dependencies and their reasons."""
    packages = pluralize(len(view.packages), "package")
    waves = pluralize(len(view.waves), "wave")
    yield f"{view.feature}: {packages} in {waves}"

    overlaps = {frozenset(overlap.packages): overlap for overlap in view.overlaps}
    nodes = {node.id: node for node in view.packages}
    width = max((len(node.id) for node in view.packages), default=0)

    for number, wave in enumerate(view.waves, 1):
        yield f"wave {number}: in parallel" if len(wave) > 1 else f"wave {number}:"
        for id_ in wave:
            yield f"  {id_:<{width}}  {nodes[id_].state:<10}  {nodes[id_].title}"
            yield from _edge_lines(nodes[id_], overlaps, " " * (width + 4))

    if view.overlaps:
        count = pluralize(len(view.overlaps), "overlap")
        yield f"{count} of scope: the later package waits for the earlier"


def _edge_lines(
    node: PackageNode, overlaps: Mapping[frozenset[str], ScopeOverlap], indent: str
) -> Iterator[str]:
    for position, other in enumerate(node.waits_for, 1):
        if position == len(node.waits_for):
            corner = "`--"
        else:
            corner = "|--"
        yield f"{indent}{corner} after {other}: {'; '.join(_edge_reasons(node, other, overlaps))}"


def _edge_reasons(
    node: PackageNode, other: str, overlaps: Mapping[frozenset[str], ScopeOverlap]
) -> Iterator[str]:
    if other in node.dependencies:
        yield "depends on it"
    overlap = overlaps.get(frozenset((node.id, other)))
    if overlap is not None:
        yield f"both may change {_format_paths(overlap)}"


def _format_paths(overlap: ScopeOverlap) -> str:
    """Format the overlapping paths; the longer of each pair, which is the more specific one."""
    names = list(dict.fromkeys(max(pair, key=len) for pair in overlap.entries))
    return join_names(names, _MAX_NAMED)
