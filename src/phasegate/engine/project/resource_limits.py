"""Read the resource limits and the sandbox level of jobs from the configuration."""

from __future__ import annotations

from phasegate.config.settings import SandboxMode
from phasegate.engine.project.project import Project
from phasegate.errors import EnvironmentUnavailable
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import MIB, JobLimits, SandboxLevel


def get_sandbox_level(project: Project) -> SandboxLevel | None:
    """Return the configured sandbox level, or None for the strongest available one.

    Without a sandbox, no code of a repository runs that the user has not accepted: its setup and
    its tests are programs too.
    """
    sandbox = project.config.run.sandbox
    if not project.trust.is_accepted:
        if sandbox is SandboxMode.NONE:
            raise EnvironmentUnavailable(
                "`sandbox` in [run] is none, and you have not accepted this repository",
                "review and accept it with `phasegate trust`, or use another level",
            )

        support = probe_level(SandboxLevel.WORKTREE)
        if sandbox is SandboxMode.AUTO and not support.is_supported:
            raise EnvironmentUnavailable(
                f"no sandbox is available ({support.problem}), and you have not accepted this"
                " repository",
                "review and accept it with `phasegate trust`, or install bubblewrap",
            )

    if sandbox is SandboxMode.AUTO:
        return None
    return SandboxLevel(sandbox.value)


def make_job_limits(project: Project) -> JobLimits:
    """Return the resource limits of every job."""
    limits = project.config.limits
    return JobLimits(
        open_files=limits.job_open_files,
        tasks=limits.job_tasks,
        memory_bytes=limits.job_memory_mib * MIB,
        disk_bytes=limits.job_disk_mib * MIB,
    )
