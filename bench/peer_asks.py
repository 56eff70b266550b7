"""The same question in each peer's own words: what is next, where do many items stand, prepare this repository."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from bench.peer_runs import Ask

MANY = 1000
FEWER = 200  # for the one whose cost grows faster than its input
BACKLOG_INIT = (
    *("init", "bench", "--defaults", "--integration-mode", "none"),
    *("--check-branches", "false", "--include-remote", "false"),
)
OPENSPEC_INIT = ("init", "--tools", "none", "--force", ".")
SPECIFY_INIT = (
    "init",
    "--here",
    "--force",
    "--non-interactive",
    "--ignore-agent-tools",
    "--script",
    "sh",
)
TASK_MASTER_INIT = (
    "init",
    "--yes",
    "--name",
    "bench",
    "--no-git",
    "--no-aliases",
    "--skip-install",
)
SPEC_KITTY_INIT = ("init", "--ai", "claude", "--non-interactive")
SPEC_KITTY_MISSION = (
    *(
        "agent",
        "mission",
        "create",
        "many-parts",
        "--topology",
        "single_branch",
        "--friendly-name",
        "Many parts",
    ),
    *(
        "--purpose-tldr",
        "Build many parts",
        "--purpose-context",
        "Many parts are wanted.",
        "--json",
    ),
)
SPEC_KITTY_SETUP = (SPEC_KITTY_INIT, SPEC_KITTY_MISSION)


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
            (change / "proposal.md").write_text(
                "# Change\n\n## Why\nIt is wanted.\n\n## What Changes\n- A part\n"
            )
            (change / "tasks.md").write_text("## 1. Work\n- [x] 1.1 One\n- [ ] 1.2 Two\n")

    return write


def task_master_tasks(items: int) -> Callable[[Path], None]:
    task = {
        "title": "Build part",
        "description": "A part",
        "status": "pending",
        "priority": "medium",
    }
    empty = {"details": "", "testStrategy": "", "dependencies": [], "subtasks": []}
    tasks = [{"id": number, **task, **empty} for number in range(1, items + 1)]
    created = {
        "created": "2026-03-01T10:15:34Z",
        "updated": "2026-03-01T10:15:34Z",
        "description": "Parts",
    }

    def write(folder: Path) -> None:
        (folder / ".taskmaster/tasks").mkdir(parents=True)
        (folder / ".taskmaster/config.json").write_text(
            json.dumps({"global": {"anonymousTelemetry": False}})
        )
        content = {"master": {"tasks": tasks, "metadata": created}}
        (folder / ".taskmaster/tasks/tasks.json").write_text(json.dumps(content))

    return write


def spec_kitty_packages(items: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (tasks,) = folder.glob("kitty-specs/many-parts*/tasks")
        for number in range(1, items + 1):
            head = f"---\nwork_package_id: WP{number:03}\ntitle: Build part\ndependencies: []\nsubtasks: [T001]\n---\n"
            (tasks / f"WP{number:03}-part.md").write_text(head + "# Build part\n")

    return write


NEXT = (
    Ask(
        "backlog",
        ("task", "list", "--ready", "--plain"),
        "Build part",
        setup=(BACKLOG_INIT,),
        write=backlog_tasks(1),
    ),
    Ask(
        "openspec",
        ("status", "--change", "build-part-0001"),
        "Next: openspec instructions",
        setup=(OPENSPEC_INIT,),
        write=openspec_changes(1),
    ),
    Ask("task-master", ("next",), "Next Task: #1 - Build part", write=task_master_tasks(1)),
    Ask(
        "spec-kitty",
        ("next", "--mission", "many-parts"),
        "Next step:",
        setup=SPEC_KITTY_SETUP,
        write=spec_kitty_packages(1),
    ),
)
STATUS = (
    Ask(
        "backlog",
        ("task", "list", "--plain"),
        "Build part",
        MANY,
        (BACKLOG_INIT,),
        backlog_tasks(MANY),
    ),
    Ask("openspec", ("list",), "build-part-", MANY, (OPENSPEC_INIT,), openspec_changes(MANY)),
    Ask("task-master", ("list",), "Build part", MANY, write=task_master_tasks(MANY)),
    Ask(
        "spec-kitty",
        ("agent", "tasks", "status", "--mission", "many-parts", "--json"),
        "Build part",
        FEWER,
        SPEC_KITTY_SETUP,
        spec_kitty_packages(FEWER),
        note=f"with {FEWER} packages",
    ),
)
INIT = (
    Ask("backlog", BACKLOG_INIT, "Initialized backlog project", in_a_new_folder=True),
    Ask("openspec", OPENSPEC_INIT, "OpenSpec Setup Complete", in_a_new_folder=True),
    Ask("task-master", TASK_MASTER_INIT, "see all available", in_a_new_folder=True),
    Ask("spec-kitty", SPEC_KITTY_INIT, "Saved agent configuration", in_a_new_folder=True),
    Ask("specify", SPECIFY_INIT, "Next Steps", in_a_new_folder=True),
)
