"""Record which parts of a repository the user has accepted.

The record is in the user's state directory: one file per repository, one line per accepted part.
`init` uses this module, so it stays light.
"""

from __future__ import annotations

import hashlib
import os

from phasegate.files import open_folder, read_regular_file
from phasegate.files.durable_write import replace_file_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MAX_RECORD_BYTES = 1_000_000
# In the place of a digest: any content of the file is accepted.
ANY_CONTENT = "-"


def read_accepted_lines(root: str, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the lines of the parts that the user has accepted for a repository."""
    folder, name = _locate_record(root, environ)
    content = read_regular_file(f"{folder}/{name}", _MAX_RECORD_BYTES) or b""
    return frozenset(content.decode("utf-8", "surrogateescape").split("\n")[1:]) - {""}


def write_accepted_lines(root: str, lines: Iterable[str], environ: Mapping[str, str]) -> None:
    """Replace the record of a repository. Its first line names the repository."""
    folder, name = _locate_record(root, environ)
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - no pathlib here
    text = "\n".join([root.replace("\n", " "), *sorted(lines), ""])
    descriptor = open_folder(folder)
    try:
        replace_file_at(descriptor, name, text.encode("utf-8", "surrogateescape"), 0o600)
    finally:
        os.close(descriptor)


def make_file_line(path: str) -> str:
    """Return the line of a file that is accepted with any content."""
    return f"{path.encode('unicode_escape').decode()} {ANY_CONTENT}"


def _locate_record(root: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the folder and the name of the record; see `storage.location.state_home`."""
    base = environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        base = os.path.expanduser("~/.local/state")  # noqa: PTH111 - no pathlib here

    name = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:32]
    return f"{base}/phasegate/trusted", name
