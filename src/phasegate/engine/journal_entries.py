"""The entries of the journal that tell of features, packages and agents: their kinds, and how they are read.

Whoever only reads the record needs this, and none of the workshops that wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phasegate.record.rows import Event
from phasegate.rules.feature_events import Happened
from phasegate.rules.ordering import NOT_KEPT, By
from phasegate.rules.package_events import PackageHappened
from phasegate.typed import read_json

FEATURE_STEP, PACKAGE_STEP, PLAN_LOADED = "workflow.happened", "package.happened", "plan.loaded"
CLAIMED, CLAIMED_FALSELY = "agent.claimed", "agent.claimed-falsely"
ANSWER = "answer.txt"  # in the folder of a job: the last words of its agent


class _FeatureStep(msgspec.Struct, frozen=True):
    event: Happened


class _PackageStep(msgspec.Struct, frozen=True):
    package: str
    event: PackageHappened


class _Loaded(msgspec.Struct, frozen=True):
    documents: dict[str, str]  # the text of each WPnn.md, by package: what is run is what was loaded


class AskedQuestion(msgspec.Struct, frozen=True):
    """A question as the journal keeps it."""

    id: str
    job: str
    work: str
    text: str
    options: tuple[str, ...] = ()


class GivenAnswer(msgspec.Struct, frozen=True):
    """An answer as the journal keeps it."""

    id: str
    text: str
    by: By = NOT_KEPT


def feature_step(event: Happened) -> Event:
    return Event(FEATURE_STEP, msgspec.json.encode(_FeatureStep(event)))


def read_feature_step(payload: bytes) -> Happened:
    return read_json(payload, _FeatureStep).event


def package_step(package: str, event: PackageHappened) -> Event:
    return Event(PACKAGE_STEP, msgspec.json.encode(_PackageStep(package, event)))


def read_package_step(payload: bytes) -> tuple[str, PackageHappened]:
    """The package, and what happened to it."""
    step = read_json(payload, _PackageStep)
    return step.package, step.event


def loaded_plan(documents: dict[str, str]) -> Event:
    return Event(PLAN_LOADED, msgspec.json.encode(_Loaded(documents)))


def read_plan(payload: bytes) -> Mapping[str, str]:
    """The documents of a plan on record."""
    return read_json(payload, _Loaded).documents
