"""Run the project's own commands for checks, each in a sandbox without secrets."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from phasegate.checks.plan import Command, CommandResult, RegistryAccessLevel
from phasegate.checks.registry_access import (
    NO_ACCESS,
    RegistryAccess,
    get_anonymous_access,
    get_user_access,
    list_credentials,
)
from phasegate.core.agents.hosts import ANY_HOST
from phasegate.sandbox.egress_proxy import EgressProxy
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.job import SandboxedJob, StopEvent
from phasegate.sandbox.probe import can_restrict_hosts, choose_level
from phasegate.sandbox.request import EGRESS_PROXY_ENV, JobLimits, JobRequest, SandboxLevel

_MAX_HOSTS_SHOWN = 5


class SandboxedRunner:
    """Runs commands one after the other in a sandbox.

    The commands share a home folder, because tests may need files that the setup left there.
    """

    def __init__(
        self,
        folder: Path,
        tag: str,
        wanted_level: SandboxLevel | None = None,
        stop: StopEvent | None = None,
        readable: tuple[Path, ...] = (),
        limits: JobLimits = JobLimits(),  # noqa: B008 - frozen
        hosts: tuple[str, ...] = (),
    ) -> None:
        """Create a runner that keeps home and temporary files in `folder`.

        Without `wanted_level`, the strongest available level is used.

        `readable` are paths outside the checkout that it depends on, such as the objects of its git
        directory. `hosts` are the hosts that commands with network access may reach. If empty, they
        may reach every host, or none at level `offline`.
        """
        self._folder = folder
        self._tag = tag
        self._wanted_level = wanted_level
        self._readable = readable
        self._stop = stop or StopEvent()
        self._limits = limits
        self._hosts = hosts
        self._runs = 0

    def __call__(self, command: Command, /) -> CommandResult:
        self._runs += 1
        access = _get_registry_access(command.access)
        env = build_environment(values={**access.env, **command.env})
        request = JobRequest(
            argv=command.argv,
            cwd=command.cwd,
            folder=self._folder,
            tag=f"{self._tag}-{self._runs}",
            env={**env, "PATH": ":".join([*map(str, command.path_prefix), env["PATH"]])},
            level=choose_level(self._wanted_level, needs_network=command.network),
            timeout_s=command.timeout_s,
            limits=self._limits,
            writable=(command.whole_checkout or command.cwd,),
            readable=(*self._readable, *access.readable),
            stdout_log=command.log,
            stderr_log=command.log.with_suffix(".stderr") if command.log else None,
            secrets=list_credentials(access),
        )

        broker = self._make_egress_proxy(command, request.level)
        if broker is not None:
            request = request._replace(env={**request.env, **EGRESS_PROXY_ENV}, egress_proxy=broker)

        outcome = self._stop.run_job(SandboxedJob(request))
        if command.log is not None:
            _append_stderr(command.log)

        return CommandResult(
            exit_status=outcome.exit_code,
            stdout=outcome.stdout.text,
            stderr=outcome.stderr.text
            + (_format_refused_hosts(broker.refused_hosts) if broker is not None else ""),
            duration_s=outcome.duration_s,
            timed_out=outcome.timed_out,
            exceeded_limit=outcome.exceeded_limit,
            is_truncated=outcome.stdout.truncated or outcome.stderr.truncated,
            ended_at_s=time.time(),
        )

    def _make_egress_proxy(self, command: Command, level: SandboxLevel) -> EgressProxy | None:
        is_bounded = bool(self._hosts) and ANY_HOST not in self._hosts
        if command.network and is_bounded and can_restrict_hosts(level, is_bounded):
            return EgressProxy(self._hosts)
        return None


def _format_refused_hosts(hosts: Sequence[str]) -> str:
    names = ", ".join(hosts[:_MAX_HOSTS_SHOWN])
    if names:
        return (
            f"\nconnections to {names} were refused; to allow them, set `setup_allowed_hosts` in"
            " [run]\n"
        )
    return ""


def _get_registry_access(wanted: RegistryAccessLevel) -> RegistryAccess:
    if wanted is RegistryAccessLevel.NONE:
        return NO_ACCESS
    if wanted is RegistryAccessLevel.USER:
        return get_user_access(os.environ)
    return get_anonymous_access(os.environ)


def _append_stderr(log: Path) -> None:
    """Append the stderr file of a command to its stdout log, so that readers need only one file."""
    errors = log.with_suffix(".stderr")
    if errors.exists():
        with log.open("ab") as file, errors.open("rb") as source:
            shutil.copyfileobj(source, file)
        errors.unlink()
