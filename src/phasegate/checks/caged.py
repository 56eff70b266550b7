"""The runner of checks: the project's own commands, each in a cage without secrets."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from phasegate.cage.environment import scrubbed
from phasegate.cage.job import Job, Stop
from phasegate.cage.probe import choose
from phasegate.cage.request import JobLimits, Level, Request
from phasegate.checks.plan import Access, Command, Ran
from phasegate.checks.registry_access import NO_ACCESS, RegistryAccess, credentials_in, person_access, plain_access


class CagedRunner:
    """Runs commands one after the other. They share a home folder: what the setup left there, the tests may need."""

    def __init__(
        self,
        folder: Path,
        tag: str,
        wanted: Level | None = None,
        stop: Stop | None = None,
        readable: tuple[Path, ...] = (),
        limits: JobLimits = JobLimits(),  # noqa: B008 - frozen
    ) -> None:
        """`folder` is for their home and temporary files; `wanted` None takes the strongest level that holds.

        `readable` is what the checkout borrows from elsewhere, such as the objects of its git directory.
        """
        self._folder, self._tag, self._wanted, self._readable = folder, tag, wanted, readable
        self._stop, self._limits = stop or Stop(), limits
        self._runs = 0

    def __call__(self, command: Command, /) -> Ran:
        self._runs += 1
        access = _access(command.access)
        env = scrubbed(given={**access.env, **command.env})
        request = Request(
            argv=command.argv,
            cwd=command.cwd,
            folder=self._folder,
            tag=f"{self._tag}-{self._runs}",
            env={**env, "PATH": ":".join([*map(str, command.path_first), env["PATH"]])},
            level=choose(self._wanted, needs_network=command.network),
            timeout_s=command.timeout_s,
            limits=self._limits,
            writable=(command.place or command.cwd,),
            readable=(*self._readable, *access.readable),
            stdout_log=command.log,
            stderr_log=command.log.with_suffix(".stderr") if command.log else None,
            secrets=credentials_in(access),
        )
        outcome = self._stop.run(Job(request))
        if command.log is not None:
            _put_together(command.log)
        return Ran(
            exit_status=outcome.exit_code,
            stdout=outcome.stdout.text,
            stderr=outcome.stderr.text,
            duration_s=outcome.duration_s,
            timed_out=outcome.timed_out,
            over=outcome.over,
            cut=outcome.stdout.cut or outcome.stderr.cut,
            ended_at_s=time.time(),
        )


def _access(wanted: Access) -> RegistryAccess:
    if wanted is Access.NONE:
        return NO_ACCESS
    return person_access(os.environ) if wanted is Access.PERSON else plain_access(os.environ)


def _put_together(log: Path) -> None:
    """One file for people: what a program said, and after it what it complained about."""
    errors = log.with_suffix(".stderr")
    if errors.exists():
        with log.open("ab") as file, errors.open("rb") as source:
            shutil.copyfileobj(source, file)
        errors.unlink()
