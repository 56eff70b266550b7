"""All that a power failure can leave of one command, state by state, and the same command given again on each.

Changes that leave the same names and bytes are one state; it is checked for the last of them, by which most was
acknowledged. What was acknowledged is what the command had said: lines that it tells from the journal.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from phasegate.core.display.status import NOTICE_KIND
from phasegate.engine.project.project import open_project
from phasegate.engine.views.follow import JournalFollower
from phasegate.errors import PhasegateError
from phasegate.storage.reader import open_store_reader
from phasegate.storage.rows import RecordedEvent
from support.dispatch_project import FEATURE
from support.feature_run import DESCRIPTION, TYPE, FeatureRun, make_feature_run
from support.power_loss import Call, Disk, calls_of, said_by, trace
from support.preloaded import Preloaded
from support.quick_dispatch import one_agent_counted, whole_run

TRIES = 4
STRIDES = 8  # in what order they are checked: what is wrong at many places shows soon
DISPATCH = ("dispatch", "WP01")
RUN = ("run", TYPE, DESCRIPTION, "--merge")
SAME = ("tree", "main", "branches", "person", "packages", "stages", "checkouts", "audit")


class State(NamedTuple):
    """What a power failure leaves: behind which change, on which disk, and how much had been said by then."""

    digest: str
    change: int
    names_ahead: bool
    said: int


class TracedCommand:
    """A command of a person's, as everything was before it and what it did."""

    def __init__(
        self, folder: Path, make: Callable[[Path], None], arguments: tuple[str, ...]
    ) -> None:
        self.folder, self.top, self.arguments = folder, folder / "disk", arguments
        self.root = self.top / "repo"
        self._before, self._said = folder / "before", folder / "said"
        self._env = {**os.environ, "XDG_STATE_HOME": str(self.top / "state")}
        self.ours = Preloaded(folder / "answer", self._env)
        if not (folder / "after").exists():  # else somebody began with it, and was not done
            self._begin(make)
        self._leave(folder / "after")
        self.changes, self.said_in_all = (
            sum(1 for _ in self._played(self._disk())),
            self._said.stat().st_size,
        )
        self.wanted, self.recorded, self._told = self.effects(), self.journal(), [*self._tellings()]

    def _begin(self, make: Callable[[Path], None]) -> None:
        self.top.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", self._env["XDG_STATE_HOME"])
            make(self.top)
        shutil.copytree(self.top, self._before, symlinks=True)
        for _ in range(
            TRIES
        ):  # a trace in which two calls at once stand in the other order is of no use
            out_of_step = self._trace()
            if not out_of_step:
                shutil.copytree(self.top, self.folder / "after", symlinks=True)
                return
        raise AssertionError(out_of_step)

    def _trace(self) -> list[str]:
        """Run the command; where the model, played to its end, is not what the disk has then."""
        self._leave(self._before)
        argv = [sys.executable, "-m", "phasegate", *self.arguments]
        code = trace(argv, self.folder / "log", env=self._env, cwd=str(self.root))
        assert code == 0, self._said.read_text()
        disk = self._disk()
        for _ in self._played(disk):
            pass
        return [*disk.differences(), *disk.strays]

    def _disk(self) -> Disk:
        return Disk(self._before)

    @cached_property
    def _calls(self) -> list[Call]:
        return calls_of(self.folder / "log")

    def _leave(self, files: Path) -> None:
        shutil.rmtree(self.top, ignore_errors=True)
        shutil.copytree(files, self.top, symlinks=True)

    def _played(self, disk: Disk) -> Iterator[tuple[Call, int]]:
        """Each change with how much had been said before it."""
        calls = self._calls
        disk.top, said = str(self.top), 0
        disk.begin(calls[0].pid, self.root)
        for call in calls:
            said += len(said_by(call, self._said))
            if disk.play(call):
                yield call, said

    def states(self) -> dict[str, State]:
        """Each that can be left: on the strict disk, and those that only one leaves whose names are ahead."""
        found: dict[str, State] = {}
        disk, last = self._disk(), {False: (-1, ""), True: (-1, "")}
        for number, (_, said) in enumerate(self._played(disk), 1):
            for ahead in (False, True):
                moment, digest = disk.moment(names_ahead=ahead), last[ahead][1]
                if moment != last[ahead][0]:
                    digest = disk.state(names_ahead=ahead)
                    last[ahead] = moment, digest
                known = found.get(digest)
                is_strict = known is not None and ahead and not known.names_ahead
                found[digest] = (
                    known._replace(said=said)
                    if known and is_strict
                    else State(digest, number, ahead, said)
                )
        return found

    def cuts(self, chosen: Collection[State]) -> Iterator[tuple[State, str]]:
        """The files as a power failure leaves them in each of these states."""
        waiting = {(state.change, state.names_ahead): state for state in chosen}
        disk = self._disk()
        for number, (call, _) in enumerate(self._played(disk), 1):
            for ahead in (False, True):
                if state := waiting.get((number, ahead)):
                    shutil.rmtree(self.top)
                    disk.leave(self.top, names_ahead=ahead)
                    self._keep_folder_numbers()
                    yield (
                        state,
                        f"{state}\nchange {number} of {self.changes}: {call.name} {call.readable}",
                    )

    def _keep_folder_numbers(self) -> None:
        """A power failure changes no folder's number, as making it again here does."""
        for path in self.root.glob(".git/phasegate/*/*/record.json"):
            if path.read_bytes():
                record = json.loads(path.read_bytes())
                if (folder := Path(record["folder"])).is_dir():
                    about = folder.stat()
                    path.write_text(
                        json.dumps({**record, "device": about.st_dev, "inode": about.st_ino})
                    )

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.ours.command(self.root, *arguments)

    def problems(self) -> str:
        """What is not whole: in the repository, or on record."""
        fsck = ["git", "-C", str(self.root), "fsck", "--strict", "--no-dangling"]
        found = subprocess.run(fsck, capture_output=True, text=True)
        verified = self.command("audit", "verify")
        return found.stderr * bool(found.returncode) + verified.stdout * bool(verified.returncode)

    def stages(self) -> list[str]:
        """Where the features are; none if there is no record that could be read."""
        try:
            reader = open_store_reader(open_project(self.root).location)
        except PhasegateError:
            return []
        if reader is None:
            return []
        with reader:
            return [row.stage for row in reader.workflows()]

    def rounds(self) -> list[int]:
        reader = open_store_reader(open_project(self.root).location)
        assert reader is not None
        with reader:
            return [row.round for feature in reader.features() for row in reader.packages(feature)]

    def journal(self) -> list[RecordedEvent]:
        reader = open_store_reader(open_project(self.root).location)
        if reader is None:
            return []
        with reader:
            return [*reader.events_since()]

    def _tellings(self) -> Iterator[tuple[int, int]]:
        """Up to where of what was said each event is told, and its place in the journal."""
        text, at = self._said.read_text(), 0
        reader = open_store_reader(open_project(self.root).location)
        assert reader is not None
        with reader:
            for event in JournalFollower(reader, after=0).read_reported_events():
                line = (
                    "" if event.kind == NOTICE_KIND else event.line.partition("\n")[0]
                )  # a remark promises nothing
                if line and (place := text.find(line, at)) >= 0:
                    at = place + len(line)
                    yield len(text[:at].encode()), event.position

    def acknowledged(self, said: int) -> list[RecordedEvent]:
        """What of the journal was told by the time that so much was said."""
        last = max((position for end, position in self._told if end <= said), default=0)
        return [event for event in self.recorded if event.position <= last]

    def effects(self) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", self._env["XDG_STATE_HOME"])
            try:
                found = FeatureRun(self.top).effects()
            except (OSError, StopIteration):  # there is no view yet, or no feature
                return {}
        git_dir, ours = (
            self.root / ".git",
            self.root / ".git/phasegate/tmp",
        )  # what is left in ours is removed in a day
        locks = [str(path) for path in git_dir.rglob("*.lock") if ours not in path.parents]
        return {**{name: found[name] for name in SAME}, "git locks": locks}


def go_on_with_dispatch(run: TracedCommand, state: State, where: str) -> None:
    (run.folder / "runs").write_text("")
    done = run.command(*DISPATCH)
    assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
    show = ["git", "-C", str(run.root), "show", f"{FEATURE}:src/login.ts"]
    assert (
        subprocess.run(show, capture_output=True, text=True).stdout == "export const done = true;\n"
    ), where
    assert run.rounds() == [1], f"the work of an agent was lost\n{where}"
    assert state.said < run.said_in_all or (run.folder / "runs").read_text() == "", (
        "what was DONE was done again"
    )


def go_on_with_run(run: TracedCommand, _: State, where: str) -> None:
    stages, wanted = run.stages(), run.wanted
    if stages != wanted["stages"]:
        done = run.command("run", "--merge") if stages else run.command(*RUN)
        assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
    found = run.effects()
    if (
        stages == wanted["stages"]
    ):  # it was at its end: a lock that a git left there is in nobody's way
        wanted = {**wanted, "git locks": found["git locks"]}
    other = {name: (found.get(name), one) for name, one in wanted.items() if found.get(name) != one}
    assert other == {}, f"{other}\n{where}"
    if found["git locks"]:
        done = run.command("start", TYPE, "Go on")
        assert (done.returncode, run.effects()["git locks"]) == (0, []), f"{where}\n{done.stdout}"


def unboxed(top: Path) -> None:
    """Two packages at once, a plan that is revised, a change that the code review asks for."""
    made = make_feature_run(top)
    config = made.root / "phasegate.toml"
    config.write_text(config.read_text() + '[run]\nsandbox = "none"\n')
    made.git("commit", "-qam", "No sandbox: what is traced is ours")


class Command(NamedTuple):
    """One that is traced: the project that it is given in, itself, and how it is given again."""

    make: Callable[[Path], None]
    arguments: tuple[str, ...]
    go_on: Callable[[TracedCommand, State, str], None]

    @contextmanager
    def traced(self, folder: Path) -> Iterator[TracedCommand]:
        run = TracedCommand(folder, self.make, self.arguments)
        with run.ours:
            yield run

    def check(self, run: TracedCommand, state: State, where: str) -> None:
        """Give the command again."""
        self.go_on(run, state, where)
        problems = run.problems()
        assert problems == "", f"{problems}\n{where}"
        known = run.acknowledged(state.said)
        assert run.journal()[: len(known)] == known, f"what was told is lost\n{where}"


COMMANDS = {
    "dispatch": Command(one_agent_counted, DISPATCH, go_on_with_dispatch),
    "run": Command(whole_run, RUN, go_on_with_run),
    "mended": Command(unboxed, RUN, go_on_with_run),
}


def carry_on(folder: Path, name: str, until: float) -> str:
    """Check what was not checked yet, until a moment; a state that fails is noted, and the next one is taken."""
    notes = folder / "checked"
    seen = set(notes.read_text().split()) if notes.exists() else set()
    with COMMANDS[name].traced(folder) as run, notes.open("a") as file:
        states = run.states()
        left = [state for state in states.values() if state.digest not in seen]
        ahead = [state for state in left if state.names_ahead]
        parts = [
            [state for state in left if not state.names_ahead],
            *(ahead[first::STRIDES] for first in range(STRIDES)),
        ]
        for state, where in chain.from_iterable(map(run.cuts, parts)):
            if time.monotonic() > until:
                break
            try:
                COMMANDS[name].check(run, state, where)
            except (AssertionError, PhasegateError, subprocess.SubprocessError) as error:
                (folder / f"failed-{state.digest[:12]}").write_text(
                    f"{type(error).__name__}: {error}\n{where}"
                )
            seen.add(state.digest)
            print(state.digest, file=file, flush=True)
    failed = [*folder.glob("failed-*")]
    strict = sum(not state.names_ahead for state in states.values())
    found = f"{run.changes} changes, {strict} and {len(states) - strict} states"
    return f"{found}, {len(states) - len(seen)} left, {len(failed)} failed"
