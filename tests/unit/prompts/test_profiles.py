"""Language profiles: what they add, which one fits, what is run, and how tests are counted (D2, D8)."""

from __future__ import annotations

import re

import pytest

from phasegate.errors import ConfigError
from phasegate.prompts.package_writer import PackagePlan, write
from phasegate.prompts.profiles import all_profiles, load_profile
from phasegate.rules.profile import commands_of, detect, files_asked
from phasegate.rules.scope import LITTER, LOCK_FILES
from phasegate.rules.work_package import PROFILES, PackageChecks
from support.packages import login_plan, minimal

# The Rust section of the dispatch specification, word for word.
RUST_SECTION = """## Rust Context

### Workspace Layout

```
crates/
├── agileplus-domain/ ← Core entities, no external deps
├── agileplus-cli/ ← Binary crate, uses engine
├── agileplus-engine/ ← Orchestration, uses adapters
├── agileplus-sqlite/ ← StoragePort impl
└── agileplus-git/ ← VcsPort impl
```

### Dependency Constraints

- `serde` v1, `tokio` v1, `sqlx` v0.7 — workspace-level, do NOT change versions
- New dependencies require governance exception if not in `Cargo.toml` already
- Use `workspace.dependencies` for shared crates

### Compilation & Test Commands

```bash
cargo check # Type check only (fast)
cargo build -p agileplus-domain # Build a specific crate
cargo test -p agileplus-domain # Test a specific crate
cargo test --all # Test entire workspace
cargo clippy -- -D warnings # Lint (warnings as errors)
cargo fmt --check # Formatting check
```

### Code Style

- No `unwrap()` in library code — use `?` or explicit `match`
- `thiserror` for error types, `anyhow` only in binary crates
- `async/await` for all I/O operations
- `tracing::instrument` on public async functions
- Test module `#[cfg(test)] mod tests { }` inline with code
"""


@pytest.mark.demand("D2.e")
def test_the_rust_profile_says_what_the_specification_says() -> None:
    plan = PackagePlan(
        created="now",
        base_branch="main",
        commands={},
        profile=load_profile("rust"),
        layout=RUST_SECTION.split("```")[1].strip("\n"),
        pinned="`serde` v1, `tokio` v1, `sqlx` v0.7",
        language_package="agileplus-domain",
    )
    document = write(minimal(profile="rust"), plan)
    assert f"\n{RUST_SECTION}\n## Multi-Agent Coordination\n" in document


@pytest.mark.demand("D2.e", "D2.f")
@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_adds_layout_constraints_commands_and_style(name: str) -> None:
    profile = load_profile(name)
    document = write(minimal(profile=name), login_plan(profile))
    section = document.partition(f"## {profile.title} Context\n")[2]
    headings = re.findall(r"^### (.*)$", section, re.MULTILINE)
    assert headings == ["Workspace Layout", "Dependency Constraints", "Compilation & Test Commands", "Code Style"]
    assert len(profile.constraints) >= 3
    assert len(profile.reference_commands) >= 5
    assert len(profile.style) >= 5
    assert "{{" not in section
    assert set(profile.lock_files) <= LOCK_FILES


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["Cargo.toml", "README.md"], "rust"),
        (["go.mod"], "go"),
        (["package.json"], "typescript"),
        (["package.json", "tsconfig.json"], "typescript"),
        (["pyproject.toml"], "python"),
        (["requirements.txt"], "python"),
        (["pyproject.toml", "package.json"], "python"),
        (["tsconfig.json", "pyproject.toml"], "typescript"),
        (["Cargo.toml", "pyproject.toml"], "rust"),
        (["cargo.toml"], None),
        (["src/", "README.md"], None),
        ([], None),
    ],
)
def test_the_profile_is_told_by_the_files_at_the_root(files: list[str], expected: str | None) -> None:
    found = detect(all_profiles(), files)
    assert (found.name if found else None) == expected


def test_an_unknown_profile_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean `python`"):
        load_profile("pyhton")


@pytest.mark.demand("D8.i")
def test_only_commands_that_the_project_has_are_asked_for() -> None:
    profile = load_profile("typescript")
    scripts = '{"scripts": {"test": "vitest run", "lint": ""}}'
    root = {"package.json": scripts, "package-lock.json": ""}
    assert files_asked(profile) == {"package.json"}
    assert commands_of(profile, root, PackageChecks()) == {
        "setup": "npm ci",
        "test": "npm run test",
        "coverage": "npm run test -- --coverage",
    }
    assert "typecheck" in commands_of(profile, {**root, "tsconfig.json": ""}, PackageChecks())


@pytest.mark.demand("D8.i")
def test_a_package_s_own_commands_come_first_and_an_empty_one_stays_empty() -> None:
    root = {"pyproject.toml": "[tool.ruff]\nline-length = 100\n[tool.mypy]\nstrict = true\n"}
    profile = load_profile("python")
    assert commands_of(profile, root, PackageChecks())["lint"] == "ruff check ."
    found = commands_of(profile, root, PackageChecks(lint="", test="make test"))
    assert (found["lint"], found["test"], found["typecheck"]) == ("", "make test", "mypy .")
    assert commands_of(None, root, PackageChecks(test="make test")) == {"test": "make test"}
    assert commands_of(None, root, PackageChecks()) == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"scripts": []}', "[" * 100_000, '{"scripts": {"lint": null}}'])
def test_a_file_that_cannot_be_read_has_no_commands(text: str) -> None:
    assert "lint" not in commands_of(load_profile("typescript"), {"package.json": text}, PackageChecks())


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_knows_its_reports_tests_and_litter(name: str) -> None:
    profile = load_profile(name)
    assert profile.coverage_reports
    assert profile.test
    assert set(profile.litter) & set(LITTER) or name == "go"


BUILDABLE = '[build-system]\nrequires = ["hatchling"]\n[project]\nname = "x"\n'


@pytest.mark.demand("D8.h", "D8.i")
@pytest.mark.parametrize(
    ("root", "installs"),
    [
        ({}, ""),
        ({"pyproject.toml": BUILDABLE}, ""),
        ({"pyproject.toml": BUILDABLE + "dependencies = []\n"}, ""),
        ({"pyproject.toml": BUILDABLE, "requirements.txt": "# none yet\n\n"}, ""),
        ({"pyproject.toml": BUILDABLE + 'dependencies = ["click"]\n'}, "-e ."),
        ({"pyproject.toml": BUILDABLE + 'dynamic = ["dependencies"]\n'}, "-e ."),
        ({"pyproject.toml": BUILDABLE + '[project.optional-dependencies]\ntest = ["pytest"]\n'}, "-e '.[test]'"),
        ({"pyproject.toml": BUILDABLE + "[project.optional-dependencies]\ntest = []\n"}, ""),
        ({"requirements.txt": "# pinned\nclick==8.1\n"}, "-r requirements.txt"),
        ({"setup.py": ""}, "-e ."),
    ],
)
def test_a_python_project_that_declares_no_dependencies_needs_no_setup(root: dict[str, str], installs: str) -> None:
    profile = load_profile("python")
    assert set(root) - {"setup.py"} <= files_asked(profile)
    found = commands_of(profile, root, PackageChecks()).get("setup", "")
    assert found.partition("pip install -q ")[2] == installs


def test_the_tests_of_a_python_project_find_its_src_folder() -> None:
    profile = load_profile("python")
    assert commands_of(profile, {"src": ""}, PackageChecks())["test"] == "PYTHONPATH=src python3 -m pytest -q"
    assert commands_of(profile, {"tests": ""}, PackageChecks())["test"] == "python3 -m pytest -q"
