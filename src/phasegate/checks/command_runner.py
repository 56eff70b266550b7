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
from phasegate.core.agents.hosts import ANY_HOST, PUBLIC_HOSTS
from phasegate.core.credentials import lends_registry_credentials
from phasegate.core.trust import Trust
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
        *,
        trust: Trust = Trust(),  # noqa: B008 - frozen
    ) -> None:
        """Create a runner that keeps home and temporary files in `folder`.

        Without `wanted_level`, the strongest available level is used.

        `readable` are paths outside the checkout that it depends on, such as the objects of its git
        directory. `hosts` are the hosts that commands with network access may reach. If empty, they
        may reach every host, or none at level `offline`. `trust` decides whether
        setups get the user's credentials for registries.
        """
        self._folder = folder
        self._tag = tag
        self._wanted_level = wanted_level
        self._readable = readable
        self._stop = stop or StopEvent()
        self._limits = limits
        self._hosts = hosts
        self._trust = trust
        self._runs = 0

    def __call__(self, command: Command, /) -> CommandResult:
        """Run a command in the sandbox, with registry access as far as it is allowed."""
        self._runs += 1
        access = self._get_registry_access(command.access)
        withholds = command.access is RegistryAccessLevel.USER and not self._trust.lends_credentials
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
            writable=(command.whole_checkout or command.cwd, *command.writable),
            readable=(*self._readable, *access.readable, *command.readable),
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

        hints = ""
        if broker is not None:
            hints = _format_refused_hosts(broker.refused_hosts)
        if withholds and outcome.exit_code != 0:
            hints += _describe_withheld_credentials()

        return CommandResult(
            exit_status=outcome.exit_code,
            stdout=outcome.stdout.text,
            stderr=outcome.stderr.text + hints,
            duration_s=outcome.duration_s,
            timed_out=outcome.timed_out,
            exceeded_limit=outcome.exceeded_limit,
            is_truncated=outcome.stdout.truncated or outcome.stderr.truncated,
            ended_at_s=time.time(),
        )

    def _get_registry_access(self, wanted: RegistryAccessLevel) -> RegistryAccess:
        if wanted is RegistryAccessLevel.NONE:
            return NO_ACCESS
        is_users_tree = wanted is RegistryAccessLevel.USER
        if lends_registry_credentials(self._trust, is_users_tree=is_users_tree):
            return get_user_access(os.environ)
        return get_anonymous_access(os.environ)

    def _make_egress_proxy(self, command: Command, level: SandboxLevel) -> EgressProxy | None:
        hosts = self._hosts
        # Code of a repository that the user has not accepted reaches no service of this machine.
        if not hosts and not self._trust.is_accepted and level is SandboxLevel.WORKTREE:
            hosts = (PUBLIC_HOSTS,)

        is_bounded = bool(hosts) and ANY_HOST not in hosts
        if command.network and is_bounded and can_restrict_hosts(level, is_bounded):
            return EgressProxy(hosts)
        return None


def _format_refused_hosts(hosts: Sequence[str]) -> str:
    names = ", ".join(hosts[:_MAX_HOSTS_SHOWN])
    if names:
        return (
            f"\nconnections to {names} were refused; to allow them, set `setup_allowed_hosts` in"
            " [run]\n"
        )
    return ""


def _describe_withheld_credentials() -> str:
    """Return a hint for a failed setup if the user has credentials that it did not get."""
    if not list_credentials(get_user_access(os.environ)):
        return ""
    return (
        "\nyour package registry credentials are not passed to a repository that you have"
        " not accepted; to pass them, run: phasegate trust\n"
    )


def _append_stderr(log: Path) -> None:
    """Append the stderr file of a command to its stdout log, so that readers need only one file."""
    errors = log.with_suffix(".stderr")
    if errors.exists():
        with log.open("ab") as file, errors.open("rb") as source:
            shutil.copyfileobj(source, file)
        errors.unlink()
