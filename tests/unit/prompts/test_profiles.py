"""Language profiles: what they add, which one fits, what is run, and how tests are counted (D2, D8)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phasegate.core.detection.project_kind import detect_root_kind
from phasegate.core.paths.scope import LITTER_PATTERNS, LOCK_FILES
from phasegate.core.plan.work_package import PROFILES
from phasegate.errors import ConfigError
from phasegate.prompts.package_writer import PackagePlan, render_package
from phasegate.prompts.profiles import load_profile
from support.packages import login_plan, minimal

# The Rust section of the dispatch specification, word for word.
RUST_SECTION = (Path(__file__).parents[2] / "fixtures/interface/rust.md").read_text(
    encoding="utf-8"
)


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
    document = render_package(minimal(profile="rust"), plan)
    assert f"\n{RUST_SECTION}\n## Multi-Agent Coordination\n" in document


@pytest.mark.demand("D2.e", "D2.f")
@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_adds_layout_constraints_commands_and_style(name: str) -> None:
    profile = load_profile(name)
    document = render_package(minimal(profile=name), login_plan(profile))
    section = document.partition(f"## {profile.title} Context\n")[2]
    headings = re.findall(r"^### (.*)$", section, re.MULTILINE)
    assert headings == [
        "Workspace Layout",
        "Dependency Constraints",
        "Compilation & Test Commands",
        "Code Style",
    ]
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
def test_the_profile_is_told_by_the_files_at_the_root(
    files: list[str], expected: str | None
) -> None:
    assert (detect_root_kind(files) or None) == expected


def test_an_unknown_profile_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean `python`"):
        load_profile("pyhton")


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_knows_its_reports_tests_and_litter(name: str) -> None:
    profile = load_profile(name)
    assert profile.coverage_reports
    assert set(profile.litter) & set(LITTER_PATTERNS) or name == "go"
