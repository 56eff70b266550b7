"""A launch as a job of the cage, and the end of that job as the harness reads it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from phasegate.agents.port import Finished, Launch, Task
from phasegate.agents.spool import Spool, place_commands
from phasegate.cage.environment import scrubbed
from phasegate.cage.level import Level
from phasegate.cage.request import Outcome, Request


def job_request(
    task: Task, launch: Launch, folder: Path, spool: Spool, *, tag: str, level: Level, timeout_s: float
) -> Request:
    """What to ask of the cage. `folder` is the job's own; the commands of the spool are put into it, first on PATH.

    The agent can read what its envelope names and the answers of the spool, and write to its checkout and requests.
    """
    programs = folder / "bin"
    place_commands(programs, spool.folder)
    _place(launch, folder / "home")
    env = scrubbed(launch.pass_env, launch.env)
    context = (Path(path) for path in task.envelope.context_paths)
    return Request(
        argv=launch.argv,
        command=launch.argv,  # the person configured it: it stays readable wherever it lies
        cwd=task.checkout,
        folder=folder,
        tag=tag,
        env={**env, "PATH": f"{programs}:{env['PATH']}"},
        level=level,
        timeout_s=timeout_s,
        stdin=launch.stdin,
        writable=(task.checkout, spool.folder / "requests"),
        readable=(task.prompt_xml, *context, *launch.readable, programs, spool.folder / "answers"),
    )


def _place(launch: Launch, home: Path) -> None:
    for name, content in launch.home_files.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{name} is not inside the home folder")
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)


def finished_of(outcome: Outcome, ended_at_s: float) -> Finished:
    """How the job ended, in the words of the port."""
    return Finished(
        exit_status=outcome.exit_code,
        signal=outcome.signal,
        stdout=outcome.stdout.text,
        stderr=outcome.stderr.text,
        cut=outcome.stdout.cut or outcome.stderr.cut,
        told_to_stop=outcome.told_to_stop,
        timed_out=outcome.timed_out,
        duration_s=outcome.duration_s,
        ended_at_s=ended_at_s,
    )
