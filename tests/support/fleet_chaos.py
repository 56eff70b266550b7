"""A small feature by the workers of a fleet, disturbed on its way, and what must be so in the end, whatever came.

The agents write down each start: no sandbox keeps them from it here, since what is shown is not about one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from threading import Event, RLock, Thread
from time import monotonic
from typing import Any

import msgspec

from phasegate.engine.journal.entries import FEATURE_STEP, PACKAGE_STEP
from phasegate.storage.bucket.client import Bucket
from phasegate.storage.bucket.numbered_log import PageEntry
from phasegate.storage.rows import RecordedEvent
from support.alike_runs import alike, one_at_a_time, without_reuse
from support.feature_run import DESCRIPTION, SLUG, TASKS, TYPE, Turn, implements, judges, plans
from support.fleet_machines import Fleet, Machine
from support.git_project import git
from support.s3_server import FaultyProxy, Request, S3Server
from support.step_names import named
from support.temporal_server import TemporalServer

UNSANDBOXED = {"PHASEGATE_RUN__SANDBOX": "none"}
LONGEST_S = 540
OF_THE_RUN = ("step.timed", "notice.given", "trail.sealed")
_ONE_TASK = TASKS.partition("- [ ] 2.2")[0]


def small_feature(starts: Path, linger_s: float = 0) -> list[Turn]:
    """One package, at once all right. Each agent first writes down its job's id; `linger_s`: the implementer waits."""
    plan = plans("and means it")
    plan["steps"] = [
        {**step, "content": _ONE_TASK} if step.get("write", "").endswith("tasks.md") else step
        for step in plan["steps"]
    ]
    archive = {
        "phase": "archive",
        "steps": [
            {"write": "CHANGELOG.md", "content": "# Changelog\n- Bye.\n"},
            {"verdict": "PASS"},
        ],
    }
    implement = implements("write", "bye.py", "def bye(name):\n    return f'Bye, {name}'\n")
    implement["steps"] = [{"sleep_s": linger_s}, *implement["steps"]]
    turns = (plan, judges("challenge", "PASS"), implement, judges("review", "PASS"), archive)
    noting = {"run": ["sh", "-c", f"echo {{job_id}} >> '{starts}'"]}
    return [{**turn, "steps": [noting, *turn["steps"]]} for turn in turns]


def undisturbed_events(folder: Path) -> list[tuple[str, Any]]:
    """The same feature by the local driver, to its merge."""
    run = one_at_a_time(folder)
    run.play(*small_feature(folder / "starts"))
    done = subprocess.run(
        run.argv("run", TYPE, DESCRIPTION, "--merge"),
        cwd=run.root,
        env={**os.environ, **UNSANDBOXED},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with run.reader() as reader:
        events = [*reader.events(SLUG)]
    check_starts(events, (folder / "starts").read_text().split())
    return what_happened(events, run.root)


def what_happened(events: Sequence[RecordedEvent], *roots: Path) -> list[tuple[str, Any]]:
    """The events without ids and times, without what was told beside them, and without jobs that were lost."""
    lost = {job for one in events if (job := _lost_job(one))}
    kept = [one for one in events if one.kind not in OF_THE_RUN and not lost & {*_jobs_of(one)}]
    return [*alike(without_reuse(kept), *roots)]


def _jobs_of(event: RecordedEvent) -> Iterator[str]:
    """The job whose start or end an event is."""
    fields = json.loads(event.payload)
    if event.kind in ("job.started", "job.ended"):
        yield fields["id"]
    elif event.kind in (FEATURE_STEP, PACKAGE_STEP) and _type(fields["event"]) in (
        "job-started",
        "job-ended",
    ):
        yield fields["event"]["job"]


def _type(step: Mapping[str, Any]) -> str:
    return str(step.get("event") or step["type"])


def _lost_job(event: RecordedEvent) -> str:
    fields = json.loads(event.payload)
    return str(fields["id"]) if event.kind == "job.ended" and fields["outcome"] == "lost" else ""


def check_starts(events: Sequence[RecordedEvent], starts: Sequence[str]) -> None:
    """Every job is started and ended once on record; no agent was started twice for one, or for none."""
    rows = [
        (one.kind, json.loads(one.payload))
        for one in events
        if one.kind in ("job.started", "job.ended")
    ]
    started, ended = (
        Counter(row["id"] for kind, row in rows if kind == name)
        for name in ("job.started", "job.ended")
    )
    assert started == ended, "a job was left open, or ended without a start"
    assert {*started.values()} == {1}, "a job was recorded twice"
    assert {*Counter(starts).values()} == {1}, "an agent was started twice under one id"
    done = {row["id"] for kind, row in rows if kind == "job.ended" and row["outcome"] == "done"}
    assert done <= {*starts} <= {*started}, (
        "an agent ran without a record, or a job is done that no agent ran for"
    )


def check_evidence(events: Sequence[RecordedEvent], bucket: Bucket, remote: Path) -> None:
    """No job is done without its trail, no package without checks that passed, whose papers and commits are there."""
    for one in events:
        fields = json.loads(one.payload)
        if one.kind == "job.ended" and fields["outcome"] == "done":
            assert bucket.get(f"audit/{SLUG}/{fields['id']}.jsonl") is not None, fields
    steps = [json.loads(one.payload)["event"] for one in events if one.kind == PACKAGE_STEP]
    names = [_type(step) for step in steps]
    assert {"harvested", "validated", "reviewed", "merged"} <= {*names}, names
    for step in steps:
        if _type(step) == "validated":
            assert not step.get("failures"), step
            assert step["evidence"]
            for paper in filter(None, (step["evidence"], step.get("claims"))):
                assert bucket.get(f"papers/{paper}") is not None, step
            git(remote, "cat-file", "-e", step["commit"])


class Trial:
    """A fleet of two machines behind a proxy, and a person who wants one feature merged."""

    def __init__(
        self,
        folder: Path,
        s3: S3Server,
        temporal: TemporalServer,
        prefix: str,
        proxy: FaultyProxy,
        lost_after_s: int = 60,
        linger_s: float = 0,
    ) -> None:
        """`lost_after_s`: short where workers die; else no busy machine may make one be given up."""
        folder.mkdir(exist_ok=True)
        self.starts, self.bucket, self.proxy = folder / "starts", s3.bucket(prefix), proxy
        self.starts.touch()
        self.fleet = Fleet(
            folder, s3, temporal, prefix, lost_after_s=lost_after_s, endpoint=proxy.endpoint
        )
        self.fleet.origin.play(*small_feature(self.starts, linger_s))
        self.person, *self.machines = (self._machine(name) for name in ("person", "one", "other"))
        self.worker: subprocess.Popen[str] | None = None
        self.said: list[str] = []
        self.besides: list[str] = []  # other features, whose agents start, too

    def _machine(self, name: str) -> Machine:
        made = self.fleet.machine(name)
        made.environment |= UNSANDBOXED
        return made

    def use_own_prefix(self) -> None:
        """Look where a repository has its record that has no prefix in its settings."""
        id_ = git(self.fleet.remote, "rev-parse", "refs/phasegate/repository").strip()
        self.bucket = self.fleet.use_prefix(f"repositories/{id_}")

    def carry_out(self, machine_of: Callable[[int], int] = lambda life: life // 2 % 2) -> None:
        """Have the feature merged. After a death, the worker is started anew, or that of the other machine, in turn."""
        command = [
            sys.executable,
            "-m",
            "phasegate",
            "run",
            TYPE,
            DESCRIPTION,
            "--fleet",
            "--merge",
            "--json",
        ]
        person, lives = self.person, 0
        with subprocess.Popen(
            command,
            cwd=person.root,
            env=person.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as order:
            try:
                while order.poll() is None:
                    with self.at_work(self.machines[machine_of(lives)]) as worker:
                        wait_until(lambda: order.poll() is not None or worker.poll() is not None)
                    lives += 1
            finally:
                order.kill()
                told = order.stdout.read() if order.stdout else ""
        assert order.returncode == 0, told + "".join(self.said[-200:])
        assert json.loads(told[told.index("{") :])["stage"] == "completed", told

    @contextmanager
    def at_work(self, machine: Machine) -> Iterator[subprocess.Popen[str]]:
        """A worker of a machine; what it says is read, so that it never waits for a reader."""
        with machine.worker() as worker:
            Thread(target=lambda: self.said.extend(worker.stdout or ()), daemon=True).start()
            self.worker = worker
            try:
                yield worker
            finally:
                self.worker = None

    def kill_worker(self) -> None:
        """Kill the worker that is at work; it may be so before we have heard of it."""
        wait_until(lambda: self.worker)
        if (worker := self.worker) is not None:
            worker.send_signal(signal.SIGKILL)

    def check(self, undisturbed: Sequence[tuple[str, Any]]) -> list[RecordedEvent]:
        """What holds after whatever came: nothing lost, nothing doubled, all evidence there, the feature ended."""
        events, starts = self.fleet.events(), self.starts.read_text().split()
        self.check_record(events, starts, undisturbed)
        check_evidence(events, self.bucket, self.fleet.remote)
        merges = git(self.fleet.remote, "log", "--first-parent", "--format=%s", "main").splitlines()
        assert merges.count(DESCRIPTION) == 1, merges
        verified = self.person.phasegate("audit", "verify", "--remote", "--json")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        return events

    def check_record(
        self,
        events: Sequence[RecordedEvent],
        starts: Sequence[str],
        undisturbed: Sequence[tuple[str, Any]],
    ) -> None:
        roots = [machine.root for machine in (*self.machines, self.person)]
        found = what_happened(events, *roots)
        differs = [pair for pair in zip_longest(found, undisturbed) if pair[0] != pair[1]]
        assert not differs, f"the first of {len(differs)} that differ: {differs[0]}"
        check_starts(
            [*events, *(one for slug in self.besides for one in self.fleet.events(slug))], starts
        )


class Deaths:
    """Kills the worker at records of a feature, `before` or `after` they are made, as `meant` says; once each."""

    def __init__(self, meant: Callable[[str, str], bool]) -> None:
        self._meant = meant
        self.trial: Trial | None = None
        self.took: list[str] = []
        self.died: list[tuple[str, str]] = []
        self._lock = RLock()

    def before(self, request: Request) -> str:
        with self._lock:
            return self._at("before", self._name(request))

    def after(self, request: Request) -> str:
        with self._lock:
            name = self._name(request)
            if name:
                self.took.append(name)
            return "lost" if self._at("after", name) else ""

    def _name(self, request: Request) -> str:
        """A step's name is its own by the number of gates before it."""
        name = step_of(request)
        return name and f"{sum('gate.judged' in one for one in self.took)} {name}"

    def _at(self, when: str, name: str) -> str:
        """The record that begins a feature is the person's, not a worker's."""
        if self.trial is None or not name or "happened started" in name:
            return ""
        if (when, name) in self.died or not self._meant(when, name):
            return ""
        self.died.append((when, name))
        self.trial.kill_worker()
        return "away"


class Outages:
    """The bucket is gone for so long, at the first call of a worker of each of these kinds, one after the other."""

    def __init__(self, prefix: str, kinds: Collection[str], for_s: float) -> None:
        self._prefix, self.waiting, self._for_s = prefix, {*kinds}, for_s
        self.trial: Trial | None = None
        self.seen = set[str]()
        self._until_s = 0.0
        self._lock = RLock()

    def fault(self, request: Request) -> str:
        kind = call_of(request, self._prefix)
        with self._lock:
            if monotonic() < self._until_s:
                return "away"
            if self.trial is None or self.trial.worker is None:
                return ""
            self.seen.add(kind)
            if kind not in self.waiting:
                return ""
            self.waiting.discard(kind)
            self._until_s = monotonic() + self._for_s
            return "away"


class LostAnswers:
    """The first answer to each kind of call is lost, and every seventh."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.calls: Counter[str] = Counter()
        self._lock = RLock()

    def fault(self, request: Request) -> str:
        kind = call_of(request, self._prefix)
        with self._lock:
            self.calls[kind] += 1
            return "lost" if self.calls[kind] % 7 == 1 else ""


def call_of(request: Request, prefix: str) -> str:
    """Which kind of call a request is, and what of: `create journal`. No prefix: the repository's own."""
    target = request.data.split(b" ", 2)[1].decode().replace("%2F", "/")
    path = re.split(rf"{prefix or 'repositories/[0-9a-f]+'}/", target)[-1]
    return f"{request.kind} {path.partition('/')[0]}".strip()


def step_of(request: Request) -> str:
    """The name of the step that a request records; empty if it records none."""
    if request.kind != "create" or f"/journal/{SLUG}/" not in request.path:
        return ""
    page = json.loads(request.data.partition(b"\r\n\r\n")[2])
    entries = [
        msgspec.json.decode(json.dumps(entry), type=PageEntry) for entry in page["body"]["entries"]
    ]
    return named([(entry.kind, entry.payload.encode()) for entry in entries])


def wait_until(is_so: Callable[[], object]) -> None:
    pause = Event()
    for _ in range(int(LONGEST_S / 0.1)):
        if is_so():
            return
        pause.wait(0.1)
    raise AssertionError("it did not come to that")
