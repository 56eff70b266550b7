"""Task lists as people write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phasegate.core.plan.tasks import Task

_NOTHING = ("", "none", "-", "—", "n/a")


def render(tasks: Sequence[Task]) -> str:
    """Checkbox lines that mean these tasks."""
    return "\n".join(_lines_of(task) for task in tasks)


def _lines_of(task: Task) -> str:
    fields = {
        "File": _join(task.files),
        "Spec": _join(task.spec),
        "Do": task.do,
        "Depends": _join(task.depends),
    }
    lines = [f"- [{'x' if task.done else ' '}] {task.id} {task.title}"]
    lines += [f"  - {label}: {value}" for label, value in fields.items() if value]
    return "\n".join([*lines, ""])


def _join(values: Iterable[str]) -> str:
    return ", ".join(
        f"`{value}`" if {",", " "} & {*value} or value.lower() in _NOTHING else value
        for value in values
    )
