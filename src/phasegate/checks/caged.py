"""The runner of checks: the project's own commands, each in a cage without secrets."""

from __future__ import annotations

from pathlib import Path

from phasegate.cage.environment import scrubbed
from phasegate.cage.job import Job
from phasegate.cage.level import Level
from phasegate.cage.probe import choose
from phasegate.cage.request import Request
from phasegate.cage.stopping import Stop
from phasegate.checks.plan import Command, Ran


class CagedRunner:
    """Runs commands one after the other. They share a home folder: what the setup left there, the tests may need."""

    def __init__(
        self,
        folder: Path,
        tag: str,
        wanted: Level | None = None,
        stop: Stop | None = None,
        readable: tuple[Path, ...] = (),
    ) -> None:
        """`folder` is for their home and temporary files; `wanted` None takes the strongest level that holds.

        `readable` is what the checkout borrows from elsewhere, such as the objects of its git directory.
        """
        self._folder, self._tag, self._wanted, self._readable = folder, tag, wanted, readable
        self._stop = stop or Stop()
        self._runs = 0

    def __call__(self, command: Command, /) -> Ran:
        self._runs += 1
        env = scrubbed(given=command.env)
        request = Request(
            argv=command.argv,
            cwd=command.cwd,
            folder=self._folder,
            tag=f"{self._tag}-{self._runs}",
            env={**env, "PATH": ":".join([*map(str, command.path_first), env["PATH"]])},
            level=choose(self._wanted, needs_network=command.network),
            timeout_s=command.timeout_s,
            writable=(command.cwd,),
            readable=self._readable,
        )
        outcome = self._stop.run(Job(request))
        return Ran(
            exit_status=outcome.exit_code,
            stdout=outcome.stdout.text,
            stderr=outcome.stderr.text,
            duration_s=outcome.duration_s,
            timed_out=outcome.timed_out,
            cut=outcome.stdout.cut or outcome.stderr.cut,
        )
