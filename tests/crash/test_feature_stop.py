"""A run that is told to stop, met by another one, or finds what the dead left (W5, F04, G02, H01, H05)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from phasegate.engine.drive import orders
from phasegate.engine.drive.run_feature import drive_feature
from phasegate.engine.project.project import open_project_store
from phasegate.errors import StateConflict
from phasegate.storage.lock import named_lock
from phasegate.storage.lock_holder import find_live_holder
from phasegate.storage.verify_audit import verify_audit
from support.feature_run import (
    DESCRIPTION,
    SCENARIO,
    SLUG,
    TYPE,
    FeatureRun,
    Turn,
    make_feature_run,
)
from support.git_project import saved_work
from support.sandboxed import eventually, processes_with

BEGIN = ("run", TYPE, DESCRIPTION)
SIGNALS = [signal.SIGINT, signal.SIGTERM]


def half_done(phase: str, path: str, **asks: object) -> Turn:
    """An agent that writes something and is far from its end."""
    return {
        "phase": phase,
        "steps": [{"write": path, "content": "half\n"}, {"sleep_s": 600}],
        **asks,
    }


@contextmanager
def at_work(run: FeatureRun, until: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own, at the moment when a file appears."""
    argv = run.argv(*(arguments or BEGIN))
    with subprocess.Popen(
        argv, cwd=run.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert eventually(lambda: until.exists() or process.poll() is not None, within_s=120)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()


def told_to_stop(process: subprocess.Popen[str], how: signal.Signals) -> int:
    process.send_signal(how)
    process.communicate(timeout=60)
    return process.returncode


def saved_files(run: FeatureRun, work: str) -> set[str]:
    refs = saved_work(run.project.repository, f"{SLUG}-{work}")
    return {
        path for ref in refs for path in run.git("ls-tree", "-r", "--name-only", ref).splitlines()
    }


def check_goes_on(run: FeatureRun, outcomes: list[str]) -> None:
    """Nobody is left at work, nor a lock, and the next run goes on."""
    assert processes_with(str(run.folder)) == []
    assert find_live_holder(run.project.location.locks_folder, SLUG) is None
    assert [job.outcome for job in run.jobs()] == outcomes
    run.play(*SCENARIO)
    again = run.run("run", "--step")
    assert again.returncode in (0, 1), again
    assert run.jobs()[-1].outcome == "done"
    assert verify_audit(run.project.location).problems == ()


@pytest.mark.demand("W5.a", "D4.c")
@pytest.mark.parametrize("how", SIGNALS)
def test_a_run_that_is_told_to_stop_ends_its_agent_saves_what_it_left_and_can_go_on(
    tmp_path: Path, how: signal.Signals
) -> None:
    run = make_feature_run(tmp_path)
    half = f"kitty-specs/{SLUG}/proposal.md"
    run.play(half_done("plan", half))
    with at_work(run, run.root / ".worktrees" / f"{SLUG}-01-requirements" / half) as process:
        assert told_to_stop(process, how) == 130
    assert half in saved_files(run, "01-requirements")
    check_goes_on(run, ["lost"])
    assert "\n# Proposal" in run.git("show", f"feat/{SLUG}:{half}")


@pytest.mark.demand("W4.b", "W5.a")
def test_status_tells_a_run_that_works_from_one_that_was_killed(tmp_path: Path) -> None:
    run = make_feature_run(tmp_path)
    half = f"kitty-specs/{SLUG}/proposal.md"
    run.play(half_done("plan", half))
    with at_work(run, run.root / ".worktrees" / f"{SLUG}-01-requirements" / half) as process:
        card = json.loads(run.run("status", "--json").stdout)["workflow"]
        assert (card["standing"], card["worker"]["pid"]) == ("working", process.pid)
        assert f"running: process {process.pid} (run {SLUG})" in run.run("status").stdout
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        card = json.loads(run.run("status", "--json").stdout)["workflow"]
        assert (card["stage"], card["standing"], card["worker"]) == ("working", "stopped", None)
        assert "stopped: no process is working on it" in run.run("status").stdout
    assert run.run("escalate", "enough").returncode == 0
    assert json.loads(run.run("status", "--json").stdout)["workflow"]["standing"] == "waiting"


@pytest.mark.demand("W5.a", "D4.c")
def test_packages_side_by_side_are_stopped_and_saved_each(tmp_path: Path) -> None:
    run = make_feature_run(tmp_path)
    accepted = (*SCENARIO[1:2], *SCENARIO[3:4])
    run.play(
        *accepted, half_done("implement", "bye.py", package="WP01"), half_done("implement", "hi.py")
    )
    first, second = (
        run.root / ".worktrees" / f"{SLUG}-{name}" for name in ("WP01/bye.py", "WP02/hi.py")
    )
    with at_work(run, first) as process:
        assert eventually(second.exists, within_s=60)
        assert told_to_stop(process, signal.SIGINT) == 130
    assert ("bye.py" in saved_files(run, "WP01"), "hi.py" in saved_files(run, "WP02")) == (
        True,
        True,
    )
    check_goes_on(run, ["done", "done", "lost", "lost"])


@pytest.mark.demand("W5.a")
@pytest.mark.parametrize("workflow", [TYPE, "checkup"])
def test_a_run_is_told_to_stop_while_a_command_of_the_project_runs(
    tmp_path: Path, workflow: str
) -> None:
    """In a package's thread, and in the one that drives."""
    run = make_feature_run(tmp_path)
    token = f"token-{tmp_path.name}"
    config = run.root / "phasegate.toml"
    own = '[workflows.checkup]\nphases = ["11-local-testing"]\n'
    config.write_text(
        config.read_text().replace("python3 -S -m unittest -q check", f"sleep 600; : {token}") + own
    )
    run.play(*SCENARIO[1:2], *SCENARIO[3:])
    argv = run.argv("run", workflow, DESCRIPTION)
    with subprocess.Popen(
        argv, cwd=run.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert eventually(
                lambda: processes_with(token) or process.poll() is not None, within_s=120
            )
            assert told_to_stop(process, signal.SIGINT) == 130
        finally:
            process.kill()
    assert eventually(lambda: processes_with(token) == [])
    assert find_live_holder(run.project.location.locks_folder, SLUG) is None


@pytest.mark.demand("W5.a", "W5.b")
@pytest.mark.parametrize("how", SIGNALS)
def test_a_run_that_waits_for_the_merge_of_another_feature_is_told_to_stop_and_goes_on_later(
    tmp_path: Path, how: signal.Signals
) -> None:
    run = make_feature_run(tmp_path)
    run.play(*SCENARIO[1:2], *SCENARIO[3:7], *SCENARIO[8:])
    assert run.run(*BEGIN).returncode == 0
    locks, before = run.project.location.locks_folder, run.git("rev-parse", "main")
    with named_lock(locks, "merge-into-main"):
        argv = run.argv("complete")
        with subprocess.Popen(
            argv, cwd=run.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                held = locks / "merge-into-main.lock"
                assert eventually(
                    lambda: has_open(process.pid, held) or process.poll() is not None, within_s=120
                )
                assert process.poll() is None, process.communicate()
                process.send_signal(how)
                _, said = process.communicate(timeout=60)
            finally:
                process.kill()
    assert process.returncode == 130
    assert f"{SLUG} is stopped" in said
    assert (run.git("rev-parse", "main"), find_live_holder(locks, SLUG)) == (before, None)
    jobs = len(run.jobs())
    assert run.run("run", "--merge").returncode == 0
    assert "bye.py" in run.git("ls-tree", "--name-only", "main")
    assert len(run.jobs()) == jobs, "no agent is asked again"
    assert verify_audit(run.project.location).problems == ()


def has_open(pid: int, path: Path) -> bool:
    """Whether a process has a file open."""
    with suppress(OSError):
        return any(
            entry.is_symlink() and entry.readlink() == path
            for entry in Path(f"/proc/{pid}/fd").iterdir()
        )
    return False


@pytest.mark.demand("W5.a", "W4.e", "W4.h")
def test_a_second_run_of_a_feature_is_refused_and_names_the_first(tmp_path: Path) -> None:
    run = make_feature_run(tmp_path)
    half = f"kitty-specs/{SLUG}/proposal.md"
    run.play(half_done("plan", half))
    with at_work(run, run.root / ".worktrees" / f"{SLUG}-01-requirements" / half) as process:
        before = run.recorded()
        second = run.run("run")
        assert second.returncode == 4
        assert f"process {process.pid} (run {SLUG})" in second.stderr
        assert run.recorded() == before, "it has recorded nothing"
        assert process.poll() is None
        process.kill()
    assert eventually(lambda: processes_with(str(run.folder)) == [])
    run.play(*SCENARIO)
    third = run.run("run", "--step")
    assert "GATE-01 FAILED" in third.stdout, third


@pytest.mark.demand("W5.a")
def test_an_agent_that_outlived_its_run_is_ended_before_another_takes_its_place(
    tmp_path: Path,
) -> None:
    """Where no sandbox ends it, and the one who watches over it is stopped and cannot."""
    run = make_feature_run(tmp_path)
    config = run.root / "phasegate.toml"
    config.write_text(config.read_text() + '[run]\nsandbox = "none"\n')
    half = f"kitty-specs/{SLUG}/proposal.md"
    run.play(half_done("plan", half))
    with at_work(run, run.root / ".worktrees" / f"{SLUG}-01-requirements" / half) as process:
        (agent,) = processes_with(str(run.folder))
        supervisor = parent_of(agent)
        os.kill(supervisor, signal.SIGSTOP)
        process.kill()
    try:
        assert processes_with(str(run.folder)) == [agent], "control: it lives on"
        run.play(*SCENARIO)
        again = run.run("run", "--step")
        assert "GATE-01 FAILED" in again.stdout, again
        assert processes_with(str(run.folder)) == []
        assert half in saved_files(run, "01-requirements")
    finally:
        for pid in (supervisor, *processes_with(str(run.folder))):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


DAMAGE = {
    "empty": b"",
    "zeros": b"\0" * 4096,
    "a byte order mark": b"\xef\xbb\xbf{}",
    "another shape": b'{"active_workflow": [1, 2]}',
    "no JSON": b"active_workflow: none",
    "a lie": b'{"active_workflow": null}',
    "no text": b"\xff\xfe\x00",
}


@pytest.fixture
def blocked(tmp_path: Path) -> FeatureRun:
    """A feature that waits for a person: a run of it writes the view, and has nothing else to do."""
    run = make_feature_run(tmp_path)
    with open_project_store(run.project) as store:
        orders.start_workflow(run.project, store, TYPE, DESCRIPTION)
        orders.execute_order(run.project, store, SLUG, orders.OrderRequest("escalate", "look here"))
    return run


def goes_on(run: FeatureRun) -> None:
    with open_project_store(run.project) as store:
        drive_feature(run.project, store, SLUG)


@pytest.mark.demand("W2.b", "W2.c", "W5.a")
def test_a_damaged_view_is_written_anew_from_the_store(blocked: FeatureRun) -> None:
    whole = blocked.state_file.read_bytes()
    assert json.loads(whole)["active_workflow"]["current_phase"] == "01-requirements"
    cuts = {f"cut at {end}": whole[:end] for end in range(0, len(whole), 40)}
    for name, damage in {**DAMAGE, **cuts}.items():
        blocked.state_file.write_bytes(damage)
        goes_on(blocked)
        assert blocked.state_file.read_bytes() == whole, name
    blocked.state_file.unlink()
    os.truncate(os.open(blocked.state_file, os.O_CREAT | os.O_WRONLY, 0o444), 1 << 30)
    goes_on(blocked)
    assert blocked.state_file.read_bytes() == whole, "a gigabyte, read-only"
    own_file = blocked.state_file.with_name("phasegate.json")
    own = own_file.read_bytes()
    shutil.rmtree(blocked.state_file.parent)
    goes_on(blocked)
    assert blocked.state_file.read_bytes() == whole, "gone with its folder"
    assert own_file.read_bytes() == own, "and what is ours beside it"


@pytest.mark.demand("W2.c", "W5.a")
@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder", "a file for a folder"])
def test_a_view_that_is_no_plain_file_is_refused_and_left_alone(
    blocked: FeatureRun, kind: str
) -> None:
    """Without waiting at a pipe; once it is out of the way, the run goes on."""
    path, target = blocked.state_file, blocked.folder / "target"
    whole = path.read_bytes()
    target.write_text("mine")
    path.unlink()
    match kind:
        case "a link":
            path.symlink_to(target)
        case "a pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
        case _:
            path = path.parent
            shutil.rmtree(path)
            path.write_text("mine")
    with pytest.raises(StateConflict, match=r"is not a (regular file|folder)"):
        goes_on(blocked)
    assert target.read_text() == "mine"
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    goes_on(blocked)
    assert blocked.state_file.read_bytes() == whole
