"""Encode the task statuses of a package, as reported by its agents, as one line in its row.

Imports nothing: `status` reads these lines.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_STATUS = "no status"


def encode_task_statuses(tasks: Iterable[str], statuses: Mapping[str, str]) -> str:
    """Return `1.1=COMPLETED 1.2`: every task of a package, with its last status if it has one."""
    return " ".join(f"{name}={statuses[name]}" if name in statuses else name for name in tasks)


def decode_task_statuses(line: str) -> dict[str, str]:
    """Return the tasks of a row in order; the status of a task without one is ""."""
    pairs = (word.partition("=") for word in line.split())
    return {name: status for name, _, status in pairs}


def format_task_statuses(tasks: Mapping[str, str]) -> str:
    """Format each task with its status."""
    return ", ".join(f"{name} {status or NO_STATUS}" for name, status in tasks.items())


def summarize_tasks(packages: Mapping[str, Mapping[str, str]]) -> str:
    """Return how many tasks of the packages are completed, and which failed; "" without tasks."""
    statuses = {
        f"{package_id} {name}": status
        for package_id, tasks in packages.items()
        for name, status in tasks.items()
    }
    if not statuses:
        return ""

    completed = sum(status == "COMPLETED" for status in statuses.values())
    failed = [name for name, status in statuses.items() if status == "FAILED"]

    summary = f"tasks: {completed} of {len(statuses)} completed"
    if failed:
        summary += f"; FAILED: {', '.join(failed)}"
    return summary
