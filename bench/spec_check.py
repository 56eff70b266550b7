"""`phasegate spec check` over 1 000 items, against an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.measure import Row, command, in_turn
from phasegate.core.plan.work_package import Deliverables, WorkPackage
from phasegate.prompts.package_writer import PackagePlan, render_package

GOAL, GROWTH = 15, 13
ITEMS = 1000
SLUG = "001-many-items"


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as room:
        requirements, tasks = Path(room) / "requirements" / SLUG, Path(room) / "tasks" / SLUG
        _write(requirements)
        _write(tasks, with_tasks=True)
        return [
            _row(requirements, f"spec check of {ITEMS} requirements, against python3 -c pass"),
            _row(
                tasks,
                f"spec check of {ITEMS} requirements and {ITEMS} tasks, against python3 -c pass",
            ),
            _growth(Path(room)),
        ]


def _row(folder: Path, name: str) -> Row:
    ours, nothing = in_turn(_check(folder), command([sys.executable, "-c", "pass"]))
    return Row(name, ours, nothing, GOAL)


def _growth(room: Path) -> Row:
    """Ten times the work packages may cost thirteen times as much, start-up taken off."""
    folders = {count: room / str(count) / SLUG for count in (1, ITEMS // 10, ITEMS)}
    for count, folder in folders.items():
        _write(folder, packages=count)
    checks = {count: _check(folder) for count, folder in folders.items()}
    start, few = in_turn(checks[1], checks[ITEMS // 10])
    many, _ = in_turn(checks[ITEMS], checks[1])
    return Row(
        f"spec check of {ITEMS} work packages, against {ITEMS // 10}",
        many - start,
        few - start,
        GROWTH,
    )


def _check(folder: Path) -> Callable[[], object]:
    """The command, once it was seen to say the right thing."""
    argv = [str(Path(sys.executable).with_name("phasegate")), "spec", "check", str(folder)]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert "no findings" in said, said
    return command(argv)


def _write(folder: Path, with_tasks: bool = False, packages: int = 0) -> None:
    (folder / "tasks").mkdir(parents=True)
    if not packages:
        (folder / "spec.md").write_text(_specification())
    if with_tasks:
        (folder / "tasks.md").write_text(_tasks())
    for number in range(1, packages + 1):
        (folder / f"tasks/WP{number:02}.md").write_text(_package(number))


def _specification() -> str:
    head = f"<!-- spec-kitty: validated -->\n<!-- spec-kitty: fr-count: {ITEMS} -->\n# Feature\n"
    blocks = (
        f'<!-- sk:fr id="FR-AREA-{n:03}" priority="high" -->\n- The system must do {n} in every case\n<!-- /sk:fr -->\n'
        for n in range(1, ITEMS + 1)
    )
    return head + "\n".join(blocks)


def _tasks() -> str:
    return "\n".join(_task(number) for number in range(1, ITEMS + 1))


def _task(number: int) -> str:
    layer, index = divmod(number - 1, ITEMS // 4)
    lines = [
        f"- [ ] {layer + 1}.{index + 1} Build part {number}",
        f"  - File: src/part{number}/module.py, tests/part{number}/test_module.py",
        f"  - Spec: FR-AREA-{number:03}",
        "  - Do: Make it so.",
        *([f"  - Depends: {layer + 1}.{index}"] if index else []),
    ]
    return "\n".join([*lines, ""])


def _package(number: int) -> str:
    code, test = f"src/part{number}/module.py", f"tests/part{number}/test_module.py"
    package = WorkPackage(
        work_package_id=f"WP{number:02}",
        title=f"Build part {number}",
        feature_slug=SLUG,
        file_scope=(f"src/part{number}/**", test),
        dependencies=(f"WP{number - 1:02}",) if number > 1 else (),
        deliverables=Deliverables((code,), (test,)),
        requirements=(f"FR-AREA-{number:03}",),
        tasks=("1.1",),
        profile="python",
    )
    plan = PackagePlan(
        created="2025-01-15T10:30:00Z",
        base_branch=f"feat/{SLUG}",
        commands={"test": "python -m pytest -q"},
    )
    return render_package(package, plan)
