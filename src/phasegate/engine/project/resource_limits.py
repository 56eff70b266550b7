"""Read the resource limits and the sandbox level of jobs from the configuration."""

from __future__ import annotations

from phasegate.config.settings import SandboxMode
from phasegate.engine.project.project import Project
from phasegate.sandbox.request import MIB, JobLimits, SandboxLevel


def get_sandbox_level(project: Project) -> SandboxLevel | None:
    """Return the configured sandbox level; None for the strongest available one."""
    sandbox = project.config.run.sandbox
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
