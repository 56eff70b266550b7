"""Work that was refused because it left the file scope: its changes, and how to allow them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from shlex import quote
from typing import NamedTuple

from phasegate.core.machine.package_events import Harvested
from phasegate.core.plan.work_package import shorten_slug
from phasegate.engine.project.checkout_diff import diff_checkouts
from phasegate.engine.project.project import Project
from phasegate.engine.views.follow import JournalFollower, StreamEvent
from phasegate.errors import PhasegateError
from phasegate.storage.reader import StoreReader


class RefusedChange(NamedTuple):
    """A change outside the file scope of a package, which blocks it."""

    package: str
    path: str
    why: str
    # Empty if the checkout no longer has it
    diff: str
    # Allows exactly this path
    command: str


def list_refused_changes(
    project: Project, slug: str, events: Iterable[StreamEvent], blocked: Iterable[str]
) -> tuple[RefusedChange, ...]:
    """List the changes for which the last work of the blocked packages was refused."""
    last: dict[str, Harvested] = {}
    for event in events:
        if isinstance(event.event, Harvested):
            last[event.package] = event.event

    refused: list[RefusedChange] = []
    for package in blocked:
        harvested = last.get(package)
        if harvested is not None and harvested.violations:
            refused += _refused_paths(project, slug, package, harvested.violations)

    return tuple(refused)


def read_refused_changes(
    project: Project, reader: StoreReader, slug: str, package: str
) -> tuple[RefusedChange, ...]:
    """Read the refused changes of one package; none unless it is blocked because of them."""
    states = {row.id: row.state for row in reader.packages(slug)}
    if states.get(package) != "BLOCKED":
        return ()

    events = JournalFollower(reader, slug, after=0).read_events()
    return list_refused_changes(project, slug, events, [package])


def _refused_paths(
    project: Project, slug: str, package: str, violations: Iterable[str]
) -> Iterator[RefusedChange]:
    """Yield each refused path with its reason and diff."""
    try:
        diffs = diff_checkouts(project, slug, package)
    except PhasegateError:
        # The checkout was removed or replaced; the recorded reason is still shown
        diffs = {}

    of = f" --feature {shorten_slug(slug)}"
    for violation in violations:
        path, separator, why = violation.partition(": ")
        if separator:
            yield RefusedChange(
                package=package,
                path=path,
                why=why,
                diff=diffs.get(path, ""),
                command=f"phasegate scope allow {package} {quote(path)} "
                f"--reason 'the change needs it'{of}",
            )
