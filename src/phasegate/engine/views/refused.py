"""Work that was refused because it left the file scope: its changes, and how to allow them.

Nothing of it was committed: the changes are read from the checkout, without following links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import unified_diff
from shlex import quote
from typing import NamedTuple

from phasegate.core.machine.package_events import Harvested
from phasegate.core.plan.work_package import shorten_slug
from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.engine.views.follow import JournalFollower, StreamEvent
from phasegate.errors import PhasegateError
from phasegate.files import read_regular_file
from phasegate.files.safe_open import folder_beneath
from phasegate.storage.reader import StoreReader
from phasegate.workspace.changes.changes import CheckoutTooLarge, observe_checkout
from phasegate.workspace.checkout.checkout import checkout_descriptor, list_package_checkouts
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.disk_files import DiskEntry
from phasegate.workspace.repository.repository import read_blobs

MAX_FILE_BYTES = 200_000
MAX_FILES = 200


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


def diff_checkouts(project: Project, slug: str, package: str) -> dict[str, str]:
    """Return the diff of each path that the agents of a package changed in their checkouts."""
    secrets = collect_lent_secrets(project)
    diffs: dict[str, str] = {}
    for checkout in list_package_checkouts(project.repository, slug, package):
        observed = observe_checkout(checkout)
        if isinstance(observed, CheckoutTooLarge):
            continue

        blobs = list_blobs(project.repository, checkout.start)
        with checkout_descriptor(checkout.record) as root:
            for path, entry in sorted(observed.versions.items())[:MAX_FILES]:
                before = _read_blob(project, blobs.get(path))
                after = _read_entry(root, path, entry)
                diffs[escape_unprintable(path)] = secrets.redact(_diff_texts(path, before, after))

    return diffs


def _read_blob(project: Project, blob: str | None) -> bytes:
    if blob is None:
        return b""
    return read_blobs(project.repository.place(), [blob])[blob]


def _read_entry(root: int, path: str, entry: DiskEntry | None) -> bytes:
    """Read a changed file of a checkout; links and folders are described instead."""
    if entry is None:
        return b""
    if entry.link_target is not None:
        return f"(a link to {entry.link_target})\n".encode("utf-8", "surrogateescape")

    folder, _, name = path.rpartition("/")
    try:
        with folder_beneath(root, folder) as parent:
            content = read_regular_file(name, MAX_FILE_BYTES, parent)
    except OSError:
        content = None

    return b"(cannot be read, or too long to show)\n" if content is None else content


def _diff_texts(path: str, before: bytes, after: bytes) -> str:
    shown = escape_unprintable(path)
    if b"\0" in before or b"\0" in after:
        return f"--- a/{shown}\n+++ b/{shown}\nBinary files differ\n"

    old = before.decode(errors="replace").splitlines()
    new = after.decode(errors="replace").splitlines()
    lines = unified_diff(old, new, f"a/{shown}", f"b/{shown}", lineterm="")
    return "".join(f"{line}\n" for line in lines)
