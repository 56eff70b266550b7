"""A small change gets the phases that it needs; what is unclear, or demanded, gets all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.core.workflow.workflow_phases import WORKFLOWS
from support.dispatch_project import Turn
from support.feature_project import (
    APPROVES,
    ARCHIVES,
    BYE,
    DESCRIPTION,
    PASS,
    TEST,
    FeatureProject,
    accepts,
    builds,
    document,
    file,
    make_feature_project,
    plans,
    turn,
)

PHASES = WORKFLOWS["feature"]
FOLDED = tuple(
    key
    for key in PHASES
    if key not in ("02-impact-analysis", "03-architecture", "05-test-strategy")
)
SMALL = (
    "# Quick Scan\n\n| Class (small, medium, large) | small |\n| Risk (low, medium, high) | low |\n"
)


def scans(text: str) -> Turn:
    return turn("plan", document("quick-scan.md", text), PASS, workflow_phase="00-quick-scan")


def designs() -> Turn:
    """The one planning phase of a small change."""
    wanted = (document("plan.md"), document("specs/"), document("tasks.md"), accepts())
    return turn("plan", *wanted, PASS, workflow_phase="04-design")


def small_project(folder: Path, scan: str = SMALL, config: str = "") -> FeatureProject:
    """A feature whose tasks are one package, by the setting for a single agent."""
    made = make_feature_project(folder, config=f"[run]\npackages = 1\n{config}")
    everything = builds(
        "WP01",
        file("bye.py", BYE),
        file("test_bye.py", TEST.format(module="bye")),
        file("docs.md", "Call bye.\n"),
    )
    others = [plans(key, PHASES) for key in PHASES if key[:2] in ("01", "02", "03", "05")]
    made.play(scans(scan), designs(), *others, everything, *APPROVES, ARCHIVES)
    return made


def test_a_small_change_is_planned_once_and_its_one_package_is_reviewed_once(
    tmp_path: Path,
) -> None:
    made = small_project(tmp_path)
    done = made.program("run", "feature", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    assert made.feature().workflow.phases == FOLDED
    assert "All phases: run feature --full" in done.stderr
    assert [*made.packages()] == ["WP01"]
    # 00, 01 and 04 have a writer and a critic, the package an agent and a reviewer; then the archive.
    roles = [job.phase for job in made.jobs()]
    assert roles == ["plan", "challenge"] * 3 + ["implement", "review", "archive"]
    assert "the review of WP01 covers everything" in done.stderr
    assert [gate.outcome for gate in made.gates()] == ["passed"] * len(FOLDED)
    assert "bye.py" in made.files_of("main")


@pytest.mark.parametrize(
    ("scan", "arguments", "config"),
    [
        (SMALL, ("--full",), ""),
        (SMALL, (), "fit_to_size = false"),
        (
            SMALL,
            (),
            '[phases."03-architecture"]\nrequired_artifacts = ["architecture.md", "adr.md"]',
        ),
        (SMALL.replace("| low", "| high"), (), ""),
        (SMALL + "| Class | large |\n", (), ""),
        ("# Quick Scan\n\nIt is small, and the risk is low.\n", (), ""),
    ],
    ids=["full", "setting", "own phase", "risky", "contradiction", "unreadable"],
)
def test_an_unclear_estimate_or_a_demand_of_the_user_keeps_every_phase(
    tmp_path: Path, scan: str, arguments: tuple[str, ...], config: str
) -> None:
    made = small_project(tmp_path, scan, config)
    assert made.command("start", "feature", DESCRIPTION, *arguments).code == 0
    made.drive(stop_at_gates=True)
    made.drive(stop_at_gates=True)
    assert made.feature().workflow.phases == PHASES
    assert made.feature().workflow.index == 1
