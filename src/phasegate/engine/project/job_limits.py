"""Resource limits and the sandbox level of a job, from the configuration."""

from __future__ import annotations

from phasegate.config.settings import SandboxMode
from phasegate.engine.project.project import Project
from phasegate.sandbox.request import MIB, JobLimits, SandboxLevel


def get_sandbox_level(project: Project) -> SandboxLevel | None:
    """The configured level; None when the strongest one is to be taken."""
    sandbox = project.config.run.sandbox
    if sandbox is SandboxMode.AUTO:
        return None
    return SandboxLevel(sandbox.value)


def make_job_limits(project: Project) -> JobLimits:
    """What each job of a project may use."""
    given = project.config.limits
    return JobLimits(
        open_files=given.job_open_files,
        tasks=given.job_tasks,
        memory_bytes=given.job_memory_mib * MIB,
        disk_bytes=given.job_disk_mib * MIB,
    )
