"""How far the tasks of a package are, as its agents report.

Kept as a line of text in the package's row.

Loads nothing: `status` reads these lines.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_STATUS = "no status"


def encode_task_statuses(tasks: Iterable[str], statuses: Mapping[str, str]) -> str:
    """`1.1=COMPLETED 1.2`: every task of a package, with its last status if it has one."""
    return " ".join(f"{name}={statuses[name]}" if name in statuses else name for name in tasks)


def decode_task_statuses(line: str) -> dict[str, str]:
    """The tasks of a row in their order; a task without a status has an empty one."""
    pairs = (word.partition("=") for word in line.split())
    return {name: status for name, _, status in pairs}


def format_task_statuses(tasks: Mapping[str, str]) -> str:
    """Each task with its status."""
    return ", ".join(f"{name} {status or NO_STATUS}" for name, status in tasks.items())


def summarize_tasks(packages: Mapping[str, Mapping[str, str]]) -> str:
    """How many tasks of these packages are completed, and which failed.

    Nothing where there are no tasks.
    """
    total = sum(len(tasks) for tasks in packages.values())
    done = sum(status == "COMPLETED" for tasks in packages.values() for status in tasks.values())
    failed = [
        f"{id_} {name}"
        for id_, tasks in packages.items()
        for name, said in tasks.items()
        if said == "FAILED"
    ]

    if total:
        return f"tasks: {done} of {total} completed" + f"; FAILED: {', '.join(failed)}" * bool(
            failed
        )

    return ""
