"""A program that records things, to be killed: at its n-th step on the disk, or at any moment from outside.

record_scenario.py steps FOLDER     a run for every n, each in its own copy of FOLDER/template, killed at step n
record_scenario.py forever FOLDER   write with four threads until somebody kills this process
record_scenario.py resume FOLDER    as `steps`, but each run first recovers what a kill in an entry left
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from phasegate.core.audit.trail import Action, Source, TrailEvent
from phasegate.core.workflow.phase_transitions import Workflow
from phasegate.storage.chain_heads import get_heads_folder
from phasegate.storage.journal_store import Store, open_store
from phasegate.storage.location import Location
from phasegate.storage.row_events import job_ended_event, job_started_event, trail_sealed_event
from phasegate.storage.rows import JobRow, NewEvent
from phasegate.storage.state_view import write_state_view
from phasegate.storage.trail_recovery import recover_trails
from phasegate.storage.trails import TrailWriter

FEATURE, TS = "001-login", "2026-03-01T10:15:34Z"
STEPS = ("write", "pwritev", "fsync", "rename", "unlink", "mkdir", "ftruncate")


def location_in(folder: Path) -> Location:
    return Location(
        folder / "repository", folder / "repository" / ".git", folder / "state" / "phasegate"
    )


Counts = Callable[[str, tuple[object, ...]], bool]


def each_step(_name: str, _arguments: tuple[object, ...]) -> bool:
    return True


def entry_of_a_trail(name: str, arguments: tuple[object, ...]) -> bool:
    return name == "pwritev" and bytes(arguments[1][0]).startswith(b"+")  # type: ignore[index]


def kill_at(step: int, counts: Counts) -> None:
    """Make the process die in its n-th call that changes the disk and counts: a write after half of its bytes."""
    taken = 0

    def dying(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **options: object) -> object:
            nonlocal taken
            taken += counts(name, arguments)
            if taken == step:
                if name == "write":
                    descriptor, data = arguments
                    call(descriptor, bytes(data)[: len(data) // 2])  # type: ignore[call-overload, arg-type]
                if name == "pwritev":
                    descriptor, (data,), position, _ = arguments  # type: ignore[misc]
                    call(descriptor, [bytes(data)[: len(data) // 2]], position)
                os.kill(os.getpid(), signal.SIGKILL)
            if name == "fsync":
                return None  # what a killed process wrote stays, synced or not: the tests need not wait for the disk
            return call(*arguments, **options)

        return wrapped

    for name in filter(partial(hasattr, os), STEPS):
        setattr(os, name, dying(name, getattr(os, name)))


def acknowledge(folder: Path, what: str) -> None:
    with (folder / "acknowledged").open("a") as file:
        file.write(f"{what}\n")


def wrote(number: int) -> TrailEvent:
    return TrailEvent(
        "agent:x", Action.WRITE_FILE, Source.OBSERVED, {"path": f"{number}.py", "lines": number}
    )


def one_job(
    folder: Path, location: Location, store: Store, trails: TrailWriter, id_: str, entries: int
) -> None:
    job = JobRow(FEATURE, id_, "WP01", "06-implementation", 1, "x", TS)
    store.append_unconditionally(FEATURE, TS, [job_started_event(job)])
    acknowledge(folder, f"started {id_}")
    trails.open(FEATURE, id_)
    for number in range(entries):
        trails.append_entry(id_, TS, wrote(number))
        acknowledge(folder, f"entry {id_} {number}")
    seal = trails.close(id_)
    store.append_unconditionally(FEATURE, TS, [job_ended_event(job), trail_sealed_event(seal)])
    acknowledge(folder, f"ended {id_}")
    trails.forget(id_)
    trails.reopen(seal)
    trails.append_entry(id_, TS, wrote(entries))
    acknowledge(folder, f"entry {id_} {entries}")
    store.append_unconditionally(FEATURE, TS, [trail_sealed_event(trails.close(id_))])
    trails.forget(id_)


def scenario(folder: Path, run: str) -> None:
    location = location_in(folder)
    with open_store(location, "store-id", TS) as store:
        for found in recover_trails(store, location, f"recovery-{run}", TS):
            assert not found.problem, found
        with TrailWriter.create(location, store.heads.folder, f"writer-{run}") as trails:
            one_job(folder, location, store, trails, f"first-{run}", 2)
            one_job(folder, location, store, trails, f"second-{run}", 2)
        write_state_view(location.root, Workflow(FEATURE, "feature", ("01-requirements",)))
        store.append_unconditionally(FEATURE, TS, [NewEvent("noted", b"{}")])
        acknowledge(folder, "noted")
        store.anchor()
        acknowledge(folder, f"anchored {run}")


def in_a_process_killed_at(step: int, work: Callable[[], None], counts: Counts = each_step) -> bool:
    """Whether the work was done before the step came."""
    child = os.fork()
    if child == 0:
        kill_at(step, counts)
        try:
            work()
        except BaseException as error:  # the parent must see it, not pytest's machinery
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


def copy_record(template: Path, copy: Path) -> None:
    """A copy with its heads in the place that belongs to the copy."""
    shutil.copytree(template, copy)
    (copy / "acknowledged").touch()
    for heads in copy.glob("state/phasegate/heads/*"):
        heads.rename(get_heads_folder(location_in(copy), "store-id"))


def every_step(folder: Path, template: Path, run: str) -> None:
    """Kill at step 1, 2, ... until the work is done before the step comes."""
    step, done = 0, False
    while not done:
        step += 1
        copy = folder / f"{run}-{step:03}"
        copy_record(template, copy)
        done = in_a_process_killed_at(step, lambda copy=copy: scenario(copy, run))  # type: ignore[misc]


def torn_in_its_first_entry(folder: Path, template: Path) -> Path:
    copy_record(template, copy := folder / "torn")
    assert not in_a_process_killed_at(1, lambda: scenario(copy, "a"), entry_of_a_trail)
    return copy


def forever(folder: Path) -> None:
    location = location_in(folder)
    run = str(os.getpid())
    with open_store(location, "store-id", TS) as store:
        for found in recover_trails(store, location, f"recovery-{run}", TS):
            assert not found.problem, found
        acknowledge(folder, "ready")
        with TrailWriter.create(location, store.heads.folder, f"writer-{run}") as trails:

            def work(name: int) -> None:
                number = 0
                while True:
                    one_job(folder, location, store, trails, f"job-{run}-{name}-{number}", 4)
                    number += 1

            workers = [threading.Thread(target=work, args=(name,)) for name in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()


if __name__ == "__main__":
    target = Path(sys.argv[2])
    match sys.argv[1]:
        case "steps":
            every_step(target, target / "template", "a")
        case "resume":
            every_step(target, torn_in_its_first_entry(target, target / "template"), "b")
        case "forever":
            forever(target)
