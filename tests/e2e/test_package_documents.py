"""Every package has the whole document, whoever wrote it; what it says of the project is read from the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.rules.language_facts import language_facts
from phasegate.rules.project_files import ProjectFiles
from support.dispatch_project import Turn, approves, implements, make_project, package

CARGO = """
[workspace]
members = ["crates/*"]
[workspace.dependencies]
serde = "1"
sqlx = { version = "0.7", features = ["sqlite"] }
"""
SECTIONS = (
    *("Mission", "Feature Context", "Deliverables", "Work Scope (File Boundaries)", "Constraints & Governance"),
    *("Context Documents", "Workflow & State Transitions", "Available Tools & Commands"),
    *("Response Format (Exit & Output)", "Error Handling & Escalation", "Blocker Logging", "Timeout Behavior"),
    *("Manifest Validation", "Multi-Agent Coordination"),
)


def showing(one: Turn) -> Turn:
    """The same turn of an agent that first says what it was given."""
    look = {"run": "cat WP01.md; echo ENVELOPE; env | grep -c PHASEGATE_PHASE"}
    return {**one, "steps": [look, *one["steps"]]}


@pytest.mark.demand("D2.a", "D2.b", "D2.g", "D2.h")
def test_a_package_written_by_hand_gets_the_sections_that_it_lacks_and_keeps_its_own_text(tmp_path: Path) -> None:
    by_hand = package() + "\n## Timeout Behavior\n\nMine: be quick.\n"
    files = {"check_sources.py": "import unittest\n", "requirements.txt": "click==8.1.7\n", "README.md": "A project\n"}
    made = make_project(tmp_path, {"WP01": by_hand}, files={**files, "tool.py": "x = 1\n"}, agent="timeout_s = 1800")
    made.play(showing(implements("src/login.ts")), approves())
    made.command("dispatch", "WP01")
    given = (made.project.jobs / made.jobs()[0].id / "stdout.log").read_text(encoding="utf-8").partition("ENVELOPE")[0]
    assert given.startswith(by_hand.rstrip("\n"))
    for section in SECTIONS:
        assert given.count(f"\n## {section}\n") == 1, section
    assert "Mine: be quick." in given
    assert '"status": "blocked"' in given
    assert "## Python Context" in given
    assert "`click==8.1.7`" in given
    assert "python3 -m unittest -q check_sources" in given
    assert "pytest" not in given
    assert "PLANNED ──[your work]──> DOING ──[tests pass]──> FOR_REVIEW ──[approved]──> DONE" in given
    assert "(git commits)" in given
    assert "## Blocker Logging" in made.prompt(made.jobs()[0].id)


@pytest.mark.demand("D9.a", "D2.g")
def test_the_document_says_how_long_a_package_really_has(tmp_path: Path) -> None:
    made = make_project(tmp_path, agent="timeout_s = 1800")
    made.play(showing(implements("src/login.ts")), approves())
    made.command("dispatch", "WP01")
    given = (made.project.jobs / made.jobs()[0].id / "stdout.log").read_text(encoding="utf-8")
    assert "At 90% (1620s): Harness sends SIGTERM; you have 30s to clean up" in given


@pytest.mark.demand("D1.h")
def test_the_envelope_of_a_review_says_that_it_is_one(tmp_path: Path) -> None:
    program = tmp_path / "agent.sh"
    program.write_text(
        'envelope=$(cat); echo "$envelope" > "$TMPDIR/seen"; printf "ENVELOPE %s\\n" "$envelope"\n'
        'if [ "$PHASEGATE_PHASE" = review ]; then echo "<review>PASS</review>"; exit 0; fi\n'
        "mkdir -p src; echo x > src/login.ts\n"
        'echo \'{"job_id": "\'$AGILEPLUS_JOB_ID\'", "wp_id": "WP01", "success": true, "status": "completed"}\'\n'
    )
    harness = f'harness = "command"\ncommand = {json.dumps(["/bin/sh", str(program)])}'
    made = make_project(tmp_path, harness=harness)
    assert made.command("dispatch", "WP01").code == 0
    told = {}
    for job in made.jobs():
        text = (made.project.jobs / job.id / "stdout.log").read_text(encoding="utf-8")
        told[job.phase] = json.loads(text.partition("ENVELOPE ")[2].partition("\n")[0])
    assert told["review"]["role"] == "review"
    assert "role" not in told["implement"]


@pytest.mark.demand("D2.h")
def test_crates_modules_and_pinned_versions_are_those_of_the_project() -> None:
    paths = {"Cargo.toml", "crates/core/Cargo.toml", "crates/core/src/lib.rs", "crates/cli/Cargo.toml"}
    rust = language_facts("rust", ProjectFiles({*paths, "crates/cli/src/main.rs"}, {"Cargo.toml": CARGO}))
    assert rust.layout == "crates/\n├── cli/ ← Binary crate\n├── core/ ← Library crate"
    assert (rust.pinned, rust.package) == ("`serde` v1, `sqlx` v0.7", "cli")
    node = ProjectFiles({"package.json", "src/a.ts"}, {"package.json": '{"dependencies": {"react": "18.2.0"}}'})
    assert language_facts("typescript", node)[:2] == ("src/ ← Source", "`react` 18.2.0")
    module = "module m\n\nrequire github.com/a/b v1.2.3\n"
    go = language_facts("go", ProjectFiles({"go.mod", "cmd/x/main.go"}, {"go.mod": module}))
    assert go.pinned == "`github.com/a/b` v1.2.3"
    for profile in ("rust", "python", "typescript", "go", ""):
        assert language_facts(profile, ProjectFiles(set(), {})).pinned == ""
