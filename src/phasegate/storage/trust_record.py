"""Record which parts of a repository the user has accepted.

The record is in the user's state directory: one file per repository, one line per accepted part. It
is valid for one clone, which has a random id in its git directory: another clone in the same place
cannot bring it along. `init` uses this module, so it stays light.
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
_CLONE_ID_FILE = "phasegate-trust"
_CLONE_ID_BYTES = 32


def read_accepted_lines(root: str, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the lines of the parts that the user has accepted for a repository."""
    folder, name = _locate_record(root, environ)
    content = read_regular_file(f"{folder}/{name}", _MAX_RECORD_BYTES) or b""
    first, *lines = content.decode("utf-8", "surrogateescape").split("\n")
    clone = _read_clone_id(root)
    if not clone or first.partition(" ")[0] != clone:
        return frozenset()
    return frozenset(lines) - {""}


def write_accepted_lines(root: str, lines: Iterable[str], environ: Mapping[str, str]) -> None:
    """Replace the record of a repository. Its first line names the clone and its folder."""
    folder, name = _locate_record(root, environ)
    if os.path.isdir(f"{root}/.git"):  # noqa: PTH112 - no pathlib here
        # A new one each time: an archive could have brought one that another archive has too
        git_dir = os.path.realpath(f"{root}/.git")
        _replace_file(git_dir, _CLONE_ID_FILE, os.urandom(_CLONE_ID_BYTES))

    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - no pathlib here
    head = f"{_read_clone_id(root)} {root}".replace("\n", " ")
    text = "\n".join([head, *sorted(lines), ""])
    _replace_file(folder, name, text.encode("utf-8", "surrogateescape"))


def _replace_file(folder: str, name: str, content: bytes) -> None:
    descriptor = open_folder(folder)
    try:
        replace_file_at(descriptor, name, content, 0o600)
    finally:
        os.close(descriptor)


def _read_clone_id(root: str) -> str:
    """Return a text that no other clone in the same place has; empty if there is none yet.

    A `.git` that is a file leads to a git directory elsewhere. A folder without it is no clone.
    """
    path = f"{root}/.git"
    if os.path.isdir(path):  # noqa: PTH112 - no pathlib here
        content = read_regular_file(f"{path}/{_CLONE_ID_FILE}", _CLONE_ID_BYTES)
    else:
        content = read_regular_file(path, _MAX_RECORD_BYTES) or b"no clone"
    return hashlib.sha256(content).hexdigest() if content else ""


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
