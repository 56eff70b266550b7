"""A run of a feature that is killed again and again: `python feature_until.py ROOT WHEN WHICH`.

Each life is a forked process that goes on with the run. It kills itself WHEN (before or after) it takes a recorded step
of those that WHICH names, unless one before it died there. So every such step is died at once, those of a resumed run
too. WHICH is `0/2` or `1/2`, one part of all steps, or a part of a step's name: then nobody goes on after the death.
With WHEN = moving it dies where the ref WHICH is about to be moved; with WHEN = doing, at each place of our code that
is about to start a program or to change a folder, once a phase. With WHEN = never it lives. Prints one JSON object:
the steps that were taken, and those at which it died.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import Any

from phasegate.engine.drive import orders, run_package
from phasegate.engine.drive.run_feature import RunOptions, drive_feature
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.project.check_record import CHECKS_RECORDED
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.storage.journal_store import Store
from phasegate.storage.rows import NewEvent
from phasegate.workspace.repository import refs
from phasegate.workspace.repository.refs import RefMoved
from support.feature_run import DESCRIPTION, SLUG, TYPE, is_meant
from support.step_names import named

MOST_LIVES = 2000
EFFECTS = (
    "rename",
    "replace",
    "unlink",
    "mkdir",
    "rmdir",
    "link",
    "symlink",
    "truncate",
    "ftruncate",
)
OURS = f"{os.sep}phasegate{os.sep}"


class MortalStore:
    """Names each step of a store, and dies at one where nobody died before."""

    def __init__(self, notes: Path, when: str, which: str) -> None:
        self._notes, self._when, self._which = notes, when, which
        self._died = {line[5:] for line in lines_of(notes) if line.startswith("died ")}
        self._append, self._move_refs = Store.append, refs.move_refs
        self._phase = "-"
        self._whole = (
            RLock()
        )  # no thread dies between another one's step, its note and its own death

    def append(
        self, store: Store, feature: str, expected_seq: int, ts: str, events: Sequence[NewEvent]
    ) -> int:
        step = name_of(store, events)
        self._die_at(step, "before")
        with self._whole:
            number = self._append(store, feature, expected_seq, ts, events)
            self._phase = step.partition(" ")[0]
            self._note(f"took {step}")
            self._die_at(step, "after")
        return number

    def move_refs(self, *arguments: Any) -> RefMoved | None:
        for move in arguments[2]:
            self._die_at(move.name, "moving")
        return self._move_refs(*arguments)

    def watch(self) -> None:
        """Die where our code is about to do something that stays, whoever does it for us in the end."""
        for name in EFFECTS:
            setattr(os, name, self._watched(name, getattr(os, name)))
        subprocess.Popen.__init__ = self._watched("start", subprocess.Popen.__init__)  # type: ignore[method-assign]

    def _watched(self, name: str, call: Callable[..., object]) -> Callable[..., Any]:
        def watched(*arguments: object, **options: object) -> object:
            self._die_at(f"{self._phase}: {name} at {' < '.join(islice(_places(), 2))}", "doing")
            return call(*arguments, **options)

        return watched

    def _die_at(self, step: str, when: str) -> None:
        if when == self._when and is_meant(step, self._which) and step not in self._died:
            with self._whole:
                self._note(f"died {step}")
                os.kill(os.getpid(), signal.SIGKILL)

    def _note(self, line: str) -> None:
        with self._notes.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _places() -> Iterator[str]:
    """The lines of our own code that led here, the last first."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        path = frame.f_code.co_filename
        if OURS in path and "site-packages" not in path:
            yield f"{path.rpartition(OURS)[2]}:{frame.f_lineno}"


def name_of(store: Store, events: Sequence[NewEvent]) -> str:
    """The same name for the same step in whichever life: where the feature stands, and what happens, without ids."""
    feature = read_feature(store, SLUG)
    where = f"{feature.workflow.phase} {feature.workflow.round}" if feature else "-"
    if events[0].kind == CHECKS_RECORDED:
        # Its keys are hashes that differ by machine: the results are counted
        known = [one for one in store.events("") if one.kind == CHECKS_RECORDED]
        return f"{where}: {CHECKS_RECORDED} {len(known) + 1}"
    return f"{where}: {named([(event.kind, event.payload) for event in events])}"


def live(root: Path, mortal: MortalStore) -> None:
    """Go on from wherever the run stands, as `phasegate run --merge` does."""
    patched = lambda *arguments: mortal.append(*arguments)  # noqa: E731, PLW0108 - a bound method would not get the store
    Store.append = patched  # type: ignore[method-assign]
    refs.move_refs = mortal.move_refs
    mortal.watch()
    orders.MAX_LOSSES = run_package.MAX_LOSSES = (
        MOST_LIVES  # it dies more often than any job of a person's
    )
    project = open_project(root)
    with open_project_store(project) as store:
        slug = (
            SLUG if store.workflows() else orders.start_workflow(project, store, TYPE, DESCRIPTION)
        )
        drive_feature(project, store, slug, RunOptions(merge=True))


def in_a_process_of_its_own(root: Path, mortal: MortalStore) -> bool:
    """Whether it lived to the end."""
    child = os.fork()
    if child == 0:
        try:
            live(root, mortal)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return False
    if os.WEXITSTATUS(status) != 0:
        sys.exit(f"life ended with {os.WEXITSTATUS(status)}")
    return True


def main() -> None:
    root, when, which = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    notes = root.parent / "notes"
    lives = 1
    while not in_a_process_of_its_own(root, MortalStore(notes, when, which)) and "/" in which:
        lives += 1
        if lives > MOST_LIVES:
            sys.exit("it does not come to an end")
    took = [line[5:] for line in lines_of(notes) if line.startswith("took ")]
    died = [line[5:] for line in lines_of(notes) if line.startswith("died ")]
    print(json.dumps({"lives": lives, "took": took, "died": died}))


if __name__ == "__main__":
    main()
