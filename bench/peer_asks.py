"""The same question in each peer's own words: what is next, where do many items stand, prepare this repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.peer_runs import Ask

MANY = 1000
BACKLOG_INIT = (
    *("init", "bench", "--defaults", "--integration-mode", "none"),
    *("--check-branches", "false", "--include-remote", "false"),
)
OPENSPEC_INIT = ("init", "--tools", "none", "--force", ".")


def backlog_tasks(items: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        tasks = folder / "backlog/tasks"
        tasks.mkdir(parents=True, exist_ok=True)
        for number in range(1, items + 1):
            text = (
                f"---\nid: TASK-{number}\ntitle: Build part\nstatus: To Do\nassignee: []\n"
                f"created_date: '2026-03-01 10:15'\nlabels: []\ndependencies: []\nordinal: {number}000\n---\n"
            )
            (tasks / f"task-{number} - Build-part.md").write_text(text)

    return write


def openspec_changes(items: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for number in range(1, items + 1):
            change = folder / f"openspec/changes/build-part-{number:04}"
            change.mkdir(parents=True)
            (change / "proposal.md").write_text("# Change\n\n## Why\nIt is wanted.\n\n## What Changes\n- A part\n")
            (change / "tasks.md").write_text("## 1. Work\n- [x] 1.1 One\n- [ ] 1.2 Two\n")

    return write


NEXT = (
    Ask("backlog", ("task", "list", "--ready", "--plain"), "Build part", setup=(BACKLOG_INIT,), write=backlog_tasks(1)),
    Ask(
        "openspec",
        ("status", "--change", "build-part-0001"),
        "Next: openspec instructions",
        setup=(OPENSPEC_INIT,),
        write=openspec_changes(1),
    ),
)
STATUS = (
    Ask("backlog", ("task", "list", "--plain"), "Build part", MANY, (BACKLOG_INIT,), backlog_tasks(MANY)),
    Ask("openspec", ("list",), "build-part-", MANY, (OPENSPEC_INIT,), openspec_changes(MANY)),
)
INIT = (
    Ask("backlog", BACKLOG_INIT, "Initialized backlog project", in_a_new_folder=True),
    Ask("openspec", OPENSPEC_INIT, "OpenSpec Setup Complete", in_a_new_folder=True),
    Ask(
        "specify",
        ("init", "--here", "--force", "--non-interactive", "--ignore-agent-tools", "--script", "sh"),
        "Next Steps",
        in_a_new_folder=True,
    ),
)
