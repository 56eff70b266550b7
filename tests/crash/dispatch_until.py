"""A dispatcher that kills itself: `python dispatch_until.py ROOT (before|after) N`, at its N-th recorded step.

With N = 0 it lives, and prints how many steps there were.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from phasegate.engine.drive.run_package import dispatch_package
from phasegate.engine.journal.package import find_package
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.storage.journal_store import Store


class MortalStore(Store):
    """Counts the steps of a store, and dies at one of them."""

    steps, when, last = 0, "", 0

    def append(self, *arguments, **options):  # type: ignore[no-untyped-def]
        MortalStore.steps += 1
        self._die("before")
        number = super().append(*arguments, **options)
        self._die("after")
        return number

    def _die(self, when: str) -> None:
        if (when, self.steps) == (self.when, self.last):
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    root, MortalStore.when, MortalStore.last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    project = open_project(root)
    with open_project_store(project) as store:
        one = find_package(store, "WP01", None)
        store.__class__ = MortalStore
        dispatch_package(project, store, one, agent=None, report_line=lambda line: None)
    print(MortalStore.steps)


if __name__ == "__main__":
    main()
