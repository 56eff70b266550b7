"""What the agents of a phase may write, and what they are shown (W8, N10, P3, P5, P7)."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from phasegate.core.workflow.phase_transitions import Stage
from phasegate.prompts.agent_files import find_phase_file
from support.dispatch_project import turn
from support.feature_project import (
    APPROVES,
    ARCHIVES,
    DESCRIPTION,
    FOLDER,
    GREET,
    PASS,
    SLUG,
    FeatureProject,
    document,
    file,
    make_feature_project,
    plans,
    says,
)

PHASES = ("01-requirements", "03-architecture")
FLOW = '[workflows.two]\nphases = ["01-requirements", "03-architecture"]\n'
FIRST, SECOND = (plans(key, PHASES) for key in PHASES)
EVIL = "def greet(name):\n    return 'pwned'\n"
BRANCH = f"feat/{SLUG}"


def two_phases(folder: Path, config: str = "") -> FeatureProject:
    return make_feature_project(folder, config=FLOW + config)


@pytest.mark.demand("W8.a", "W8.b", "D6.b")
@pytest.mark.parametrize("commits", [False, True], ids=["uncommitted", "committed"])
def test_a_planner_that_writes_outside_the_features_folder_is_blocked_and_nothing_is_taken_over(
    tmp_path: Path, commits: bool
) -> None:
    project = two_phases(tmp_path)
    step = [{"commit": "Sneak it in"}] if commits else []
    strays = turn(
        "plan", document("proposal.md"), document("spec.md"), file("greet.py", EVIL), *step, PASS
    )
    project.play(strays, *APPROVES)
    project.start("two")
    feature = project.drive()
    assert feature.workflow.stage is Stage.BLOCKED
    assert feature.workflow.reason.startswith("File scope violation: greet.py: ")
    assert project.show(BRANCH, "greet.py") == GREET
    assert not [path for path in project.files_of(BRANCH) if path.startswith(FOLDER)]
    # It was no empty threat: the checkout had it, and what was in it is saved for a person to look at.
    (saved,) = project.saved(f"{SLUG}-01-requirements").values()
    assert project.show(saved, "greet.py") == EVIL
    project.play(FIRST, SECOND, *APPROVES)
    assert project.call("resolve", "told it so").code == 0
    assert project.drive().workflow.stage is Stage.GATE_PASSED  # the same writer within its folder
    assert project.show(BRANCH, "greet.py") == GREET


@pytest.mark.demand("W8.c")
def test_what_a_critic_writes_has_no_effect(tmp_path: Path) -> None:
    project = two_phases(tmp_path)
    writes = [document("spec.md", "Overwritten.\n"), file("greet.py", EVIL), {"commit": "Mine"}]
    looks = {"run": ["sh", "-c", "cat greet.py; echo given: $AGILEPLUS_CONTEXT"]}
    meddles = turn("challenge", *writes, looks, {"verdict": "NEEDS_REVISION"}, round=1)
    project.play(meddles, FIRST, SECOND, *APPROVES)
    project.start("two")
    feature = project.drive(stop_at_gates=True)
    assert feature.workflow.stage is Stage.GATE_FAILED
    assert "pwned" in feature.findings  # it could write, in the copy that was its own
    # The documents in its prompt are in its environment too, as they are for a package
    assert f"{FOLDER}/spec.md" in feature.findings
    assert project.show(BRANCH, "greet.py") == GREET
    assert "Overwritten" not in project.show(BRANCH, f"{FOLDER}/spec.md")
    assert project.left_over() == set()
    assert project.branches() == {"main", BRANCH}


@pytest.mark.demand("W8.d")
def test_an_archivist_that_writes_code_is_blocked(tmp_path: Path) -> None:
    project = two_phases(tmp_path)
    changelog = file("CHANGELOG.md", "# Changelog\n")
    project.play(turn("archive", changelog, file("greet.py", EVIL), PASS), FIRST, SECOND, *APPROVES)
    project.start("two")
    feature = project.drive(merge=True)
    assert feature.workflow.reason.startswith("File scope violation: greet.py")
    assert project.show("main", "CHANGELOG.md") == "# Changelog\n"
    project.play(ARCHIVES, *APPROVES)
    assert project.call("resolve", "told it so").code == 0
    assert project.call("complete").code == 0
    assert project.show("main", "greet.py") == GREET
    assert "told bye" in project.show("main", "CHANGELOG.md")


@pytest.mark.demand("N10.k", "P7.a", "P5.a", "P3.b", "P3.c", "W3.c")
def test_agents_of_a_phase_get_its_agent_file_the_request_and_all_that_was_written_before(
    tmp_path: Path,
) -> None:
    project = two_phases(tmp_path)
    doubt = says(
        "challenge",
        "NEEDS_REVISION",
        "What about strangers?",
        round=1,
        workflow_phase="03-architecture",
    )
    project.play(doubt, FIRST, SECOND, *APPROVES)
    project.start("two")
    assert project.drive().workflow.stage is Stage.GATE_PASSED
    first, drawn, redrawn = project.prompts("plan")
    _, critic, second_critic = project.prompts("challenge")
    for prompt, phase in (
        (first, "01-requirements"),
        (drawn, "03-architecture"),
        (critic, "03-architecture"),
    ):
        agent_file = find_phase_file(phase)
        assert agent_file is not None
        part = _artifacts(prompt)[agent_file.name].strip()
        assert part in agent_file.text
        assert part.startswith("# IF YOU ARE THE CRITIC" if prompt is critic else "# METHOD")
        assert "SUGGESTED NEXT STEPS" not in prompt
        assert prompt.count(DESCRIPTION) == 1
    # The request comes first in the instructions of the first planning step, later it is a document
    instructions = ElementTree.fromstring(first).findtext("instructions") or ""
    assert instructions.startswith(DESCRIPTION)
    assert DESCRIPTION in _artifacts(drawn)["request.md"]
    assert "spec.md" not in _artifacts(first)
    assert "FR-BYE-001" in _artifacts(drawn)["spec.md"]
    assert "architecture.md" in _artifacts(critic)
    findings = [text for name, text in _artifacts(redrawn).items() if name.startswith("findings-1")]
    assert len(findings) == 1
    assert "What about strangers?" in findings[0]
    assert "What about strangers?" not in drawn
    _expect_shared_prefix(drawn, redrawn)
    _expect_shared_prefix(critic, second_critic)


def _artifacts(prompt: str) -> dict[str, str]:
    root = ElementTree.fromstring(prompt)
    return {str(item.get("name")): item.text or "" for item in root.iter("artifact")}


def _expect_shared_prefix(one: str, other: str) -> None:
    """All that did not change comes first: the system prompt, the role, the request, the documents of phases before."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    shared = "".join(character for character, _ in same)
    for part in ("</system_prompt>", "02-solution-architect", DESCRIPTION, "FR-BYE-001"):
        assert part in shared, part
    assert len(shared) > 0.6 * len(one)


@pytest.mark.demand("N10.k", "P7.a")
def test_agents_of_a_package_get_the_agent_file_and_the_documents_of_the_phases_before(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path)
    project.start("quick")
    assert project.drive().workflow.stage is Stage.GATE_PASSED
    agent_file = find_phase_file("06-implementation")
    assert agent_file is not None
    packages = [job for job in project.jobs() if job.wp]
    assert {job.phase for job in packages} == {"implement", "review"}
    for job in packages:
        artifacts = _artifacts(project.prompt(job.id))
        assert agent_file.name in artifacts
        core = artifacts[f"{job.wp}.md"]
        assert "- **FR-BYE-001:** A farewell must name the person" in core
        assert "  - Spec: FR-BYE-001" in core
        assert f"- {'WP02' if job.wp == 'WP01' else 'WP01'}: " in core
        assert "You are authorized" not in core


@pytest.mark.demand("W3.b", "W3.e", "P6.h", "D10.b")
def test_a_writer_that_writes_nothing_fails_its_gate_and_a_silent_critic_stops_the_run(
    tmp_path: Path,
) -> None:
    project = two_phases(tmp_path, "[run]\nmax_revisions = 3\n")
    project.play(turn("plan", PASS, workflow_phase="01-requirements"), *APPROVES)
    project.start("two")
    feature = project.drive()
    assert feature.workflow.stage is Stage.BLOCKED
    assert (
        feature.workflow.reason
        == "the round changed nothing; findings to address: proposal.md is missing"
    )
    assert [job.phase for job in project.jobs()] == [
        "plan",
        "plan",
    ]  # there was nothing to criticise
    project.play(FIRST, turn("challenge", {"print": "Hm."}))
    assert project.call("resolve", "told it to write").code == 0
    feature = project.drive()
    assert (feature.workflow.stage, feature.workflow.phase) == (Stage.BLOCKED, "01-requirements")
    *_, asked, asked_again = project.jobs()
    assert [asked.outcome, asked_again.outcome] == ["unreadable", "unreadable"]
    assert "It could not be used" in project.prompt(asked_again.id)
    project.play(SECOND, *APPROVES)
    assert project.call("resolve", "another critic").code == 0
    jobs = len(project.jobs())
    assert project.drive().workflow.stage is Stage.GATE_PASSED
    assert [job.phase for job in project.jobs()[jobs:]] == ["challenge", "plan", "challenge"]
