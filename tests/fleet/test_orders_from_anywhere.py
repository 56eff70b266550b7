"""Orders to a fleet from a machine that is no part of it, and workers that end as they are asked to."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

import obstore
import pytest

from support.feature_run import DESCRIPTION, SCENARIO, SLUG, TYPE, Turn, implements, plans
from support.fleet_machines import Fleet, Machine
from support.git_project import git
from support.s3_server import FaultyProxy, S3Server
from support.temporal_server import TemporalServer

PROTECTED = ".github/workflows/ci.yml"


def wait_until(is_so: Callable[[], object], patience_s: float = 120.0) -> None:
    pause = Event()
    for _ in range(int(patience_s / 0.2)):
        if is_so():
            return
        pause.wait(0.2)
    raise AssertionError("it did not come to that")


def status(person: Machine) -> dict[str, object]:
    said = person.phasegate("status", "--fleet", "--json")
    found: dict[str, object] = json.loads(said.stdout)
    return found


def questions(person: Machine) -> list[str]:
    waiting = status(person)["waiting"]
    assert isinstance(waiting, list)
    return [one["question"] for one in waiting if one["question"]]


def asks_and_strays() -> Turn:
    """An implementer that asks, and changes a protected path."""
    turn = implements("write", PROTECTED, "on: push\n", package="WP01")
    steps = [
        {"run": ["sh", "-c", 'phasegate ask "Which word?" --option bye > /dev/null']},
        {"write": "bye.py", "content": "def bye(name):\n    return f'Bye, {name}'\n"},
    ]
    return {**turn, "steps": [*steps, *turn["steps"]]}


@pytest.mark.demand("X8.q")
def test_a_question_a_protected_path_and_the_merge_are_decided_from_another_machine_that_is_behind(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    fleet = Fleet(tmp_path, s3, temporal, prefix, lost_after_s=60)
    fleet.origin.play(asks_and_strays(), *SCENARIO)
    person, worker = fleet.machine("person"), fleet.machine("worker")
    other = fleet.machine("other")
    git(other.root, "commit", "-q", "--allow-empty", "-m", "The person does not have it")
    git(other.root, "push", "-q", "origin", "main")
    with worker.worker():
        given = person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach")
        assert given.returncode == 0, "a clone that is behind is no obstacle: " + given.stderr
        wait_until(lambda: questions(person))
        (question,) = questions(person)
        answered = person.phasegate("answer", question, "bye", "--fleet")
        assert answered.returncode == 0, answered.stderr
        stopped = person.phasegate("run", "--fleet", "--feature", "001", "--json")
        assert json.loads(stopped.stdout)["stage"] == "blocked", stopped.stdout + stopped.stderr
        allow = ("scope", "allow", "WP01", PROTECTED, "--reason", "CI is wanted", "--fleet")
        unchanged = person.phasegate(*(part.replace("ci.yml", "x.yml") for part in allow))
        assert (unchanged.returncode, "has not changed it" in unchanged.stderr) == (2, True)
        allowed = person.phasegate(*allow)
        assert allowed.returncode == 0, allowed.stderr
        assert "+on: push" in allowed.stdout
        early = person.phasegate("complete", "--fleet")
        assert early.returncode == 4, early.stdout + early.stderr
        assert person.phasegate("resolve", "allowed", "--fleet", "--feature", "001").returncode == 0
        done = person.phasegate("run", "--fleet", "--feature", "001")
        assert done.returncode == 0, done.stdout + done.stderr
        merged = person.phasegate("complete", "--fleet", "--feature", "001", "--json")
        assert json.loads(merged.stdout)["stage"] == "completed", merged.stdout + merged.stderr
    assert "on: push" in git(fleet.remote, "show", f"main:{PROTECTED}")
    refs = git(fleet.remote, "for-each-ref", "--format=%(refname)", "refs/phasegate/fleet")
    assert refs == "", "nothing is left behind at the remote"


@pytest.mark.demand("X8.h")
def test_two_machines_that_start_at_once_get_different_numbers(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    fleet = Fleet(tmp_path, s3, temporal, prefix)
    people = [fleet.machine(f"person-{number}") for number in range(3)]
    assert people[0].phasegate("status", "--fleet").returncode == 0
    started: list[subprocess.CompletedProcess[str]] = []

    def start(number: int) -> None:
        arguments = ("run", TYPE, f"Say {number}", "--fleet", "--detach", "--json")
        started.append(people[number].phasegate(*arguments))

    threads = [Thread(target=start, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    slugs = [json.loads(one.stdout)["feature"] for one in started]
    assert sorted(slug[:3] for slug in slugs) == ["001", "002", "003"], slugs


@pytest.mark.demand("X8.l")
def test_a_bucket_restored_from_an_older_copy_is_reported_by_the_machine_that_saw_more(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    fleet = Fleet(tmp_path, s3, temporal, prefix)
    person = fleet.machine("person")
    assert person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach").returncode == 0
    assert person.phasegate("escalate", "wait", "--fleet").returncode == 0
    assert person.phasegate("status", "--fleet").returncode == 0
    control = person.phasegate("audit", "verify", "--remote")
    assert control.returncode == 0, control.stdout + control.stderr
    bucket = s3.bucket(prefix)
    for folder in ("heads", f"journal/{SLUG}"):
        obstore.delete(bucket._store, bucket.list_paths(folder)[-1])
    verified = person.phasegate("audit", "verify", "--remote")
    assert verified.returncode == 1, verified.stdout
    assert "was seen here before" in verified.stdout + verified.stderr
    assert person.phasegate("status", "--fleet").returncode == 4
    elsewhere = fleet.machine("elsewhere").phasegate("audit", "verify", "--remote")
    assert elsewhere.returncode == 0, "control: a machine that saw nothing cannot know"


@pytest.mark.demand("X8.q")
def test_a_worker_that_is_asked_to_end_finishes_its_agent_and_takes_nothing_new(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    fleet = Fleet(tmp_path, s3, temporal, prefix, lost_after_s=60)
    plan = plans("somehow")
    mark = f"mark-{uuid4()}"
    steps = [{"run": ["sh", "-c", f": {mark}; sleep 10"]}, *plan["steps"]]
    fleet.origin.play({**plan, "steps": steps, "round": 1}, *SCENARIO)
    person, worker = fleet.machine("person"), fleet.machine("worker")
    with worker.worker() as process:
        assert person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach").returncode == 0
        wait_until(lambda: is_running(mark))
        shown = status(person)["fleet"]
        assert "phasegate/" in json.dumps(shown), "the version of the worker is shown"
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: process.poll() is not None)
        assert process.stdout is not None
        assert "draining" in process.stdout.read()
    ends = [json.loads(one.payload) for one in fleet.events() if one.kind == "job.ended"]
    assert [(end["phase"], end["outcome"]) for end in ends] == [("plan", "done")]
    assert sum(one.kind == "job.started" for one in fleet.events()) == 1, "nothing new was taken"
    with fleet.machine("next").worker():
        done = person.phasegate("run", "--fleet")
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_paused_fleet_finishes_its_agent_takes_nothing_new_and_resumes_with_the_merge(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    fleet = Fleet(tmp_path, s3, temporal, prefix, lost_after_s=60)
    plan = plans("somehow")
    mark = f"mark-{uuid4()}"
    steps = [{"run": ["sh", "-c", f": {mark}; sleep 10"]}, *plan["steps"]]
    fleet.origin.play({**plan, "steps": steps, "round": 1}, *SCENARIO)
    person, worker = fleet.machine("person"), fleet.machine("worker")
    with worker.worker() as process:
        given = person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--merge", "--detach")
        assert given.returncode == 0, given.stderr
        wait_until(lambda: is_running(mark))
        assert person.phasegate("fleet", "pause").returncode == 0
        wait_until(lambda: any(one.kind == "job.ended" for one in fleet.events()))
        assert process.stdout is not None
        while "nothing new is taken" not in process.stdout.readline():
            assert process.poll() is None
        with fleet.machine("second").worker():
            shown = person.phasegate("status", "--fleet").stdout
            assert "paused since" in shown, shown
            assert process.poll() is None, "it keeps running"
            started = [one for one in fleet.events() if one.kind == "job.started"]
            assert len(started) == 1, "nothing new was taken"
            resumed = person.phasegate("fleet", "resume", "--json")
            answer = json.loads(resumed.stdout)
            assert answer["features"] == [{"feature": SLUG, "outcome": "already running"}]
            assert answer["paused_since"]
            wait_until(lambda: "bye.py" in git(fleet.remote, "ls-tree", "--name-only", "main"))
    assert "paused since" not in person.phasegate("status", "--fleet").stdout
    ends = [json.loads(one.payload) for one in fleet.events() if one.kind == "job.ended"]
    assert {end["outcome"] for end in ends} == {"done"}, "no agent was stopped or repeated"


def is_running(mark: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False


@pytest.mark.demand("X8.l")
def test_a_refused_key_for_a_while_ends_no_run_and_resume_keeps_the_request_to_merge(
    tmp_path: Path, s3: S3Server, temporal_program: str, prefix: str
) -> None:
    """The bucket refuses the key while a worker runs a step; then the server loses its database."""
    temporal = TemporalServer(temporal_program, tmp_path / "temporal")
    temporal.start()
    refuses = Event()
    with FaultyProxy(s3.port, fault=lambda _: "refused" if refuses.is_set() else "") as proxy:
        try:
            fleet = Fleet(tmp_path, s3, temporal, prefix, endpoint=proxy.endpoint)
            person, worker = fleet.machine("person"), fleet.machine("worker")
            given = person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--merge", "--detach")
            assert given.returncode == 0, given.stderr
            with worker.worker() as process:
                fleet.wait_for(8, process)
                refuses.set()
                seen = proxy.count("refused")
                wait_until(lambda: sum(proxy.count("refused").values()) > sum(seen.values()) + 5)
                told = person.phasegate("status", "--fleet")
                assert (told.returncode, "refused" in told.stderr) == (3, True), "control"
                refuses.clear()
                fleet.wait_for(20, process)
                temporal.kill()
                temporal.forget()
                temporal.start()
                resumed = person.phasegate("fleet", "resume")
                assert resumed.stdout == f"{SLUG}: restarted\n", resumed.stderr
                wait_until(lambda: "bye.py" in git(fleet.remote, "ls-tree", "--name-only", "main"))
        finally:
            temporal.kill()
    kinds = [one.payload.decode() for one in fleet.events() if one.kind == "notice"]
    assert not any("the run has failed" in text for text in kinds), kinds
