"""A dispatcher that kills itself: `python dispatch_until.py ROOT (before|after) N`, at its N-th recorded step.

With N = 0 it lives, and prints how many steps there were.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from phasegate.engine.dispatch import dispatch
from phasegate.engine.packages import find_package
from phasegate.engine.project import open_project, opened_store
from phasegate.record.rows import Event
from phasegate.record.store import Store


class MortalStore:
    """Counts the steps of a store, and dies at one of them."""

    def __init__(self, when: str, last: int) -> None:
        self.steps, self._when, self._last = 0, when, last
        self._append = Store.append

    def append(self, store: Store, feature: str, expected_seq: int, ts: str, events: Sequence[Event]) -> int:
        self.steps += 1
        self._die("before")
        number = self._append(store, feature, expected_seq, ts, events)
        self._die("after")
        return number

    def _die(self, when: str) -> None:
        if (when, self.steps) == (self._when, self._last):
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    root, when, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    project = open_project(root)
    mortal = MortalStore(when, last)
    with opened_store(project) as store:
        one = find_package(store, "WP01", None)
        patched = lambda *arguments: mortal.append(*arguments)  # noqa: E731, PLW0108 - a bound method would not get the store
        Store.append = patched  # type: ignore[method-assign]
        dispatch(project, store, one, agent=None, say=lambda line: None)
    print(mortal.steps)


if __name__ == "__main__":
    main()
