"""Cache git's output about objects that are identified by their full ids.

This output never changes, because an id is a hash of the content.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

from phasegate.git import GitPaths, git
from phasegate.sandbox.run_program import ProgramResult

_ID = "[0-9a-f]{40}(?:[0-9a-f]{24})?"
_IMMUTABLE_ARGUMENT = re.compile(rf"-.*|{_ID}(?:\^{{\w+}})?|{_ID}\.\.{_ID}", re.DOTALL)
_MAX_CACHE_BYTES = 64 * 1024**2

Key = TypeVar("Key")
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """A cache of the most recently used values, limited by their total size.

    Thread-safe.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Key, value: Value, size: int) -> None:
        with self._lock:
            self._used_bytes += size - self._values.pop(key, (value, 0))[1]
            self._values[key] = value, size
            while self._used_bytes > self._max_bytes:
                self._used_bytes -= self._values.popitem(last=False)[1][1]


_OUTPUT_CACHE: LruCache[tuple[GitPaths, tuple[str, ...]], ProgramResult] = LruCache(
    _MAX_CACHE_BYTES
)


def git_cached(
    place: GitPaths, command: str, *arguments: str, accept: tuple[int, ...] = (0,)
) -> ProgramResult:
    """Run git, or return the cached result of the same command.

    A command with an argument that is not a full id is always run.
    """
    if not all(_IMMUTABLE_ARGUMENT.fullmatch(argument) for argument in arguments):
        return git(place, command, *arguments, accepted_exit_codes=accept)

    key = (place, (command, *arguments))
    said = _OUTPUT_CACHE.get(key)
    if said is None:
        said = git(place, command, *arguments, accepted_exit_codes=accept)
        _OUTPUT_CACHE.put(key, said, len(said.stdout) + 1000)

    return said
