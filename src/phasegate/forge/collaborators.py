"""Who may write to the repository: only their remarks and approvals count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from phasegate.forge.http import ApiFailed

K = TypeVar("K")


class Writers(Generic[K]):
    """Asks the forge once for each person. Whom it does not know may not."""

    def __init__(self, ask: Callable[[K], bool]) -> None:
        self._ask = ask
        self._known: dict[K, bool] = {}

    def __contains__(self, person: K) -> bool:
        if person not in self._known:
            try:
                self._known[person] = self._ask(person)
            except ApiFailed as error:
                if error.status != 404:
                    raise
                self._known[person] = False
        return self._known[person]
