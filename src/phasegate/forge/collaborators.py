"""Determine who may write to a repository: only their remarks and approvals count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from phasegate.forge.http import ApiError

K = TypeVar("K")


class WriteAccessCache(Generic[K]):
    """A cache of write permissions that asks the forge once per account, until it is cleared.

    An account that the forge does not know has no write access.
    """

    def __init__(self, has_write_access: Callable[[K], bool]) -> None:
        self._has_write_access = has_write_access
        self._cache: dict[K, bool] = {}

    def clear(self) -> None:
        self._cache.clear()

    def __contains__(self, account: K) -> bool:
        """Return whether an account may write; ask the forge once per account."""
        known = self._cache.get(account)
        if known is not None:
            return known

        try:
            may_write = self._has_write_access(account)
        except ApiError as error:
            if error.status != 404:
                raise

            may_write = False

        self._cache[account] = may_write
        return may_write
