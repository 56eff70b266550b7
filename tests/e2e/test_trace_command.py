"""`phasegate trace` over features that were really worked on, and over those that were not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.core.machine.feature_events import Merged
from phasegate.engine.journal.entries import encode_feature_step
from phasegate.engine.project.project import open_project_store
from support.dispatch_project import (
    FILES,
    SLUG,
    DispatchProject,
    approves,
    make_project,
    package,
    turn,
    writes,
)
from support.entry import Done, phasegate
from support.git_project import git, make_repository, write

SPEC = """# Login

<!-- sk:fr id="FR-AUTH-001" priority="high" -->
- People log in.
<!-- /sk:fr -->
<!-- sk:fr id="FR-AUTH-002" -->
- People log out.
<!-- /sk:fr -->
"""
SPEC_PATH = f"kitty-specs/{SLUG}/spec.md"
TESTED = ["src/login.ts", "tests/login.test.ts"]


def trace(where: Path, *arguments: str) -> Done:
    return phasegate("trace", *arguments, cwd=where)


def told(where: Path, *arguments: str) -> dict[str, dict[str, object]]:
    return {
        one["id"]: one
        for one in json.loads(trace(where, "--json", *arguments).stdout)["requirements"]
    }


@pytest.fixture
def project(tmp_path: Path) -> DispatchProject:
    document = package(files=TESTED, requirements=["FR-AUTH-001"])
    document = document.replace(
        json.dumps({"code": TESTED}), json.dumps({"code": TESTED[:1], "tests": TESTED[1:]})
    )
    made = make_project(
        tmp_path,
        {"WP01": document},
        files={**FILES, SPEC_PATH: SPEC},
        run="[evidence]\nenabled = false\n",
    )
    steps = (
        *writes(*TESTED),
        {"commit": "feat({wp_id}): People log in [FR-AUTH-001]"},
        {"result": "success"},
    )
    made.play(turn("implement", *steps), approves())
    return made


@pytest.mark.demand("D15.d")
def test_a_dispatched_package_leads_from_requirement_to_test(project: DispatchProject) -> None:
    before = told(project.root)["FR-AUTH-001"]
    assert (before["packages"], before["missing"]) == (["WP01"], ["commit", "test"])
    assert project.dispatch().state == "DONE"
    one = told(project.root)["FR-AUTH-001"]
    assert (one["packages"], one["priority"], one["missing"]) == (["WP01"], "high", [])
    assert [commit["subject"] for commit in one["commits"]] == [
        "feat(WP01): People log in [FR-AUTH-001]"
    ]  # type: ignore[attr-defined]
    assert [test["path"] for test in one["tests"]] == TESTED[1:]  # type: ignore[attr-defined]
    said = trace(project.root)
    assert said.code == 0
    assert "FR-AUTH-002  People log out.\n  packages  -\n" in said.stdout
    assert said.stdout.endswith(
        "2 requirements: 1 without package, 1 without commit, 1 without test\n"
    )


@pytest.mark.demand("D15.d")
def test_check_says_no_until_nothing_is_missing(project: DispatchProject) -> None:
    assert trace(project.root, "--check").code == 1
    project.dispatch()
    assert trace(project.root, "--check").code == 1
    only = SPEC.partition('<!-- sk:fr id="FR-AUTH-002"')[0]
    git(project.root, "checkout", "-q", f"feat/{SLUG}")
    write(project.root, {SPEC_PATH: only})
    git(project.root, "commit", "-qam", "Less")
    assert trace(project.root, "--check").code == 0


@pytest.mark.demand("D15.d")
def test_a_merged_feature_is_traced_although_its_branches_are_gone(
    project: DispatchProject,
) -> None:
    project.dispatch()
    git(project.root, "merge", "-q", "--no-ff", "-m", "Merge", f"feat/{SLUG}")
    merged = git(project.root, "rev-parse", "HEAD").strip()
    git(project.root, "branch", "-qD", f"feat/{SLUG}", f"feat/{SLUG}-WP01")
    assert told(project.root)["FR-AUTH-001"]["missing"] == ["commit", "test"]
    with open_project_store(project.project) as store:
        store.append_unconditionally(
            SLUG, project.project.now(), [encode_feature_step(Merged(merged))]
        )
    write(project.root, {"src/login.ts": "// another feature's first package\n"})
    git(project.root, "commit", "-qam", "WP01: of another feature")
    one = told(project.root)["FR-AUTH-001"]
    assert one["missing"] == []
    assert len(one["commits"]) == 1  # type: ignore[arg-type]


def test_a_commit_that_names_the_package_and_touches_nothing_of_it_is_no_evidence(
    tmp_path: Path,
) -> None:
    root = tmp_path / "repo"
    task = {f"kitty-specs/{SLUG}/tasks/WP01.md": package(requirements=["FR-AUTH-001"])}
    make_repository(root, {**FILES, SPEC_PATH: SPEC, **task})
    git(root, "checkout", "-q", "-b", f"feat/{SLUG}-WP01")
    git(root, "commit", "-q", "--allow-empty", "-m", "WP01: nothing")
    write(root, {"other.ts": "x"})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "WP01: elsewhere")
    assert told(root)["FR-AUTH-001"]["commits"] == []
    write(root, {"src/login.ts": "x"})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "WP01: the real thing")  # the control
    assert len(told(root)["FR-AUTH-001"]["commits"]) == 1  # type: ignore[arg-type]


def test_a_merge_counts_only_for_what_it_changed_itself(tmp_path: Path) -> None:
    """What it only brings together is in its parents; how a conflict was solved is nowhere else."""
    root = tmp_path / "repo"
    task = {f"kitty-specs/{SLUG}/tasks/WP01.md": package(requirements=["FR-AUTH-001"])}
    make_repository(root, {**FILES, SPEC_PATH: SPEC, **task})
    git(root, "checkout", "-q", "-b", f"feat/{SLUG}")

    def subjects() -> list[str]:
        return [commit["subject"] for commit in told(root)["FR-AUTH-001"]["commits"]]  # type: ignore[attr-defined]

    def change(branch: str, text: str) -> None:
        git(root, "checkout", "-q", "-B", branch)
        write(root, {"src/login.ts": text})
        git(root, "add", "-A")
        git(root, "commit", "-qm", "WP01: work" if branch == "work" else "Of others")

    change("work", "one\n")
    git(root, "checkout", "-q", f"feat/{SLUG}")
    git(root, "merge", "-q", "--no-ff", "-m", f"WP01: merge into feat/{SLUG}", "work")
    assert subjects() == ["WP01: work"]
    change("others", "two\n")
    git(root, "checkout", "-q", "work")
    change("work", "three\n")
    git(root, "checkout", "-q", f"feat/{SLUG}")
    git(root, "merge", "-q", "--ff-only", "others")
    git(root, "merge", "-q", "--no-commit", "-s", "ours", "work")
    write(root, {"src/login.ts": "two and three\n"})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "WP01: both")
    assert subjects() == ["WP01: work", "WP01: work", "WP01: both"]


def test_a_test_that_was_promised_and_is_not_there_is_no_test(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    front = package(files=["src/a.ts", "tests/a.ts"], requirements=["FR-AUTH-001"])
    front = front.replace(
        '{"code": ["src/a.ts", "tests/a.ts"]}', '{"code": ["src/a.ts"], "tests": ["tests/a.ts"]}'
    )
    make_repository(root, {SPEC_PATH: SPEC, f"kitty-specs/{SLUG}/tasks/WP01.md": front})
    git(root, "checkout", "-q", "-b", f"feat/{SLUG}")
    write(root, {"src/a.ts": "x"})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "WP01: code")
    assert told(root)["FR-AUTH-001"]["missing"] == ["test"]


def test_a_document_that_cannot_be_read_is_no_evidence(project: DispatchProject) -> None:
    project.dispatch()
    git(project.root, "checkout", "-q", f"feat/{SLUG}")
    write(project.root, {f"kitty-specs/{SLUG}/tasks/WP01.md": "---\nwork_package_id: [\n---\n"})
    git(project.root, "commit", "-qam", "Break it")
    done = trace(project.root, "--check")
    assert done.code == 1
    assert "ignored: tasks/WP01.md:" in done.stdout
    assert "MISSING   package, commit, test" in done.stdout


def test_requirements_come_from_the_specification_only(tmp_path: Path) -> None:
    make_repository(tmp_path / "repo", {f"kitty-specs/{SLUG}/tasks/WP01.md": package()})
    done = trace(tmp_path / "repo")
    assert (done.code, "has no spec.md" in done.stderr) == (2, True)
    assert f"searched kitty-specs/{SLUG} in your files" in done.stderr
    git(tmp_path / "repo", "branch", f"feat/{SLUG}")
    head = git(tmp_path / "repo", "rev-parse", "HEAD")[:12]
    assert f"in {head} (feat/{SLUG}, or its merge), your files" in trace(tmp_path / "repo").stderr
    git(tmp_path / "repo", "branch", "-qD", f"feat/{SLUG}")
    write(tmp_path / "repo", {SPEC_PATH: "# Nothing is required\n"})
    assert trace(tmp_path / "repo", "--check").code == 1
    assert trace(tmp_path / "repo").code == 0


def test_the_feature_is_the_one_that_is_meant(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    make_repository(root, {"a": "a"})
    assert "no feature yet" in trace(root).stderr
    write(root, {SPEC_PATH: SPEC, "kitty-specs/002-other/spec.md": SPEC.replace("AUTH", "OTHER")})
    done = trace(root)
    assert (done.code, f"--feature: {SLUG}, 002-other" in done.stderr) == (2, True)
    assert [*told(root, "--feature", "002-other")] == ["FR-OTHER-001", "FR-OTHER-002"]
    assert trace(root, "--feature", "../x").code == 2
    active = {"phases": ["01-a"], "current_phase_index": 0, "artifact_folder": "002-other"}
    write(root, {".isdlc/state.json": json.dumps({"active_workflow": active})})
    assert [*told(root)] == ["FR-OTHER-001", "FR-OTHER-002"]


def test_outside_of_a_repository_there_is_nothing_to_trace(tmp_path: Path) -> None:
    assert trace(tmp_path).code == 2
