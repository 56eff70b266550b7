"""A real Temporal server on loopback, with its database in a file, so that it can die and come back."""

from __future__ import annotations

import subprocess
from pathlib import Path
from threading import Event

from phasegate.engine.fleet.local_fleet import find_free_ports, is_temporal_ready, temporal_command

READY_WITHIN_S = 120.0


class TemporalServer:
    """The development server of Temporal's own command line program."""

    def __init__(self, program: str, folder: Path, long_history: int = 0) -> None:
        """`long_history`: after so many events a workflow is advised to go on in a new run."""
        self._folder = folder
        folder.mkdir(exist_ok=True)
        (self._port,) = find_free_ports(1)
        self.address = f"127.0.0.1:{self._port}"
        self._command = temporal_command(program, folder, self._port)
        if long_history:
            setting = f"limit.historyCount.suggestContinueAsNew={long_history}"
            self._command += ["--dynamic-config-value", setting]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        pause = Event()
        for _ in range(int(READY_WITHIN_S / 0.1)):
            if is_temporal_ready(self.address):
                return
            pause.wait(0.1)
        raise AssertionError((self._folder / "server.log").read_text()[-4000:])

    def kept(self) -> bytes:
        """All bytes of its database."""
        return b"".join(path.read_bytes() for path in self._folder.glob("temporal.db*"))

    def forget(self) -> None:
        """Its database is lost."""
        for path in self._folder.glob("temporal.db*"):
            path.unlink()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
