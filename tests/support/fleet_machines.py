"""A fleet on this machine: a real git remote, machines with clones and homes of their own, one bucket, one server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import SandboxLevel
from phasegate.storage.bucket.client import Bucket
from phasegate.storage.bucket.journal import BucketStore
from phasegate.storage.location import Location
from phasegate.storage.rows import RecordedEvent
from support.alike_runs import one_at_a_time
from support.feature_run import DESCRIPTION, SLUG, TYPE, FeatureRun
from support.git_project import git
from support.s3_server import BUCKET, S3Server
from support.temporal_server import TemporalServer

BRANCH = f"feat/{SLUG}"


class Machine:
    """A clone with a home of its own."""

    def __init__(self, folder: Path, remote: Path) -> None:
        self.folder, self.root = folder, folder / "repo"
        folder.mkdir()
        git(folder, "clone", "-q", str(remote), "repo")
        self.environment = {
            **os.environ,
            "HOME": str(folder / "home"),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONUNBUFFERED": "1",
        }

    def phasegate(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "phasegate", *arguments]
        return subprocess.run(
            command,
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def start_worker(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "phasegate", "worker"]
        return subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[str]]:
        with self.start_worker() as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert "serving queue" in line, line + process.stdout.read()
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    try:
                        process.wait(60)
                    except subprocess.TimeoutExpired:
                        process.kill()


class Fleet:
    """A remote with the project of `feature_run`, and machines that share a bucket and a server."""

    def __init__(
        self,
        folder: Path,
        s3: S3Server,
        temporal: TemporalServer,
        prefix: str,
        lost_after_s: int = 8,
        endpoint: str = "",
        more: str = "",
    ) -> None:
        """`endpoint`: another way to the bucket. `more`: settings."""
        folder.mkdir(exist_ok=True)
        self._folder, self._s3, self._prefix = folder, s3, prefix
        origin = one_at_a_time(folder / "origin")
        settings = (
            f'[storage]\nurl = "s3://{BUCKET}/{prefix}"\nendpoint = "{endpoint or s3.endpoint}"\n'
        )
        settings += f'[fleet]\naddress = "{temporal.address}"\nheartbeat_timeout_s = {lost_after_s}\nclaim_timeout_s = 2\n'
        config = origin.root / "phasegate.toml"
        if not probe_level(
            SandboxLevel.WORKTREE
        ).is_supported:  # else no worker would offer an agent
            settings = f'sandbox = "none"\n{settings}'
        config.write_text(config.read_text() + settings + more)
        origin.git("commit", "-q", "-am", "Work as a fleet")
        self.origin = origin
        self.remote = folder / "remote.git"
        git(folder, "clone", "-q", "--bare", str(origin.root), "remote.git")

    def machine(self, name: str) -> Machine:
        made = Machine(self._folder / name, self.remote)
        (made.folder / "scenario.json").write_text(self.origin.scenario.read_text())
        return made

    def use_prefix(self, prefix: str) -> Bucket:
        """Look for the record below another prefix."""
        self._prefix = prefix
        return self._s3.bucket(prefix)

    def events(self, slug: str = SLUG) -> list[RecordedEvent]:
        bucket = self._s3.patient_bucket(self._prefix)
        with BucketStore(bucket, Location(Path(), Path(), Path()), lambda: "nobody") as record:
            return [*record.events(slug)]

    def wait_for(self, count: int, worker: subprocess.Popen[str]) -> None:
        """Until so many events are on record, or the feature needs nobody any more."""
        pause = Event()
        for _ in range(600):
            events = self.events()
            if len(events) >= count or worker.poll() is not None:
                return
            pause.wait(0.2)
        raise AssertionError(f"{len(events)} events")

    def tree(self, begun: str) -> dict[str, str]:
        names = git(self.remote, "ls-tree", "-r", "--name-only", BRANCH).splitlines()
        return {
            name: git(self.remote, "show", f"{BRANCH}:{name}").replace(begun, "(begun)")
            for name in names
        }


def local_run(folder: Path) -> tuple[FeatureRun, list[RecordedEvent], dict[str, str]]:
    """The same feature by the local driver, as a person runs it."""
    run = one_at_a_time(folder)
    done = run.run("run", TYPE, DESCRIPTION)
    assert done.returncode == 0, done.stderr
    with run.reader() as reader:
        events = [*reader.events(SLUG)]
    names = run.git("ls-tree", "-r", "--name-only", BRANCH).splitlines()
    return (
        run,
        events,
        {
            name: git(run.root, "show", f"{BRANCH}:{name}").replace(events[0].ts, "(begun)")
            for name in names
        },
    )
