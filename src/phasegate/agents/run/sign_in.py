"""A person's sign-in, lent to a job: its files, and nothing else of the home folder.

The job gets copies. A token that the agent renewed in its copy is brought back, because the old one
may be void; but the copy was in the agent's hands, so it must be a plain file, say the same about
who is signed in, and be the newer one. What the person changed meanwhile always stays. The copy's
folder is held open from before the start: a link that the agent puts in its place leads nowhere.
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
# Where a token is sent to is no part of it
_ADDRESS = re.compile(r"ur[il]|endpoint|host", re.I)
_log = logging.getLogger(__name__)


class LentFile(NamedTuple):
    """One file: the person's, the open folder with the job's copy, and what was in it."""

    original: Path
    folder_fd: int
    name: str
    content: bytes


class SignIn(NamedTuple):
    """What was lent to a job; nothing when the person is not signed in."""

    files: tuple[LentFile, ...] = ()

    @property
    def secrets(self) -> tuple[bytes, ...]:
        return tuple(secret for file in self.files for secret in find_file_secrets(file.content))


@contextmanager
def lend_sign_in(names: Iterable[str], user_home: Path | None, job_home: Path) -> Iterator[SignIn]:
    """Lend these files for the time of a job.

    Afterwards renewed ones are brought back, and the copies are gone.
    """
    with ExitStack() as stack:
        if user_home is not None:
            files = tuple(_copy_files(names, user_home, job_home, stack))
        else:
            files = ()

        for file in files:
            stack.callback(_return_file, file)

        yield SignIn(files)


def _copy_files(
    names: Iterable[str], user_home: Path, job_home: Path, stack: ExitStack
) -> Iterator[LentFile]:
    for name in names:
        # A person may keep it elsewhere, behind a link
        own = Path(os.path.realpath(user_home / name))
        content = read_regular_file(own, MAX_SIGN_IN_BYTES, single_link=True)

        if content is not None:
            copy = job_home / name
            copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder = open_folder(copy.parent)
            stack.callback(os.close, folder)
            with os.fdopen(create_new_file(copy.name, 0o600, folder), "wb") as file:
                file.write(content)

            yield LentFile(own, folder, copy.name, content)


def _return_file(file: LentFile) -> None:
    try:
        _save_renewal(file)
    except OSError:
        _log.exception("a renewed sign-in could not be brought back to %s", file.original)
    with suppress(OSError):
        os.unlink(file.name, dir_fd=file.folder_fd)


def _save_renewal(file: LentFile) -> None:
    """Two jobs take turns: the first that renewed it wins, and for the other the person's file has
    changed.
    """
    renewed = read_regular_file(file.name, MAX_SIGN_IN_BYTES, file.folder_fd, single_link=True)
    if renewed is None or renewed == file.content or not is_renewal(file.content, renewed):
        return

    renewed = drop_additions(file.content, renewed)
    folder = open_folder(file.original.parent)

    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        theirs = read_regular_file(file.original.name, MAX_SIGN_IN_BYTES, folder, single_link=True)
        if renewed != file.content and theirs == file.content:
            # Whatever the old one's mode
            replace_file_at(folder, file.original.name, renewed, 0o600)
    finally:
        os.close(folder)


def is_renewal(before: bytes, after: bytes) -> bool:
    """Whether `after` is the same sign-in with newer tokens.

    Nothing is gone, and only tokens and times differ.
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
    """A renewed sign-in with no entry that is not a token or a time, or was there before.

    Some programs fetch settings from an address, or take another account, that such an entry names.
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
    """What is new may only be another token.

    A further account, or a setting, would steer the person's own program.
    """
    if isinstance(old, dict):
        return isinstance(new, dict) and all(
            key in new and _is_same_account(value, new[key], str(key)) for key, value in old.items()
        )

    return old == new or (type(old) is type(new) and _is_renewable(name, new))


def _is_renewable(name: str, value: object) -> bool:
    """Whether a renewal may bring this: a token or a time.

    An address is neither; scopes may be spelt as some.
    """
    if (
        not (_TOKEN.search(name) or _TIME.search(name))
        or _ADDRESS.search(name)
        or not _is_flat_value(value)
    ):
        return False

    return "scope" in name.lower() or "://" not in str(value)


def _is_flat_value(value: object) -> bool:
    """A single value, or a list of such."""
    if isinstance(value, list):
        items = value
    else:
        items = [value]
    return not any(isinstance(item, dict | list) for item in items)


def _find_latest_time_s(value: object, name: str = "") -> float:
    """The latest time that a sign-in names, to compare two of them."""
    if isinstance(value, dict):
        return max(
            (_find_latest_time_s(item, str(key)) for key, item in value.items()), default=0.0
        )

    if not _TIME.search(name):
        return 0.0

    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            # Some count in milliseconds
            return float(value) / (1000 if value > 1e11 else 1)

    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(value[:19]).timestamp()

    return 0.0
