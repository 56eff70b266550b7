"""The runner of checks: the project's own commands, each in a cage without secrets."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from phasegate.checks.plan import Access, Command, CommandRan
from phasegate.checks.registry_access import NO_ACCESS, RegistryAccess, credentials_in, person_access, plain_access
from phasegate.core.agents.hosts import ANY
from phasegate.sandbox.egress_proxy import Broker
from phasegate.sandbox.environment import scrubbed
from phasegate.sandbox.job import CagedJob, Stop
from phasegate.sandbox.probe import bounds_hosts, choose
from phasegate.sandbox.request import LEADING_OUT, JobLimits, Level, Request

_MOST_NAMED = 5


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
        hosts: tuple[str, ...] = (),
    ) -> None:
        """`folder` is for their home and temporary files; `wanted` None takes the strongest level that holds.

        `readable` is what the checkout borrows from elsewhere, such as the objects of its git directory. `hosts` are
        all that a command which may use the network can reach; without any it is everything, and nothing at `offline`.
        """
        self._folder, self._tag, self._wanted, self._readable = folder, tag, wanted, readable
        self._stop, self._limits, self._hosts = stop or Stop(), limits, hosts
        self._runs = 0

    def __call__(self, command: Command, /) -> CommandRan:
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
        broker = self._broker(command, request.level)
        if broker is not None:
            request = request._replace(env={**request.env, **LEADING_OUT}, way_out=broker)
        outcome = self._stop.run(CagedJob(request))
        if command.log is not None:
            _put_together(command.log)
        return CommandRan(
            exit_status=outcome.exit_code,
            stdout=outcome.stdout.text,
            stderr=outcome.stderr.text + (_refusal(broker.refused) if broker is not None else ""),
            duration_s=outcome.duration_s,
            timed_out=outcome.timed_out,
            over=outcome.over,
            cut=outcome.stdout.cut or outcome.stderr.cut,
            ended_at_s=time.time(),
        )

    def _broker(self, command: Command, level: Level) -> Broker | None:
        is_bounded = bool(self._hosts) and ANY not in self._hosts
        return Broker(self._hosts) if command.network and is_bounded and bounds_hosts(level, is_bounded) else None


def _refusal(hosts: Sequence[str]) -> str:
    names = ", ".join(hosts[:_MOST_NAMED])
    return f"\nnot let through to {names}: if that is wanted, list it in `setup_hosts` of [run]\n" if names else ""


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
