"""Compare the checkouts of a package with their base commit.

Nothing of the work may be committed: it is read from the checkouts, without following links.
"""

from __future__ import annotations

from difflib import unified_diff

from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.files import read_regular_file
from phasegate.files.safe_open import folder_beneath
from phasegate.workspace.changes.changes import CheckoutTooLarge, observe_checkout
from phasegate.workspace.checkout.checkout import checkout_descriptor, list_package_checkouts
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.disk_files import DiskEntry
from phasegate.workspace.repository.repository import read_blobs

MAX_FILE_BYTES = 200_000
MAX_FILES = 200


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
