"""`kill -9` of the dispatcher at every recorded step (F01, F03, W5): the next one goes on, nothing is done twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.record.reader import read_store
from phasegate.rules.work_package import State
from support.caged import eventually, processes_with
from support.dispatch_project import (
    FEATURE,
    SLUG,
    WP01,
    DispatchProject,
    approves,
    implements,
    make_project,
    package,
    turn,
)

MORTAL = Path(__file__).with_name("dispatch_until.py")
STEPS = 15  # of the scenario below; a test sees to it that none is left out
SEED = 20260301
FIRST, SECOND = "src/login.ts", "src/logout.ts"


def two_rounds(folder: Path) -> DispatchProject:
    """A package that is done in two rounds."""
    project = make_project(folder, {"WP01": package(files=[FIRST, SECOND])})
    project.play(
        implements(FIRST, SECOND, round=1),
        turn(
            "implement",
            {"write": FIRST, "content": "export const twice = true;\n"},
            {"commit": "{wp_id}: Mend"},
            {"result": "success"},
        ),
        turn("review", {"print": "Once more."}, {"verdict": "NEEDS_CHANGES"}, round=1),
        approves(),
    )
    return project


def until(project: DispatchProject, when: str, step: int) -> subprocess.CompletedProcess[str]:
    """A dispatcher in a process of its own that dies there."""
    return subprocess.run(
        [sys.executable, MORTAL, str(project.root), when, str(step)], capture_output=True, text=True, timeout=120
    )


def effects(project: DispatchProject) -> dict[str, object]:
    """All that a dispatch brings about, without ids and times."""
    return {
        "tree": project.git("rev-parse", f"{FEATURE}:src"),
        "commits": sorted(project.git("log", "--format=%s", f"main..{FEATURE}").splitlines()),
        "branch": project.git("log", "--format=%s", f"main..{WP01}").splitlines(),
        "merges": project.git("rev-list", "--merges", "--count", f"main..{FEATURE}"),
        "ended": [(job.phase, job.round, job.outcome) for job in project.jobs() if job.outcome == "done"],
        "state": project.rows()["WP01"].state,
        "worktrees": project.worktrees(),
        "person": (project.git("status", "--porcelain"), project.git("rev-list", "--count", "main")),
        "audit": project.audit_problems(),
    }


def check_goes_on(project: DispatchProject, undisturbed: dict[str, object]) -> None:
    assert eventually(lambda: processes_with(str(project.scenario)) == []), "a process is left"
    ended_before = {job.id for job in project.jobs() if job.outcome}
    assert project.dispatch().state is State.DONE
    assert effects(project) == undisturbed
    assert ended_before <= {job.id for job in project.jobs() if job.outcome}
    assert processes_with(str(project.scenario)) == []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    with pytest.MonkeyPatch.context() as patch:
        for who in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{who}_NAME", "Test")
            patch.setenv(f"GIT_{who}_EMAIL", "test@example.invalid")
        patch.setenv("HOME", str(tmp_path_factory.getbasetemp() / "home"))
        project = two_rounds(tmp_path_factory.mktemp("undisturbed"))
        lived = until(project, "never", 0)
        assert lived.stdout.strip() == str(STEPS), lived
        found = effects(project)
    assert (found["state"], found["worktrees"], found["audit"]) == ("DONE", set(), [])
    assert found["merges"] == "1"
    return found


@pytest.mark.demand("W5.a", "W5.b", "W5.c", "D4.c")
def test_a_dispatcher_killed_after_the_merge_and_before_its_record_merges_once(
    tmp_path: Path, undisturbed: dict[str, object]
) -> None:
    project = two_rounds(tmp_path)
    assert until(project, "before", STEPS - 1).returncode == -signal.SIGKILL
    assert project.git("rev-list", "--merges", "--count", f"main..{FEATURE}") == "1"
    assert project.rows()["WP01"].state == "FOR_REVIEW"
    check_goes_on(project, undisturbed)


@pytest.mark.long
@pytest.mark.demand("W5.a", "W5.b", "W5.c")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_dispatcher_killed_at_any_recorded_step_is_followed_by_one_that_goes_on(
    tmp_path: Path, undisturbed: dict[str, object], when: str, step: int
) -> None:
    project = two_rounds(tmp_path)
    assert until(project, when, step).returncode == -signal.SIGKILL
    check_goes_on(project, undisturbed)


@pytest.mark.long
@pytest.mark.demand("W5.a", "W5.b", "W5.c")
@pytest.mark.parametrize("step", random.Random(SEED).sample(range(2, 30), 4))
def test_a_dispatcher_killed_from_outside_is_followed_by_one_that_goes_on(
    tmp_path: Path, undisturbed: dict[str, object], step: int
) -> None:
    """At the first moment at which so many events are on record, whatever it is doing then."""
    project = two_rounds(tmp_path)
    argv = [sys.executable, "-m", "phasegate", "dispatch", "WP01"]
    with subprocess.Popen(argv, cwd=project.root, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        assert eventually(lambda: recorded(project) >= step or process.poll() is not None, within_s=60)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    check_goes_on(project, undisturbed)


def recorded(project: DispatchProject) -> int:
    reader = read_store(project.project.location)
    assert reader is not None
    with reader:
        return len(list(reader.events(SLUG)))


@pytest.mark.long
@pytest.mark.demand("W5.a", "D9.c")
def test_an_agent_dies_with_its_dispatcher_and_its_job_is_run_again_from_a_clean_beginning(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    waiting = tmp_path / "repo/.worktrees" / f"{SLUG}-WP01" / "src/half.ts"
    project.play(turn("implement", {"write": "src/half.ts", "content": "half"}, {"sleep_s": 600}))
    argv = [sys.executable, "-m", "phasegate", "dispatch", "WP01"]
    with subprocess.Popen(argv, cwd=project.root, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        assert eventually(waiting.exists, within_s=60)
        os.kill(process.pid, signal.SIGKILL)
    assert eventually(lambda: processes_with(str(project.scenario)) == [])
    project.play(implements("src/login.ts"), approves())
    assert project.dispatch().state is State.DONE
    assert "src/half.ts" not in project.files_of(FEATURE)
    (ref,) = project.saved()
    assert "src/half.ts" in project.files_of(ref)
    assert [job.outcome for job in project.jobs()] == ["", "done", "done"]
