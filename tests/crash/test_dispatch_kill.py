"""The dispatcher dies at every recorded step (F01, F03, W5): the next one goes on, nothing is lost or done twice.

In process, it dies of an exception that nothing catches, before and after each record, one death after the other in
one and the same package. With `kill -9`, a seeded sample of the steps here, and all of them in the long tests.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from phasegate.core.plan.work_package import PackageState
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import SandboxLevel
from phasegate.storage.journal_store import Store
from phasegate.storage.reader import open_store_reader
from phasegate.storage.rows import NewEvent
from phasegate.storage.trails import TrailWriter
from support.dispatch_project import (
    FEATURE,
    SLUG,
    WP01,
    DispatchProject,
    approves,
    implements,
    make_project,
    turn,
)
from support.quick_dispatch import TWO_ROUNDS, two_agents_two_rounds
from support.sandboxed import eventually, processes_with

MORTAL = Path(__file__).with_name("dispatch_until.py")
# Of two agents and two rounds; a test sees to it that none is left out. Without a sandbox, that is told and recorded.
STEPS = 23 if probe_level(SandboxLevel.OFFLINE).is_supported else 24
SEED = 20260301
SAMPLE = random.Random(SEED).sample(
    [(when, n) for n in range(1, STEPS + 1) for when in ("before", "after")], 3
)


def until(project: DispatchProject, when: str, step: int) -> subprocess.CompletedProcess[str]:
    """A dispatcher in a process of its own that dies there."""
    return subprocess.run(
        [sys.executable, MORTAL, str(project.root), when, str(step)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def effects(project: DispatchProject) -> dict[str, object]:
    """All that a dispatch brings about, without ids and times."""
    return {
        "tree": project.git("rev-parse", f"{FEATURE}:src"),
        "commits": sorted(project.git("log", "--format=%s", f"main..{FEATURE}").splitlines()),
        "branch": project.git("log", "--format=%s", f"main..{WP01}").splitlines(),
        "merges": project.git("rev-list", "--merges", "--count", f"main..{FEATURE}"),
        "reviews": [
            (job.round, job.outcome)
            for job in project.jobs()
            if job.phase == "review" and was_done(job)
        ],
        "state": project.rows()["WP01"].state,
        "worktrees": project.worktrees(),
        "person": (
            project.git("status", "--porcelain"),
            project.git("rev-list", "--count", "main"),
        ),
        "audit": project.audit_problems(),
    }


def was_done(job: object) -> bool:
    return getattr(job, "outcome", "") == "done"


def check_goes_on(project: DispatchProject, undisturbed: dict[str, object]) -> None:
    assert eventually(lambda: processes_with(str(project.scenario)) == []), "a process is left"
    ended_before = {job.id for job in project.jobs() if job.outcome}
    assert project.dispatch().state is PackageState.DONE
    check_is_whole(project, undisturbed)
    assert ended_before <= {job.id for job in project.jobs() if job.outcome}


def check_is_whole(project: DispatchProject, undisturbed: dict[str, object]) -> None:
    assert effects(project) == undisturbed
    assert processes_with(str(project.scenario)) == []
    assert {job.outcome for job in project.jobs()} <= {"done", "lost"}, (
        "no job stays open on record"
    )
    assert Counter(
        job.round for job in project.jobs() if job.phase == "implement" and was_done(job)
    ) == {1: 2, 2: 2}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    with pytest.MonkeyPatch.context() as patch:
        for who in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{who}_NAME", "Test")
            patch.setenv(f"GIT_{who}_EMAIL", "test@example.invalid")
        patch.setenv("HOME", str(tmp_path_factory.getbasetemp() / "home"))
        project = two_agents_two_rounds(tmp_path_factory.mktemp("undisturbed"))
        lived = until(project, "never", 0)
        assert lived.stdout.strip() == str(STEPS), lived
        found = effects(project)
    assert (found["state"], found["worktrees"], found["audit"]) == ("DONE", set(), [])
    assert (found["merges"], found["reviews"]) == (
        "1",
        [(1, "done"), (2, "done")],
    )
    return found


class Died(BaseException):
    """Nothing in the product catches this."""


class Deaths:
    """Kills the dispatcher before and after each step once: what a step records is its name."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.died: set[tuple[str, str]] = set()
        self._dead = False
        self._jobs: dict[str, str] = {}
        append, anchor, write = Store.append, Store.anchor, TrailWriter.append_entry

        def mortal_append(
            store: Store, feature: str, seq: int, ts: str, events: Sequence[NewEvent]
        ) -> int:
            self._die("before", self.name_of(events))
            number = append(store, feature, seq, ts, events)
            self._die("after", self.name_of(events))
            return number

        def only_alive(call):  # type: ignore[no-untyped-def]
            def called(*arguments: object) -> object:
                self._die("", "")
                return call(*arguments)

            return called

        patch.setattr(
            "phasegate.engine.drive.run_package.MAX_LOSSES", 1000
        )  # it dies more often than any job of a person's
        patch.setattr(Store, "append", mortal_append)
        patch.setattr(Store, "anchor", only_alive(anchor))
        patch.setattr(TrailWriter, "append_entry", only_alive(write))

    def revive(self) -> None:
        self._dead = False

    def _die(self, when: str, name: str) -> None:
        """The dead do nothing more: no record, no line in a trail."""
        if self._dead:
            raise Died
        if name and (when, name) not in self.died:
            self._dead = True
            self.died.add((when, name))
            raise Died(f"{when} {name}")

    def name_of(self, events: Sequence[NewEvent]) -> str:
        return (
            " + ".join(self._named(event) for event in events if event.kind == "package.happened")
            or events[0].kind
        )

    def _named(self, event: NewEvent) -> str:
        fields = msgspec.json.decode(event.payload)["event"]
        if fields["type"] == "job-started":
            self._jobs[fields["job"]] = (
                f"{fields['role']} {fields['agent_index']} of round {fields['round']}"
            )
        return " ".join(
            filter(None, (fields["type"], self._jobs.get(fields.get("job", "")), fields.get("end")))
        )


@pytest.mark.demand("W5.a", "W5.b", "W5.c", "D11.c")
@pytest.mark.parametrize("sandbox", ["auto", "none"])
def test_a_dispatcher_that_dies_at_every_recorded_step_is_followed_by_those_that_go_on(
    tmp_path: Path, undisturbed: dict[str, object], monkeypatch: pytest.MonkeyPatch, sandbox: str
) -> None:
    project = two_agents_two_rounds(tmp_path, run=f'sandbox = "{sandbox}"')
    with monkeypatch.context() as patch:
        deaths = Deaths(patch)
        state = None
        while state is None:
            deaths.revive()
            try:
                state = project.dispatch().state
            except Died:
                assert processes_with(str(project.scenario)) == []
                assert len(deaths.died) < 200
    assert state is PackageState.DONE
    names = {name for _, name in deaths.died}
    assert deaths.died == {(when, name) for when in ("before", "after") for name in names}
    ends = [name for name in names if name.startswith("job-ended") and name.endswith("done")]
    assert len([name for name in names if name.startswith("job-started")]) == 6
    assert len(ends) == 4, names
    assert any("lost" in name for name in names)
    check_is_whole(project, undisturbed)


@pytest.mark.demand("W5.a", "W5.b", "W5.c")
@pytest.mark.parametrize(("when", "step"), SAMPLE)
def test_a_dispatcher_that_is_killed_is_followed_by_one_that_goes_on(
    tmp_path: Path, undisturbed: dict[str, object], when: str, step: int
) -> None:
    project = two_agents_two_rounds(tmp_path)
    assert until(project, when, step).returncode == -signal.SIGKILL
    check_goes_on(project, undisturbed)


@pytest.mark.demand("W5.a", "W5.b", "W5.c", "D4.c")
def test_a_dispatcher_killed_after_the_merge_and_before_its_record_merges_once(
    tmp_path: Path, undisturbed: dict[str, object]
) -> None:
    project = two_agents_two_rounds(tmp_path)
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
    project = two_agents_two_rounds(tmp_path)
    assert until(project, when, step).returncode == -signal.SIGKILL
    check_goes_on(project, undisturbed)


@pytest.mark.long
@pytest.mark.demand("W5.a", "W5.b", "W5.c")
@pytest.mark.parametrize("events", random.Random(SEED).sample(range(2, 40), 4))
def test_a_dispatcher_killed_from_outside_is_followed_by_one_that_goes_on(
    tmp_path: Path, undisturbed: dict[str, object], events: int
) -> None:
    """At the first moment at which so many events are on record, whatever it is doing then."""
    project = two_agents_two_rounds(tmp_path)
    argv = [sys.executable, "-m", "phasegate", "dispatch", "WP01"]
    with subprocess.Popen(
        argv, cwd=project.root, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        assert eventually(
            lambda: recorded(project) >= events or process.poll() is not None, within_s=60
        )
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    check_goes_on(project, undisturbed)


def recorded(project: DispatchProject) -> int:
    reader = open_store_reader(project.project.location)
    assert reader is not None
    with reader:
        return len(list(reader.events(SLUG)))


# Each says that it has begun, in its own checkout, and then waits to be ended.
HANGS = "cat > /dev/null\nmkdir -p src\necho half > src/half.ts\nexec sleep 600\n"


def begun(project: DispatchProject) -> list[Path]:
    """The files that say so, of both agents."""
    names = (f"{SLUG}-WP01-agent{index}" for index in (0, 1))
    return [project.root / ".worktrees" / name / "src/half.ts" for name in names]


@pytest.mark.demand("W5.a", "D9.c", "D11.b")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_two_agents_die_with_their_dispatcher_and_are_run_again_from_a_clean_beginning(
    tmp_path: Path, undisturbed: dict[str, object], how: signal.Signals
) -> None:
    project = two_agents_two_rounds(tmp_path, script=HANGS)
    argv = [sys.executable, "-m", "phasegate", "dispatch", "WP01"]
    with subprocess.Popen(
        argv, cwd=project.root, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert eventually(lambda: all(path.exists() for path in begun(project)), within_s=60)
        process.send_signal(how)
        assert process.wait(30) == (-how if how is signal.SIGKILL else 130)
    assert eventually(lambda: processes_with(str(project.scenario)) == [])
    outcomes = [job.outcome for job in project.jobs()]
    assert outcomes == (["", ""] if how is signal.SIGKILL else ["lost", "lost"])
    project.scenario.write_text(TWO_ROUNDS)
    assert project.dispatch().state is PackageState.DONE
    assert [job.outcome for job in project.jobs()][:2] == ["lost", "lost"]
    check_is_whole(project, undisturbed)
    assert all(job.ended for job in project.jobs())
    for index in (0, 1):
        (ref,) = project.saved(f"{SLUG}-WP01-agent{index}")
        assert "src/half.ts" in project.files_of(ref)


@pytest.mark.long
@pytest.mark.demand("W5.a", "D9.c")
def test_an_agent_dies_with_its_dispatcher_and_its_job_is_run_again_from_a_clean_beginning(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path)
    waiting = tmp_path / "repo/.worktrees" / f"{SLUG}-WP01" / "src/half.ts"
    project.play(turn("implement", {"write": "src/half.ts", "content": "half"}, {"sleep_s": 600}))
    argv = [sys.executable, "-m", "phasegate", "dispatch", "WP01"]
    with subprocess.Popen(
        argv, cwd=project.root, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        assert eventually(waiting.exists, within_s=60)
        os.kill(process.pid, signal.SIGKILL)
    assert eventually(lambda: processes_with(str(project.scenario)) == [])
    project.play(implements("src/login.ts"), approves())
    assert project.dispatch().state is PackageState.DONE
    assert "src/half.ts" not in project.files_of(FEATURE)
    (ref,) = project.saved()
    assert "src/half.ts" in project.files_of(ref)
    assert [job.outcome for job in project.jobs()] == ["lost", "done", "done"]


@pytest.mark.parametrize(
    "step", [3, 4], ids=["an agent is at work", "its work waits to be taken over"]
)
def test_a_checkout_whose_record_a_disk_has_damaged_is_begun_again(
    tmp_path: Path, step: int
) -> None:
    project = make_project(tmp_path, run='sandbox = "none"')
    project.play(implements("src/login.ts"), approves())
    assert until(project, "after", step).returncode == -signal.SIGKILL
    (record,) = project.root.glob(".git/phasegate/checkouts/*/record.json")
    (project.root / f".worktrees/{record.parent.name}/src/kept.ts").write_text("of an agent\n")
    record.write_bytes(b"")
    assert project.command("status").code == 0
    done = project.command("dispatch", "WP01")
    assert (done.code, project.rows()["WP01"].state) == (0, PackageState.DONE), done.stderr
    (aside,) = project.root.glob(".worktrees/.damaged-*")
    assert (aside / "src/kept.ts").read_text() == "of an agent\n"
    assert f"the checkout was moved to {aside}" in done.stderr
    assert project.audit_problems() == []
    assert project.git("fsck", "--strict", "--no-dangling") == ""
