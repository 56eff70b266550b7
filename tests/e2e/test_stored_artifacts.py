"""What an agent stores reaches those who judge, and never the person's checkout (D14, P7)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from support.dispatch_project import SLUG, approves, make_project, turn, writes

WORDS = "Tests: 4711 passed, 0 failed"  # not what the document has as its example
WRITE = "agileplus artifact write --feature-slug {feature_slug} --relative-path %s --content '%s'"


@pytest.mark.demand("D14.d", "D14.i", "P7.a", "D13.j")
def test_what_an_agent_stores_is_in_the_record_the_trail_and_the_reviewers_prompt(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path)
    stores = {"run": WRITE % ("WP01/test-report.txt", WORDS)}
    refused = {
        "run": f"{WRITE % ('../../../escaped.txt', 'x')} && exit 9; {WRITE % ('spec.md', 'x')} && exit 9; true"
    }
    lists = {"run": "agileplus artifact list | grep -q WP01/test-report.txt"}
    project.play(
        turn("implement", stores, refused, lists, *writes("src/login.ts"), {"result": "success"}),
        approves(),
    )
    before = project.git("status", "--porcelain")
    done = project.command("dispatch", "WP01")
    assert done.code == 0, done.stdout + done.stderr
    implementer, reviewer = project.jobs()
    assert project.git("status", "--porcelain") == before
    assert not [*tmp_path.rglob("test-report.txt")]
    assert not [*tmp_path.rglob("escaped.txt")]
    assert WORDS in project.prompt(reviewer.id)
    assert WORDS not in project.prompt(implementer.id)
    (line,) = [
        entry for entry in project.trail(implementer.id) if entry["action"] == "write_artifact"
    ]
    assert (line["path"], line["hash"]) == (
        "WP01/test-report.txt",
        hashlib.sha256(WORDS.encode()).hexdigest(),
    )
    where = ("--feature-slug", SLUG, "--relative-path", "WP01/test-report.txt")
    assert project.command("artifact", "read", *where).stdout == WORDS
    assert (
        "WP01/test-report.txt  28 bytes  in the record"
        in project.command("artifact", "list").stdout
    )
    assert project.command("audit", "verify").code == 0


@pytest.mark.demand("D14.c", "D14.i")
def test_an_artifact_of_an_unknown_feature_is_an_error(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    where = ("--relative-path", "WP01/x.txt", "--content", "x")
    unknown = project.command("artifact", "write", "--feature-slug", "009-nope", *where)
    assert (unknown.code, f"available: {SLUG}" in unknown.stderr) == (2, True), unknown
    assert not (project.root / "kitty-specs/009-nope").exists()
    assert project.command("artifact", "write", "--feature-slug", SLUG, *where).code == 0, "control"


@pytest.mark.demand("D14.c", "D14.i", "P7.a")
def test_what_a_person_stores_reaches_the_reviewer_and_is_no_untracked_file(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    before = project.git("status", "--porcelain")

    def written(path: str, content: str) -> str:
        named = ("--feature-slug", SLUG, "--relative-path", path)
        done = project.command("artifact", "write", *named, "--content", content)
        assert done.code == 0, done.stderr
        assert project.command("artifact", "read", *named).stdout == content
        return done.stdout

    name = f"kitty-specs/{SLUG}/WP01/by-hand.txt"
    assert (
        written("WP01/by-hand.txt", WORDS) == f"wrote {name} ({len(WORDS)} bytes) in the record\n"
    )
    assert (project.git("status", "--porcelain"), (project.root / name).exists()) == (before, False)
    plan = project.root / f"kitty-specs/{SLUG}/tasks/WP01.md"
    assert written("tasks/WP01.md", plan.read_text()).endswith("bytes)\n"), (
        "what is in the checkout stays there"
    )
    project.play(turn("implement", *writes("src/login.ts"), {"result": "success"}), approves())
    assert project.command("dispatch", "WP01").code == 0
    assert WORDS in project.prompt(project.jobs()[-1].id)
