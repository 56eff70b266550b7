"""Share the user's sign-in with a job: the sign-in files, and nothing else of the home folder.

The job gets copies. A token that the agent renewed in its copy is copied back, because the old one
may be invalid. But the agent could write to the copy, so it must be a regular file, have the same
account, and be newer. If the user's file has changed since, it is kept. The copy's folder is opened
before the start, so that a link that the agent puts in its place has no effect.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.agents.run.secret_values import find_file_secrets
from phasegate.files import create_new_file, open_folder, read_regular_file
from phasegate.files.durable_write import replace_file_at
from phasegate.typed import read_json

MAX_SIGN_IN_BYTES = 1_000_000
_TOKEN = re.compile(r"token|scope|^(?:access|refresh)$", re.I)
_TIME = re.compile(r"expir|last_?refresh|updated", re.I)
# The address that a token is sent to is not part of the token.
_ADDRESS = re.compile(r"ur[il]|endpoint|host", re.I)
_log = logging.getLogger(__name__)


class SharedFile(NamedTuple):
    """A shared file: the user's original, the open folder of the job's copy, and the content."""

    original: Path
    folder_fd: int
    name: str
    content: bytes


class SignIn(NamedTuple):
    """The sign-in files shared with a job; empty if the user is not signed in."""

    files: tuple[SharedFile, ...] = ()

    @property
    def secrets(self) -> tuple[bytes, ...]:
        return tuple(secret for file in self.files for secret in find_file_secrets(file.content))


@contextmanager
def share_sign_in(names: Iterable[str], user_home: Path | None, job_home: Path) -> Iterator[SignIn]:
    """Share these files while a job runs; then copy renewed ones back and remove the copies."""
    with ExitStack() as stack:
        files: tuple[SharedFile, ...] = ()
        if user_home is not None:
            files = tuple(_copy_files(names, user_home, job_home, stack))

        for file in files:
            stack.callback(_return_file, file)

        yield SignIn(files)


def _copy_files(
    names: Iterable[str], user_home: Path, job_home: Path, stack: ExitStack
) -> Iterator[SharedFile]:
    """Copy sign-in files into the job's home folder, and yield each copy."""
    for name in names:
        # The user's file may be a link to another place.
        original = Path(os.path.realpath(user_home / name))
        content = read_regular_file(original, MAX_SIGN_IN_BYTES, single_link=True)

        if content is not None:
            copy = job_home / name
            copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder = open_folder(copy.parent)
            stack.callback(os.close, folder)
            with os.fdopen(create_new_file(copy.name, 0o600, folder), "wb") as file:
                file.write(content)

            yield SharedFile(original, folder, copy.name, content)


def _return_file(file: SharedFile) -> None:
    try:
        _save_renewal(file)
    except OSError:
        _log.exception("could not copy a renewed sign-in back to %s", file.original)
    with suppress(OSError):
        os.unlink(file.name, dir_fd=file.folder_fd)


def _save_renewal(file: SharedFile) -> None:
    """Copy a renewed file back, under a lock.

    If two jobs renew it, the first one wins: for the second, the user's file has changed.
    """
    renewed = read_regular_file(file.name, MAX_SIGN_IN_BYTES, file.folder_fd, single_link=True)
    if renewed is None or renewed == file.content or not is_renewal(file.content, renewed):
        return

    renewed = drop_additions(file.content, renewed)
    folder = open_folder(file.original.parent)

    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        current = read_regular_file(file.original.name, MAX_SIGN_IN_BYTES, folder, single_link=True)
        if renewed != file.content and current == file.content:
            # Private, whatever the mode of the old file is.
            replace_file_at(folder, file.original.name, renewed, 0o600)
    finally:
        os.close(folder)


def is_renewal(before: bytes, after: bytes) -> bool:
    """Return True if `after` is the same sign-in with newer tokens.

    No entry may be missing, and only tokens and times may differ.
    """
    try:
        old = read_json(before)
        new = read_json(after)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False

    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    return _is_same_account(old, new) and _find_latest_time_s(new) >= _find_latest_time_s(old)


def drop_additions(before: bytes, after: bytes) -> bytes:
    """Remove new entries of a renewed sign-in that are neither tokens nor times.

    Such an entry can make some programs fetch settings from an address or use another account.
    """
    old = read_json(before)
    new = read_json(after)
    kept = _drop_unknown_entries(old, new)
    if kept == old:
        return before
    if kept == new:
        return after

    return msgspec.json.encode(kept)


def _drop_unknown_entries(old: object, new: object) -> object:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    kept = {
        key: value for key, value in new.items() if key in old or _is_renewable(str(key), value)
    }
    return {key: _drop_unknown_entries(old.get(key), value) for key, value in kept.items()}


def _is_same_account(old: object, new: object, name: str = "") -> bool:
    """Return True if only tokens and times have changed.

    Another account or setting would change the behaviour of the user's own program.
    """
    if isinstance(old, dict):
        return isinstance(new, dict) and all(
            key in new and _is_same_account(value, new[key], str(key)) for key, value in old.items()
        )

    return old == new or (type(old) is type(new) and _is_renewable(name, new))


def _is_renewable(name: str, value: object) -> bool:
    """Return True if a renewal may change this entry: a token or a time, but not an address.

    Scopes may look like addresses.
    """
    if not (_TOKEN.search(name) or _TIME.search(name)):
        return False
    if _ADDRESS.search(name) or not _is_flat_value(value):
        return False

    return "scope" in name.lower() or "://" not in str(value)


def _is_flat_value(value: object) -> bool:
    """Return True for a single value or a list of single values."""
    items = value if isinstance(value, list) else [value]
    return not any(isinstance(item, dict | list) for item in items)


def _find_latest_time_s(value: object, name: str = "") -> float:
    """Return the latest time in a sign-in, to compare two of them."""
    if isinstance(value, dict):
        times_s = [_find_latest_time_s(item, str(key)) for key, item in value.items()]
        return max(times_s, default=0.0)

    if not _TIME.search(name):
        return 0.0

    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            # Some programs use milliseconds.
            return float(value) / (1000 if value > 1e11 else 1)

    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(value[:19]).timestamp()

    return 0.0
