"""Which levels hold on this machine: found out by trying them, once a process."""

from __future__ import annotations

import os
import platform
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import EnvironmentUnavailable, PhasegateError
from phasegate.sandbox import bubblewrap_arguments, seccomp, syscalls
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import JobOutcome, JobRequest, SandboxLevel

_SOCKET_SCOPE_LANDLOCK_VERSION = 6
_HINT = "install bubblewrap and allow user namespaces, or set `sandbox` in [run] to a level that holds here"
# Writes inside, then tries to write outside, then shows which namespaces it is in.
_TRIAL_SCRIPT = (
    'echo in > inside; echo out > "$1"; for kind in pid net; do readlink /proc/self/ns/$kind; done'
)


class LevelSupport(NamedTuple):
    """Whether one level holds here: if not, why; if so, what it lacks on this machine."""

    level: SandboxLevel
    is_supported: bool
    problem: str = ""
    gaps: tuple[str, ...] = ()


def choose_level(wanted: SandboxLevel | None, needs_network: bool) -> SandboxLevel:
    """The wanted level, or a refusal.

    When none is named, the strongest that holds and that the network need allows.
    """
    if wanted is not None:
        found = probe_level(wanted)
        if not found.is_supported:
            raise EnvironmentUnavailable(
                f"The sandbox level {wanted} does not hold here: {found.problem}", _HINT
            )

        return wanted

    candidates = (
        (SandboxLevel.WORKTREE,) if needs_network else (SandboxLevel.OFFLINE, SandboxLevel.WORKTREE)
    )
    return next(
        (level for level in candidates if probe_level(level).is_supported), SandboxLevel.NONE
    )


def can_restrict_hosts(level: SandboxLevel, hosts_known: bool) -> bool:
    """Whether a job with a network is bound to its hosts.

    Always at `offline`, at `worktree` where they are known.
    """
    return level is SandboxLevel.OFFLINE or (
        level is SandboxLevel.WORKTREE
        and hosts_known
        and probe_level(SandboxLevel.OFFLINE).is_supported
    )


@cache
def probe_level(level: SandboxLevel) -> LevelSupport:
    """Whether this level holds here: tried once a process."""
    if level is SandboxLevel.NONE:
        return LevelSupport(
            level, True, gaps=("nothing is enforced: changes are looked for afterwards",)
        )

    if bubblewrap_arguments.find_bubblewrap() is None:
        return LevelSupport(level, False, "bubblewrap is not installed")
    # The same, and no network besides
    if level is SandboxLevel.WORKTREE and probe_level(SandboxLevel.OFFLINE).is_supported:
        return LevelSupport(level, True, gaps=_find_gaps(level))

    with tempfile.TemporaryDirectory(prefix="phasegate-probe-") as folder:
        why_not = _run_trial(level, Path(folder).resolve())

    return LevelSupport(level, not why_not, why_not, () if why_not else _find_gaps(level))


def _run_trial(level: SandboxLevel, folder: Path) -> str:
    """Why the level does not hold, or nothing."""
    work = folder / "work"
    canary = folder / "canary"
    work.mkdir()
    canary.write_text("untouched")
    argv = ("/bin/sh", "-c", _TRIAL_SCRIPT, "sh", str(canary))
    tag = f"probe-{os.getpid()}-{level}"
    request = JobRequest(
        argv=argv,
        cwd=work,
        folder=folder / "job",
        tag=tag,
        env=build_environment(),
        level=level,
        timeout_s=20.0,
        writable=(work,),
    )

    try:
        outcome = SandboxedJob(request).run()
    except PhasegateError as error:
        return error.message

    if not (work / "inside").is_file():
        return f"a job could not write to its own folder: {outcome.stderr.text.strip()}"
    if canary.read_text() != "untouched":
        return "a job could write outside of its folder"

    return _find_shared_namespace(level, outcome)


def _find_shared_namespace(level: SandboxLevel, outcome: JobOutcome) -> str:
    pid, net = (*outcome.stdout.text.split(), "", "")[:2]
    if not pid or pid == os.readlink("/proc/self/ns/pid"):
        return "a job shares our PID namespace"
    if level is SandboxLevel.OFFLINE and (not net or net == os.readlink("/proc/self/ns/net")):
        return "a job shares our network"
    return ""


def _find_gaps(level: SandboxLevel) -> tuple[str, ...]:
    version = syscalls.get_landlock_version()
    sockets_open = level is SandboxLevel.WORKTREE and version < _SOCKET_SCOPE_LANDLOCK_VERSION
    gaps = {
        "Landlock is missing: only the mount namespace keeps writes inside": version == 0,
        "abstract unix sockets of the machine can be reached (Landlock 6 closes them)": sockets_open,
        "the network is open to agents whose hosts are not known": level is SandboxLevel.WORKTREE,
        "no system-call filter for this processor": seccomp.build_filter(platform.machine())
        is None,
        "the number of processes is not bounded, because we run as root": os.geteuid() == 0,
    }
    return tuple(text for text, applies in gaps.items() if applies)
