"""No tree is checked twice: results are found by tree and command, in the record alone."""

from __future__ import annotations

from pathlib import Path

from phasegate.core.workflow.workflow_phases import WORKFLOWS
from support.dispatch_project import Turn
from support.feature_project import (
    APPROVES,
    ARCHIVES,
    BYE,
    DESCRIPTION,
    TEST,
    FeatureProject,
    builds,
    document,
    file,
    make_feature_project,
    plans,
)
from support.feature_project import PASS as PASSES

PHASES = WORKFLOWS["feature"]
NAMES = ("bye", "hello", "thanks")
TASKS = "# Tasks\n\n" + "".join(
    f"- [ ] {number}.1 Say {name}\n  - File: {name}.py, test_{name}.py\n  - Spec: FR-BYE-001\n"
    f"  - Do: say {name}.\n"
    for number, name in enumerate(NAMES, start=1)
)


def turns() -> list[Turn]:
    """A feature of three packages without a hitch."""
    writers = [
        plans(key, PHASES)
        for key in PHASES
        if key in ("00-quick-scan", "01-requirements", "02-impact-analysis", "03-architecture")
    ]
    design = plans("04-design", PHASES)
    strategy = plans("05-test-strategy", PHASES)
    strategy["steps"] = [
        document("test-strategy.md"),
        document("tasks.md", TASKS),
        PASSES,
    ]
    packages = [
        builds(
            f"WP{number:02}",
            file(f"{name}.py", BYE.replace("bye", name)),
            file(f"test_{name}.py", TEST.format(module=name)),
        )
        for number, name in enumerate(NAMES, start=1)
    ]
    return [*writers, design, strategy, *packages, *APPROVES, ARCHIVES]


def counting_project(folder: Path) -> tuple[FeatureProject, Path]:
    """A project whose test command notes each run outside of the checkout."""
    # Without the test strength, which runs the suite on other trees on purpose
    settings = '[run]\nsandbox = "none"\nparallel = 1\n[evidence]\nenabled = false\n'
    made = make_feature_project(folder, config=settings)
    count = folder / "runs"
    config = made.root / "phasegate.toml"
    command = f"echo run >> {count}; python3 -m unittest -q"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("python3 -m unittest -q", command), encoding="utf-8")
    made.git("commit", "-qam", "count the runs of the suite")
    made.play(*turns())
    return made, count


def runs(count: Path) -> int:
    return len(count.read_text(encoding="utf-8").splitlines()) if count.exists() else 0


def test_a_feature_of_three_packages_runs_the_suite_at_most_five_times_and_the_next_base_none(
    tmp_path: Path,
) -> None:
    made, count = counting_project(tmp_path)
    done = made.program("run", "feature", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    assert {row.state for row in made.packages().values()} == {"DONE"}
    assert runs(count) <= 5, done.stderr

    # Green commands of 11, 07 and 10 were judged by their evidence: no reviewer was paid.
    reviewed = {job.workflow_phase for job in made.jobs() if job.phase == "review"}
    assert reviewed == {"06-implementation", "08-code-review"}
    assert done.stderr.count("no reviewer needed") == 3

    # The merged tree is the next base: its results are on record.
    before = runs(count)
    assert made.command("check").code == 0
    assert runs(count) == before
    assert made.command("check", "--no-cache").code == 0
    assert runs(count) == before + 1, "control: it does run"
    assert made.audit_problems() == []


def test_a_tree_that_was_checked_is_known_in_every_commit_and_another_tree_is_not(
    tmp_path: Path,
) -> None:
    made, count = counting_project(tmp_path)
    made.play(*turns())
    assert made.command("check").code == 0
    assert runs(count) == 1
    made.git("commit", "-q", "--allow-empty", "-m", "nothing new")
    assert made.command("check").code == 0
    assert runs(count) == 1, "the same tree in another commit"

    (made.root / "test_greet.py").write_text("import unittest\n", encoding="utf-8")
    made.git("commit", "-qam", "no test is left")
    assert made.command("check").code == 1
    assert runs(count) > 1, "control: another tree"
