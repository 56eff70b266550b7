"""Every package has the whole document, whoever wrote it; what it says of the project is read from the project."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from phasegate.core.detection.files import ProjectFiles
from phasegate.core.detection.language_facts import collect_language_facts
from support.dispatch_project import Turn, approves, implements, make_project, package, turn

CARGO = """
[workspace]
members = ["crates/*"]
[workspace.dependencies]
serde = "1"
sqlx = { version = "0.7", features = ["sqlite"] }
"""
SECTIONS = (
    *(
        "Mission",
        "Feature Context",
        "Deliverables",
        "Work Scope (File Boundaries)",
        "Constraints & Governance",
    ),
    *("Context Documents", "Workflow & State Transitions", "Available Tools & Commands"),
    *(
        "Response Format (Exit & Output)",
        "Error Handling & Escalation",
        "Blocker Logging",
        "Timeout Behavior",
    ),
    *("Manifest Validation", "Multi-Agent Coordination"),
)


def showing(one: Turn) -> Turn:
    """The same turn of an agent that first says what it was given."""
    look = {"run": "cat WP01.md; echo ENVELOPE; env | grep -c PHASEGATE_PHASE"}
    return {**one, "steps": [look, *one["steps"]]}


@pytest.mark.demand("D2.a", "D2.b", "D2.g", "D2.h")
def test_a_package_written_by_hand_gets_the_sections_that_it_lacks_and_keeps_its_own_text(
    tmp_path: Path,
) -> None:
    by_hand = package() + "\n## Timeout Behavior\n\nMine: be quick.\n"
    files = {
        "check_sources.py": "import unittest\n",
        "requirements.txt": "click==8.1.7\n",
        "README.md": "A project\n",
    }
    settings = {"agent": "timeout_s = 1800", "run": '[checks.python]\nsetup = ""'}
    made = make_project(
        tmp_path, {"WP01": by_hand}, files={**files, "tool.py": "x = 1\n"}, **settings
    )
    made.play(showing(implements("src/login.ts")), approves())
    made.command("dispatch", "WP01")
    given = (
        (made.project.jobs_folder / made.jobs()[0].id / "stdout.log")
        .read_text(encoding="utf-8")
        .partition("ENVELOPE")[0]
    )
    assert given.startswith(by_hand.rstrip("\n"))
    for section in SECTIONS:
        assert given.count(f"\n## {section}\n") == 1, section
    assert "Mine: be quick." in given
    assert '"status": "blocked"' in given
    assert "## Python Context" in given
    assert "`click==8.1.7`" in given
    assert "python3 -m unittest -q check_sources" in given
    assert "pytest" not in given
    assert (
        "PLANNED ──[your work]──> DOING ──[tests pass]──> FOR_REVIEW ──[approved]──> DONE" in given
    )
    assert "(git commits)" in given
    # The prompt has the core only: what the document says about this package
    prompt = made.prompt(made.jobs()[0].id)
    assert "## Blocker Logging" not in prompt
    assert "## Files That May Change" in prompt


@pytest.mark.demand("D9.a", "D2.g")
def test_the_document_says_how_long_a_package_really_has(tmp_path: Path) -> None:
    made = make_project(tmp_path, agent="timeout_s = 1800")
    made.play(showing(implements("src/login.ts")), approves())
    made.command("dispatch", "WP01")
    given = (made.project.jobs_folder / made.jobs()[0].id / "stdout.log").read_text(
        encoding="utf-8"
    )
    assert "At 90% (1620s): Harness sends SIGTERM; you have 180s to clean up" in given


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
        text = (made.project.jobs_folder / job.id / "stdout.log").read_text(encoding="utf-8")
        told[job.phase] = json.loads(text.partition("ENVELOPE ")[2].partition("\n")[0])
    assert told["review"]["role"] == "review"
    assert "role" not in told["implement"]


@pytest.mark.demand("D2.h")
def test_crates_modules_and_pinned_versions_are_those_of_the_project() -> None:
    paths = {
        "Cargo.toml",
        "crates/core/Cargo.toml",
        "crates/core/src/lib.rs",
        "crates/cli/Cargo.toml",
    }
    rust = collect_language_facts(
        "rust", ProjectFiles({*paths, "crates/cli/src/main.rs"}, {"Cargo.toml": CARGO})
    )
    assert rust.layout == "crates/\n├── cli/ ← Binary crate\n└── core/ ← Library crate"
    assert (rust.pinned, rust.package) == ("`serde` v1, `sqlx` v0.7", "cli")
    node = ProjectFiles(
        {"package.json", "src/a.ts"}, {"package.json": '{"dependencies": {"react": "18.2.0"}}'}
    )
    assert collect_language_facts("typescript", node)[:2] == ("src/ ← Source", "`react` 18.2.0")
    module = "module m\n\nrequire github.com/a/b v1.2.3\n"
    go = collect_language_facts("go", ProjectFiles({"go.mod", "cmd/x/main.go"}, {"go.mod": module}))
    assert go.pinned == "`github.com/a/b` v1.2.3"
    for profile in ("rust", "python", "typescript", "go", ""):
        assert collect_language_facts(profile, ProjectFiles(set(), {})).pinned == ""


CRATES = {
    "cli": "Binary",
    "domain": "Library",
    "engine": "Library",
    "git": "Library",
    "sqlite": "Library",
}
RUST = {
    "Cargo.toml": CARGO.replace('serde = "1"', 'serde = "1"\ntokio = "1"'),
    "crates/agileplus-cli/src/main.rs": "fn main() {}\n",
    **{
        f"crates/agileplus-{name}/Cargo.toml": f'[package]\nname = "agileplus-{name}"\n'
        for name in CRATES
    },
}
OTHERS = {
    "Python": {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\ndependencies = ["click==8.1.7"]\n',
        "x.py": "x = 1\n",
    },
    "TypeScript": {
        "package.json": '{"name": "x", "dependencies": {"react": "18.2.0"}}',
        "tsconfig.json": "{}",
        "src/a.ts": "",
    },
    "Go": {
        "go.mod": "module m\n\nrequire github.com/a/b v1.2.3\n",
        "cmd/x/main.go": "package main\n",
    },
}
COMMANDS = {"Python": "python|ruff|mypy", "TypeScript": "npm|npx|tsc", "Go": "go "}
PINNED = {"Python": "click==8.1.7", "TypeScript": "`react` 18.2.0", "Go": "`github.com/a/b` v1.2.3"}


def language_section(folder: Path, title: str, files: Mapping[str, str], **commands: str) -> str:
    """What the document of a package says of the language, where the project has these commands alone."""
    none = "".join(
        f"{name} = {json.dumps(commands.get(name, ''))}\n"
        for name in ("setup", "build", "test", "lint", "typecheck", "coverage")
    )
    run = f"[checks.{title.lower()}]\n{none}"
    made = make_project(
        folder, {"WP01": package(checks={})}, files={"README.md": "x\n", **files}, run=run
    )
    made.play(showing(turn("implement", {"result": "success"})))
    made.command("dispatch", "WP01")
    given = (made.project.jobs_folder / made.jobs()[0].id / "stdout.log").read_text(
        encoding="utf-8"
    )
    return given.partition(f"\n## {title} Context\n")[2].partition(
        "\n## Multi-Agent Coordination\n"
    )[0]


@pytest.mark.demand("D2.e", "D2.h")
def test_the_rust_section_is_that_of_the_specification_with_the_crates_of_the_project(
    tmp_path: Path,
) -> None:
    specified = (Path(__file__).parents[1] / "fixtures/interface/rust.md").read_text(
        encoding="utf-8"
    )
    heading, _, rest = specified.partition("```\n")
    rows = [f"├── agileplus-{name}/ ← {kind} crate" for name, kind in CRATES.items()]
    layout = "\n".join(["crates/", *rows[:-1], rows[-1].replace("├", "└"), ""])
    rest = rest[rest.index("```") :].replace(
        "-p agileplus-domain", "-p agileplus-cli"
    )  # it has one example
    assert language_section(tmp_path, "Rust", RUST) == f"{heading}```\n{layout}{rest}".removeprefix(
        "## Rust Context\n"
    )


@pytest.mark.demand("D2.f", "D2.h")
@pytest.mark.parametrize("title", OTHERS)
def test_the_section_of_each_other_language_has_its_four_parts(tmp_path: Path, title: str) -> None:
    section = language_section(tmp_path, title, OTHERS[title])
    parts = {
        title: text
        for title, _, text in (part.partition("\n") for part in section.split("\n### ")[1:])
    }
    assert [*parts] == [
        "Workspace Layout",
        "Dependency Constraints",
        "Compilation & Test Commands",
        "Code Style",
    ]
    assert "←" in parts["Workspace Layout"]
    assert PINNED[title] in parts["Dependency Constraints"]
    assert parts["Dependency Constraints"].count("\n- ") >= 2
    assert (
        len(
            re.findall(
                rf"^(?:{COMMANDS[title]})", parts["Compilation & Test Commands"], re.MULTILINE
            )
        )
        >= 3
    )
    assert len(re.findall("^- ", parts["Code Style"], re.MULTILINE)) >= 5


@pytest.mark.demand("D2.c", "D2.h")
def test_the_section_of_a_language_names_no_other_target_than_the_projects_own_commands(
    tmp_path: Path,
) -> None:
    own = {"test": "true || python -m pytest tests", "typecheck": "true || mypy src"}
    section = language_section(tmp_path, "Python", OTHERS["Python"], **own)
    assert "mypy ." not in section
    assert "ruff" not in section
    assert "Code Quality Gates above" in section
    assert "python -m pytest -q tests/ # Run some of them" in section, "the control"
