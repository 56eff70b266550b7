"""Who may write to the repository: only their remarks and approvals count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from phasegate.forge.http import ApiError

K = TypeVar("K")


class WriteAccessCache(Generic[K]):
    """Asks the forge once for each person. Whom it does not know may not."""

    def __init__(self, has_write_access: Callable[[K], bool]) -> None:
        self._has_write_access = has_write_access
        self._cache: dict[K, bool] = {}

    def __contains__(self, person: K) -> bool:
        if person not in self._cache:
            try:
                self._cache[person] = self._has_write_access(person)
            except ApiError as error:
                if error.status != 404:
                    raise

                self._cache[person] = False

        return self._cache[person]
