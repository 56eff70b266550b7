"""Determine who may write to a repository: only their remarks and approvals count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from phasegate.forge.http import ApiError

K = TypeVar("K")


class WriteAccessCache(Generic[K]):
    """A cache of write permissions that asks the forge once per account.

    An account that the forge does not know has no write access.
    """

    def __init__(self, has_write_access: Callable[[K], bool]) -> None:
        self._has_write_access = has_write_access
        self._cache: dict[K, bool] = {}

    def __contains__(self, account: K) -> bool:
        if account not in self._cache:
            try:
                self._cache[account] = self._has_write_access(account)
            except ApiError as error:
                if error.status != 404:
                    raise

                self._cache[account] = False

        return self._cache[account]
