"""A power failure in the middle of a dispatch and of a run (O01): the next command goes on by itself.

The command is traced once. Its files are made again as a disk has them that keeps only what was synced, behind some of
its changes here and behind every one in the long tests, and the same command is given again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.dispatch_project import FEATURE
from support.feature_run import DESCRIPTION, SLUG, TYPE, FeatureRun, make_feature_run
from support.power_loss import Call, Disk, calls_of, can_trace, trace
from support.quick_dispatch import one_agent_counted

pytestmark = pytest.mark.skipif(not can_trace(), reason="needs strace, and the right to trace")
SAMPLE = 4
TRIES = 4
SHARES = 5  # the changes of a run are told out to so many tests, which workers can take at once
DISPATCH = ("dispatch", "WP01")
RUN = ("run", TYPE, DESCRIPTION, "--merge")
SAME = ("tree", "main", "branches", "person", "packages", "stages", "git locks", "checkouts", "audit")


def make_run(top: Path) -> None:
    made = make_feature_run(top)
    config = made.root / "phasegate.toml"
    config.write_text(config.read_text() + '[run]\nsandbox = "none"\n')
    made.git("commit", "-qam", "No sandbox: what is traced is ours")


class TracedCommand:
    """A command of a person's, as everything was before it and what it did."""

    def __init__(self, folder: Path, make: Callable[[Path], None], arguments: tuple[str, ...]) -> None:
        self.folder, self.top = folder, folder / "disk"
        self.root = self.top / "repo"
        self._before = folder / "before"
        self._env = {**os.environ, "XDG_STATE_HOME": str(self.top / "state")}
        self.top.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", self._env["XDG_STATE_HOME"])
            make(self.top)
        shutil.copytree(self.top, self._before, symlinks=True)
        for _ in range(TRIES):  # a trace in which two calls at once stand in the other order is of no use
            out_of_step = self._trace(arguments)
            if not out_of_step:
                return
        raise AssertionError(out_of_step)

    def _trace(self, arguments: tuple[str, ...]) -> list[str]:
        """Run the command; where the model, played to its end, is not what the disk has then."""
        shutil.rmtree(self.top)
        shutil.copytree(self._before, self.top, symlinks=True)
        argv = [sys.executable, "-m", "phasegate", *arguments]
        done = trace(argv, self.folder / "log", env=self._env, cwd=str(self.root))
        assert done.returncode == 0, done.stdout + done.stderr
        self.calls = calls_of(self.folder / "log")
        disk = Disk(self._before)
        self.changes = sum(1 for _ in self._played(disk, str(self.top)))
        return [*disk.differences(), *disk.strays]

    def _played(self, disk: Disk, top: str) -> Iterator[Call]:
        disk.top = top
        disk.begin(self.calls[0].pid, self.root)
        return (call for call in self.calls if disk.play(call))

    def cuts(self, chosen: Collection[int], names_ahead: bool) -> Iterator[str]:
        """The files as each of these changes would leave them; not twice if two leave the same."""
        disk, last = Disk(self._before), -1
        for number, call in enumerate(self._played(disk, str(self.top)), 1):
            if number in chosen and (moment := disk.moment(names_ahead=names_ahead)) != last:
                last = moment
                shutil.rmtree(self.top)
                disk.leave(self.top, names_ahead=names_ahead)
                self._keep_folder_numbers()
                yield f"change {number} of {self.changes}: {call.name} {call.readable}"

    def _keep_folder_numbers(self) -> None:
        """A power failure changes no folder's number, as making it again here does."""
        for path in self.root.glob(".git/phasegate/*/*/record.json"):
            record = json.loads(path.read_bytes())
            if (folder := Path(record["folder"])).is_dir():
                about = folder.stat()
                path.write_text(json.dumps({**record, "device": about.st_dev, "inode": about.st_ino}))

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "phasegate", *arguments]
        return subprocess.run(argv, cwd=self.root, env=self._env, capture_output=True, text=True, timeout=300)

    def problems(self) -> str:
        """What is not whole: in the repository, or on record."""
        fsck = ["git", "-C", str(self.root), "fsck", "--strict", "--no-dangling"]
        found = subprocess.run(fsck, capture_output=True, text=True)
        verified = self.command("audit", "verify")
        return found.stderr * bool(found.returncode) + verified.stdout * bool(verified.returncode)

    def effects(self) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", self._env["XDG_STATE_HOME"])
            try:
                found = FeatureRun(self.top).effects()
            except OSError:  # the view is not there yet
                return {}
        return {name: found[name] for name in SAME}


def spread(changes: int, sample: int) -> set[int]:
    """Some of them, the last among them."""
    return {changes * part // sample for part in range(1, sample + 1)}


def check_dispatch(run: TracedCommand, chosen: Collection[int], names_ahead: bool) -> None:
    for where in run.cuts(chosen, names_ahead):
        (run.folder / "runs").write_text("")
        done = run.command(*DISPATCH)
        assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
        assert run.problems() == "", where
        show = ["git", "-C", str(run.root), "show", f"{FEATURE}:src/login.ts"]
        assert subprocess.run(show, capture_output=True, text=True).stdout == "export const done = true;\n", where
    assert (run.folder / "runs").read_text() == "", "what was DONE was done again"


def check_run(run: TracedCommand, chosen: Collection[int], names_ahead: bool) -> None:
    wanted = run.effects()
    for where in run.cuts(chosen, names_ahead):
        has_begun = (run.root / ".phasegate/store.db").exists() and run.command("status", "--json").stdout.count(SLUG)
        if not has_begun or run.effects() != wanted:
            done = run.command("run", "--merge") if has_begun else run.command(*RUN)
            assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
        assert run.problems() == "", where
        assert run.effects() == wanted, where


@pytest.mark.demand("W5.a", "D13.i")
def test_after_a_power_failure_a_dispatch_goes_on_by_itself(tmp_path: Path) -> None:
    run = TracedCommand(tmp_path, one_agent_counted, DISPATCH)
    assert run.changes > 500
    check_dispatch(run, spread(run.changes, SAMPLE), names_ahead=False)
    check_dispatch(run, spread(run.changes, SAMPLE), names_ahead=True)


@pytest.mark.long
@pytest.mark.parametrize("names_ahead", [False, True])
def test_after_a_power_failure_at_any_change_a_dispatch_goes_on_by_itself(tmp_path: Path, names_ahead: bool) -> None:
    run = TracedCommand(tmp_path, one_agent_counted, DISPATCH)
    check_dispatch(run, range(1, run.changes + 1), names_ahead)


@pytest.mark.demand("W5.a", "D13.i")
def test_after_a_power_failure_a_run_goes_on_to_its_merge_by_itself(tmp_path: Path) -> None:
    run = TracedCommand(tmp_path, make_run, RUN)
    assert run.changes > 2000
    check_run(run, {run.changes * 2 // 3}, names_ahead=False)


@pytest.mark.long
@pytest.mark.parametrize("names_ahead", [False, True])
@pytest.mark.parametrize("first", range(1, SHARES + 1))
def test_after_a_power_failure_at_any_change_a_run_goes_on_to_its_merge_by_itself(
    tmp_path: Path, first: int, names_ahead: bool
) -> None:
    run = TracedCommand(tmp_path, make_run, RUN)
    check_run(run, range(first, run.changes + 1, SHARES), names_ahead)
