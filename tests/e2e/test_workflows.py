"""Every type of workflow runs to its end on a real little project, and tells each step of its way once (W1, W3, N7)."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from phasegate.core.answer.block import check_block
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.core.workflow.phases import PhaseWork, get_phase, required_artifacts
from phasegate.core.workflow.workflow_phases import WORKFLOWS, resolve_display_name
from support.dispatch_project import Done, turn
from support.feature_project import (
    BUILDS_WRONGLY,
    DESCRIPTION,
    FOLDER,
    PASS,
    SLUG,
    STRICT,
    FeatureProject,
    blocks_in,
    document,
    make_feature_project,
    plans,
    says,
    smooth,
)

STARTED = "Describe your"
FAILED = ("Review gate failure details", "Retry gate check", "Escalate to human")
BLOCKER = ("Resolve blocker and retry", "Cancel workflow", "Show workflow status")
LAST = (
    "Complete workflow and merge to main",
    "Review all workflow artifacts",
    "Show workflow status",
)
COMPLETED = ("Start a new feature", "Run tests", "View project status")


def expect_blocks(done: Done, *expected: tuple[str, ...]) -> None:
    """These blocks and no other, in this order; every one is sound, and the last is the last thing of all."""
    assert blocks_in(done.stdout) == list(expected)
    assert done.stdout.count("SUGGESTED NEXT STEPS:") == len(expected)
    position = 0
    for _ in expected:
        position = done.stdout.index("\n---\n", done.stdout.index("SUGGESTED", position)) + 5
        assert check_block(done.stdout[:position], "next-steps") == []
    assert done.stdout[position:] == ""


def passed(phases: tuple[str, ...], key: str, noun: str) -> tuple[str, ...]:
    """The block behind a passed gate."""
    position = phases.index(key)
    if position + 1 == len(phases):
        return LAST
    name = resolve_display_name(phases[position + 1])
    return f"Continue to {name}", f"Review {noun} artifacts", "Show workflow status"


ORIGINAL = f"refs/phasegate/features/{SLUG}"


def expect_end(project: FeatureProject, type_: str, slug: str = SLUG) -> None:
    """Completed, merged, tidied up, on record."""
    assert project.feature(slug).workflow.stage is Stage.COMPLETED
    assert project.state() is None
    assert project.branches() == {"main"}
    assert project.left_over() == set()
    assert project.git("status", "--porcelain") == ""
    assert project.audit_problems() == []
    folder = f"kitty-specs/{slug}"
    phases = WORKFLOWS.get(type_, project.feature(slug).workflow.phases)
    there = {
        path.removeprefix(f"{folder}/")
        for path in project.files_of(f"refs/phasegate/features/{slug}")
        if path.startswith(folder)
    }
    expect_delivery(project, slug)
    for key in phases:
        for name in required_artifacts(key, phases):
            assert name in there or any(one.startswith(name) for one in there), (key, name)


def expect_delivery(project: FeatureProject, slug: str) -> None:
    """Code, tests, the changelog that the project keeps and one document; nothing else, ever."""
    start = project.git("rev-list", "--max-parents=0", "main")
    touched = project.git("log", "--format=", "--name-only", "-m", f"{start}..main").split()
    assert {path for path in touched if not path.endswith(".py")} == {
        "CHANGELOG.md",
        "docs.md",
        f"kitty-specs/{slug}/spec.md",
    }
    subject, _, body = project.git("show", "-s", "--format=%B", "main").partition("\n")
    assert len(subject) <= 72
    assert f"Specification: kitty-specs/{slug}/spec.md" in body
    for text in (project.show("main", f"kitty-specs/{slug}/spec.md"), body):
        assert not re.search(r"<review>|<!--|SUGGESTED NEXT STEPS|You are ", text)
    subjects = project.git("log", "--no-merges", "--format=%s", f"{start}..main").splitlines()
    ours = {f"Add the specification of {slug}", "archive: Update the changelog"}
    assert {one for one in subjects if not one.startswith("WP")} == ours


@pytest.mark.demand(
    "W1.b", "W3.a", "W3.c", "W6.a", "W6.d", "W7.b", "W7.c", "W7.d", "W7.e", "W7.h", "W7.i", "W7.j"
)
@pytest.mark.demand(
    "N7.a", "N7.c", "N7.d", "N7.f", "N7.h", "N1.i", "W7.m", "W8.e", "W8.f", "W8.g", "D12.b"
)
def test_a_feature_whose_every_check_fails_once_is_merged_and_told_block_by_block(
    tmp_path: Path,
) -> None:
    phases = WORKFLOWS["feature"]
    project = make_feature_project(tmp_path, config=STRICT)
    first = says(
        "challenge",
        "NEEDS_REVISION",
        "It says nothing about strangers.",
        workflow_phase="01-requirements",
        round=1,
    )
    change = says(
        "review", "NEEDS_CHANGES", "A remark is missing.", workflow_phase="08-code-review", round=1
    )
    project.play(first, change, *BUILDS_WRONGLY, *smooth(phases))
    done = project.call("run", "feature", DESCRIPTION)
    assert done.code == 0, done.stderr
    nouns = (
        "quick scan",
        "requirements",
        "impact analysis",
        "architecture",
        "design",
        "test strategy",
    )
    later = ("implementation", "local testing", "integration test", "CI/CD pipeline", "code review")
    blocks = [
        (
            "Describe your feature to begin Phase 00 - Quick Scan",
            "Show workflow phases",
            "Show workflow status",
        )
    ]
    for key, noun in zip(phases, (*nouns, *later), strict=True):
        if key in ("01-requirements", "11-local-testing", "10-cicd", "08-code-review"):
            blocks.append(FAILED)
        blocks.append(passed(phases, key, noun))
    expect_blocks(done, *blocks)
    gates = Counter((gate.phase, gate.outcome) for gate in project.gates())
    assert gates == {
        **{(key, "passed"): 1 for key in phases},
        **{(key, "failed"): 1 for key in _failed_once()},
    }
    assert done.stdout.count("GATE-01 FAILED") == done.stdout.count("GATE-01 PASSED") == 1
    packages = project.packages()
    assert {name: (row.state, row.round) for name, row in packages.items()} == {
        "WP01": ("DONE", 2),  # its test failed first
        "WP02": ("DONE", 2),  # its linter
        "WP03": ("DONE", 1),  # mended what GATE-11 found
        "WP04": ("DONE", 1),  # what GATE-10 found
        "WP05": ("DONE", 1),  # what GATE-08 found
    }
    assert "completed" in done.stderr or "phasegate complete" in done.stderr
    assert project.files_of("main").isdisjoint({"bye.py"})
    merged = project.call("complete")
    assert merged.code == 0, merged.stderr
    expect_blocks(merged, COMPLETED)
    expect_end(project, "feature")
    assert project.show("main", "bye.py").endswith("# tested\n# linted\n# reviewed\n")
    assert project.show("main", "CHANGELOG.md").endswith("- People are told bye.\n")
    assert (project.root / "bye.py").is_file()


def _failed_once() -> tuple[str, ...]:
    return "01-requirements", "11-local-testing", "10-cicd", "08-code-review"


@pytest.mark.demand("W1.c", "W3.c", "W6.e", "N7.a")
def test_a_fix_runs_to_its_merge(tmp_path: Path) -> None:
    project = make_feature_project(tmp_path, "fix")
    revision = says("challenge", "NEEDS_REVISION", workflow_phase="02-tracing", round=1)
    project.play(revision, *smooth(WORKFLOWS["fix"]))
    done = project.call("run", "fix", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    blocks = blocks_in(done.stdout)
    assert blocks[0][0] == "Describe your bug to begin Phase 01 - Requirements"
    assert blocks[1:4] == [
        passed(WORKFLOWS["fix"], "01-requirements", "requirements"),
        FAILED,
        passed(WORKFLOWS["fix"], "02-tracing", "trace analysis"),
    ]
    assert (len(blocks), blocks[-2:]) == (1 + 8 + 1 + 1, [LAST, COMPLETED])
    expect_end(project, "fix")


@pytest.mark.demand("W1.d", "W1.g", "N7.b", "W3.g")
def test_a_test_run_starts_by_itself_stops_at_a_failing_test_and_completes_without_a_merge(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path, "test-run")
    (project.root / "greet.py").write_text("def greet(name):\n    return 'Hello'\n")
    project.git("commit", "-qam", "Break it")
    slug = "001-test-run"
    stopped = project.call("run", "test-run")
    assert stopped.code == 1
    assert "GATE-11 FAILED" in stopped.stdout
    expect_blocks(stopped, BLOCKER)
    project.git("revert", "--no-edit", "HEAD")
    project.git("checkout", "-q", f"feat/{slug}")
    project.git("merge", "-q", "main")
    project.git("checkout", "-q", "main")
    expect_blocks(project.call("resolve", "the test is mended"))
    done = project.call("run")
    assert done.code == 0, done.stderr
    expect_blocks(
        done, passed(WORKFLOWS["test-run"], "11-local-testing", "local testing"), LAST, COMPLETED
    )
    assert project.feature(slug).workflow.stage is Stage.COMPLETED
    assert "kitty-specs" not in project.git("ls-tree", "--name-only", "main")


@pytest.mark.demand("W1.d", "N7.b")
def test_test_generate_starts_by_itself_and_runs_to_its_merge(tmp_path: Path) -> None:
    project = make_feature_project(tmp_path, "test-generate")
    done = project.call("run", "test-generate", "--merge")
    assert done.code == 0, done.stderr
    blocks = blocks_in(done.stdout)
    assert blocks[0] == passed(WORKFLOWS["test-generate"], "05-test-strategy", "test strategy")
    assert (len(blocks), blocks[-2:]) == (5 + 1, [LAST, COMPLETED])
    expect_end(project, "test-generate", "001-test-generate")


LATER = """
[phases."12-remote-build"]
commands = ["sh whole.sh built"]
[phases."14-production"]
commands = ["test", "sh -c 'echo released'"]
[phases."15-operations"]
commands = ["true"]
"""


@pytest.mark.demand("W1.e", "W7.f", "W7.g", "W4.b", "N7.e", "W7.k")
def test_a_full_lifecycle_runs_the_users_commands_and_takes_a_persons_word_where_there_is_none(
    tmp_path: Path,
) -> None:
    phases = WORKFLOWS["full-lifecycle"]
    project = make_feature_project(
        tmp_path, "full-lifecycle", config=LATER.replace("sh whole.sh built", "true")
    )
    stopped = project.call("run", "full-lifecycle", DESCRIPTION)
    assert stopped.code == 1
    assert stopped.stdout.count("GATE-12 PASSED") == 1
    blocks = blocks_in(stopped.stdout)
    assert blocks[0][0] == "Describe your project to begin Phase 01 - Requirements"
    assert blocks[-2:] == [passed(phases, "12-remote-build", "remote build"), BLOCKER]
    assert "13-test-deploy has no command to run" in stopped.stderr
    assert 'phasegate resolve "how"' in stopped.stderr
    expect_blocks(project.call("resolve", "deployed to staging and looked at it"))
    done = project.call("run", "--merge")
    assert done.code == 0, done.stderr
    expect_blocks(
        done,
        passed(phases, "13-test-deploy", "staging deployment"),
        passed(phases, "14-production", "release"),
        LAST,
        COMPLETED,
    )
    expect_end(project, "full-lifecycle")
    attested = project.show(ORIGINAL, f"{FOLDER}/REVIEW-13.md")
    assert "Attested by the user: deployed to staging and looked at it" in attested
    assert "attestation passed" in attested
    assert "sh -c 'echo released'" in project.show(ORIGINAL, f"{FOLDER}/REVIEW-14.md")


@pytest.mark.demand("W1.f", "W7.c", "W7.j", "N10.k")
def test_an_upgrade_runs_to_its_merge(tmp_path: Path) -> None:
    project = make_feature_project(tmp_path, "upgrade")
    done = project.call("run", "upgrade", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    blocks = blocks_in(done.stdout)
    assert blocks[0][0] == "Describe your upgrade target to begin Phase 16 - Upgrade Plan"
    assert blocks[2] == passed(WORKFLOWS["upgrade"], "16-upgrade-execute", "upgrade execution")
    expect_end(project, "upgrade")
    (implemented, *_) = project.prompts("implement")
    assert "14-upgrade-engineer" in implemented
    assert "What 16-upgrade-plan found in round 1." in implemented


OWN = """
[workflows.docs]
phases = ["04-design", "06-implementation", "X1-style-check"]
noun = "manual"
[phases."X1-style-check"]
commands = ["lint"]
required_artifacts = ["STYLE.md"]
[phases."04-design"]
required_artifacts = ["plan.md"]
[run]
merge_feature_folder = false
"""


@pytest.mark.demand("W1.i", "W7.a", "N7.a", "W7.l")
def test_a_workflow_of_the_users_own_runs_with_its_noun_its_commands_and_its_documents(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path, config=OWN)
    own = turn("plan", document("plan.md"), document("tasks.md"), PASS, workflow_phase="04-design")
    project.play(own, *smooth(()))
    done = project.call("run", "docs", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    expect_blocks(
        done,
        (
            "Describe your manual to begin Phase 04 - Design",
            "Show workflow phases",
            "Show workflow status",
        ),
        (
            "Continue to Phase 06 - Implementation",
            "Review design artifacts",
            "Show workflow status",
        ),
        (
            "Continue to Phase X1 - Style Check",
            "Review implementation artifacts",
            "Show workflow status",
        ),
        LAST,
        COMPLETED,
    )
    assert project.feature().workflow.type == "docs"
    assert [phase.artifacts for phase in project.feature().plan] == [
        ("plan.md", "tasks.md"),
        ("IMPLEMENTATION.md",),
        ("STYLE.md",),
    ]
    # The folder of the feature was there until its end, and is not delivered.
    assert not [path for path in project.files_of("main") if path.startswith("kitty-specs")]
    assert {"bye.py", "CHANGELOG.md"} <= project.files_of("main")
    assert project.branches() == {"main"}


@pytest.mark.demand("D15.d")
def test_a_merged_feature_whose_folder_is_not_delivered_is_traced(tmp_path: Path) -> None:
    project = make_feature_project(tmp_path, config="[run]\nmerge_feature_folder = false\n")
    done = project.call("run", "quick", DESCRIPTION, "--merge")
    assert done.code == 0, done.stderr
    assert not [path for path in project.files_of("main") if path.startswith("kitty-specs")]
    traced = project.call("trace", "--check", "--json")
    assert traced.code == 0, traced
    assert project.call("trace", "--check", "--json", "--feature", SLUG) == traced
    (one,) = json.loads(traced.stdout)["requirements"]
    assert (one["id"], one["packages"], one["missing"]) == ("FR-BYE-001", ["WP01", "WP02"], [])
    assert [test["path"] for test in one["tests"]] == ["test_bye.py"]


@pytest.mark.demand("W1.h", "W1.j", "W6.f", "N1.i", "D2.c", "D17.d")
def test_the_program_itself_runs_a_quick_workflow_from_one_sentence_to_the_merge(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path)
    done = project.command("run", "quick", DESCRIPTION)
    assert done.code == 0, done.stderr
    assert done.stderr.startswith(
        "3 phases; at least 3 agent runs, and at least 2 for each work package. At most 3 "
    )
    phases = WORKFLOWS["quick"]
    expect_blocks(
        done,
        (
            "Describe your feature to begin Phase 01 - Requirements",
            "Show workflow phases",
            "Show workflow status",
        ),
        passed(phases, "01-requirements", "requirements"),
        passed(phases, "06-implementation", "implementation"),
        LAST,
    )
    assert f"the work is on feat/{SLUG}" in done.stderr
    assert "then: phasegate complete" in done.stderr
    first = project.show(f"feat/{SLUG}", f"{FOLDER}/tasks/WP01.md")
    for words in (
        "2.1",
        "bye says bye to a person.",
        "FR-BYE-001",
        "A farewell must name the person",
        "test_bye.py",
    ):
        assert words in first, "the document is written from the plan"
    assert f"- **Target Branch:** feat/{SLUG}-WP01\n" in first
    assert "docs.md" in project.show(f"feat/{SLUG}", f"{FOLDER}/tasks/WP02.md")
    assert "merged into" not in project.command("status").stdout
    merged = project.command("run", "--merge")
    assert merged.code == 0, merged.stderr
    expect_blocks(merged, COMPLETED)
    commit = project.git("rev-parse", "main")
    assert (
        f"  merged into main at {commit[:12]}\n"
        in project.command("status", "--feature", SLUG).stdout
    )
    assert (
        project.command("status", "--feature", SLUG, "--json").json["workflow"]["merged"] == commit
    )
    expect_end(project, "quick")


def test_every_kind_of_work_is_among_the_workflows() -> None:
    assert {get_phase(key).work for phases in WORKFLOWS.values() for key in phases} == set(
        PhaseWork
    )


def test_the_writer_of_the_last_planning_phase_is_asked_for_the_tasks() -> None:
    (own,) = [
        step
        for step in plans("01-requirements", WORKFLOWS["quick"])["steps"]
        if "tasks.md" in str(step)
    ]
    assert "2.1 Say bye" in own["content"]
