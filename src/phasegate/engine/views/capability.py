"""Show a capability: its requirements with their tests, its drift, and how it came to be so."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from phasegate.core.machine.feature_events import Amended
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.journal.entries import (
    DRIFT_ACCEPTED,
    FEATURE_STEP,
    DriftAcceptance,
    read_feature_step,
)
from phasegate.engine.project.current_specs import get_spec_path, read_current_specs
from phasegate.engine.project.ports import format_timestamp
from phasegate.engine.project.project import Project
from phasegate.engine.views.drift import DriftReport, find_drift
from phasegate.engine.views.overview import StoreReader
from phasegate.engine.views.specs import SpecRequirementView, require_head, trace_specs
from phasegate.errors import ConfigError
from phasegate.git import git
from phasegate.typed import read_json

_MAX_CHANGES = 100


class SpecChange(msgspec.Struct, frozen=True):
    """A commit that changed the document, or a decision about one of its requirements."""

    at: str
    what: str
    by: str
    # Commit or feature
    source: str


class CapabilityPage(msgspec.Struct, frozen=True):
    """A capability as it is at the commit that is checked out."""

    capability: str
    path: str
    requirements: tuple[SpecRequirementView, ...]
    # By requirement
    drift: dict[str, tuple[str, ...]]
    problems: tuple[str, ...]
    # Newest first
    history: tuple[SpecChange, ...]


def list_capabilities(project: Project) -> dict[str, int]:
    """Return the capabilities of a repository with their numbers of requirements."""
    specs = read_current_specs(project, require_head(project)).specs
    return {name: len(spec.requirements) for name, spec in specs.items() if spec.requirements}


def read_capability(project: Project, reader: StoreReader | None, name: str) -> CapabilityPage:
    """Read a capability; refuse one that the repository does not have."""
    if name not in list_capabilities(project):
        raise ConfigError(f"there is no capability {name}", "phasegate trace --specs lists them")

    traced = trace_specs(project)
    requirements = tuple(one for one in traced.requirements if one.capability == name)
    ids = {one.id for one in requirements}
    report = find_drift(project)
    decisions = _list_decisions(reader, ids) if reader else ()
    changes = [*_list_commits(project, traced.commit, get_spec_path(project, name)), *decisions]
    return CapabilityPage(
        capability=name,
        path=get_spec_path(project, name),
        requirements=requirements,
        drift=_group_drift(report, name),
        problems=traced.problems,
        history=tuple(sorted(changes, key=lambda one: one.at, reverse=True)[:_MAX_CHANGES]),
    )


def _group_drift(report: DriftReport, capability: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for item in report.items:
        if item.capability == capability:
            found[item.requirement] = (*found.get(item.requirement, ()), item.describe())
    return found


def _list_commits(project: Project, commit: str, path: str) -> Iterator[SpecChange]:
    """Yield the commits of the base that changed a document, by merge or directly."""
    options = ("-z", "--first-parent", f"-{_MAX_CHANGES}", "--format=%H%n%ct%n%an%n%s")
    shown = git(project.repository.place(), "log", *options, commit, "--", path).stdout
    for entry in os.fsdecode(shown).split("\0"):
        fields = entry.strip("\n").split("\n")
        if len(fields) == 4:
            yield SpecChange(format_timestamp(int(fields[1])), fields[3], fields[2], fields[0][:12])


def _list_decisions(reader: StoreReader, ids: set[str]) -> Iterator[SpecChange]:
    """Yield the amendments and accepted drift of some requirements."""
    for slug in reader.features():
        for one in reader.events_of_kinds(slug, FEATURE_STEP):
            event = read_feature_step(one.payload)
            if isinstance(event, Amended) and event.requirement in ids:
                what = f"{event.requirement} amended: {event.text} (before: {event.before})"
                yield _make_change(one.ts, what, event.by, slug)

    for one in reader.events_of_kinds("", DRIFT_ACCEPTED):
        accepted = read_json(one.payload, DriftAcceptance)
        if accepted.requirement in ids:
            what = f"drift of {accepted.requirement} accepted: {accepted.why}"
            yield _make_change(one.ts, what, accepted.by, accepted.commit[:12])


def _make_change(at: str, what: str, by: OrderOrigin, source: str) -> SpecChange:
    return SpecChange(at, what, by.person, source)
